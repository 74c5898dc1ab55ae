// One tenant of the suite "tenants": a process with a chain of GEMMs, run again and again.
#ifndef CONCERT_TESTS_BENCH_CHAIN_CLIENT_H_
#define CONCERT_TESTS_BENCH_CHAIN_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "concert/concert.hpp"
#include "tests/bench/gemm_workload.h"

namespace concert::bench {

// Used by one thread.
class ChainClient {
 public:
  virtual ~ChainClient() = default;
  // Submits the chain of this operand set and returns when its last GEMM is done.
  virtual absl::Status RunChain(int set) = 0;
  // The workload's range, from `offset` bytes. No chain is running.
  virtual absl::Status Write(uint64_t offset, const std::vector<uint8_t>& data) = 0;
  virtual absl::Status Read(uint64_t offset, std::vector<uint8_t>& data) = 0;
};

// Through the daemon that listens at `socket`: a chain is one batch on one queue, and the client
// waits for its last ticket. `image` is the workload's; the workload must outlive the client.
absl::StatusOr<std::unique_ptr<ChainClient>> MakeDaemonChainClient(
    const std::string& socket, Priority priority, const GemmWorkload& workload,
    const std::vector<uint8_t>& image);

// Returns when the op has ended, with what became of it: spins for two milliseconds, as a client
// does that synchronises a stream, then sleeps.
absl::Status SpinThenWait(const Ticket& ticket);

// Fills every output with NaN.
absl::Status PoisonOutputs(ChainClient& client, const GemmWorkload& workload);

// The largest relative error over all sets and GEMMs, each against the input that it read: of a
// chained GEMM, its predecessor's output as the device has it. NaN if an element is.
absl::StatusOr<double> WorstError(ChainClient& client, const GemmWorkload& workload);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_CHAIN_CLIENT_H_
