// Compiled alone: <curses.h> names common words.
#include "client/ctl/top/terminal.h"

#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <optional>

#define NCURSES_NOMACROS
#include <curses.h>

namespace concert::ctl {
namespace {

constexpr int kEndSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

// What signal handlers leave for Wait, and what wakes it. Handlers run on any thread.
std::atomic<int> g_end_signal{0};
std::atomic<bool> g_suspend{false};
std::atomic<int> g_wake_fd{-1};

void WakeUp() {
  const uint64_t one = 1;
  // It can fail only if Wait has not looked for 2^64 wakes.
  [[maybe_unused]] const ssize_t written = write(g_wake_fd.load(), &one, sizeof(one));
}

// Handlers: async-signal-safe.
void NoteEnd(int number) {
  const int saved = errno;
  if (g_end_signal.exchange(number) != 0) {
    signal(number, SIG_DFL);
    raise(number);
  }
  WakeUp();
  errno = saved;
}
void NoteSuspend(int) {
  const int saved = errno;
  g_suspend = true;
  WakeUp();
  errno = saved;
}
void NoteSize(int) {
  const int saved = errno;
  WakeUp();
  errno = saved;
}

void Handle(int number, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(number, &action, nullptr);
}

bool WantsColour() {
  const char* no_colour = std::getenv("NO_COLOR");
  return (no_colour == nullptr || *no_colour == '\0') && has_colors();
}

struct Look {
  short colour;  // of the letters; -1: the terminal's
  attr_t attributes;
};

Look LookOf(Style style) {
  switch (style) {
    case Style::kPlain:
      return {-1, A_NORMAL};
    case Style::kBold:
      return {-1, A_BOLD};
    case Style::kFaint:
      return {-1, A_DIM};
    case Style::kReverse:
      return {-1, A_REVERSE};
    case Style::kTime:
    case Style::kGood:
      return {COLOR_GREEN, A_NORMAL};
    case Style::kSms:
      return {COLOR_CYAN, A_NORMAL};
    case Style::kBandwidth:
      return {COLOR_BLUE, A_BOLD};
    case Style::kQueue:
      return {COLOR_MAGENTA, A_NORMAL};
    case Style::kMemory:
    case Style::kPower:
      return {COLOR_YELLOW, A_NORMAL};
    case Style::kWarning:
      return {COLOR_YELLOW, A_BOLD};
    case Style::kBad:
      return {COLOR_RED, A_BOLD};
  }
  return {-1, A_NORMAL};
}

std::optional<Key::Kind> KindOf(wint_t code) {
  switch (code) {
    case KEY_ENTER:
      return Key::Kind::kEnter;
    case KEY_BACKSPACE:
    case KEY_DC:
      return Key::Kind::kBackspace;
    case KEY_UP:
      return Key::Kind::kUp;
    case KEY_DOWN:
      return Key::Kind::kDown;
    case KEY_PPAGE:
      return Key::Kind::kPageUp;
    case KEY_NPAGE:
      return Key::Kind::kPageDown;
    case KEY_HOME:
      return Key::Kind::kHome;
    case KEY_END:
      return Key::Kind::kEnd;
    default:
      return std::nullopt;
  }
}

// The key that ncurses read; nothing for one that means nothing here.
std::optional<Key> KeyOf(int kind, wint_t code) {
  if (kind == KEY_CODE_YES) {
    const std::optional<Key::Kind> named = KindOf(code);
    return named.has_value() ? std::optional<Key>(Key{*named}) : std::nullopt;
  }
  if (code == '\n' || code == '\r') return Key{Key::Kind::kEnter};
  if (code == 0x7f || code == '\b') return Key{Key::Kind::kBackspace};
  if (code == 0x1b) return Key{Key::Kind::kEscape};
  if (code < 0x20) return std::nullopt;
  char bytes[MB_LEN_MAX];
  mbstate_t state{};
  const size_t length = wcrtomb(bytes, static_cast<wchar_t>(code), &state);
  if (length == 0 || length > sizeof(bytes)) return std::nullopt;
  return Key{Key::Kind::kText, std::string(bytes, length)};
}

}  // namespace

struct Terminal::Impl {
  SCREEN* screen;
  bool colour;
  bool unicode;
  bool keys;
  int wake_fd;
};

std::unique_ptr<Terminal> Terminal::Open() {
  // Of characters only: numbers are written as they always are.
  setlocale(LC_CTYPE, "");
  SCREEN* const screen = newterm(nullptr, stdout, stdin);
  return screen == nullptr ? nullptr : std::unique_ptr<Terminal>(new Terminal(screen));
}

Terminal::Terminal(void* screen)
    : impl_(new Impl{.screen = static_cast<SCREEN*>(screen),
                     .colour = WantsColour(),
                     .unicode = std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0,
                     .keys = isatty(STDIN_FILENO) == 1,
                     .wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)}) {
  cbreak();
  noecho();
  nonl();
  intrflush(stdscr, FALSE);
  keypad(stdscr, TRUE);
  nodelay(stdscr, TRUE);
  set_escdelay(25);  // ms: a key that sends several bytes sends them at once
  curs_set(0);
  if (impl_->colour) {
    start_color();
    use_default_colors();
    for (int i = 0; i < kStyleCount; ++i)
      init_pair(static_cast<short>(i + 1), LookOf(static_cast<Style>(i)).colour, -1);
  }
  g_end_signal = 0;
  g_suspend = false;
  g_wake_fd = impl_->wake_fd;
  for (const int number : kEndSignals) Handle(number, NoteEnd);
  Handle(SIGTSTP, NoteSuspend);
  Handle(SIGWINCH, NoteSize);
}

Terminal::~Terminal() {
  Close();
  delscreen(impl_->screen);
  close(impl_->wake_fd);
}

void Terminal::Close() {
  if (g_wake_fd.exchange(-1) < 0) return;
  endwin();
  for (const int number : kEndSignals) Handle(number, SIG_DFL);
  Handle(SIGTSTP, SIG_DFL);
  Handle(SIGWINCH, SIG_DFL);
}

void Terminal::EndBy(int number) {
  Close();
  raise(number);
  _exit(128 + number);  // it was blocked
}

ScreenTraits Terminal::traits() {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0 &&
      is_term_resized(size.ws_row, size.ws_col)) {
    resizeterm(size.ws_row, size.ws_col);
    clearok(curscr, TRUE);  // what a terminal keeps of a larger screen, nobody knows
  }
  return {.size = {.rows = getmaxy(stdscr), .columns = getmaxx(stdscr)}, .unicode = impl_->unicode};
}

void Terminal::Show(const Frame& frame) {
  erase();
  for (size_t row = 0; row < frame.lines.size(); ++row) {
    move(static_cast<int>(row), 0);
    for (const Span& span : frame.lines[row].spans()) {
      const short pair = impl_->colour ? static_cast<short>(static_cast<int>(span.style) + 1) : 0;
      attr_set(LookOf(span.style).attributes, pair, nullptr);
      addstr(span.text.c_str());
    }
  }
  attr_set(A_NORMAL, 0, nullptr);
  refresh();
}

Event Terminal::Wait() {
  for (;;) {
    if (const int number = g_end_signal; number != 0) return {Event::Kind::kSignal, {}, number};
    if (g_suspend.exchange(false)) {
      endwin();
      raise(SIGSTOP);
      clearok(curscr, TRUE);
      return {};
    }
    wint_t code = 0;
    if (impl_->keys) {
      const int kind = get_wch(&code);
      if (kind == KEY_CODE_YES && code == KEY_RESIZE) return {};
      const std::optional<Key> key = kind == ERR ? std::nullopt : KeyOf(kind, code);
      if (key.has_value()) return {Event::Kind::kKey, *key, 0};
      if (kind != ERR) continue;
    }
    pollfd ready[] = {{impl_->wake_fd, POLLIN, 0}, {impl_->keys ? STDIN_FILENO : -1, POLLIN, 0}};
    if (poll(ready, 2, -1) < 0) continue;
    if ((ready[1].revents & (POLLHUP | POLLERR | POLLNVAL)) != 0)
      return {Event::Kind::kSignal, {}, SIGHUP};
    uint64_t wakes = 0;
    if (read(impl_->wake_fd, &wakes, sizeof(wakes)) == sizeof(wakes) && g_end_signal == 0 &&
        !g_suspend)
      return {};
  }
}

void Terminal::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(impl_->wake_fd, &one, sizeof(one));
}

}  // namespace concert::ctl
