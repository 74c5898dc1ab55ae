// The client processes of one scenario in one mode, of suite "tenants" or "steps".
#ifndef CONCERT_TESTS_BENCH_TENANT_CREW_H_
#define CONCERT_TESTS_BENCH_TENANT_CREW_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/child_process.h"
#include "tests/bench/tenant_board.h"
#include "tests/bench/tenant_group.h"

namespace concert::bench {

class TenantCrew {
 public:
  struct Options {
    std::string suite;
    std::string scenarios;                  // the suite file
    std::string socket;                     // of the daemon; empty: clients compute themselves
    std::string gpu_uuid;                   // then on this GPU: 32 hexadecimal digits
    std::string form, python;               // as TenantOptions has them; empty: neither
    bool one_process = false;               // runs all clients; else each has its own
    std::chrono::seconds start_limit{180};  // for all to get ready
    // Of each process beyond this one's own, as "NAME=VALUE".
    std::vector<std::vector<std::string>> environments;
  };
  struct Lap {
    double us_per_unit = 0;                         // of all clients together
    std::vector<double> units_per_s;                // [client]
    std::vector<std::vector<double>> latencies_us;  // [client]: of its runs
  };

  static absl::StatusOr<std::unique_ptr<TenantCrew>> Start(const TenantGroup& group,
                                                           const Options& options);
  ~TenantCrew();

  // Until every client has run, and checked, all that it has once. This error and the others name
  // every client that failed, what it is, its step and its reason.
  absl::Status AwaitReady();
  // [process]. REQUIRES: they are ready.
  std::vector<FirstRun> FirstRuns() const;
  // Bit i of `participants`: client i runs. The others sleep. Where a client is so slow that it
  // finishes no run within the window, the lap is repeated with a longer one.
  absl::StatusOr<Lap> RunLap(uint64_t participants, std::chrono::microseconds window);
  uint64_t everybody() const { return ~uint64_t{0} >> (kMaxTenants - group_.clients.size()); }
  // Lets every client check its last results, give its memory back and end; the largest relative
  // error of each.
  absl::StatusOr<std::vector<double>> Finish();

 private:
  TenantCrew(const TenantGroup& group, const Options& options, std::string folder)
      : group_(group), options_(options), folder_(std::move(folder)) {}
  absl::Status StartProcess(size_t i);
  absl::Status RunWindow(uint64_t participants, std::chrono::microseconds window);
  Lap ReadLap(uint64_t participants) const;
  // Waits for `reached(slot)` of every process. Once one has failed, the others have some seconds.
  template <typename Reached>
  absl::Status Await(const Reached& reached, const char* what, std::chrono::seconds limit);
  // Empty: it has; else why it has not.
  template <typename Reached>
  std::string AwaitProcess(size_t i, const Reached& reached, const char* what,
                           std::chrono::steady_clock::time_point limit);
  std::string Describe(size_t i) const;
  // The log of a process that ended without a word.
  std::string Log() const;

  const TenantGroup group_;
  const Options options_;
  const std::string folder_;
  MappedBoard board_;
  std::vector<ChildProcess> processes_;  // each with its first client's slot
  uint32_t laps_ = 0;
};

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_TENANT_CREW_H_
