// The client processes of one scenario in one mode.
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
#include "tests/bench/scenario_file.h"
#include "tests/bench/tenant_board.h"

namespace concert::bench {

class TenantCrew {
 public:
  struct Options {
    std::string scenarios;  // the suite file
    std::string socket;     // of the daemon; empty: clients compute themselves
    std::string gpu_uuid;   // then on this GPU: 32 hexadecimal digits
    // Of each client beyond this process's own, as "NAME=VALUE".
    std::vector<std::vector<std::string>> environments;
  };
  struct Lap {
    double us_per_gemm = 0;                         // of all clients together
    std::vector<double> gemms_per_s;                // [client]
    std::vector<std::vector<double>> latencies_us;  // [client]: of its chains
  };

  // Starts a process per client; the scenario must outlive the crew.
  static absl::StatusOr<std::unique_ptr<TenantCrew>> Start(const TenantScenario& scenario,
                                                           const Options& options);
  ~TenantCrew();

  // Until every client has computed, and checked, all its chains once. This error and the others
  // name every client that failed, its priority and chain, its step and its reason.
  absl::Status AwaitReady();
  // Bit i of `participants`: client i runs. The others sleep. Where a client is so slow that it
  // finishes no chain within the window, the lap is repeated with a longer one.
  absl::StatusOr<Lap> RunLap(uint64_t participants, std::chrono::microseconds window);
  uint64_t everybody() const { return ~uint64_t{0} >> (kMaxTenants - scenario_.clients.size()); }
  // Lets every client check its last results, give its memory back and end; the largest relative
  // error of all.
  absl::StatusOr<double> Finish();

 private:
  TenantCrew(const TenantScenario& scenario, std::string folder)
      : scenario_(scenario), folder_(std::move(folder)) {}
  absl::Status RunWindow(uint64_t participants, std::chrono::microseconds window);
  Lap ReadLap(uint64_t participants) const;
  // Waits for `reached(slot)` of every client. Once one has failed, the others have some seconds.
  template <typename Reached>
  absl::Status Await(const Reached& reached, const char* what);
  // Empty: it has; else why it has not.
  template <typename Reached>
  std::string AwaitClient(size_t i, const Reached& reached, const char* what,
                          std::chrono::steady_clock::time_point limit);
  std::string Describe(size_t i) const;
  // The log of a client that ended without a word.
  std::string Log() const;

  const TenantScenario& scenario_;
  const std::string folder_;
  MappedBoard board_;
  std::vector<ChildProcess> clients_;
  uint32_t laps_ = 0;
};

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_TENANT_CREW_H_
