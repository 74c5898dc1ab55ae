// What the user of `top` has chosen, and how keys change it. No terminal and no data in here.
#ifndef CONCERT_CLIENT_CTL_TOP_STATE_H_
#define CONCERT_CLIENT_CTL_TOP_STATE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "client/ctl/top/figures.h"
#include "client/ctl/top/frame.h"

namespace concert::ctl {

// Of the list of sessions, in the order in which they stand and are sorted by.
enum class SessionColumn : uint8_t {
  kSession,
  kUid,
  kPid,
  kClient,
  kClass,
  kOps,
  kFlops,
  kBytes,
  kGpu,
  kCompany,
  kWaitP50,
  kWaitP99,
  kRunP50,
  kRunP99,
};
inline constexpr int kSessionColumnCount = static_cast<int>(SessionColumn::kRunP99) + 1;

struct TopState {
  enum class Prompt : uint8_t { kNone, kSession, kUser };

  SessionColumn sort = SessionColumn::kGpu;
  bool reversed = false;
  Figure plot = Figure::kTime;
  int scroll = 0;  // rows of the list above the first that is shown
  // Filters; empty: all.
  std::string session;   // a session's number or a part of its client's name
  std::string priority;  // "high", "normal", "low"
  std::optional<uint32_t> uid;

  Prompt prompt = Prompt::kNone;
  std::string typed;    // at the prompt
  std::string message;  // why what was typed is no answer
  bool help = false;
  bool quit = false;
  // Of the last frame.
  int last_scroll = 0;
  int page = 1;

  bool filtered() const { return !session.empty() || !priority.empty() || uid.has_value(); }
};

struct Key {
  enum class Kind : uint8_t {
    kText,  // one character, UTF-8
    kEnter,
    kEscape,
    kBackspace,
    kUp,
    kDown,
    kPageUp,
    kPageDown,
    kHome,
    kEnd,
  };
  Kind kind = Kind::kText;
  std::string text = {};
};

// The uid of a user's name; nothing if there is no such user.
using UidOf = std::function<std::optional<uint32_t>(const std::string&)>;

void Press(const Key& key, const UidOf& uid_of, TopState* state);
// `frame` is what the user sees now: how far it scrolls.
void NoteShown(const Frame& frame, TopState* state);

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_TOP_STATE_H_
