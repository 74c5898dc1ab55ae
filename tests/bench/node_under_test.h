// The daemon that a benchmark talks to, and what a result file says about it.
#ifndef CONCERT_TESTS_BENCH_NODE_UNDER_TEST_H_
#define CONCERT_TESTS_BENCH_NODE_UNDER_TEST_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "concert/concert.hpp"
#include "nlohmann/json.hpp"
#include "tests/bench/memory_limit.h"
#include "tests/bench/private_daemon.h"
#include "tests/bench/suite.h"

namespace concert::bench {

// A session with a daemon, which is private unless the options name a socket.
struct NodeUnderTest {
  std::unique_ptr<PrivateDaemon> daemon;  // null: somebody else's
  std::string socket;
  Session session;  // declared after the daemon: closed before it
  concert_gpu gpu{};

  double memory_bytes_per_s() const { return MemoryBytesPerS(gpu.name); }
  bool is_sim() const { return gpu.backend == CONCERT_BACKEND_SIM; }
};

absl::StatusOr<NodeUnderTest> OpenNodeUnderTest(const RunOptions& options);

// The keys that every result's header has.
nlohmann::json MakeHeader(const NodeUnderTest& node, const RunOptions& options);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_NODE_UNDER_TEST_H_
