// What the host hands to the group kernel. Shared by host and device code.
#ifndef CONCERT_KERNELS_GROUP_GROUP_ARGS_H_
#define CONCERT_KERNELS_GROUP_GROUP_ARGS_H_

#include <cuda.h>

#include <cstdint>

#include "policies/group_schedule.h"

namespace concert::kernels::cuda {

// Two consumer warpgroups and one that loads and stores.
inline constexpr int kGroupThreads = 384;
inline constexpr int kGroupMaxStages = 12;
inline constexpr uint32_t kGroupPoolBytes = 192 * 1024;        // pipeline stages
inline constexpr uint32_t kGroupStagingBytes = 2 * 16 * 1024;  // results, one half per warpgroup
// The above, barriers and messages, and room to align the pool to 1024 bytes.
inline constexpr uint32_t kGroupSharedBytes = kGroupPoolBytes + kGroupStagingBytes + 1024 + 512;

// Rows of A that a consumer warpgroup hands over for one store.
constexpr int GroupStoreRows(int w_rows, int a_rows) {
  if (w_rows == 64) return a_rows / 2;
  return a_rows > 128 ? a_rows / 2 : a_rows;
}

// Inner dimension of a box: 128 bytes (of K; of N for D), with 128-byte swizzle; rows of a box:
// w_rows, a_rows and GroupStoreRows.
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
    // of
    // 16 bytes only (measured on an H200), so the last columns are stored one by one.
    kRaggedRows = 64,
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
  // 0, or 1 + the problem of the previous group launch on the stream that this one follows, because
  // it reads its results or is the next op of its queue.
  uint16_t after;
};
static_assert(sizeof(GroupTask) == 40);

// What the blocks of a launch count in. Two launches may run at once, the end of one beside the
// start of the next, so the launches of a stream take turns with two of these.
struct GroupCounters {
  // Halves of tiles stored, over all launches: it is never reset, only compared with what the host
  // knows it will be, so that whoever looks late sees no less. Wraps.
  uint32_t stored[policies::kMaxGroupProblems];
  // Parts of a split tile that are there, per tile and warpgroup. Zero between launches: the last
  // one resets it.
  uint32_t summed[policies::kMaxGroupSplitTiles * 2];
  // GroupArgs::hand_over: storing threads that have left, and the problems, as bits, whose
  // timelines are left to the last of them. Zero between launches.
  uint32_t left;
  uint32_t handed_over[policies::kMaxGroupProblems / 32];
};
// Problems that one storing thread watches at most.
inline constexpr int kGroupMaxWatched = 32;

// More tasks than this are read from memory.
inline constexpr int kGroupInlineTasks = 64;
// Up to this many problems have their maps among the parameters, where they need no acquiring: on a
// launch of one tile that saves 0.5 to 1 of 4.4 us (H200). Parameters of 4 KB hold no more.
inline constexpr int kGroupInlineMaps = 8;

// The kernel's only parameter.
struct GroupArgs {
  const policies::GroupItem* items;  // as GroupSchedule
  const GroupRecord* records;
  const GroupTask* tasks;  // null: inline_tasks
  GroupCounters* counters;
  const GroupCounters* previous;  // of the previous launch on the stream
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
  union {
    GroupTask inline_tasks[kGroupInlineTasks];
    struct {
      GroupTask tasks[kGroupInlineMaps];
      GroupMaps maps[kGroupInlineMaps];
    } few;  // maps_inline
  };
};
static_assert(sizeof(GroupArgs) <= 4096);

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GROUP_GROUP_ARGS_H_
