// The processes that share a GPU in one mode of suite "tenants" or "steps".
#ifndef CONCERT_TESTS_BENCH_TENANT_CAST_H_
#define CONCERT_TESTS_BENCH_TENANT_CAST_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/mps_daemon.h"
#include "tests/bench/node_under_test.h"
#include "tests/bench/plan_log.h"
#include "tests/bench/suite.h"
#include "tests/bench/tenant_crew.h"
#include "tests/bench/tenant_group.h"

namespace concert::bench {

struct TenantMode {
  std::string name;
  std::string policy;  // of a private daemon; empty: clients compute themselves
  bool mps = false;
  std::string form = "";     // of what clients run; see TenantOptions
  bool one_process = false;  // runs all clients

  bool has_daemon() const { return !policy.empty(); }
};

// Where the clients run, and of which suite they are.
struct TenantPlace {
  std::string suite;
  bool is_sim = false;
  std::string uuid = "";          // 32 hexadecimal digits
  double memory_bytes_per_s = 0;  // what its memory gives at most
};

// A mode's daemon or MPS, if it has one, and its clients. All have ended once it is gone.
class TenantCast {
 public:
  // Starts them.
  static absl::StatusOr<std::unique_ptr<TenantCast>> Start(const RunOptions& options,
                                                           const TenantPlace& place,
                                                           const TenantGroup& group,
                                                           const TenantMode& mode);
  // Returns when every client is ready: first of all, and with an error that is for Explain.
  absl::Status AwaitReady();

  TenantCrew& crew() { return *crew_; }
  // The last plans of the mode's daemon, newest first; none where there is no private daemon.
  std::vector<LoggedPlan> Plans() const;
  // The programs of all sessions of the mode's daemon; none where there is no private daemon.
  std::vector<RegisteredProgram> Programs() const;
  // `status`, and if it is an error, with the mode's name and what the GPU and MPS say.
  absl::Status Explain(const absl::Status& status) const;

 private:
  explicit TenantCast(const TenantMode& mode) : mode_(mode) {}
  absl::Status Prepare(const RunOptions& options, const TenantPlace& place,
                       const TenantGroup& group);

  const TenantMode mode_;
  std::unique_ptr<MpsDaemon> mps_;
  NodeUnderTest node_;
  std::unique_ptr<TenantCrew> crew_;  // declared last: ends first
};

// OK where clients that compute themselves, and daemons, would take time slices: takes an MPS that
// the environment names out of it, for this process and its children. FAILED_PRECONDITION where one
// listens in the default place.
absl::Status LeaveMps();

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_TENANT_CAST_H_
