// A program started for the length of a benchmark.
#ifndef CONCERT_TESTS_BENCH_CHILD_PROCESS_H_
#define CONCERT_TESTS_BENCH_CHILD_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace concert::bench {

// Ends with its owner: the destructor stops it, and the kernel sends it SIGTERM when this process
// dies in any other way. Start it from the main thread, whose death is what the kernel watches.
class ChildProcess {
 public:
  // Runs argv[0] with stdout and stderr appended to `log_path` and no stdin. `environment`, each
  // "NAME=VALUE", goes before this process's own.
  static absl::StatusOr<ChildProcess> Start(const std::vector<std::string>& argv,
                                            const std::string& log_path,
                                            const std::vector<std::string>& environment = {});

  ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  ChildProcess& operator=(ChildProcess&& other) noexcept {
    std::swap(pid_, other.pid_);
    return *this;
  }
  ~ChildProcess() { Stop(std::chrono::seconds(5)); }

  // False once it has ended.
  bool Running();
  // Whether it ends by itself within `limit`.
  bool EndsWithin(std::chrono::milliseconds limit);
  void Signal(int signal) const;
  // SIGTERM, then SIGKILL after `grace`.
  void Stop(std::chrono::milliseconds grace);

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_ = -1;
};

// The folder of this program's file.
std::string ProgramFolder();

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_CHILD_PROCESS_H_
