// Launches groups of GEMMs with the group kernel: tensor maps and work lists are made once, kept on
// the GPU and named by number afterwards.
#ifndef CONCERT_KERNELS_GROUP_GROUP_LAUNCHER_H_
#define CONCERT_KERNELS_GROUP_GROUP_LAUNCHER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda_api/driver.h"
#include "kernels/cuda_api/kernel_image.h"
#include "kernels/group/group_args.h"
#include "kernels/group/group_records.h"
#include "kernels/group/pinned_mirror.h"
#include "kernels/group/repack_list.h"
#include "kernels/launch_request.h"
#include "kernels/op.h"
#include "policies/seam/lanes.h"

namespace concert::kernels::cuda {

// One GPU's. A track is an ordered line of group launches on one stream, with counters and
// workspace of its own.
//
// REQUIRES of all functions: the GPU's context is current; one thread at a time.
class GroupLauncher {
 public:
  static constexpr int kTracks = policies::kGroupLaneCount;
  // Launches of all tracks that may be unfinished at a time; what they use is not overwritten.
  static constexpr int kMaxUnfinished = 64;
  static_assert(kMaxUnfinished > kMaxGroupLaunches);

  // Allocates what all launches need: some 620 MB of GPU and 33 MB of pinned memory. `streams`: one
  // per track. `kernels` must hold the group kernels.
  static absl::StatusOr<std::unique_ptr<GroupLauncher>> Open(
      const Driver& driver, int gpu, const KernelTable& kernels,
      const std::array<CUstream, kTracks>& streams, SplitSums split_sums);
  ~GroupLauncher();

  // Whether the kernel can run these ops in one launch: all groupable and of one dtype, with no
  // more to repack than a scratch holds. REQUIRES: at least one.
  static bool Carries(std::span<const Op* const> ops);

  // Enqueues one launch; behind another one that copies operands, if need be. On an error nothing
  // of the ops was launched. REQUIRES: Carries() the ops, as many as the work list has problems,
  // made for their shapes and order.
  absl::Status Launch(int track, const LaunchRequest& launch);

  // Enqueues ops that the row kernel carries as one launch of the track, which follows and is
  // followed as those of GEMMs are. A work list is not looked at. REQUIRES: AreRows(ops).
  absl::Status LaunchRows(int track, const LaunchRequest& launch);

  // Something else was enqueued on the track's stream: `after` means nothing for the next launch,
  // which waits for all of it.
  void Interrupt(int track) { tracks_[track].chain = 0; }

  uint64_t launches() const { return launches_; }

 private:
  struct Track {
    CUstream stream = nullptr;
    CUevent event = nullptr;
    // Launches take turns with the sets of counters, and with two workspaces for split sums: see
    // Overlap().
    CUdeviceptr counters = 0;
    std::array<CUdeviceptr, 2> partials{};
    // Of every set, what it will have counted when its last launch ends.
    std::array<std::array<uint32_t, kMaxGroupProblems>, kGroupCounterSets> stored{};
    // kGroupRepackBytes. One is enough: the launch that fills it again waits for the group launch
    // that reads it to end, because it overlaps nothing.
    CUdeviceptr scratch = 0;
    uint32_t launched = 0;  // launches so far
    int chain = 0;          // launches on the stream after which nothing else was enqueued
    bool split = false;     // the last launch used its workspace for split sums
    int64_t blocks = 0;     // of the last launch and those before it that it could overlap

    int SetOf(uint32_t launch) const { return static_cast<int>(launch % kGroupCounterSets); }
  };

  GroupLauncher(const Driver& driver, int gpu, const KernelTable& kernels)
      : driver_(driver), gpu_(gpu), kernels_(kernels) {}
  absl::Status Init(const std::array<CUstream, kTracks>& streams, SplitSums split_sums);
  bool HasItems(int track, const GroupWorkList& work_list) const;
  absl::Status UploadItems(int track, const GroupWorkList& work_list);
  absl::Status UploadTasks(int track, size_t count);
  absl::Status WaitForOtherTracks(int track);
  absl::StatusOr<uint32_t> FindRecord(int track, const Op& op, GroupTile tile);
  absl::Status EnqueueRepacks(const Track& track);
  // SMs for the launch and all that it overlaps; 0: all. High priority keeps to none: the rest need
  // not be left to anybody.
  static int BudgetOf(int track, const LaunchRequest& launch) {
    return policies::IsHighPriority(policies::kGroupLanes[track]) ? 0 : launch.planned.sm_budget;
  }
  bool InBudget(int track, const LaunchRequest& launch, int64_t blocks) const;
  absl::Status Enqueue(Track& track, const LaunchRequest& launch, bool overlap);
  // What launches of both kinds have in common.
  static bool FollowsEarly(const Track& track, const LaunchRequest& launch);
  void Follow(const Track& track, const Predecessor& after, uint16_t& to,
              uint32_t& after_stored) const;
  bool ReleasesLate(const Track& track) const;
  void Count(Track& track, bool overlap, int64_t blocks, bool split);
  void FillTask(Track& track, const LaunchRequest& launch, size_t problem, uint32_t record,
                bool follow, GroupTask& task) const;

  const Driver& driver_;
  const int gpu_;
  const KernelTable& kernels_;
  std::array<Track, kTracks> tracks_;
  GroupRecords records_;
  PinnedMirror items_;  // the work list store's arena; on the host, a ring of what is uploaded
  uint32_t staged_items_ = 0;
  PinnedMirror tasks_;  // of launches with more than kGroupInlineTasks
  uint32_t next_tasks_ = 0;
  // Per slot of the store: the work list that lies in items_, and the tracks that may use it.
  struct KnownList {
    uint64_t id = 0;
    uint32_t tracks = 0;
  };
  std::array<KnownList, kWorkListSlots> work_lists_{};
  uint64_t store_ = 0;      // whose work lists they are
  uint32_t items_end_ = 0;  // what lies beyond was never written
  GroupArgs args_{};        // of the launch being made
  RepackList repacks_;      // of the launch being made
  size_t max_waiting_ = 0;  // blocks of a launch that may wait for others: GroupArgs::hand_over
  uint64_t launches_ = 0;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GROUP_GROUP_LAUNCHER_H_
