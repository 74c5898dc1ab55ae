#include "tests/bench/progress.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>

namespace concert::bench {
namespace {

volatile sig_atomic_t interrupted = 0;

}  // namespace

Progress::~Progress() {
  if (isatty(STDERR_FILENO)) std::fprintf(stderr, "\r\033[K");
}

void Progress::Step(const std::string& what) {
  ++done_;
  const bool terminal = isatty(STDERR_FILENO);
  std::fprintf(stderr, terminal ? "\r\033[K[%zu/%zu] %s" : "[%zu/%zu] %s\n", done_, steps_,
               what.c_str());
  std::fflush(stderr);
}

void NoteInterrupts() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = 1; };
  action.sa_flags = SA_RESETHAND;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool Interrupted() { return interrupted != 0; }

}  // namespace concert::bench
