#include "daemon/device/sim/sim_executor.h"

#include <algorithm>
#include <cassert>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "kernels/comm/messages.h"
#include "kernels/op_table.h"
#include "kernels/program/pass.h"

namespace concert::daemon::sim {
namespace {

using kernels::FindOpKind;

// A barrier's blocks store nothing.
double BytesOfBlocks(const Op& op, size_t ranks) {
  if (op.kind == CONCERT_OP_BARRIER) return 0;
  return static_cast<double>(kernels::BlockBytes(op, ranks));
}

// Of a library's kernel: the write of the timeline before it and its own start, which nothing
// overlaps. A chain of 64x8192x8192 takes 7 to 8 us more for each than launches of the group kernel
// that overlap (two H200s, forms "ce" and "serial" of suite c3).
constexpr double kLibraryGapNs = 6500;

uint32_t PoolSize(size_t gpus, int lane_capacity) {
  // Groups carry many ops per item and idle lanes none: four full lanes per GPU are plenty.
  return static_cast<uint32_t>(gpus) * static_cast<uint32_t>(lane_capacity) * 4;
}

void Write(const TimelineWrite& write) {
  // Release: pairs with the reader's acquire load of the timeline, so that it sees the results
  // computed before.
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(write.address))
      .store(write.value, std::memory_order_release);
}

absl::Status LaneFull() {
  return absl::ResourceExhaustedError(
      "the simulated lane is full; launch again when some of its work has ended");
}

// The lanes of a collective: ranks on one GPU and lane share one part of the model.
struct ModelParts {
  std::array<CollectivePart, SimEngine::kMaxParts> parts;
  size_t count = 0;

  std::span<const CollectivePart> span() const { return {parts.data(), count}; }
};

ModelParts MergeParts(std::span<const RankPart> ranks) {
  ModelParts merged;
  const bool crosses_gpus = std::any_of(
      ranks.begin(), ranks.end(), [&](const RankPart& rank) { return rank.gpu != ranks[0].gpu; });
  for (const RankPart& rank : ranks) {
    const auto same = [&](const CollectivePart& part) {
      return part.gpu == rank.gpu && part.lane == rank.lane;
    };
    const auto end = merged.parts.begin() + merged.count;
    auto part = std::find_if(merged.parts.begin(), end, same);
    if (part == end) {
      *part = {.gpu = rank.gpu, .lane = rank.lane, .kind = rank.op->work.collective};
      ++merged.count;
    }
    // Each GPU forwards once for all its ranks: what they exchange among themselves stays in its
    // HBM.
    const double link_bytes = crosses_gpus ? static_cast<double>(rank.op->work.link_bytes) : 0;
    part->link_bytes = std::max(part->link_bytes, link_bytes);
    part->block_bytes = BytesOfBlocks(*rank.op, ranks.size());
    part->keeps |= rank.op->work.keeps;
    part->hbm_bytes += static_cast<double>(rank.op->work.hbm_bytes);
  }
  return merged;
}

}  // namespace

SimExecutor::SimExecutor(std::span<const policies::DeviceModel> gpus, Pace pace, int lane_capacity,
                         bool compute)
    : pace_(pace),
      compute_(compute),
      models_(gpus.begin(), gpus.end()),
      engine_(gpus, lane_capacity),
      ops_(PoolSize(gpus.size(), lane_capacity)),
      writes_(PoolSize(gpus.size(), lane_capacity)) {
  done_.reserve(gpus.size() * policies::kLaneCount * static_cast<size_t>(lane_capacity) +
                engine_.MilestoneRoom());
  if (pace != Pace::kVirtual) pacer_ = std::thread(&SimExecutor::Pacer, this);
}

SimExecutor::~SimExecutor() {
  if (!pacer_.joinable()) return;
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  wake_.NotifyOne();
  pacer_.join();
}

Time SimExecutor::HostTime() const {
  return pace_ == Pace::kRealTime ? MonotonicNow() : engine_.now();
}

Time SimExecutor::Now() {
  MutexLock lock(mutex_);
  return HostTime();
}

absl::Status SimExecutor::CheckRoom(int gpu, Lane lane, int items, size_t ops,
                                    size_t writes) const {
  if (engine_.Room(gpu, lane) >= items && ops_.available() >= ops &&
      writes_.available() >= writes) {
    return absl::OkStatus();
  }
  return LaneFull();
}

uint32_t SimExecutor::ChainOps(std::span<const Op* const> ops) {
  uint32_t first = ChainPool<Op>::kEnd;
  for (size_t i = ops.size(); i-- > 0;) first = ops_.Prepend(*ops[i], first);
  return first;
}

void SimExecutor::EnqueueOp(int gpu, Lane lane, Time at, const Op& op, int sm_budget) {
  const Op* one[] = {&op};
  if (op.work.runs_on == policies::RunsOn::kSms)
    return EnqueueKernel(gpu, lane, at, one, sm_budget);
  // Half of a copy's HBM traffic is what it moves.
  const CopyRoute route = op.work.link_bytes > 0 ? CopyRoute::kLink : CopyRoute::kMemory;
  engine_.EnqueueCopy(gpu, lane, at, op.work.hbm_bytes / 2, route,
                      Cookie(Payload::kLaunch, ChainOps(one)));
}

// One kernel, whose ops all end with it.
void SimExecutor::EnqueueKernel(int gpu, Lane lane, Time at, std::span<const Op* const> ops,
                                int sm_budget) {
  const policies::DeviceModel& model = models_[static_cast<size_t>(gpu)];
  KernelShape shape = ShapeOf(model, ops);
  if (ops.front()->work.is_gemm()) {
    shape = InBlocks(shape, sm_budget > 0 ? std::min(sm_budget, model.sm_count) : model.sm_count);
    shape.behind_ns = kLibraryGapNs;
  }
  engine_.EnqueueKernel(gpu, lane, at, shape, sm_budget, Cookie(Payload::kLaunch, ChainOps(ops)));
}

// Runs of a pass: one kernel, which does what they share once.
void SimExecutor::EnqueuePass(int gpu, const policies::PlannedLaunch& planned, Time at,
                              std::span<const Op* const> runs) {
  Op all = *runs.front();
  all.work = kernels::WorkOfPass(*all.program.pass, runs);
  const Op* one[] = {&all};
  engine_.EnqueueKernel(gpu, planned.lane, at, ShapeOf(models_[static_cast<size_t>(gpu)], one),
                        planned.sm_budget, Cookie(Payload::kLaunch, ChainOps(runs)));
}

// One kernel, whose ops end when the work list says, on the time scale of the model: each op is a
// part that computes it, followed by a part that writes its timeline.
void SimExecutor::EnqueueWorkList(int gpu, Time at, const LaunchRequest& launch) {
  const size_t count = launch.ops.size();
  const float* const ends_us = launch.planned.work_list->ends_us;
  std::array<uint16_t, kernels::kMaxGroupProblems> order;
  std::iota(order.begin(), order.begin() + count, uint16_t{0});
  std::sort(order.begin(), order.begin() + count, [&](uint16_t a, uint16_t b) {
    return ends_us[a] != ends_us[b] ? ends_us[a] < ends_us[b] : a < b;
  });
  const double last_us = ends_us[order[count - 1]];
  std::array<Milestone, 2 * kernels::kMaxGroupProblems> parts;
  size_t part_count = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t op = order[i];
    const double fraction = last_us > 0 ? std::max(0.0, ends_us[op] / last_us) : 1.0;
    const Op* const one[] = {launch.ops[op]};
    parts[part_count++] = {fraction, Cookie(Payload::kLaunch, ChainOps(one))};
    if (launch.writes.empty()) continue;
    parts[part_count++] = {
        fraction, Cookie(Payload::kWrites,
                         writes_.Prepend(launch.writes[op], ChainPool<TimelineWrite>::kEnd))};
  }
  KernelShape shape = ShapeOf(models_[static_cast<size_t>(gpu)], launch.ops);
  shape.persistent = true;
  engine_.EnqueueKernel(gpu, launch.planned.lane, at, shape, launch.work_list()->grid(),
                        Cookie(Payload::kLaunch, ChainPool<Op>::kEnd), {parts.data(), part_count});
}

void SimExecutor::EnqueueWrites(int gpu, Lane lane, Time at,
                                std::span<const TimelineWrite> writes) {
  uint32_t first = ChainPool<TimelineWrite>::kEnd;
  for (size_t i = writes.size(); i-- > 0;) first = writes_.Prepend(writes[i], first);
  engine_.EnqueueMark(gpu, lane, at, Cookie(Payload::kWrites, first));
}

absl::Status SimExecutor::Launch(int gpu, const LaunchRequest& launch) {
  const policies::PlannedLaunch& planned = launch.planned;
  const Lane lane = planned.lane;
  const std::span<const Op* const> ops = launch.ops;
  const bool group = planned.form == policies::Form::kGroup;
  const bool listed = group && planned.work_list != nullptr;
  {
    MutexLock lock(mutex_);
    const size_t writes = launch.writes.size();
    const int items = (group ? 1 : static_cast<int>(ops.size())) + (writes > 0 ? 1 : 0);
    if (absl::Status status = CheckRoom(gpu, lane, items, ops.size(), writes); !status.ok())
      return status;
    if (listed && engine_.MilestoneRoom() < ops.size() + writes) return LaneFull();
    const Time at = HostTime();
    if (listed) {
      EnqueueWorkList(gpu, at, launch);
    } else if (group) {
      EnqueueKernel(gpu, lane, at, ops, planned.sm_budget);
    } else if (kernels::InPass(*ops.front())) {
      EnqueuePass(gpu, planned, at, ops);
    } else {
      for (const Op* op : ops) EnqueueOp(gpu, lane, at, *op, planned.sm_budget);
    }
    if (writes > 0 && !listed) EnqueueWrites(gpu, lane, at, launch.writes);
  }
  Wake();
  return absl::OkStatus();
}

absl::Status SimExecutor::Signal(int gpu, Lane lane, std::span<const TimelineWrite> writes) {
  {
    MutexLock lock(mutex_);
    if (absl::Status status = CheckRoom(gpu, lane, 1, 0, writes.size()); !status.ok())
      return status;
    EnqueueWrites(gpu, lane, HostTime(), writes);
  }
  Wake();
  return absl::OkStatus();
}

absl::Status SimExecutor::Order(int gpu, Lane lane, Lane before) {
  MutexLock lock(mutex_);
  if (absl::Status status = CheckRoom(gpu, lane, 1, 0, 0); !status.ok()) return status;
  engine_.EnqueueOrder(gpu, lane, before, HostTime());
  return absl::OkStatus();
}

absl::Status SimExecutor::LaunchCollective(std::span<const RankPart> ranks,
                                           const policies::TransportChoice& choice) {
  const ModelParts merged = MergeParts(ranks);
  std::array<const Op*, SimEngine::kMaxParts> ops;
  std::transform(ranks.begin(), ranks.end(), ops.begin(),
                 [](const RankPart& rank) { return rank.op; });
  {
    MutexLock lock(mutex_);
    for (const RankPart& rank : ranks) {
      // One item for the collective, at most one per rank for the signals.
      const int items = 1 + static_cast<int>(ranks.size());
      absl::Status status = CheckRoom(rank.gpu, rank.lane, items, ranks.size(), ranks.size());
      if (!status.ok()) return status;
    }
    if (engine_.CollectiveRoom() == 0) {
      return absl::ResourceExhaustedError("too many simulated collectives are in flight");
    }
    const Time at = HostTime();
    const uint32_t chain = ChainOps({ops.data(), ranks.size()});
    uint32_t gpus = 0;
    for (const RankPart& rank : ranks) gpus |= 1u << rank.gpu;
    engine_.EnqueueCollective(merged.span(), choice, at, Cookie(Payload::kCollective, chain, gpus));
    for (const RankPart& rank : ranks) {
      if (rank.signal.address != 0) EnqueueWrites(rank.gpu, rank.lane, at, {&rank.signal, 1});
    }
  }
  Wake();
  return absl::OkStatus();
}

void SimExecutor::Wake() {
  if (pace_ != Pace::kVirtual) wake_.NotifyOne();
}

Time SimExecutor::NextEvent() {
  MutexLock lock(mutex_);
  return engine_.NextEvent();
}

Time SimExecutor::IdleTime(int gpu) {
  MutexLock lock(mutex_);
  return engine_.IdleTime(gpu);
}

void SimExecutor::AdvanceTo(Time until) {
  assert(pace_ == Pace::kVirtual);
  MutexLock lock(mutex_);
  engine_.AdvanceTo(until, done_);
  for (const Completion& completion : done_) Execute(completion);
  ReleaseDone();
}

bool SimExecutor::AwaitEnds() {
  const MutexLock lock(mutex_);
  ReleaseDone();
  while (!stop_) {
    const Time next = engine_.NextEvent();
    if (next == kNever) {
      wake_.Wait(mutex_);
    } else if (pace_ == Pace::kRealTime && next > MonotonicNow()) {
      wake_.WaitUntil(mutex_, MonotonicPoint(next));
    } else {
      engine_.AdvanceTo(pace_ == Pace::kRealTime ? MonotonicNow() : next, done_);
      return true;
    }
  }
  return false;
}

void SimExecutor::Pacer() {
  while (AwaitEnds()) {
    for (const Completion& completion : done_) Execute(completion);
  }
}

void SimExecutor::Fault(int gpu) {
  dropping_.fetch_or(1u << gpu, std::memory_order_relaxed);
  MutexLock lock(execute_mutex_);  // what is being computed ends first
  faulted_.fetch_or(1u << gpu, std::memory_order_release);
}

void SimExecutor::Execute(const Completion& completion) {
  const uint32_t first = static_cast<uint32_t>(completion.cookie);
  const auto payload = static_cast<Payload>(completion.cookie >> 56);
  const uint32_t gpus = payload == Payload::kCollective
                            ? static_cast<uint32_t>(completion.cookie >> 32) & 0xffffff
                            : 1u << completion.gpu;
  MutexLock lock(execute_mutex_);
  if ((gpus & dropping_.load(std::memory_order_relaxed)) != 0) return;
  if (payload == Payload::kWrites) {
    // Seen by whoever sees the writes, which are releases.
    last_signal_[static_cast<size_t>(completion.gpu)].store(completion.time,
                                                            std::memory_order_relaxed);
    for (uint32_t i = first; i != ChainPool<TimelineWrite>::kEnd; i = writes_.Next(i))
      Write(writes_[i]);
    return;
  }
  if (!compute_) return;
  std::array<const Op*, SimEngine::kMaxParts> parts;
  size_t count = 0;
  for (uint32_t i = first; i != ChainPool<Op>::kEnd; i = ops_.Next(i)) {
    const Op* op = &ops_[i];
    if (payload == Payload::kLaunch && !kernels::InPass(*op)) {
      FindOpKind(op->kind)->compute({&op, 1});
    } else {
      parts[count++] = op;
    }
  }
  if (count > 0) FindOpKind(parts[0]->kind)->compute({parts.data(), count});
}

void SimExecutor::ReleaseDone() {
  for (const Completion& completion : done_) {
    const uint32_t first = static_cast<uint32_t>(completion.cookie);
    if (static_cast<Payload>(completion.cookie >> 56) == Payload::kWrites) {
      writes_.Release(first);
    } else {
      ops_.Release(first);
    }
  }
  done_.clear();
}

}  // namespace concert::daemon::sim
