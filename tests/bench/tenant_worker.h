// One process of the suites "tenants" and "steps": concert-bench itself in a hidden mode.
#ifndef CONCERT_TESTS_BENCH_TENANT_WORKER_H_
#define CONCERT_TESTS_BENCH_TENANT_WORKER_H_

#include <string>

#include "absl/status/status.h"

namespace concert::bench {

struct TenantOptions {
  std::string suite;  // "tenants" or "steps"
  std::string board;  // file that the suite has made
  int index = 0;      // of its first slot, and of its client in the scenario
  int clients = 1;    // that this process runs, from `index` on
  std::string scenarios, scenario;
  std::string form;      // suite "steps": how steps are run; see StepForm
  std::string socket;    // of the daemon; empty: the client computes itself
  std::string gpu_uuid;  // then on this GPU: 32 hexadecimal digits
  std::string python;    // suite "steps": runs PyTorch
};

// Prepares the clients' work, checks its results, runs laps as the board says, checks the last
// results and returns. What goes wrong stands in the slot, too.
absl::Status RunTenant(const TenantOptions& options);

// NOT_FOUND, naming client, scenario and file.
absl::Status NoSuchClient(const TenantOptions& options);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_TENANT_WORKER_H_
