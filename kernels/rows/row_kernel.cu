// One kernel for ops whose rows are computed each for itself, several of them in a launch. On a
// track it takes part in chains as the group kernel does: it may start before the launch before it
// has ended, waits for what each of its ops follows, counts what is stored and signals timelines
// itself. kernels/group/group_args.h says how launches of a track overlap.
#include "kernels/group/async.cuh"
#include "kernels/rows/row_args.h"
#include "kernels/rows/row_compute.cuh"

namespace concert::kernels::cuda {
namespace {

struct Place {
  int task;
  uint32_t block;  // among the task's
};

__device__ Place PlaceOfBlock(const RowArgs& args) {
  uint32_t block = blockIdx.x;
  int task = 0;
  while (block >= args.tasks[task].blocks) block -= args.tasks[task++].blocks;
  return {task, block};
}

// As the group kernel's, by a warp of its own, because nothing else may wait for it.
__device__ void LineUp(const RowArgs& args) {
  if (threadIdx.x != kRowComputeThreads) return;
  const bool last_to_end = blockIdx.x == 0;
  if (!last_to_end || !args.release_late) ReleaseNextLaunch();
  if (!last_to_end) return;
  WaitForPreviousLaunch();
  ReleaseNextLaunch();
}

// Until what the task reads is there. Acquires it (release: GroupCounters::stored is counted after
// it). Ends for certain: a launch's blocks get an SM only after all of the previous one's have
// theirs.
__device__ void WaitForInputs(const RowArgs& args, const RowTask& task) {
  if (!args.inputs_early) return WaitForPreviousLaunch();
  if (task.after == 0) return;
  if (threadIdx.x == 0) {
    const GroupCounters& counters = args.counters[(task.after - 1) / kMaxGroupProblems];
    const uint32_t* stored = &counters.stored[(task.after - 1) % kMaxGroupProblems];
    while (static_cast<int32_t>(LoadAcquire(stored) - task.after_stored) < 0) {
    }
  }
  SyncRowThreads();
}

// Counts the block's part (release: whoever acquires the count, or the timeline, sees it). The last
// one to count writes the timeline, behind the value before.
__device__ void Complete(const RowArgs& args, const RowTask& task, int index) {
  SyncRowThreads();
  if (threadIdx.x != 0) return;
  const uint32_t before = AddAcquireRelease(&args.counters[args.set].stored[index], 1);
  if (before + 1 != task.stored || task.signal_address == 0) return;
  if (args.inputs_early && task.next_on_timeline) {
    while (LoadRelaxedSystem(task.signal_address) + 1 < task.signal_value) {
    }
  }
  FenceSystem();
  StoreRelaxedSystem(task.signal_address, task.signal_value);
}

}  // namespace

// Blocks of an SM, which hide each other's waits: norms of 2,048 x 2,048 by four instead of three
// 10.8 instead of 12.4 us, heads rotated and appended 19.3 instead of 21.0 (one H200).
constexpr int kBlocksPerSm = 4;

extern "C" __global__ void __launch_bounds__(kRowThreads, kBlocksPerSm)
    concert_rows(const __grid_constant__ RowArgs args) {
  const bool on_track = args.counters != nullptr;
  if (threadIdx.x >= kRowComputeThreads) {
    if (on_track) LineUp(args);
    return;
  }
  const Place place = PlaceOfBlock(args);
  const RowTask& task = args.tasks[place.task];
  if (!on_track) {
    if (args.releases_next) ReleaseNextLaunch();
    WaitForPreviousLaunch();
  }
  if (args.there != nullptr && (*args.there >> place.task & 1) == 0) return;
  if (on_track) WaitForInputs(args, task);
  ComputeRowTask</*kOfStep=*/false>(task, place.block, task.blocks);
  if (on_track) Complete(args, task, place.task);
}

}  // namespace concert::kernels::cuda
