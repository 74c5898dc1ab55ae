// A concertd for one benchmark, with sockets of its own in a temporary folder.
#ifndef CONCERT_TESTS_BENCH_PRIVATE_DAEMON_H_
#define CONCERT_TESTS_BENCH_PRIVATE_DAEMON_H_

#include <signal.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/bench/child_process.h"

namespace concert::bench {

class PrivateDaemon {
 public:
  struct Options {
    std::string device = "auto";
    std::string policy = "auto";
    // Its configuration file; empty: the built-in defaults, not the machine's, and a store of tuned
    // kernels of its own, empty at first.
    std::string config;
    std::vector<std::string> settings;  // further ones, as its command line takes them
  };

  // Starts the concertd beside this program and waits until it accepts clients. The error carries
  // the end of its log.
  static absl::StatusOr<std::unique_ptr<PrivateDaemon>> Start(const Options& options);
  // The same without the wait, so that several can come up side by side.
  static absl::StatusOr<std::unique_ptr<PrivateDaemon>> Launch(const Options& options);
  absl::Status WaitUntilReady();
  // Stops it and removes the folder.
  ~PrivateDaemon();

  // SIGTERM, and whether it ends within `limit`.
  bool Terminate(std::chrono::milliseconds limit) {
    process_.Signal(SIGTERM);
    return process_.EndsWithin(limit);
  }

  std::string socket() const { return folder_ + "/concert.sock"; }
  std::string admin_socket() const { return folder_ + "/admin.sock"; }
  // The last lines that it logged.
  std::string LogTail() const;

 private:
  PrivateDaemon(std::string folder, ChildProcess process)
      : folder_(std::move(folder)), process_(std::move(process)) {}

  std::string folder_;
  ChildProcess process_;
};

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_PRIVATE_DAEMON_H_
