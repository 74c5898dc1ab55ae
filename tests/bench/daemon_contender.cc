#include "tests/bench/daemon_contender.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "daemon/clock.h"

namespace concert::bench {
namespace {

using Clock = std::chrono::steady_clock;

// No batch takes this long, not even on the simulator's CPU.
constexpr std::chrono::seconds kBatchLimit(120);
constexpr int kPollsPerClockRead = 1024;
constexpr int kMaxQueues = 256;  // of a session

concert::Dtype ToClient(policies::Dtype dtype) { return static_cast<concert::Dtype>(dtype); }

}  // namespace

absl::Status ToAbsl(const Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.code()), status.message());
}

std::vector<GemmOp> MakeOps(const GemmWorkload& workload, int set, const Buffer& buffer) {
  std::vector<GemmOp> ops;
  for (int gemm = 0; gemm < workload.gemms(); ++gemm) {
    const GemmShape& shape = workload.shape(gemm);
    const GemmPlace& place = workload.place(set, gemm);
    GemmOp& op = ops.emplace_back(GemmOp{.m = shape.m,
                                         .n = shape.n,
                                         .k = shape.k,
                                         .a = Slice(buffer, place.a),
                                         .w = Slice(buffer, place.w),
                                         .d = Slice(buffer, place.d),
                                         .dtype = ToClient(shape.dtype),
                                         .d_dtype = ToClient(shape.d_dtype())});
    if (!shape.has_scales()) continue;
    op.a_scales = Slice(buffer, place.a_scales);
    op.w_scales = Slice(buffer, place.w_scales);
  }
  return ops;
}

absl::StatusOr<std::unique_ptr<DaemonContender>> DaemonContender::Make(
    const Session& session, const GemmWorkload& workload, const std::vector<uint8_t>& image) {
  std::unique_ptr<DaemonContender> contender(new DaemonContender(session, workload));
  Result<Buffer> buffer = session.Allocate(workload.bytes());
  if (!buffer.ok()) return ToAbsl(buffer.status());
  contender->buffer_ = std::move(buffer).value();
  if (Status written = contender->buffer_.Write(image.data(), image.size()); !written.ok())
    return ToAbsl(written);
  for (int set = 0; set < workload.sets(); ++set)
    contender->ops_.push_back(MakeOps(workload, set, contender->buffer_));
  contender->queues_.resize(
      std::clamp(kMaxQueues / workload.gemms(), 1, static_cast<int>(kBatchesInFlight)));
  for (std::vector<Queue>& queues : contender->queues_) {
    for (int gemm = 0; gemm < workload.gemms(); ++gemm) {
      Result<Queue> queue = session.CreateQueue();
      if (!queue.ok()) return ToAbsl(queue.status());
      queues.push_back(std::move(queue).value());
    }
  }
  contender->staging_ = std::make_shared<uint8_t[]>(workload.largest_output_bytes());
  contender->in_flight_.assign(kBatchesInFlight, std::vector<Ticket>(workload.gemms()));
  return contender;
}

// Batches in flight share nothing and may end at the same moment, so only those count that end
// after the clock has started.
absl::StatusOr<double> DaemonContender::Run(int batches) {
  const int lead_in = std::max(kBatchesInFlight, std::min(batches, workload_.batches_per_round()));
  const int total = lead_in + std::max(batches, kBatchesInFlight);
  Clock::time_point start;
  int ended_at_start = 0;
  for (int batch = 0; batch < total + kBatchesInFlight; ++batch) {
    const int oldest = batch - kBatchesInFlight;
    if (oldest >= 0) {
      if (absl::Status done = WaitFor(oldest); !done.ok()) return done;
    }
    if (oldest == lead_in - 1) {
      start = Clock::now();
      ended_at_start = batch - StillRunning(oldest + 1, batch);
    }
    if (batch < total) {
      if (absl::Status submitted = Submit(batch); !submitted.ok()) return submitted;
    }
  }
  const std::chrono::duration<double, std::micro> elapsed = Clock::now() - start;
  return elapsed.count() / (total - ended_at_start);
}

// How many batches of [begin, end) have GEMMs that are not done.
int DaemonContender::StillRunning(int begin, int end) const {
  int running = 0;
  for (int batch = begin; batch < end; ++batch) {
    const std::vector<Ticket>& tickets = in_flight_[batch % kBatchesInFlight];
    running += std::all_of(tickets.begin(), tickets.end(),
                           [](const Ticket& ticket) { return ticket.Done(); })
                   ? 0
                   : 1;
  }
  return running;
}

absl::StatusOr<double> DaemonContender::RunIsolated(int batch) {
  const Clock::time_point begin = Clock::now();
  if (absl::Status submitted = Submit(batch); !submitted.ok()) return submitted;
  if (absl::Status done = WaitFor(batch); !done.ok()) return done;
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

absl::Status DaemonContender::Submit(int batch) {
  const std::vector<GemmOp>& ops = ops_[batch % workload_.sets()];
  std::vector<Queue>& queues = queues_[batch % queues_.size()];
  std::vector<Ticket>& tickets = in_flight_[batch % kBatchesInFlight];
  Result<Batch> together = session_.BeginBatch();
  if (!together.ok()) return ToAbsl(together.status());
  for (size_t gemm = 0; gemm < ops.size(); ++gemm) tickets[gemm] = queues[gemm].Gemm(ops[gemm]);
  return ToAbsl(together->End());
}

// Polls: a sleeping client's wake-up would be measured as the daemon's time. Pauses between looks,
// so that it does not take the dispatcher's core if that is another thread of its own.
absl::Status DaemonContender::WaitFor(int batch) {
  const Clock::time_point limit = Clock::now() + kBatchLimit;
  for (Ticket& ticket : in_flight_[batch % kBatchesInFlight]) {
    for (int polls = 1; !ticket.Done(); ++polls) {
      daemon::CpuRelax();
      if (polls % kPollsPerClockRead == 0 && Clock::now() > limit) {
        return absl::DeadlineExceededError("a batch did not finish in 120 s");
      }
    }
    if (Status outcome = ticket.Wait(); !outcome.ok()) return ToAbsl(outcome);
  }
  return absl::OkStatus();
}

// The largest output from here, the others from that one: host and GPU are 100 times slower to copy
// between than within.
absl::Status DaemonContender::PoisonOutputs() {
  const int largest = workload_.largest_output();
  const std::vector<uint8_t> poison = workload_.Poison(largest);
  const uint64_t source = workload_.place(0, largest).d;
  const Status written = buffer_.Write(poison.data(), poison.size(), source);
  if (!written.ok()) return ToAbsl(written);
  Ticket last;
  for (int set = 0; set < workload_.sets(); ++set) {
    for (int gemm = 0; gemm < workload_.gemms(); ++gemm) {
      const uint64_t target = workload_.place(set, gemm).d;
      if (target == source) continue;
      last = queues_[0][0].Copy({.src = Slice(buffer_, source),
                                 .dst = Slice(buffer_, target),
                                 .bytes = workload_.output_bytes(gemm)});
    }
  }
  return ToAbsl(last.Wait());
}

absl::StatusOr<double> DaemonContender::WorstError() {
  double worst = 0;
  for (int gemm = 0; gemm < workload_.gemms(); ++gemm) {
    const std::span<uint8_t> output(staging_.get(), workload_.output_bytes(gemm));
    for (int set = 0; set < workload_.sets(); ++set) {
      const Status status =
          buffer_.Read(output.data(), output.size(), workload_.place(set, gemm).d);
      if (!status.ok()) return ToAbsl(status);
      const double error = workload_.RelativeError(set, gemm, output);
      if (std::isnan(error)) return error;
      worst = std::max(worst, error);
    }
  }
  return worst;
}

}  // namespace concert::bench
