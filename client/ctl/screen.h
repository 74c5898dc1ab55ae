// Shows one text after another: in place on the terminal's alternate screen, or simply one below
// the other.
#ifndef CONCERT_CLIENT_CTL_SCREEN_H_
#define CONCERT_CLIENT_CTL_SCREEN_H_

#include <ostream>
#include <string>

namespace concert::ctl {

// The terminal is put back in order by the destructor and when a signal ends the process. One at a
// time.
class Screen {
 public:
  // With `full_screen`, `out` must write to the terminal on stdout.
  Screen(std::ostream& out, bool full_screen);
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void Show(const std::string& text);

 private:
  std::ostream& out_;
  const bool full_screen_;
  bool first_ = true;
};

// `text` cut to `rows` lines of `columns` bytes.
std::string Fit(const std::string& text, size_t rows, size_t columns);

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_SCREEN_H_
