// A scenario's batches through client, ring, daemon and device.
#ifndef CONCERT_TESTS_BENCH_DAEMON_CONTENDER_H_
#define CONCERT_TESTS_BENCH_DAEMON_CONTENDER_H_

#include <memory>
#include <utility>
#include <vector>

#include "concert/concert.hpp"
#include "tests/bench/contender.h"

namespace concert::bench {

// concert.hpp's errors as absl's.
absl::Status ToAbsl(const Status& status);

// The GEMMs of one operand set, with their operands at the workload's places in `buffer`.
std::vector<GemmOp> MakeOps(const GemmWorkload& workload, int set, const Buffer& buffer);

// Four batches are in flight. They are independent requests that become ready together, so each has
// queues of its own, one per GEMM: nothing orders them but a queue's turn coming round again. (A
// session has 256 queues; where four batches need more, fewer of them have their own.) The ops of a
// batch are published together.
class DaemonContender : public Contender {
 public:
  // `image` is the workload's. The session and the workload must outlive the contender.
  static absl::StatusOr<std::unique_ptr<DaemonContender>> Make(const Session& session,
                                                               const GemmWorkload& workload,
                                                               const std::vector<uint8_t>& image);

  absl::StatusOr<double> Run(int batches) override;
  // One batch while nothing else is in flight: microseconds from before its first GEMM is submitted
  // until this thread, polling, has seen the last timeline.
  absl::StatusOr<double> RunIsolated(int batch);
  absl::Status PoisonOutputs() override;
  absl::StatusOr<double> WorstError() override;

  // The workload's memory, made by the daemon.
  const Buffer& buffer() const { return buffer_; }
  // Host memory that holds any one output: results are read through it.
  void ReadThrough(std::shared_ptr<uint8_t[]> memory) { staging_ = std::move(memory); }

 private:
  static constexpr int kBatchesInFlight = GemmWorkload::kBatchesInFlight;

  DaemonContender(const Session& session, const GemmWorkload& workload)
      : session_(session), workload_(workload) {}
  absl::Status Submit(int batch);
  absl::Status WaitFor(int batch);
  int StillRunning(int begin, int end) const;

  const Session& session_;
  const GemmWorkload& workload_;
  Buffer buffer_;
  std::shared_ptr<uint8_t[]> staging_;
  std::vector<std::vector<GemmOp>> ops_;        // [set][gemm]
  std::vector<std::vector<Queue>> queues_;      // [batch % queues_.size()][gemm]
  std::vector<std::vector<Ticket>> in_flight_;  // [batch % kBatchesInFlight][gemm]
};

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_DAEMON_CONTENDER_H_
