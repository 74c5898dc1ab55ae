// A discrete-event model of the GPUs of a node: what runs where, and when it ends. Pure: no
// threads, clocks, memory of operands or numbers. Deterministic: the same calls give the same
// completions.
//
// Lanes are FIFO queues; an item starts when the one before it is done, its launch latency has
// passed and what it needs is free:
//   kernel      SMs. Tiles take free SMs one by one; lanes of high priority first, then whoever
//   holds fewest.
//               No preemption: a tile keeps its SM to its end, and a persistent kernel's block goes
//               on with its next tile. All running tiles share HBM. Parts of a kernel (the problems
//               of a group) end when their share of its tiles has.
//   copy        one of the GPU's copy engines; shares HBM, never SMs.
//   collective  a few SMs on every GPU it touches, held from the first one on as real ones do: it
//               moves once all its lanes have reached it and all its SMs are there; one by copy
//               engines needs these for what ranks copy to themselves, moves before and gives
//               them back after that. Shares links and HBM; its blocks and tiles of kernels slow
//               each other down.
//   mark        nothing: ends when all before it on the lane has.
//   order       nothing: ends when what was on the other lane at its enqueueing has.
//
// Between two events everything progresses at constant rates, set by max-min fair shares of HBM
// (per GPU) and of the links (per GPU, among collectives).
#ifndef CONCERT_DAEMON_DEVICE_SIM_SIM_ENGINE_H_
#define CONCERT_DAEMON_DEVICE_SIM_SIM_ENGINE_H_

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "daemon/device/sim/chain_pool.h"
#include "daemon/device/sim/kernel_shape.h"
#include "policies/seam/lanes.h"
#include "policies/seam/transport.h"
#include "policies/seam/work.h"

namespace concert::daemon::sim {

using policies::Lane;
using policies::Time;

inline constexpr Time kNever = std::numeric_limits<Time>::max();

// One lane that a collective runs on.
struct CollectivePart {
  int gpu = 0;
  Lane lane = policies::kCollectiveLane;
  double link_bytes = 0;   // sent by this GPU
  double block_bytes = 0;  // by its blocks, where peer kernels carry it
  double hbm_bytes = 0;
  policies::CollectiveKind kind = policies::CollectiveKind::kAllReduce;
  bool keeps = false;  // as policies::Work
};

// A moment of a kernel before or at its end: once `fraction` of its tiles have ended and as much of
// its floor has passed.
struct Milestone {
  double fraction = 1;  // (0, 1]
  uint64_t cookie = 0;
};

// What bounds a copy: the GPU's memory, or the link to another GPU.
enum class CopyRoute : uint8_t { kMemory, kLink };

// An item that ended, or a kernel's milestone. Order items end silently.
struct Completion {
  Time time = 0;
  int gpu = 0;  // a collective's first
  uint64_t cookie = 0;
};

class SimEngine {
 public:
  static constexpr size_t kMaxGpus = 16;
  static constexpr size_t kMaxParts = 16;  // of a collective
  static constexpr int kMaxLaneCapacity = 1 << 16;

  // REQUIRES: 1 to kMaxGpus GPUs, each with at least 2 SMs and a copy engine. Each lane holds
  // `lane_capacity` items; nothing is allocated after construction.
  SimEngine(std::span<const policies::DeviceModel> gpus, int lane_capacity);

  Time now() const { return now_; }
  // How long nothing has held an SM of the GPU.
  Time IdleTime(int gpu) const { return gpus_[static_cast<size_t>(gpu)].idle; }

  // Items that still fit on the lane.
  int Room(int gpu, Lane lane) const;
  // Collectives that still fit, on any lanes.
  int CollectiveRoom() const { return static_cast<int>(free_groups_.size()); }

  // Milestones that still fit in kernels, on any lanes.
  uint32_t MilestoneRoom() const { return milestones_.available(); }

  // Enqueue an item at the host's time `at` (the past counts as now). REQUIRES: Room() for it.
  // `milestones`, which come before the kernel's end, are in order of their fractions. REQUIRES:
  // MilestoneRoom() for them.
  void EnqueueKernel(int gpu, Lane lane, Time at, const KernelShape& shape, int sm_limit,
                     uint64_t cookie, std::span<const Milestone> milestones = {});
  void EnqueueCopy(int gpu, Lane lane, Time at, uint64_t bytes, CopyRoute route, uint64_t cookie);
  void EnqueueMark(int gpu, Lane lane, Time at, uint64_t cookie);
  void EnqueueOrder(int gpu, Lane lane, Lane before, Time at);
  // REQUIRES: CollectiveRoom(), and (gpu, lane) of the parts are distinct.
  void EnqueueCollective(std::span<const CollectivePart> parts,
                         const policies::TransportChoice& choice, Time at, uint64_t cookie);

  // When the next thing happens, at the earliest; kNever when everything has ended.
  Time NextEvent() const;

  // Moves time to `until` (backwards: no effect) and appends what ended up to then, in order.
  void AdvanceTo(Time until, std::vector<Completion>& done);

 private:
  // What has at most this left has ended: rounding errors of double arithmetic.
  static constexpr double kDoneNs = 1e-3;
  static constexpr Time kLongAgo = -(Time{1} << 60);

  enum class ItemType : uint8_t { kKernel, kCopy, kCollective, kMark, kOrder };

  struct Item {
    ItemType type;
    Lane before;     // order
    uint16_t group;  // collective
    int sm_limit;    // kernel
    Time ready_at;
    uint64_t until;  // order: items of `before` that must have ended
    uint64_t cookie;
    KernelShape shape;
    uint32_t next_milestone;  // kernel: the first of milestones_ ahead
    double bytes_per_ns;      // copy: at full rate
    double copy_ns;           // copy: at full rate
  };

  // Tiles of one kernel that started together.
  struct Wave {
    int sms;
    double left_ns;  // at full rate
  };

  struct LaneState {
    std::vector<Item> items;  // ring buffer
    uint64_t enqueued = 0, ended = 0;
    // Of the item at the head, once it has started:
    bool started = false;
    uint64_t start_order = 0;
    int sms = 0;       // held
    int left_sms = 0;  // by tiles that have ended since SMs were assigned
    int64_t tiles_left = 0;
    int64_t tiles_ended = 0;
    std::vector<Wave> waves;
    double left_ns = 0;       // copy, at full rate
    bool has_engine = false;  // copy
    Time earliest_end = kNever;
    Time last_end = kLongAgo;  // of an item before
    double rate = 1;           // kernel and copy: share of full rate

    bool empty() const { return enqueued == ended; }
    Item& head() { return items[ended % items.size()]; }
    const Item& head() const { return items[ended % items.size()]; }
  };

  struct Group {  // a collective in flight
    std::array<CollectivePart, kMaxParts> parts;
    size_t part_count = 0;
    policies::TransportChoice choice;
    size_t parts_started = 0;
    size_t parts_ready = 0;  // hold all their SMs
    double solo_ns = 0, left_ns = 0, rate = 1;
    double own_left_ns = 0;  // of what ranks copy to themselves, with all SMs

    bool copies() const { return choice.transport == policies::Transport::kCopyEngine; }
    bool needs_sms() const { return !copies() || own_left_ns > kDoneNs; }
    bool has_sms() const { return parts_ready == part_count; }
    bool moving() const { return has_sms() || (copies() && parts_started == part_count); }
    bool ended() const { return moving() && left_ns <= kDoneNs && own_left_ns <= kDoneNs; }
    std::span<const CollectivePart> part_span() const { return {parts.data(), part_count}; }
  };

  struct Gpu {
    policies::DeviceModel model;
    std::array<LaneState, policies::kLaneCount> lanes;
    int free_sms = 0;
    int free_copy_engines = 0;
    Time idle = 0;
  };

  Item& Push(int gpu, Lane lane, ItemType type, Time at, uint64_t cookie);

  // sim_engine.cc: the order of events.
  void StartAndEnd(std::vector<Completion>& done);
  bool StartHeads(Gpu& gpu);
  void PassMilestones(int gpu_index, LaneState& lane, std::vector<Completion>& done);
  static bool TilesEnded(const LaneState& lane, const Milestone& milestone);
  static Time FloorOf(const LaneState& lane, const Milestone& milestone);
  bool EndHeads(int gpu_index, std::vector<Completion>& done);
  bool HeadEnded(const Gpu& gpu, const LaneState& lane) const;
  void EndCollective(uint16_t group_index);
  void EndHead(LaneState& lane) const;
  static Time StartOf(const LaneState& lane);
  Time NextEventOf(const LaneState& lane) const;

  // sim_resources.cc: who holds what and how fast it goes.
  void AssignSms(Gpu& gpu);
  static void KeepSms(Gpu& gpu);
  void GiveBackSms(Gpu& gpu);
  LaneState* NextForSm(Gpu& gpu);
  int SmsWanted(const Gpu& gpu, const LaneState& lane) const;
  void AssignCopyEngines(Gpu& gpu);
  void TimeOf(Group& group) const;
  void SetRates();
  void ShareLinks(int gpu_index);
  void ShareHbm(int gpu_index);
  void DisturbEachOther(int gpu_index);
  double HbmDemand(const LaneState& lane) const;
  void Progress(Time until);
  void ProgressLane(Gpu& gpu, LaneState& lane, double elapsed_ns);

  // That a part of it holds.
  static int SmsOf(const Gpu& gpu, const Group& group);
  // Null unless the head is a collective whose SMs are all there.
  Group* MovingGroup(const LaneState& lane);
  const Group* MovingGroup(const LaneState& lane) const;

  std::vector<Gpu> gpus_;
  ChainPool<Milestone> milestones_;
  std::vector<Group> groups_;
  std::vector<uint16_t> free_groups_;
  Time now_ = 0;
  uint64_t starts_ = 0;
  bool up_to_date_ = true;  // since StartAndEnd() nothing was enqueued and no tile has ended
};

}  // namespace concert::daemon::sim

#endif  // CONCERT_DAEMON_DEVICE_SIM_SIM_ENGINE_H_
