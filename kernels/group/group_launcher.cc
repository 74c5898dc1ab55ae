#include "kernels/group/group_launcher.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cuda_api/launch_kernel.h"

namespace concert::kernels::cuda {
namespace {

// Items are staged in a ring that holds those of all launches that may be unfinished, and one more
// that does not fit before its end: what an upload still reads is not overwritten.
constexpr uint32_t kStagedItems = kGroupArenaItems;
static_assert((GroupLauncher::kMaxUnfinished - 1) * kMaxGroupItems < kStagedItems);

// Tasks of the launches that may be unfinished.
constexpr uint32_t kTaskSlots = GroupLauncher::kMaxUnfinished;
static_assert(kTaskSlots * kMaxGroupProblems <= GroupRecords::kKept);

size_t KernelOf(Dtype dtype) {
  return dtype == Dtype::kFp8E4m3 ? 2 : dtype == Dtype::kFp16 ? 1 : 0;
}

uint16_t FlagsOf(const GemmArgs& gemm) {
  uint32_t flags = 0;
  const bool has_c = gemm.beta != 0.0f;
  if (gemm.alpha != 1.0f || has_c || gemm.bias != 0 || gemm.activation != Activation::kNone ||
      gemm.a_scales != 0 || gemm.w_scales != 0) {
    flags |= GroupRecord::kFinish;
  }
  if (has_c) flags |= GroupRecord::kHasC;
  if (gemm.a_scales_per_row) flags |= GroupRecord::kAScalesPerRow;
  if (gemm.w_scales_per_row) flags |= GroupRecord::kWScalesPerRow;
  if (gemm.d_dtype == Dtype::kFp16) flags |= GroupRecord::kFp16Out;
  if (gemm.n * DtypeBytes(gemm.d_dtype) % 16 != 0) flags |= GroupRecord::kRaggedRows;
  if (!GroupOperand::D(gemm).MapTakes()) flags |= GroupRecord::kUnmapped;
  return static_cast<uint16_t>(flags);
}

// Both halves of what each block computes of a tile are counted.
uint32_t HalvesOf(const GemmArgs& gemm, GroupTile tile) {
  return 2 * BlocksPerTile(tile) * ((gemm.n + tile.w_rows - 1) / tile.w_rows) *
         ((gemm.m + tile.a_rows - 1) / tile.a_rows);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GroupLauncher>> GroupLauncher::Open(
    const Driver& driver, int gpu, const KernelTable& kernels,
    const std::array<CUstream, kTracks>& streams, SplitSums split_sums) {
  std::unique_ptr<GroupLauncher> launcher(new GroupLauncher(driver, gpu, kernels));
  if (absl::Status status = launcher->Init(streams, split_sums); !status.ok()) return status;
  return launcher;
}

absl::Status GroupLauncher::Init(const std::array<CUstream, kTracks>& streams,
                                 SplitSums split_sums) {
  args_.sums_as_they_come = split_sums == SplitSums::kFastest;
  for (size_t footprint = 0; footprint < kGroupFootprints.size(); ++footprint) {
    for (CUfunction function : kernels_.group[footprint]) {
      CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuFuncSetAttribute, function,
                                     CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                     static_cast<int>(kGroupFootprints[footprint].shared_bytes()));
    }
  }
  CUdevice device;
  int sm_count = 0;
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuDeviceGet, &device, gpu_);
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuDeviceGetAttribute, &sm_count,
                                 CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  // On all tracks together fewer than there are SMs.
  max_waiting_ = std::min<size_t>(kGroupMaxWatched, sm_count / (kTracks + 1));
  for (int i = 0; i < kTracks; ++i) {
    Track& track = tracks_[i];
    track.stream = streams[i];
    CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuEventCreate, &track.event,
                                   CU_EVENT_DISABLE_TIMING);
    CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuMemAlloc, &track.counters,
                                   kGroupCounterSets * sizeof(GroupCounters));
    CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuMemsetD8Async, track.counters, 0,
                                   kGroupCounterSets * sizeof(GroupCounters), track.stream);
    for (CUdeviceptr& partials : track.partials) {
      CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuMemAlloc, &partials, kGroupPartialBytes);
      if (split_sums == SplitSums::kRepeatable) continue;  // its parts overwrite what is there
      CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuMemsetD8Async, partials, 0,
                                     kGroupPartialBytes, track.stream);
    }
    CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuMemAlloc, &track.scratch, kGroupRepackBytes);
  }
  absl::Status status = records_.Allocate(driver_, gpu_);
  status.Update(items_.Allocate(driver_, gpu_, kGroupArenaItems * sizeof(GroupItem)));
  status.Update(tasks_.Allocate(driver_, gpu_, kTaskSlots * kMaxGroupProblems * sizeof(GroupTask)));
  return status;
}

GroupLauncher::~GroupLauncher() {
  for (const Track& track : tracks_) {
    if (track.event != nullptr) driver_.cuEventDestroy(track.event);
    if (track.counters != 0) driver_.cuMemFree(track.counters);
    for (const CUdeviceptr partials : track.partials) {
      if (partials != 0) driver_.cuMemFree(partials);
    }
    if (track.scratch != 0) driver_.cuMemFree(track.scratch);
  }
}

bool GroupLauncher::Carries(std::span<const Op* const> ops) {
  uint64_t repack_bytes = 0;
  for (const Op* op : ops) {
    if (!op->work.groupable() || op->gemm.dtype != ops.front()->gemm.dtype) return false;
    repack_bytes += op->work.repack_bytes;
  }
  return repack_bytes <= kGroupRepackBytes;
}

absl::Status GroupLauncher::Launch(int index, const LaunchRequest& launch) {
  Track& track = tracks_[index];
  const GroupWorkList& work_list = *launch.work_list();
  const bool large = launch.ops.size() > kGroupInlineTasks;
  GroupTask* tasks = args_.inline_tasks;
  if (large) {
    tasks = tasks_.host<GroupTask>() + next_tasks_ * kMaxGroupProblems;
  }
  const bool inputs_early = FollowsEarly(track, launch);
  args_.maps_inline = launch.ops.size() <= kGroupInlineMaps;
  args_.hand_over = launch.ops.size() > max_waiting_;
  repacks_.Start(track.scratch);
  for (size_t i = 0; i < launch.ops.size(); ++i) {
    absl::StatusOr<uint32_t> record = FindRecord(index, *launch.ops[i], work_list.tiles[i]);
    if (!record.ok()) return record.status();
    FillTask(track, launch, i, *record, inputs_early, tasks[i]);
    if (args_.maps_inline) args_.few.maps[i] = records_.maps(*record);
  }
  const bool has_items = HasItems(index, work_list);
  const bool uploads = large || records_.has_pending() || !has_items;
  if (!has_items) {
    if (absl::Status status = UploadItems(index, work_list); !status.ok()) return status;
  }
  if (records_.has_pending()) {
    if (absl::Status status = records_.Upload(track.stream); !status.ok()) return status;
  }
  if (large) {
    if (absl::Status status = UploadTasks(index, launch.ops.size()); !status.ok()) return status;
  }
  args_.items = reinterpret_cast<const GroupItem*>(items_.device()) + work_list.first_item;
  args_.inputs_early = inputs_early;
  args_.weights_early = launch.weights_ready;
  if (absl::Status status = EnqueueRepacks(track); !status.ok()) return status;
  // The launch must not begin before what is uploaded and repacked for it is there, whatever it may
  // overlap.
  const bool overlap = !uploads && repacks_.empty() && (inputs_early || launch.weights_ready) &&
                       InBudget(index, launch, work_list.grid());
  if (absl::Status status = Enqueue(track, launch, overlap); !status.ok()) return status;
  std::array<uint32_t, kMaxGroupProblems>& stored = track.stored[track.SetOf(track.launched)];
  for (size_t i = 0; i < launch.ops.size(); ++i) stored[i] = tasks[i].stored;
  Count(track, overlap, work_list.grid(), work_list.split_tiles > 0);
  return absl::OkStatus();
}

// Whether it need wait for nothing but what its ops follow on the track.
bool GroupLauncher::FollowsEarly(const Track& track, const LaunchRequest& launch) {
  return launch.inputs_ready &&
         std::all_of(launch.after.begin(), launch.after.end(),
                     [&](const Predecessor& after) { return after.launches_back <= track.chain; });
}

// GroupTask::after and after_stored of what follows `after`.
void GroupLauncher::Follow(const Track& track, const Predecessor& after, uint16_t& to,
                           uint32_t& after_stored) const {
  const int set = track.SetOf(track.launched - after.launches_back);
  to = GroupAfter(set, after.op);
  after_stored = track.stored[set][after.op];
}

// The launch after the next may use the same workspace as the previous one did, which it must not
// run beside.
bool GroupLauncher::ReleasesLate(const Track& track) const {
  return track.split || track.launched % kGroupReleases == 0;
}

// A launch was enqueued.
void GroupLauncher::Count(Track& track, bool overlap, int64_t blocks, bool split) {
  track.blocks = (overlap ? track.blocks : 0) + blocks;
  ++track.launched;
  track.chain = std::min(track.chain + 1, kMaxGroupPredecessors);
  track.split = split;
  ++launches_;
}

void GroupLauncher::FillTask(Track& track, const LaunchRequest& launch, size_t problem,
                             uint32_t record, bool follow, GroupTask& task) const {
  const GemmArgs& gemm = launch.ops[problem]->gemm;
  const GroupTile tile = launch.work_list()->tiles[problem];
  const TimelineWrite signal = launch.writes.empty() ? TimelineWrite() : launch.writes[problem];
  task.signal_address = signal.address;
  task.signal_value = signal.value;
  task.record = record;
  task.m = gemm.m;
  task.n = gemm.n;
  task.stored = track.stored[track.SetOf(track.launched)][problem] + HalvesOf(gemm, tile);
  task.flags = FlagsOf(gemm);
  task.after = 0;
  if (!follow || launch.after.empty() || launch.after[problem].launches_back == 0) return;
  Follow(track, launch.after[problem], task.after, task.after_stored);
  task.flags |= GroupRecord::kNextOnTimeline;
}

absl::StatusOr<uint32_t> GroupLauncher::FindRecord(int track, const Op& op, GroupTile tile) {
  if (op.work.repack_bytes == 0) return records_.Find(op.gemm, tile, track);
  return records_.Find(repacks_.Add(op.gemm), tile, track);
}

// Without the attribute that lets launches overlap, so that a copy is made when all that the stream
// has before it is done: whatever the ops depend on, and the group launch that read the scratch
// last, though it has released its dependents. What `after` names is then counted, so that it may
// stay.
absl::Status GroupLauncher::EnqueueRepacks(const Track& track) {
  for (const RepackArgs& args : repacks_.launches()) {
    absl::Status status = LaunchKernel(driver_, gpu_, kernels_.repack, args.blocks,
                                       static_cast<int>(kRepackThreads), track.stream, args);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

bool GroupLauncher::HasItems(int track, const GroupWorkList& work_list) const {
  const KnownList& known = work_lists_[work_list.slot];
  return known.id == work_list.id && (known.tracks & 1u << track) != 0;
}

absl::Status GroupLauncher::UploadItems(int track, const GroupWorkList& work_list) {
  const uint64_t store = work_list.id >> kGroupStoreShift;
  if (store != store_) {
    work_lists_.fill({});
    store_ = store;
  }
  KnownList& known = work_lists_[work_list.slot];
  if (known.id != work_list.id) {
    known = {.id = work_list.id, .tracks = 0};
    if (work_list.first_item < items_end_) {
      if (absl::Status status = WaitForOtherTracks(track); !status.ok()) return status;
    }
    items_end_ = std::max(items_end_, work_list.first_item + work_list.item_count);
  }
  known.tracks |= 1u << track;
  if (staged_items_ + work_list.item_count > kStagedItems) staged_items_ = 0;
  const uint32_t staged = staged_items_;
  staged_items_ += work_list.item_count;
  std::memcpy(items_.host<GroupItem>() + staged, work_list.items,
              work_list.item_count * sizeof(GroupItem));
  return items_.UploadTo(work_list.first_item * sizeof(GroupItem), staged * sizeof(GroupItem),
                         work_list.item_count * sizeof(GroupItem), tracks_[track].stream);
}

absl::Status GroupLauncher::UploadTasks(int track, size_t count) {
  const size_t offset = next_tasks_ * kMaxGroupProblems * sizeof(GroupTask);
  next_tasks_ = (next_tasks_ + 1) % kTaskSlots;
  args_.tasks = reinterpret_cast<const GroupTask*>(tasks_.device() + offset);
  return tasks_.Upload(offset, count * sizeof(GroupTask), tracks_[track].stream);
}

absl::Status GroupLauncher::WaitForOtherTracks(int track) {
  for (int other = 0; other < kTracks; ++other) {
    if (other == track) continue;
    CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuEventRecord, tracks_[other].event,
                                   tracks_[other].stream);
    CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuStreamWaitEvent, tracks_[track].stream,
                                   tracks_[other].event, 0);
  }
  return absl::OkStatus();
}

// A launch that waits for the one before holds SMs already: in a chain of 4096x4096x4096 on 68 SMs
// the next step took the 64 that were left to a higher class, for as long as the step before ran
// (up to 400 us, one H200).
bool GroupLauncher::InBudget(int track, const LaunchRequest& launch, int64_t blocks) const {
  const int budget = BudgetOf(track, launch);
  return budget == 0 || tracks_[track].blocks + blocks <= budget;
}

absl::Status GroupLauncher::Enqueue(Track& track, const LaunchRequest& launch, bool overlap) {
  const GroupWorkList& work_list = *launch.work_list();
  args_.records = reinterpret_cast<const GroupRecord*>(records_.device());
  if (launch.ops.size() <= kGroupInlineTasks) args_.tasks = nullptr;
  args_.counters = reinterpret_cast<GroupCounters*>(track.counters);
  args_.set = static_cast<uint8_t>(track.SetOf(track.launched));
  args_.release_late = ReleasesLate(track);
  args_.partials = reinterpret_cast<float*>(track.partials[track.launched % 2]);
  args_.partial_floats =
      work_list.partial_bytes / sizeof(float) / (work_list.grid() / work_list.blocks);
  args_.max_splits = work_list.max_splits;

  const auto footprint = static_cast<size_t>(work_list.kind);
  CUlaunchAttribute overlaps = OverlapsTheOneBefore();
  return LaunchKernelWith({&overlaps, overlap ? 1u : 0u}, driver_, gpu_,
                          kernels_.group[footprint][KernelOf(launch.ops.front()->gemm.dtype)],
                          work_list.grid(), kGroupThreads, track.stream, args_,
                          kGroupFootprints[footprint].shared_bytes());
}

}  // namespace concert::kernels::cuda
