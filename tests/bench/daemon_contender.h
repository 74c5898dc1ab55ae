// A scenario's batches through client, ring, daemon and device.
#ifndef CONCERT_TESTS_BENCH_DAEMON_CONTENDER_H_
#define CONCERT_TESTS_BENCH_DAEMON_CONTENDER_H_

#include <memory>
#include <vector>

#include "concert/concert.hpp"
#include "tests/bench/contender.h"

namespace concert::bench {

// concert.hpp's errors as absl's.
absl::Status ToAbsl(const Status& status);

// GEMM i of every batch goes to queue i of its own, so that nothing but the operand sets orders the
// batches. The ops of a batch are published together. Four batches are in flight, so that the
// daemon always has a next one.
class DaemonContender : public Contender {
 public:
  // `image` is the workload's. The session and the workload must outlive the contender.
  static absl::StatusOr<std::unique_ptr<DaemonContender>> Make(const Session& session,
                                                               const GemmWorkload& workload,
                                                               const std::vector<uint8_t>& image);

  absl::StatusOr<double> Run(int batches) override;
  absl::Status PoisonOutputs() override;
  absl::StatusOr<double> WorstError() override;

  // The workload's memory, made by the daemon.
  const Buffer& buffer() const { return buffer_; }

 private:
  static constexpr int kBatchesInFlight = 4;

  DaemonContender(const Session& session, const GemmWorkload& workload)
      : session_(session), workload_(workload) {}
  absl::Status Submit(int batch);
  absl::Status WaitFor(int batch);

  const Session& session_;
  const GemmWorkload& workload_;
  Buffer buffer_;
  std::vector<Queue> queues_;                   // [gemm]
  std::vector<std::vector<Ticket>> in_flight_;  // [batch % kBatchesInFlight][gemm]
};

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_DAEMON_CONTENDER_H_
