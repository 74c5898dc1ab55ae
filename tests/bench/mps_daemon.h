// NVIDIA's MPS for one benchmark, with folders of its own.
#ifndef CONCERT_TESTS_BENCH_MPS_DAEMON_H_
#define CONCERT_TESTS_BENCH_MPS_DAEMON_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/child_process.h"

namespace concert::bench {

class MpsDaemon {
 public:
  // Starts nvidia-cuda-mps-control, found on PATH or where drivers put it, and waits until it
  // listens. NOT_FOUND where it is not installed.
  static absl::StatusOr<std::unique_ptr<MpsDaemon>> Start();
  // Lets the servers quit, then the control daemon, and returns when all of them have gone.
  ~MpsDaemon();

  // What makes a program a client of it, as "NAME=VALUE".
  std::vector<std::string> environment() const;
  // OK while a server runs, which the first client has it start: those who should be clients are.
  absl::Status HasServer() const;
  // The last lines of its log and of its servers'.
  std::string LogTail() const;

 private:
  MpsDaemon(std::string program, std::string folder, ChildProcess process)
      : program_(std::move(program)), folder_(std::move(folder)), process_(std::move(process)) {}
  std::vector<pid_t> Servers() const;
  // What the control daemon answers.
  std::string Ask(const std::string& command) const;

  std::string program_, folder_;
  ChildProcess process_;
};

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_MPS_DAEMON_H_
