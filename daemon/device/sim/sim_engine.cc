#include "daemon/device/sim/sim_engine.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "kernels/group/plan/work_list.h"

namespace concert::daemon::sim {
namespace {

// Few kernels are groups: room for lanes full of them would be wasted. Any one group fits.
constexpr int kPartsPerItem = 16;
constexpr int kMinParts = 2 * kernels::kMaxGroupProblems;

// Keeps absurdly long work (years) within Time.
constexpr double kLongestNs = 1e17;

Time After(Time now, double left_ns, double rate) {
  return now +
         std::max<Time>(1, static_cast<Time>(std::ceil(std::min(left_ns / rate, kLongestNs))));
}

}  // namespace

SimEngine::SimEngine(std::span<const policies::DeviceModel> gpus, int lane_capacity)
    : gpus_(gpus.size()), milestones_(std::max(kMinParts, lane_capacity * kPartsPerItem)) {
  assert(!gpus.empty() && gpus.size() <= kMaxGpus);
  assert(lane_capacity >= 1 && lane_capacity <= kMaxLaneCapacity);
  for (size_t i = 0; i < gpus.size(); ++i) {
    assert(gpus[i].sm_count >= 2 && gpus[i].copy_engines >= 1);
    gpus_[i].model = gpus[i];
    gpus_[i].free_sms = gpus[i].sm_count;
    gpus_[i].free_copy_engines = gpus[i].copy_engines;
    for (LaneState& lane : gpus_[i].lanes) {
      lane.items.resize(static_cast<size_t>(lane_capacity));
      lane.waves.reserve(static_cast<size_t>(gpus[i].sm_count));
    }
  }
  groups_.resize(static_cast<size_t>(lane_capacity));
  for (int i = lane_capacity - 1; i >= 0; --i) free_groups_.push_back(static_cast<uint16_t>(i));
}

int SimEngine::Room(int gpu, Lane lane) const {
  const LaneState& state = gpus_[static_cast<size_t>(gpu)].lanes[lane];
  return static_cast<int>(state.items.size() - (state.enqueued - state.ended));
}

SimEngine::Item& SimEngine::Push(int gpu, Lane lane, ItemType type, Time at, uint64_t cookie) {
  Gpu& on = gpus_[static_cast<size_t>(gpu)];
  LaneState& state = on.lanes[lane];
  assert(Room(gpu, lane) > 0);
  Item& item = state.items[state.enqueued++ % state.items.size()];
  item = Item{};
  item.type = type;
  item.next_milestone = ChainPool<Milestone>::kEnd;
  item.ready_at = std::max(at, now_) + static_cast<Time>(on.model.launch_us * 1e3);
  item.cookie = cookie;
  up_to_date_ = false;
  return item;
}

void SimEngine::EnqueueKernel(int gpu, Lane lane, Time at, const KernelShape& shape, int sm_limit,
                              uint64_t cookie, std::span<const Milestone> milestones) {
  assert(shape.tiles >= 1 && shape.tile_ns > 0);
  Item& item = Push(gpu, lane, ItemType::kKernel, at, cookie);
  const int sm_count = gpus_[static_cast<size_t>(gpu)].model.sm_count;
  item.shape = shape;
  for (size_t i = milestones.size(); i-- > 0;)
    item.next_milestone = milestones_.Prepend(milestones[i], item.next_milestone);
  item.sm_limit = sm_limit <= 0 ? sm_count : std::min(sm_limit, sm_count);
}

// Between GPUs an engine moves data as fast as a link carries it (measured: one engine, 389 GB/s);
// within one, each byte is read and written.
void SimEngine::EnqueueCopy(int gpu, Lane lane, Time at, uint64_t bytes, CopyRoute route,
                            uint64_t cookie) {
  const policies::DeviceModel& model = gpus_[static_cast<size_t>(gpu)].model;
  Item& item = Push(gpu, lane, ItemType::kCopy, at, cookie);
  item.bytes_per_ns =
      (route == CopyRoute::kLink ? model.link_bytes_per_s : model.hbm_bytes_per_s / 2) / 1e9;
  item.copy_ns = static_cast<double>(bytes) / item.bytes_per_ns;
}

void SimEngine::EnqueueMark(int gpu, Lane lane, Time at, uint64_t cookie) {
  Push(gpu, lane, ItemType::kMark, at, cookie);
}

void SimEngine::EnqueueOrder(int gpu, Lane lane, Lane before, Time at) {
  const uint64_t until = gpus_[static_cast<size_t>(gpu)].lanes[before].enqueued;
  Item& item = Push(gpu, lane, ItemType::kOrder, at, 0);
  item.before = before;
  item.until = until;
}

void SimEngine::EnqueueCollective(std::span<const CollectivePart> parts,
                                  const policies::TransportChoice& choice, Time at,
                                  uint64_t cookie) {
  assert(!parts.empty() && parts.size() <= kMaxParts);
  assert(!free_groups_.empty());
  const uint16_t index = free_groups_.back();
  free_groups_.pop_back();
  Group& group = groups_[index];
  group = Group{};
  group.part_count = parts.size();
  group.choice = choice;
  std::copy(parts.begin(), parts.end(), group.parts.begin());
  TimeOf(group);
  for (const CollectivePart& part : parts) {
    Push(part.gpu, part.lane, ItemType::kCollective, at, cookie).group = index;
  }
}

void SimEngine::AdvanceTo(Time until, std::vector<Completion>& done) {
  if (until < now_) return;
  StartAndEnd(done);
  for (Time next = NextEvent(); next <= until; next = NextEvent()) {
    Progress(next);
    StartAndEnd(done);
  }
  Progress(until);
}

// Starts and ends all that can start and end now. Terminates: every round starts or ends an item.
void SimEngine::StartAndEnd(std::vector<Completion>& done) {
  bool changed = true;
  while (changed) {
    changed = false;
    for (size_t i = 0; i < gpus_.size(); ++i) {
      changed |= StartHeads(gpus_[i]);
      AssignSms(gpus_[i]);
      AssignCopyEngines(gpus_[i]);
      changed |= EndHeads(static_cast<int>(i), done);
    }
  }
  SetRates();
  up_to_date_ = true;
}

// Of its head, if nothing else is in the way.
Time SimEngine::StartOf(const LaneState& lane) {
  const Item& item = lane.head();
  return std::max(item.ready_at, lane.last_end + static_cast<Time>(item.shape.behind_ns));
}

bool SimEngine::StartHeads(Gpu& gpu) {
  bool changed = false;
  for (LaneState& lane : gpu.lanes) {
    if (lane.empty() || lane.started || StartOf(lane) > now_) continue;
    lane.started = true;
    lane.start_order = ++starts_;
    lane.tiles_left = lane.head().shape.tiles;
    lane.tiles_ended = 0;
    lane.left_ns = lane.head().copy_ns;
    if (lane.head().type == ItemType::kCollective) {
      Group& group = groups_[lane.head().group];
      ++group.parts_started;
      if (SmsOf(gpu, group) == 0) ++group.parts_ready;  // it waits for none
    }
    changed = true;
  }
  return changed;
}

bool SimEngine::EndHeads(int gpu_index, std::vector<Completion>& done) {
  Gpu& gpu = gpus_[static_cast<size_t>(gpu_index)];
  bool changed = false;
  for (LaneState& lane : gpu.lanes) {
    if (lane.empty() || !lane.started) continue;
    PassMilestones(gpu_index, lane, done);
    if (!HeadEnded(gpu, lane)) continue;
    const Item& item = lane.head();
    if (item.type != ItemType::kOrder) done.push_back({now_, gpu_index, item.cookie});
    if (item.type == ItemType::kCopy) ++gpu.free_copy_engines;
    if (item.type == ItemType::kCollective) {
      EndCollective(item.group);
    } else {
      EndHead(lane);
    }
    changed = true;
  }
  return changed;
}

bool SimEngine::TilesEnded(const LaneState& lane, const Milestone& milestone) {
  // Fractions are quotients of floats: a rounding error must not cost another tile.
  constexpr double kRounding = 1e-6;
  return static_cast<double>(lane.tiles_ended) >=
         (milestone.fraction - kRounding) * static_cast<double>(lane.head().shape.tiles);
}

// When the milestone's share of the kernel's floor has passed; kNever before the first tile.
Time SimEngine::FloorOf(const LaneState& lane, const Milestone& milestone) {
  if (lane.earliest_end == kNever) return kNever;
  const double ahead_ns = (1 - milestone.fraction) * lane.head().shape.floor_ns;
  return lane.earliest_end - static_cast<Time>(ahead_ns);
}

void SimEngine::PassMilestones(int gpu_index, LaneState& lane, std::vector<Completion>& done) {
  uint32_t& next = lane.head().next_milestone;
  while (next != ChainPool<Milestone>::kEnd) {
    const Milestone& milestone = milestones_[next];
    if (!TilesEnded(lane, milestone) || now_ < FloorOf(lane, milestone)) return;
    done.push_back({now_, gpu_index, milestone.cookie});
    next = milestones_.ReleaseFirst(next);
  }
}

bool SimEngine::HeadEnded(const Gpu& gpu, const LaneState& lane) const {
  switch (lane.head().type) {
    case ItemType::kKernel:
      return lane.tiles_left == 0 && lane.waves.empty() && now_ >= lane.earliest_end;
    case ItemType::kCopy:
      return lane.has_engine && lane.left_ns <= kDoneNs && now_ >= lane.earliest_end;
    case ItemType::kCollective: {
      const Group* group = MovingGroup(lane);
      return group != nullptr && group->ended();
    }
    case ItemType::kMark:
      return true;
    case ItemType::kOrder:
      return gpu.lanes[lane.head().before].ended >= lane.head().until;
  }
  return false;
}

void SimEngine::EndCollective(uint16_t group_index) {
  for (const CollectivePart& part : groups_[group_index].part_span()) {
    Gpu& gpu = gpus_[static_cast<size_t>(part.gpu)];
    LaneState& lane = gpu.lanes[part.lane];
    gpu.free_sms += lane.sms;
    EndHead(lane);
  }
  free_groups_.push_back(group_index);
}

void SimEngine::EndHead(LaneState& lane) const {
  ++lane.ended;
  lane.last_end = now_;
  lane.started = false;
  lane.sms = lane.left_sms = 0;
  lane.has_engine = false;
  lane.earliest_end = kNever;
  lane.rate = 1;
}

Time SimEngine::NextEvent() const {
  if (!up_to_date_) return now_;
  Time next = kNever;
  for (const Gpu& gpu : gpus_) {
    for (const LaneState& lane : gpu.lanes) {
      if (!lane.empty()) next = std::min(next, NextEventOf(lane));
    }
  }
  return std::max(next, now_);
}

// Of a lane with work. kNever while it waits for something that has an event of its own.
Time SimEngine::NextEventOf(const LaneState& lane) const {
  const Item& item = lane.head();
  if (!lane.started) return StartOf(lane);
  Time next = kNever;
  switch (item.type) {
    case ItemType::kKernel:
      for (const Wave& wave : lane.waves)
        next = std::min(next, After(now_, wave.left_ns, lane.rate));
      if (item.next_milestone != ChainPool<Milestone>::kEnd &&
          TilesEnded(lane, milestones_[item.next_milestone])) {
        next = std::min(next, FloorOf(lane, milestones_[item.next_milestone]));
      }
      return lane.tiles_left == 0 && lane.waves.empty() ? std::min(next, lane.earliest_end) : next;
    case ItemType::kCopy:
      if (!lane.has_engine) return kNever;
      return lane.left_ns > kDoneNs ? After(now_, lane.left_ns, lane.rate) : lane.earliest_end;
    case ItemType::kCollective:
      if (const Group* group = MovingGroup(lane)) {
        if (group->left_ns > kDoneNs) next = After(now_, group->left_ns, group->rate);
        if (group->has_sms() && group->own_left_ns > kDoneNs)
          next = std::min(next, After(now_, group->own_left_ns, 1));
      }
      return next;
    case ItemType::kMark:
    case ItemType::kOrder:
      return kNever;
  }
  return next;
}

}  // namespace concert::daemon::sim
