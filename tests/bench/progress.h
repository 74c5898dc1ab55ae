// The line that says how far a benchmark is, and whether somebody pressed Ctrl-C.
#ifndef CONCERT_TESTS_BENCH_PROGRESS_H_
#define CONCERT_TESTS_BENCH_PROGRESS_H_

#include <cstddef>
#include <string>

namespace concert::bench {

// Prints to stderr: one line that is rewritten on a terminal, a line per step elsewhere.
class Progress {
 public:
  explicit Progress(size_t steps) : steps_(steps) {}
  ~Progress();
  void Step(const std::string& what);

 private:
  size_t steps_;
  size_t done_ = 0;
};

// From now on, SIGINT and SIGTERM are noted, so that the benchmark stops at its next round and its
// daemons are stopped in order; a second one ends the program at once.
void NoteInterrupts();
bool Interrupted();

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_PROGRESS_H_
