// The terminal that concertctl was started on, by ncurses: shows frames, gives keys. One at a time.
//
// Threads: everything belongs to one thread, but Wake, which any may call.
#ifndef CONCERT_CLIENT_CTL_TOP_TERMINAL_H_
#define CONCERT_CLIENT_CTL_TOP_TERMINAL_H_

#include <memory>

#include "client/ctl/top/draw.h"
#include "client/ctl/top/frame.h"
#include "client/ctl/top/state.h"

namespace concert::ctl {

struct Event {
  enum class Kind : uint8_t {
    kWoken,   // by Wake; or the window has another size
    kKey,     // `key`
    kSignal,  // `signal` asks the process to end; or the terminal has gone (SIGHUP)
  };
  Kind kind = Kind::kWoken;
  Key key = {};
  int signal = 0;
};

class Terminal {
 public:
  // Takes the whole screen of the terminal on stdout, and its keys if stdin is one, too. No colours
  // where the environment has NO_COLOR (no-color.org) or the terminal has none. Null if ncurses
  // knows no such terminal ($TERM).
  static std::unique_ptr<Terminal> Open();
  ~Terminal();  // as Close
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  ScreenTraits traits();
  void Show(const Frame& frame);
  // Sleeps until there is an event. Suspends the process when the user asks for that (Ctrl-Z). A
  // second signal that asks the process to end does so at once.
  Event Wait();
  void Wake();

  // Puts the terminal back in order. Nothing but Wake may be called from here on.
  void Close();
  // Closes, and ends the process as `signal` would have ended it.
  [[noreturn]] void EndBy(int signal);

 private:
  explicit Terminal(void* screen);

  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_TOP_TERMINAL_H_
