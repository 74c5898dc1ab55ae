// What the host hands to the group kernel. Shared by host and device code.
#ifndef CONCERT_KERNELS_GROUP_GROUP_ARGS_H_
#define CONCERT_KERNELS_GROUP_GROUP_ARGS_H_

#include <cuda.h>

#include <array>
#include <cstdint>

#include "kernels/group/plan/work_list.h"

namespace concert::kernels::cuda {

// Two consumer warpgroups and one that loads and stores.
inline constexpr int kGroupThreads = 384;
inline constexpr int kGroupMaxStages = 16;

// What a block takes of an SM, whose shared memory (227 KB) and registers (65536) blocks_per_sm of
// them fill.
struct GroupFootprint {
  int blocks_per_sm;
  uint32_t pool_bytes;     // pipeline stages
  uint32_t staging_bytes;  // results, one half per warpgroup
  int max_rows;            // of A that a warpgroup multiplies; its sums are in registers
  bool pairs = false;      // two blocks, a cluster, work on one tile

  // The above, barriers and messages, and room to align the pool to 1024 bytes.
  constexpr uint32_t shared_bytes() const { return pool_bytes + staging_bytes + 1024 + 512; }
};
inline constexpr GroupFootprint kGroupWide = {1, 192 * 1024, 2 * 16 * 1024, 256};
// Two launches lie on an SM, so that the next one sets up and loads while one computes. For tiles
// whose sums and results fit half of the registers and of the staging buffers.
inline constexpr GroupFootprint kGroupNarrow = {2, 94 * 1024, 2 * 8 * 1024, kNarrowWarpgroupRows};
inline constexpr GroupFootprint kGroupPairs = {1, 192 * 1024, 2 * 16 * 1024, 256, true};
// By GroupWorkList::kind.
inline constexpr std::array<GroupFootprint, 3> kGroupFootprints = {kGroupWide, kGroupNarrow,
                                                                   kGroupPairs};

// Rows of W and of A that one block loads at a time.
constexpr uint32_t GroupLoadRowsW(GroupTile tile) {
  return tile.w_rows / static_cast<uint32_t>(BlocksPerTile(tile));
}
constexpr uint32_t GroupLoadRowsA(GroupTile tile) {
  return tile.a_rows / static_cast<uint32_t>(BlocksPerTile(tile));
}

// Inner dimension of a box: 128 bytes (of K; of N for D), with 128-byte swizzle; rows of a box:
// GroupLoadRowsW, GroupLoadRowsA and GroupStoreRows.
struct GroupMaps {
  CUtensorMap w, a, d;
};

// One GEMM as the kernel needs it, for one tile shape: the same for every launch with the same
// operands.
struct alignas(128) GroupRecord {
  enum Flags : uint32_t {  // in GroupTask
    kFinish = 1,           // alpha, beta, bias, activation or scales: not a plain product
    kHasC = 2,             // beta != 0
    kAScalesPerRow = 4,    // else one a_scale for all
    kWScalesPerRow = 8,
    kFp16Out = 16,  // of e4m3: D, C and bias are fp16, else bf16
    // The problem before this one on its timeline is the one in `after`, whose value is 1 less.
    kNextOnTimeline = 32,
    // Rows of D end within 16 bytes that are not all D's. Tensor stores cut rows off at multiples
    // of 16 bytes only (measured on an H200), so the last columns are stored one by one.
    kRaggedRows = 64,
    kUnmapped = 128,  // no tensor map takes D: all of it is stored one by one
  };

  GroupMaps maps;
  void* d_rows;      // row stride ldd
  const void* bias;  // [n], or null
  const void* c;     // row stride ldc
  const float* a_scales;
  const float* w_scales;
  uint64_t ldc, ldd;  // elements
  float alpha, beta;
  uint32_t activation;  // kernels::Activation
  uint32_t reserved[15];
};
static_assert(sizeof(GroupRecord) == 512);

// One GEMM of a launch.
struct GroupTask {
  uint64_t signal_address;  // a timeline; 0: none
  uint64_t signal_value;
  uint32_t record;
  uint32_t m, n;
  uint32_t stored;        // what GroupCounters::stored reads when all of D is
  uint32_t after_stored;  // the same of the problem that this one follows
  uint16_t flags;  // GroupRecord::Flags; here, since the constant bank answers sooner than memory
  // 0, or the problem of an earlier group launch on the stream that this one follows, because it
  // reads its results or is the next op of its queue: GroupAfter().
  uint16_t after;
};
static_assert(sizeof(GroupTask) == 40);

// What the blocks of a launch count in.
struct GroupCounters {
  // Halves of tiles stored, over all launches: it is never reset, only compared with what the host
  // knows it will be, so that whoever looks late sees no less. Wraps.
  uint32_t stored[kMaxGroupProblems];
  // Parts of a split tile that are there, per tile and warpgroup. Zero between launches: the last
  // one resets it.
  uint32_t summed[kMaxGroupSplitTiles * 2];
  // GroupArgs::hand_over: storing threads that have left, and the problems, as bits, whose
  // timelines are left to the last of them. Zero between launches.
  uint32_t left;
  uint32_t handed_over[kMaxGroupProblems / 32];
};
// Problems that one storing thread watches at most.
inline constexpr int kGroupMaxWatched = 32;

// Launches of a stream overlap: one starts when all blocks of the one before have started, and one
// in kGroupReleases (GroupArgs::release_late) waits until all before the one before have ended. So
// kGroupReleases + 1 run at a time at most. They take turns with the counters, of which one that a
// launch follows must not be in use again.
inline constexpr int kGroupReleases = 4, kGroupCounterSets = 8;
static_assert(kMaxGroupPredecessors + kGroupReleases < kGroupCounterSets);

// More tasks than this are read from memory.
inline constexpr int kGroupInlineTasks = 64;
// Up to this many problems have their maps among the parameters, where they need no acquiring: on a
// launch of one tile that saves 0.5 to 1 of 4.4 us (H200). Parameters of 4 KB hold no more.
inline constexpr int kGroupInlineMaps = 8;

// The kernel's only parameter.
struct GroupArgs {
  const GroupItem* items;  // as GroupWorkList
  const GroupRecord* records;
  const GroupTask* tasks;   // null: inline_tasks
  GroupCounters* counters;  // [kGroupCounterSets], of the stream
  float* partials;
  uint32_t partial_floats;  // of one part of one tile
  uint16_t max_splits;
  // Whether W, or A and C of tasks without `after`, may be read before the previous launch on the
  // stream has ended. inputs_early false: `after` is not looked at.
  uint8_t weights_early, inputs_early;
  uint8_t maps_inline;
  // A block that has stored the last tile of a problem keeps its SM until the others have stored
  // theirs. With this it leaves the problem's timeline to the last block after a while. Needed
  // where so many blocks could wait, on all lanes together, that those they wait for get no SM.
  uint8_t hand_over;
  // Parts of split sums are added in memory as they come (SplitSums::kFastest). `partials` is zero
  // between launches, and so it is left.
  uint8_t sums_as_they_come;
  uint8_t set;           // of the counters
  uint8_t release_late;  // the next launch starts only when those before this one have ended
  union {
    GroupTask inline_tasks[kGroupInlineTasks];
    struct {
      GroupTask tasks[kGroupInlineMaps];
      GroupMaps maps[kGroupInlineMaps];
    } few;  // maps_inline
  };

#ifdef __CUDACC__
  __device__ GroupCounters& own() const { return counters[set]; }
  __device__ const uint32_t* StoredOf(uint16_t after) const {
    return &counters[(after - 1) / kMaxGroupProblems].stored[(after - 1) % kMaxGroupProblems];
  }
#endif
};
static_assert(sizeof(GroupArgs) <= 4096);

// GroupTask::after for problem `problem` of the launch that counted in `set`.
constexpr uint16_t GroupAfter(int set, int problem) {
  return static_cast<uint16_t>(1 + set * kMaxGroupProblems + problem);
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GROUP_GROUP_ARGS_H_
