// The engine's resources: SMs, copy engines, HBM bandwidth, links.
#include <algorithm>
#include <array>
#include <utility>

#include "daemon/device/sim/fair_share.h"
#include "daemon/device/sim/sim_engine.h"
#include "policies/cost/collective_cost.h"
#include "policies/cost/cost_model.h"

namespace concert::daemon::sim {
namespace {

// As the policies know it, where so many parts take part.
policies::Work WorkOf(const CollectivePart& part, size_t parts) {
  return {.runs_on = policies::RunsOn::kLinks,
          .ranks = static_cast<uint8_t>(parts),
          .collective = part.kind,
          .keeps = part.keeps,
          .hbm_bytes = static_cast<uint64_t>(part.hbm_bytes),
          .link_bytes = static_cast<uint64_t>(part.link_bytes)};
}

}  // namespace

// Copies hold none.
int SimEngine::SmsOf(const Gpu& gpu, const Group& group) {
  return group.choice.transport == policies::Transport::kNccl ? policies::CollectiveSms(gpu.model)
                                                              : group.choice.sms;
}

int SimEngine::SmsWanted(const Gpu& gpu, const LaneState& lane) const {
  if (lane.empty() || !lane.started) return 0;
  const Item& item = lane.head();
  if (item.type == ItemType::kCollective) {
    const Group& group = groups_[item.group];
    return group.needs_sms() ? SmsOf(gpu, group) - lane.sms : 0;
  }
  if (item.type != ItemType::kKernel) return 0;
  return static_cast<int>(std::min<int64_t>(lane.tiles_left, item.sm_limit - lane.sms));
}

// High lanes first, then whoever holds fewest, then whoever started first.
SimEngine::LaneState* SimEngine::NextForSm(Gpu& gpu) {
  LaneState* best = nullptr;
  bool best_high = false;
  for (size_t i = 0; i < gpu.lanes.size(); ++i) {
    LaneState& lane = gpu.lanes[i];
    if (SmsWanted(gpu, lane) <= 0) continue;
    const bool high = policies::IsHighPriority(static_cast<Lane>(i));
    const bool better =
        best == nullptr ||
        (high != best_high ? high
                           : (lane.sms != best->sms ? lane.sms < best->sms
                                                    : lane.start_order < best->start_order));
    if (better) {
      best = &lane;
      best_high = high;
    }
  }
  return best;
}

// Blocks of persistent kernels go on with their next tiles.
void SimEngine::KeepSms(Gpu& gpu) {
  for (LaneState& lane : gpu.lanes) {
    const int left = std::exchange(lane.left_sms, 0);
    if (left == 0 || !lane.head().shape.persistent) continue;
    const auto kept = static_cast<int>(std::min<int64_t>(left, lane.tiles_left));
    gpu.free_sms -= kept;
    lane.sms += kept;
    lane.tiles_left -= kept;
  }
}

// Copies by engines go on without the SMs that were for what ranks copy to themselves.
void SimEngine::GiveBackSms(Gpu& gpu) {
  for (LaneState& lane : gpu.lanes) {
    const Group* group = MovingGroup(lane);
    if (group != nullptr && !group->needs_sms()) gpu.free_sms += std::exchange(lane.sms, 0);
  }
}

void SimEngine::AssignSms(Gpu& gpu) {
  GiveBackSms(gpu);
  std::array<int, policies::kLaneCount> before;
  for (size_t i = 0; i < before.size(); ++i) before[i] = gpu.lanes[i].sms;
  KeepSms(gpu);
  while (gpu.free_sms > 0) {
    LaneState* lane = NextForSm(gpu);
    if (lane == nullptr) break;
    --gpu.free_sms;
    ++lane->sms;
    if (lane->head().type == ItemType::kKernel) --lane->tiles_left;
  }
  for (size_t i = 0; i < before.size(); ++i) {
    LaneState& lane = gpu.lanes[i];
    const int gained = lane.sms - before[i];
    if (gained == 0) continue;
    if (lane.head().type == ItemType::kCollective) {
      Group& group = groups_[lane.head().group];
      if (lane.sms == SmsOf(gpu, group)) ++group.parts_ready;
      continue;
    }
    lane.waves.push_back({gained, lane.head().shape.tile_ns});
    if (lane.earliest_end == kNever) {
      lane.earliest_end = now_ + static_cast<Time>(lane.head().shape.floor_ns);
    }
  }
}

void SimEngine::AssignCopyEngines(Gpu& gpu) {
  while (gpu.free_copy_engines > 0) {
    LaneState* first = nullptr;  // copies know no priority: first come, first served
    for (LaneState& lane : gpu.lanes) {
      if (lane.empty() || !lane.started || lane.head().type != ItemType::kCopy || lane.has_engine)
        continue;
      if (first == nullptr || lane.start_order < first->start_order) first = &lane;
    }
    if (first == nullptr) return;
    --gpu.free_copy_engines;
    first->has_engine = true;
    first->earliest_end = now_ + static_cast<Time>(gpu.model.kernel_floor_us * 1e3);
  }
}

SimEngine::Group* SimEngine::MovingGroup(const LaneState& lane) {
  if (lane.empty() || !lane.started || lane.head().type != ItemType::kCollective) return nullptr;
  Group& group = groups_[lane.head().group];
  return group.moving() ? &group : nullptr;
}

const SimEngine::Group* SimEngine::MovingGroup(const LaneState& lane) const {
  return const_cast<SimEngine*>(this)->MovingGroup(lane);
}

// What its slowest GPU takes. Of collectives there is one model, the policies' (ADR 24).
void SimEngine::TimeOf(Group& group) const {
  double us = 0, own_us = 0;
  for (const CollectivePart& part : group.part_span()) {
    const policies::DeviceModel& model = gpus_[static_cast<size_t>(part.gpu)].model;
    const policies::Work work = WorkOf(part, group.part_count);
    const auto block_bytes = static_cast<uint64_t>(part.block_bytes);
    const double its_us = part.link_bytes > 0
                              ? policies::TransportUs(model, work, block_bytes, group.choice)
                              : policies::SoloUs(model, work);
    us = std::max(us, its_us);
    own_us = std::max(own_us, policies::OwnCopyUs(model, work, group.choice));
  }
  group.solo_ns = group.left_ns = std::max(1.0, 1e3 * us);
  group.own_left_ns = 1e3 * own_us;
}

void SimEngine::SetRates() {
  for (const Gpu& gpu : gpus_) {
    for (const LaneState& lane : gpu.lanes) {
      if (Group* group = MovingGroup(lane)) group->rate = 1;
    }
  }
  for (size_t i = 0; i < gpus_.size(); ++i) ShareLinks(static_cast<int>(i));
  for (size_t i = 0; i < gpus_.size(); ++i) ShareHbm(static_cast<int>(i));
  for (size_t i = 0; i < gpus_.size(); ++i) DisturbEachOther(static_cast<int>(i));
}

// Collectives that cross the same GPU's links get equal shares; a collective goes as fast as its
// slowest GPU.
void SimEngine::ShareLinks(int gpu_index) {
  std::array<Group*, policies::kLaneCount> users;
  size_t count = 0;
  for (const LaneState& lane : gpus_[static_cast<size_t>(gpu_index)].lanes) {
    Group* group = MovingGroup(lane);
    if (group == nullptr ||
        std::find(users.begin(), users.begin() + count, group) != users.begin() + count) {
      continue;
    }
    const auto crosses = [gpu_index](const CollectivePart& part) {
      return part.gpu == gpu_index && part.link_bytes > 0;
    };
    const auto parts = group->part_span();
    if (std::any_of(parts.begin(), parts.end(), crosses)) users[count++] = group;
  }
  for (size_t i = 0; i < count; ++i)
    users[i]->rate = std::min(users[i]->rate, 1.0 / static_cast<double>(count));
}

// What blocks that move a collective and kernels lose beside each other, where neither the links
// nor the memory bound them: the former as the policies know it (TransportCurve), the latter a
// share of the rate at which the former fill the links.
void SimEngine::DisturbEachOther(int gpu_index) {
  // Four of 4096x8192x4096 on 124 SMs beside an all-gather of 768 MiB on the others take 1838 us,
  // where alone they would 1588, beside copies by engines 1524, where 1424 (suite c3, two H100s).
  constexpr double kLostToBlocks = 0.2;
  Gpu& gpu = gpus_[static_cast<size_t>(gpu_index)];
  const auto runs = [](const LaneState& lane) { return !lane.waves.empty(); };
  if (std::none_of(gpu.lanes.begin(), gpu.lanes.end(), runs)) return;
  double lost = 0;
  for (const LaneState& lane : gpu.lanes) {
    Group* group = MovingGroup(lane);
    if (group == nullptr || group->copies()) continue;
    const policies::TransportCurve& curve =
        gpu.model.transport_curves.Of(group->choice.transport, static_cast<int>(group->part_count));
    const policies::Work work = WorkOf(group->parts[0], group->part_count);
    const double links_us = policies::LinksUs(gpu.model, work, group->choice);
    const double filled = std::min(1.0, 1e3 * links_us / group->solo_ns);
    group->rate = std::min(group->rate, std::max(1 / curve.beside_gemm, filled));
    lost += kLostToBlocks * filled * group->rate;
  }
  for (LaneState& lane : gpu.lanes) {
    if (runs(lane)) lane.rate = std::min(lane.rate, std::max(0.1, 1 - lost));
  }
}

// HBM bytes per ns that the lane's running item would move at its present rate without sharing.
double SimEngine::HbmDemand(const LaneState& lane) const {
  if (lane.empty() || !lane.started) return 0;
  const Item& item = lane.head();
  switch (item.type) {
    case ItemType::kKernel:
      return lane.sms * item.shape.tile_bytes / item.shape.tile_ns;
    case ItemType::kCopy:
      // Read and written; what another GPU's HBM takes of it is not modelled.
      return lane.has_engine ? 2 * item.bytes_per_ns : 0;
    case ItemType::kCollective: {
      const Group* group = MovingGroup(lane);
      if (group == nullptr) return 0;
      double bytes = 0;
      for (const CollectivePart& part : group->part_span()) {
        const LaneState& its_lane = gpus_[static_cast<size_t>(part.gpu)].lanes[part.lane];
        if (&its_lane != &lane) continue;
        const policies::Work work = WorkOf(part, group->part_count);
        bytes += static_cast<double>(policies::HbmBytes(work, group->choice));
      }
      return bytes / group->solo_ns * group->rate;
    }
    case ItemType::kMark:
    case ItemType::kOrder:
      return 0;
  }
  return 0;
}

// Blocks of a collective have so many bytes on their way at once and no more, so that the queue for
// memory slows them as it grows, however little they ask for: where not all fit, theirs is a share
// in proportion to what they ask for, all others' together being no more than there is. These share
// fairly what is left.
void SimEngine::ShareHbm(int gpu_index) {
  Gpu& gpu = gpus_[static_cast<size_t>(gpu_index)];
  const double capacity = gpu.model.hbm_bytes_per_s / 1e9;
  std::array<double, policies::kLaneCount> demands;
  double blocks = 0, others = 0;
  for (size_t i = 0; i < demands.size(); ++i) {
    demands[i] = HbmDemand(gpu.lanes[i]);
    const Group* group = MovingGroup(gpu.lanes[i]);
    (group != nullptr && !group->copies() ? blocks : others) += demands[i];
  }
  const double blocks_share = std::min(1.0, capacity / (blocks + std::min(others, capacity)));
  for (size_t i = 0; i < demands.size(); ++i) {
    Group* group = MovingGroup(gpu.lanes[i]);
    if (group == nullptr || group->copies()) continue;
    group->rate *= blocks_share;
    demands[i] = 0;
  }
  const double cap = FairCap(demands, capacity - blocks * blocks_share);
  for (size_t i = 0; i < demands.size(); ++i) {
    const double share = demands[i] > cap ? cap / demands[i] : 1;
    gpu.lanes[i].rate = share;
    if (Group* group = MovingGroup(gpu.lanes[i])) group->rate *= share;
  }
}

void SimEngine::Progress(Time until) {
  const Time elapsed = until - now_;
  const auto elapsed_ns = static_cast<double>(elapsed);
  now_ = until;
  for (Gpu& gpu : gpus_) {
    if (gpu.free_sms == gpu.model.sm_count) gpu.idle += elapsed;
    for (LaneState& lane : gpu.lanes) ProgressLane(gpu, lane, elapsed_ns);
  }
}

void SimEngine::ProgressLane(Gpu& gpu, LaneState& lane, double elapsed_ns) {
  if (lane.empty() || !lane.started) return;
  if (Group* group = MovingGroup(lane)) {
    // Once for all its lanes.
    const CollectivePart& first = group->parts[0];
    const bool is_first = &gpus_[static_cast<size_t>(first.gpu)].lanes[first.lane] == &lane;
    if (!is_first) return;
    group->left_ns -= elapsed_ns * group->rate;
    if (group->has_sms()) group->own_left_ns -= elapsed_ns;
    return;
  }
  if (lane.has_engine) lane.left_ns -= elapsed_ns * lane.rate;
  for (Wave& wave : lane.waves) {
    wave.left_ns -= elapsed_ns * lane.rate;
    if (wave.left_ns > kDoneNs) continue;
    gpu.free_sms += wave.sms;
    lane.sms -= wave.sms;
    lane.left_sms += wave.sms;
    lane.tiles_ended += wave.sms;
    up_to_date_ = false;  // rounding may end a tile between two events
  }
  std::erase_if(lane.waves, [](const Wave& wave) { return wave.left_ns <= kDoneNs; });
}

}  // namespace concert::daemon::sim
