// Launches of the row kernel on a track, between those of the group kernel.
#include <algorithm>

#include "kernels/cuda_api/launch_kernel.h"
#include "kernels/group/group_launcher.h"
#include "kernels/rows/row_args.h"
#include "kernels/rows/row_ops.h"

namespace concert::kernels::cuda {
namespace {

// Blocks of the row kernel that an SM holds: its threads allow 7.
constexpr int kBlocksPerSm = 7;
// A launch's share of the GPU while others, whose ends it overlaps, still have theirs.
constexpr int kMaxSms = 128;

int64_t SmsOf(unsigned blocks) { return (blocks + kBlocksPerSm - 1) / kBlocksPerSm; }

}  // namespace

absl::Status GroupLauncher::LaunchRows(int index, const LaunchRequest& launch) {
  Track& track = tracks_[index];
  RowArgs args{};
  const int budget = BudgetOf(index, launch);
  const int sms = budget > 0 ? std::min(budget, kMaxSms) : kMaxSms;
  const unsigned blocks = LowerRows(launch.ops, static_cast<unsigned>(sms * kBlocksPerSm), args);
  const bool inputs_early = FollowsEarly(track, launch);
  std::array<uint32_t, kMaxGroupProblems>& stored = track.stored[track.SetOf(track.launched)];
  for (size_t i = 0; i < launch.ops.size(); ++i) {
    RowTask& task = args.tasks[i];
    if (!launch.writes.empty()) {
      task.signal_address = launch.writes[i].address;
      task.signal_value = launch.writes[i].value;
    }
    task.stored = stored[i] + task.blocks;
    if (!inputs_early || launch.after.empty() || launch.after[i].launches_back == 0) continue;
    Follow(track, launch.after[i], task.after, task.after_stored);
    task.next_on_timeline = 1;
  }
  args.counters = reinterpret_cast<GroupCounters*>(track.counters);
  args.set = static_cast<uint8_t>(track.SetOf(track.launched));
  args.inputs_early = inputs_early;
  args.release_late = ReleasesLate(track);
  const bool overlap = inputs_early && InBudget(index, launch, SmsOf(blocks));
  CUlaunchAttribute overlaps = OverlapsTheOneBefore();
  const absl::Status status =
      LaunchKernelWith({&overlaps, overlap ? 1u : 0u}, driver_, gpu_, kernels_.rows, blocks,
                       kRowThreads, track.stream, args);
  if (!status.ok()) return status;
  for (size_t i = 0; i < launch.ops.size(); ++i) stored[i] = args.tasks[i].stored;
  Count(track, overlap, SmsOf(blocks), /*split=*/false);
  return absl::OkStatus();
}

}  // namespace concert::kernels::cuda
