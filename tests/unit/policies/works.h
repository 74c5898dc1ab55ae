// Works and snapshots for tests and benchmarks of policies.
#ifndef CONCERT_TESTS_UNIT_POLICIES_WORKS_H_
#define CONCERT_TESTS_UNIT_POLICIES_WORKS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/group/plan/compiler.h"
#include "policies/cost/cost_memo.h"
#include "policies/seam/policy.h"
#include "policies/seam/snapshot.h"
#include "policies/seam/window.h"
#include "policies/seam/work.h"

namespace concert::policies {

inline Work Gemm(uint32_t m, uint32_t n, uint32_t k, uint32_t batch = 1) {
  Work work{.runs_on = RunsOn::kSms, .m = m, .n = n, .k = k, .batch = batch};
  const uint64_t rows = uint64_t{batch} * m, weights = uint64_t{batch} * n * k;
  work.flops = 2 * rows * n * k;
  work.hbm_bytes = 2 * (rows * k + weights + rows * n);
  return work;
}

// The same, such that a group launch can carry it.
inline Work Groupable(uint32_t m, uint32_t n, uint32_t k) {
  Work work = Gemm(m, n, k);
  work.carrier = Carrier::kGroup;
  return work;
}

// The same with rows of A and W that follow each other without a gap and are no multiples of 16
// bytes long.
inline Work Unaligned(uint32_t m, uint32_t n, uint32_t k) {
  Work work = Groupable(m, n, k);
  work.repack_bytes = (m + n) * ((2 * k + 127) / 128 * 128);
  return work;
}

inline Work AllReduce(uint64_t bytes, uint8_t ranks = 2) {
  return {.runs_on = RunsOn::kLinks, .ranks = ranks, .hbm_bytes = 2 * bytes, .link_bytes = bytes};
}

// A norm of `rows` rows of bf16.
inline Work Rows(uint32_t rows, uint32_t columns) {
  return {.carrier = Carrier::kRows,
          .m = rows,
          .n = columns,
          .flops = 4ull * rows * columns,
          .hbm_bytes = (2ull * rows * columns + columns) * 2};
}

// A run of a program that draws `bytes` in `steps` kernels, which fill the device.
inline Work ProgramOf(uint32_t steps, uint64_t bytes) {
  return {.m = 1024, .n = 1, .steps = steps, .flops = 8 * bytes, .hbm_bytes = bytes};
}

inline Work Copy(uint64_t bytes) {
  return {.runs_on = RunsOn::kCopyEngine, .hbm_bytes = 2 * bytes};
}

// As the daemon makes policies, with nothing tuned.
inline PolicyInputs InputsOf(const DeviceModel& device) {
  return {.device = device, .tuned = nullptr, .make_compiler = kernels::MakeGroupCompiler};
}

// Queues behind ready ops, as lists.
class ListedWindow final : public Window {
 public:
  static constexpr uint32_t kFirstOp = 1 << 16;  // no handle of a ready op

  // Puts an op behind `before`. Returns its handle.
  uint32_t Add(uint32_t before, const Work& work, bool waits_elsewhere) {
    queued_.push_back({before, work, waits_elsewhere});
    return kFirstOp + static_cast<uint32_t>(queued_.size()) - 1;
  }
  void Clear() { queued_.clear(); }
  bool Follower(uint32_t op, QueuedOp& follower) const override {
    for (size_t i = 0; i < queued_.size(); ++i) {
      if (queued_[i].before != op) continue;
      follower = {.op = kFirstOp + static_cast<uint32_t>(i),
                  .work = &queued_[i].work,
                  .waits_elsewhere = queued_[i].waits_elsewhere};
      return true;
    }
    return false;
  }

 private:
  struct Queued {
    uint32_t before;
    Work work;
    bool waits_elsewhere;
  };
  std::vector<Queued> queued_;
};

// A snapshot that owns its lists.
struct Scene {
  DeviceModel device;
  std::vector<ReadyOp> ready;
  std::vector<RunningOp> running;
  std::vector<WaitingCollective> waiting;
  ListedWindow window;
  int reserved_sms = 0;
  uint32_t newest = 0;  // of the queue that Then goes on with
  Time now = 1'000'000;

  Scene& Ready(const Work& work, Priority priority = Priority::kNormal, Lane after = kNoLane) {
    ready.push_back({.op = static_cast<uint32_t>(ready.size()),
                     .session = 1,
                     .priority = priority,
                     .after = after,
                     .ready_at = now,
                     .work = work,
                     .work_hash = HashWork(work)});
    newest = ready.back().op;
    return *this;
  }
  // As Ready, of a session of its own choice.
  Scene& Of(uint32_t session, const Work& work, Priority priority = Priority::kNormal) {
    Ready(work, priority);
    ready.back().session = session;
    return *this;
  }
  // Behind the op that was added last, in its queue.
  Scene& Then(const Work& work, bool waits_elsewhere = false) {
    newest = window.Add(newest, work, waits_elsewhere);
    return *this;
  }
  // A ready collective that is likely to hold so many SMs.
  Scene& Ready(const Work& work, uint16_t sms) {
    Ready(work);
    ready.back().sms = sms;
    return *this;
  }
  // One with so many ranks there, the last of them since `since`.
  Scene& Waiting(const Work& work, uint16_t sms, uint8_t ranks_there, Time since) {
    waiting.push_back({.op = static_cast<uint32_t>(waiting.size()),
                       .session = 1,
                       .ranks_there = ranks_there,
                       .sms = sms,
                       .since = since,
                       .work = work});
    return *this;
  }
  Scene& Running(const Work& work, Lane lane, Priority priority = Priority::kNormal) {
    running.push_back({.session = 1,
                       .lane = lane,
                       .launched_at = now - 1'000,
                       .expected_end = now + 10'000,
                       .work = work,
                       .priority = priority});
    return *this;
  }
  Snapshot Get() const {
    Snapshot snapshot{.now = now,
                      .device = &device,
                      .reserved_sms = reserved_sms,
                      .ready = ready,
                      .running = running,
                      .waiting = waiting,
                      .lanes = {},
                      .window = &window};
    for (const RunningOp& op : running) {
      LaneState& lane = snapshot.lanes[op.lane];
      ++lane.in_flight;
      lane.busy_until = std::max(lane.busy_until, op.expected_end);
    }
    return snapshot;
  }
};

}  // namespace concert::policies

#endif  // CONCERT_TESTS_UNIT_POLICIES_WORKS_H_
