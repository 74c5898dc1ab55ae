// One client process of the suite "tenants": concert-bench itself in a hidden mode.
#ifndef CONCERT_TESTS_BENCH_TENANT_WORKER_H_
#define CONCERT_TESTS_BENCH_TENANT_WORKER_H_

#include <string>

#include "absl/status/status.h"

namespace concert::bench {

struct TenantOptions {
  std::string board;  // file that the suite has made
  int index = 0;      // of its slot, and of its client in the scenario
  std::string scenarios, scenario;
  std::string socket;    // of the daemon; empty: the client computes itself
  std::string gpu_uuid;  // then on this GPU: 32 hexadecimal digits
};

// Prepares the client's chain, checks its results, runs laps as the board says, checks the last
// results and returns. What goes wrong stands in the slot, too.
absl::Status RunTenant(const TenantOptions& options);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_TENANT_WORKER_H_
