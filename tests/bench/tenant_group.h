// What those who run and describe clients that share a GPU need to know of them, whatever they run.
#ifndef CONCERT_TESTS_BENCH_TENANT_GROUP_H_
#define CONCERT_TESTS_BENCH_TENANT_GROUP_H_

#include <string>
#include <vector>

namespace concert::bench {

struct TenantClient {
  std::string name;  // clients of one name do the same
  int priority = 0;  // -1 low, 0 normal, 1 high
  // What is counted of one of its runs: GEMMs of a chain, or one step.
  double units = 1;
};

// A scenario's clients, in the order of the suite file.
struct TenantGroup {
  std::string scenario;
  std::vector<TenantClient> clients;

  bool has_priorities() const {
    for (const TenantClient& client : clients) {
      if (client.priority != clients.front().priority) return true;
    }
    return false;
  }
};

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_TENANT_GROUP_H_
