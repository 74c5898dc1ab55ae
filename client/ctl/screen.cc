#include "client/ctl/screen.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <sstream>

namespace concert::ctl {
namespace {

// Alternate screen, cursor hidden; and back.
constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l";
constexpr char kLeave[] = "\x1b[?25h\x1b[?1049l";
constexpr char kHome[] = "\x1b[H";
constexpr char kClearLine[] = "\x1b[K";
constexpr char kClearBelow[] = "\x1b[J";
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

// Only async-signal-safe calls. Ends the process the way the signal would have.
void RestoreAndDie(int signal) {
  if (write(STDOUT_FILENO, kLeave, sizeof(kLeave) - 1) < 0) _exit(128 + signal);
  ::signal(signal, SIG_DFL);
  raise(signal);
}

void HandleSignals(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  for (const int number : kSignals) sigaction(number, &action, nullptr);
}

}  // namespace

std::string Fit(const std::string& text, size_t rows, size_t columns) {
  std::istringstream lines(text);
  std::string line, out;
  for (size_t row = 0; row < rows && std::getline(lines, line); ++row) {
    if (row > 0) out += "\n";
    out += line.substr(0, columns);
  }
  return out;
}

Screen::Screen(std::ostream& out, bool full_screen) : out_(out), full_screen_(full_screen) {
  if (!full_screen_) return;
  HandleSignals(RestoreAndDie);
  out_ << kEnter << std::flush;
}

Screen::~Screen() {
  if (!full_screen_) return;
  out_ << kLeave << std::flush;
  HandleSignals(SIG_DFL);
}

void Screen::Show(const std::string& text) {
  if (!full_screen_) {
    if (!first_) out_ << "\n";
    first_ = false;
    out_ << text << std::flush;
    return;
  }
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) size = {24, 80, 0, 0};
  std::string frame = kHome;
  for (const char c : Fit(text, size.ws_row, size.ws_col)) {
    if (c == '\n') frame += kClearLine;
    frame += c;
  }
  out_ << frame << kClearLine << kClearBelow << std::flush;
}

}  // namespace concert::ctl
