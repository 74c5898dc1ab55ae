// One persistent kernel for many GEMMs of different shapes: every block works through its column of
// a list of tiles that the host has made (policies/group_schedule.h). sm_90a only.
//
// Each SM runs one block of three warpgroups. Two threads of the last one load W and A through a
// ring of stages; the other two warpgroups multiply, D^T = W * A^T; two more warps of the last one
// store results and signal a problem's timeline once its last tile is in memory. Loading runs ahead
// into the next items, so the tensor cores wait only while results go to shared memory.
//
// docs/adr/0014-group-kernel.md says why it is so and what was tried.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/group/async.cuh"
#include "kernels/group/finish.cuh"
#include "kernels/group/group_args.h"
#include "kernels/group/wgmma.cuh"

namespace concert::kernels::cuda {
namespace {

constexpr int kWarpgroup = 128;
constexpr int kRowBytes = policies::kGroupBlockKBytes;
constexpr int kLoadingRegisters = 40, kComputingRegisters = 232;

constexpr int kSumBarrier = 1;           // named, one per computing warpgroup; 0 is __syncthreads'
constexpr int kPollsBeforeCounting = 8;  // some 0.2 us
constexpr int kLooksBeforeLeaving = 64;  // some 40 us

// An item of the list, decoded.
struct Item {
  int4 raw;

  __device__ bool end() const { return problem() == policies::GroupItem::kEnd; }
  __device__ int problem() const { return raw.x & 0xffff; }
  __device__ int tile_key() const { return raw.x >> 16; }  // equal for equal tile shapes
  __device__ int w_rows() const { return (raw.x >> 16 & 0xff) * 64; }
  __device__ int a_rows() const { return (raw.x >> 24 & 0xff) * 16; }
  __device__ int w_tile() const { return raw.y & 0xffff; }
  __device__ int a_tile() const { return raw.y >> 16 & 0xffff; }
  __device__ int k_begin() const { return raw.z & 0xffff; }
  __device__ int k_end() const { return raw.z >> 16 & 0xffff; }
  __device__ int splits() const { return raw.w & 0xff; }
  __device__ int split() const { return raw.w >> 8 & 0xff; }
  __device__ int split_tile() const { return raw.w >> 16 & 0xffff; }
};
__host__ __device__ constexpr int TileKey(int w_rows, int a_rows) {
  return w_rows / 64 | a_rows / 16 << 8;
}

// This block's column of the list.
class Items {
 public:
  __device__ explicit Items(const GroupArgs& args)
      : next_(reinterpret_cast<const int4*>(args.items) + blockIdx.x) {}
  __device__ Item Next() {
    const Item item{__ldg(next_)};
    next_ += gridDim.x;
    return item;
  }

 private:
  const int4* next_;
};

// What a computing warpgroup tells the thread that stores for it.
struct Message {
  enum Flags { kStore = 1, kTileDone = 2, kLastTile = 4, kExit = 8 };
  int problem;
  int x, y;  // first column and row of D in the staging buffer
  int flags;
};

struct SharedTail {  // after the pool and the staging buffers
  uint64_t full[kGroupMaxStages], empty[kGroupMaxStages];
  uint64_t handed_over[2], taken[2];  // staging buffers, per computing warpgroup
  Message message[2];
  int is_last[2];
  uint16_t watched[2][kGroupMaxWatched];
};

// Addresses in shared memory.
struct Shared {
  uint32_t pool, staging, full, empty, handed_over, taken;
  SharedTail* tail;

  __device__ static Shared Of(uint8_t* raw) {
    const uint32_t start = SharedAddress(raw), pool = (start + 1023) & ~1023u;
    Shared shared;
    shared.pool = pool;
    shared.staging = pool + kGroupPoolBytes;
    shared.tail =
        reinterpret_cast<SharedTail*>(raw + (pool - start) + kGroupPoolBytes + kGroupStagingBytes);
    shared.full = SharedAddress(shared.tail->full);
    shared.empty = SharedAddress(shared.tail->empty);
    shared.handed_over = SharedAddress(shared.tail->handed_over);
    shared.taken = SharedAddress(shared.tail->taken);
    return shared;
  }
};

// A thread's place in the ring of stages. Stages fill and empty in order; bit i of `phases` is the
// parity of stage i's next use. When the tile shape changes, stages change size: the ring is
// emptied and starts anew at stage 0.
struct Ring {
  int stage = 0, stages = 1;
  uint32_t phases = 0;

  __device__ uint32_t parity() const { return phases >> stage & 1; }
  __device__ void Advance() {
    phases ^= 1u << stage;
    if (++stage == stages) stage = 0;
  }
};

__host__ __device__ constexpr int StagesOf(int stage_bytes) {
  const int fit = static_cast<int>(kGroupPoolBytes) / stage_bytes;
  return fit < kGroupMaxStages ? fit : kGroupMaxStages;
}

__device__ const GroupTask& TaskOf(const GroupArgs& args, int problem) {
  return args.tasks != nullptr ? args.tasks[problem] : args.inline_tasks[problem];
}

// The maps of a problem: one of them, ready to be used by this thread.
__device__ __forceinline__ const CUtensorMap* MapOf(const GroupArgs& args, int problem,
                                                    CUtensorMap GroupMaps::*which) {
  if (args.maps_inline) return &(args.few.maps[problem].*which);
  const CUtensorMap* map = &(args.records[TaskOf(args, problem).record].maps.*which);
  AcquireMap(map);
  return map;
}

// --- Order between problems of one launch and the next ---

// Counts wrap.
__device__ __forceinline__ bool Reached(uint32_t count, uint32_t target) {
  return static_cast<int32_t>(count - target) >= 0;
}

// Until the problem that `task` follows is stored. Acquires its results (release:
// Uncounted::Count). Ends for certain: this launch's blocks get an SM only after all of the
// previous one's have theirs.
__device__ __forceinline__ void WaitForPredecessor(const GroupArgs& args, const GroupTask& task) {
  if (!args.inputs_early || task.after == 0) return;
  while (!Reached(LoadAcquire(&args.previous->stored[task.after - 1]), task.after_stored)) {
  }
  FenceTensorCopies();
}

// --- Loading: one thread for W, one for A ---

template <class Format, bool kIsA>
__device__ __forceinline__ void Load(const GroupArgs& args, const Shared& shared) {
  constexpr int kElementsPerBlock = kRowBytes / sizeof(typename Format::Input);
  Items items(args);
  Ring ring;
  int tile_key = 0, problem = -1;
  const CUtensorMap* map = nullptr;
  if (kIsA ? !args.inputs_early : !args.weights_early) WaitForPreviousLaunch();
  for (Item item = items.Next(); !item.end();) {
    const Item next = items.Next();
    const int w_bytes = item.w_rows() * kRowBytes, a_bytes = item.a_rows() * kRowBytes;
    if (item.tile_key() != tile_key) {
      for (int i = 0; i < kGroupMaxStages; ++i) {
        WaitParity(shared.empty + 8 * i, (ring.phases >> i & 1) ^ 1);
      }
      tile_key = item.tile_key();
      ring.stage = 0;
      ring.stages = StagesOf(w_bytes + a_bytes);
    }
    if (item.problem() != problem) {
      problem = item.problem();
      map = MapOf(args, problem, kIsA ? &GroupMaps::a : &GroupMaps::w);
      if (kIsA) WaitForPredecessor(args, TaskOf(args, problem));
    }
    const int row = kIsA ? item.a_tile() * item.a_rows() : item.w_tile() * item.w_rows();
    const int bytes = kIsA ? a_bytes : w_bytes, stage_bytes = w_bytes + a_bytes;
    const uint32_t first_stage = shared.pool + (kIsA ? w_bytes : 0);
#pragma unroll 1
    for (int k = item.k_begin(); k < item.k_end(); ++k) {
      const uint32_t full = shared.full + 8 * ring.stage;
      WaitParity(shared.empty + 8 * ring.stage, ring.parity() ^ 1);
      ArriveExpecting(full, bytes);
      LoadTile(first_stage + ring.stage * stage_bytes, map, full, k * kElementsPerBlock, row);
      ring.Advance();
    }
    item = next;
  }
}

// --- Storing and signalling: one thread per computing warpgroup ---

// Problems whose timelines this thread must write: those of which it has stored the last tile.
// Other blocks may still be at work on their other tiles.
class Watch {
 public:
  __device__ __forceinline__ Watch(const GroupArgs& args, uint16_t* problems)
      : args_(args), problems_(problems) {}

  __device__ __forceinline__ bool empty() const { return count_ == 0; }
  __device__ __forceinline__ void Add(int problem) {
    if (count_ == kGroupMaxWatched) Look();
    if (count_ == kGroupMaxWatched) return HandOver(problem);  // more than as many: hand_over
    problems_[count_++] = static_cast<uint16_t>(problem);
  }
  // Looks at one of the problems, each time at another one, and signals it if it is stored.
  __device__ __forceinline__ void Look() {
    if (next_ >= count_) next_ = 0;
    const int problem = problems_[next_];
    const GroupTask& task = TaskOf(args_, problem);
    if (!Reached(LoadRelaxed(&args_.counters->stored[problem]), task.stored)) {
      ++next_;
      return;
    }
    Signal(task);
    problems_[next_] = problems_[--count_];
  }

  // After the last problem has been stored and counted: ends when all are signalled or handed over.
  __device__ __forceinline__ void Leave() {
    for (int looks = 0; !empty() && !(args_.hand_over && looks == kLooksBeforeLeaving); ++looks) {
      Look();
    }
    if (!args_.hand_over) return;
    while (!empty()) HandOver(problems_[--count_]);
    GroupCounters& counters = *args_.counters;
    // Releases what this thread has counted and handed over to the last one, which acquires it.
    if (AddAcquireRelease(&counters.left, 1) != 2 * gridDim.x - 1) return;
    counters.left = 0;
    for (int word = 0; word < policies::kMaxGroupProblems / 32; ++word) {
      uint32_t bits = atomicExch(&counters.handed_over[word], 0u);
      for (; bits != 0; bits &= bits - 1) Signal(TaskOf(args_, 32 * word + __ffs(bits) - 1));
    }
  }

 private:
  __device__ __forceinline__ void HandOver(int problem) const {
    atomicOr(&args_.counters->handed_over[problem / 32], 1u << problem % 32);
  }
  __device__ __forceinline__ void Signal(const GroupTask& task) const {
    // Two stores to one word from two SMs: the second waits until the first is seen.
    if (args_.inputs_early && (task.flags & GroupRecord::kNextOnTimeline)) {
      while (LoadRelaxedSystem(task.signal_address) < task.signal_value - 1) {
      }
    }
    // Acquires what was stored before it was counted, releases it to whoever acquires the timeline.
    FenceSystem();
    StoreRelaxedSystem(task.signal_address, task.signal_value);
  }

  const GroupArgs& args_;
  uint16_t* problems_;
  int count_ = 0, next_ = 0;
};

// Halves of tiles of one problem that this thread has stored but not yet counted.
struct Uncounted {
  int problem = 0, halves = 0;

  // They happen before the count (release: Watch, WaitForPredecessor).
  __device__ __forceinline__ void Count(const GroupArgs& args) {
    if (halves == 0) return;
    WaitStoresDone();
    FenceTensorCopies();
    AddRelease(&args.counters->stored[problem], halves);
    halves = 0;
  }
};

// Stores what the computing warpgroup hands over. Counting waits for memory, so it is put off until
// nothing has been handed over for a moment or another problem's turn has come.
__device__ __forceinline__ void Store(const GroupArgs& args, const Shared& shared, int warpgroup) {
  const volatile Message& message = shared.tail->message[warpgroup];
  const uint32_t staging = shared.staging + warpgroup * (kGroupStagingBytes / 2);
  const uint32_t handed_over = shared.handed_over + 8 * warpgroup;
  const uint32_t taken = shared.taken + 8 * warpgroup;
  // The first item's map is acquired while the first tile is computed.
  int map_problem = -1;
  const CUtensorMap* map = nullptr;
  if (const Item first = Items(args).Next(); !first.end()) {
    map_problem = first.problem();
    map = MapOf(args, map_problem, &GroupMaps::d);
  }
  Uncounted uncounted;
  Watch watch(args, shared.tail->watched[warpgroup]);
  for (uint32_t parity = 0;; parity ^= 1) {
    for (int polls = 0; !TestParity(handed_over, parity); ++polls) {
      if (polls == kPollsBeforeCounting) uncounted.Count(args);
      if (polls > kPollsBeforeCounting && !watch.empty()) watch.Look();
    }
    const int flags = message.flags, problem = message.problem;
    if (flags & Message::kExit) break;
    if (problem != uncounted.problem) uncounted.Count(args);
    if (flags & Message::kStore) {
      if (problem != map_problem) map = MapOf(args, problem, &GroupMaps::d);
      map_problem = problem;
      StoreTile(map, staging, message.x, message.y);
      WaitStoresRead();
    }
    if (flags & Message::kTileDone) {
      uncounted.problem = problem;
      ++uncounted.halves;
      const bool signals = TaskOf(args, problem).signal_address != 0;
      if ((flags & Message::kLastTile) && signals) watch.Add(problem);
    }
    Arrive(taken);
  }
  uncounted.Count(args);
  watch.Leave();
}

// --- Computing: two warpgroups ---

// Adds the parts of a split tile, in their order, so that the same bits come out every time, unless
// args.sums_as_they_come. True in the warpgroup that came last, which then has the whole sum in `d`.
template <int kN>
__device__ __forceinline__ bool SumParts(const GroupArgs& args, const Shared& shared,
                                         const Item& item, float (&d)[kN / 2], int warpgroup,
                                         int thread) {
  const size_t part = static_cast<size_t>(item.split_tile()) * args.max_splits;
  const auto part_of = [&](int split) {
    float* floats = args.partials + (part + split) * args.partial_floats;
    return reinterpret_cast<float4*>(floats) + warpgroup * (kN / 8) * kWarpgroup + thread;
  };
  float4* mine = part_of(args.sums_as_they_come ? 0 : item.split());
  const auto quad = [&](int i) {
    return make_float4(d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]);
  };
  if (args.sums_as_they_come) {
#pragma unroll
    for (int i = 0; i < kN / 8; ++i) AddVector(mine + i * kWarpgroup, quad(i));
  } else {
#pragma unroll
    for (int i = 0; i < kN / 8; ++i) __stcg(mine + i * kWarpgroup, quad(i));
  }
  // Release: every thread's part is visible before the count that the barrier orders after it.
  __threadfence();
  NamedSync(kSumBarrier + warpgroup, kWarpgroup);
  if (thread == 0) {
    uint32_t* summed = &args.counters->summed[item.split_tile() * 2 + warpgroup];
    const bool last = atomicAdd(summed, 1u) == static_cast<uint32_t>(item.splits() - 1);
    if (last) *summed = 0;
    __threadfence();  // acquire: the other parts, for all threads past the barrier
    shared.tail->is_last[warpgroup] = last;
  }
  NamedSync(kSumBarrier + warpgroup, kWarpgroup);
  if (!*static_cast<volatile int*>(&shared.tail->is_last[warpgroup])) return false;
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) d[i] = 0;
  const int sums = args.sums_as_they_come ? 1 : item.splits();
#pragma unroll 1
  for (int split = 0; split < sums; ++split) {
    const float4* other = part_of(split);
#pragma unroll
    for (int i = 0; i < kN / 8; ++i) {
      const float4 v = __ldcg(other + i * kWarpgroup);
      d[4 * i] += v.x, d[4 * i + 1] += v.y, d[4 * i + 2] += v.z, d[4 * i + 3] += v.w;
    }
  }
  if (args.sums_as_they_come) {
#pragma unroll
    for (int i = 0; i < kN / 8; ++i) __stcg(mine + i * kWarpgroup, make_float4(0, 0, 0, 0));
  }
  return true;
}

// A computing warpgroup's side of its staging buffer.
struct Handover {
  uint32_t parity = 1;  // of the buffer's last use; a new barrier's is 1
  __device__ __forceinline__ void WaitTaken(const Shared& shared, int warpgroup) {
    WaitParity(shared.taken + 8 * warpgroup, parity);
    parity ^= 1;
  }
};

// Rounds to 16 bits and hands the tile over in chunks of at most 128 rows of D. A chunk lies in the
// staging buffer as 128-byte rows, one per row of D, with 128-byte swizzle.
template <class Format, int kN, bool kShareW>
__device__ __forceinline__ void HandOver(const GroupArgs& args, const Shared& shared,
                                         const GroupTask& task, const Item& item, int x, int y,
                                         const float (&d)[kN / 2], Handover& handover,
                                         int warpgroup, int thread) {
  constexpr int kChunks = kN > 128 ? 2 : 1, kRows = kN / kChunks;
  constexpr int kWRows = kShareW ? 64 : 128, kARows = kShareW ? 2 * kN : kN;
  const int lane = thread & 31, warp = thread >> 5;
  const uint32_t staging = shared.staging + warpgroup * (kGroupStagingBytes / 2);
  const Output<Format> output(task.flags);
  const bool inside = x < static_cast<int>(task.n);
  // Lane l gives the address of row l % 8 of matrix l / 8: two of columns, times two of rows of D.
  const int row_of_lane = (lane & 7) + (lane >> 4) * 8, column = warp * 2 + (lane >> 3 & 1);
  const bool one_by_one =
      inside && (task.flags & GroupRecord::kRaggedRows) != 0 && x + 64 > static_cast<int>(task.n);
  if (one_by_one) {
    StoreElements<Format, kN>(task, args.records[task.record], x, y, thread, d);
  }
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    handover.WaitTaken(shared, warpgroup);
#pragma unroll
    for (int t = 0; t < kRows / 8; t += 2) {
      const int i = (chunk * kRows / 8 + t) * 4, row = 8 * t + row_of_lane;
      StoreTransposed(staging + row * kRowBytes + ((column ^ (row & 7)) << 4),
                      output.Pack(d[i], d[i + 1]), output.Pack(d[i + 2], d[i + 3]),
                      output.Pack(d[i + 4], d[i + 5]), output.Pack(d[i + 6], d[i + 7]));
    }
    PublishShared();
    NamedSync(kSumBarrier + warpgroup, kWarpgroup);
    if (thread == 0) {
      const int chunk_y = y + chunk * kRows;
      const bool store = inside && !one_by_one && chunk_y < static_cast<int>(task.m);
      volatile Message& message = shared.tail->message[warpgroup];
      message.problem = item.problem();
      message.x = x;
      message.y = chunk_y;
      // One half of one tile of each problem is its last.
      const bool last = warpgroup == 0 && x + kWRows >= static_cast<int>(task.n) &&
                        y + kARows >= static_cast<int>(task.m);
      message.flags = (store ? Message::kStore : 0) |
                      (chunk == kChunks - 1 ? Message::kTileDone : 0) |
                      (last ? Message::kLastTile : 0);
      Arrive(shared.handed_over + 8 * warpgroup);
    }
  }
}

// One item. kN rows of A per warpgroup; kShareW: both take the same 64 rows of W.
template <class Format, int kN, bool kShareW>
__device__ __forceinline__ void Compute(const GroupArgs& args, const Shared& shared,
                                        const Item& item, Ring& ring, Handover& handover,
                                        int warpgroup, int thread) {
  constexpr int kWBytes = (kShareW ? 64 : 128) * kRowBytes, kARows = kShareW ? 2 * kN : kN;
  constexpr int kStageBytes = kWBytes + kARows * kRowBytes;
  ring.stages = StagesOf(kStageBytes);
  const int blocks = __shfl_sync(~0u, item.k_end() - item.k_begin(), 0);
  const bool signals_empty = (thread & 31) == 0;
  float d[kN / 2];
  const auto multiply = [&](bool first) {
    WaitParity(shared.full + 8 * ring.stage, ring.parity());
    WgmmaFence();
    const uint32_t stage = shared.pool + ring.stage * kStageBytes;
    const uint64_t w = OperandDescriptor(stage + (kShareW ? 0 : warpgroup * 64 * kRowBytes));
    const uint64_t a =
        OperandDescriptor(stage + kWBytes + (kShareW ? warpgroup * kN * kRowBytes : 0));
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      Wgmma<Format, kN>::Run(d, w + 2 * step, a + 2 * step, first && step == 0 ? 0 : 1);
    }
    WgmmaCommit();
  };
  // The first block of K stands before the loop: a condition inside makes ptxas serialise wgmma
  // (its warning C7520), at a third of the speed.
  multiply(true);
  int previous = ring.stage;
  ring.Advance();
#pragma unroll 1
  for (int block = 1; block < blocks; ++block) {
    multiply(false);
    WgmmaWait<1>();
    if (signals_empty) Arrive(shared.empty + 8 * previous);
    previous = ring.stage;
    ring.Advance();
  }
  WgmmaWait<0>();
  if (signals_empty) Arrive(shared.empty + 8 * previous);
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) asm volatile("" : "+f"(d[i])::"memory");

  if (item.splits() > 1 && !SumParts<kN>(args, shared, item, d, warpgroup, thread)) return;
  const GroupTask& task = TaskOf(args, item.problem());
  const int x = kShareW ? item.w_tile() * 64 : item.w_tile() * 128 + warpgroup * 64;
  const int y = item.a_tile() * kARows + (kShareW ? warpgroup * kN : 0);
  if (task.flags & GroupRecord::kFinish) {
    Finish<Format, kN>(task, args.records[task.record], x, y, thread, d);
  }
  HandOver<Format, kN, kShareW>(args, shared, task, item, x, y, d, handover, warpgroup, thread);
}

template <class Format>
__device__ __forceinline__ void ComputeAll(const GroupArgs& args, const Shared& shared,
                                           int warpgroup, int thread) {
  Items items(args);
  Ring ring;
  Handover handover;
  int tile_key = 0;
  for (Item item = items.Next(); __shfl_sync(~0u, !item.end(), 0);) {
    const Item next = items.Next();
    const int key = __shfl_sync(~0u, item.tile_key(), 0);
    if (key != tile_key) ring.stage = 0;
    tile_key = key;
#define CONCERT_TILE(w_rows, a_rows)                                           \
  case TileKey(w_rows, a_rows):                                                \
    Compute<Format, (w_rows) == 64 ? (a_rows) / 2 : (a_rows), (w_rows) == 64>( \
        args, shared, item, ring, handover, warpgroup, thread);                \
    break;
    switch (key) {
      CONCERT_TILE(128, 16)
      CONCERT_TILE(128, 32)
      CONCERT_TILE(128, 64)
      CONCERT_TILE(128, 96)
      CONCERT_TILE(128, 128)
      CONCERT_TILE(128, 192)
      CONCERT_TILE(128, 256)
      CONCERT_TILE(64, 32)
      CONCERT_TILE(64, 64)
      CONCERT_TILE(64, 128)
      CONCERT_TILE(64, 192)
      CONCERT_TILE(64, 256)
    }
#undef CONCERT_TILE
    item = next;
  }
  handover.WaitTaken(shared, warpgroup);
  if (thread == 0) {
    static_cast<volatile Message&>(shared.tail->message[warpgroup]).flags = Message::kExit;
    Arrive(shared.handed_over + 8 * warpgroup);
  }
}

template <class Format>
__device__ __forceinline__ void RunGroup(const GroupArgs& args) {
  extern __shared__ uint8_t raw[];
  const Shared shared = Shared::Of(raw);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kGroupMaxStages; ++i) {
      InitBarrier(shared.full + 8 * i, 2);   // the threads that load W and A
      InitBarrier(shared.empty + 8 * i, 8);  // the computing warps
    }
    for (int i = 0; i < 2; ++i) {
      InitBarrier(shared.handed_over + 8 * i, 1);
      InitBarrier(shared.taken + 8 * i, 1);
    }
    PublishBarriers();
  }
  const int warpgroup = threadIdx.x / kWarpgroup, thread = threadIdx.x % kWarpgroup;
  __syncthreads();
  if (warpgroup < 2) {
    ClaimRegisters<kComputingRegisters>();
    return ComputeAll<Format>(args, shared, warpgroup, thread);
  }
  ReleaseRegisters<kLoadingRegisters>();

  // The next launch may start once the previous one has ended, so that two at most run at once, and
  // no block ends before the previous launch has: who waits for this launch waits for that one too.
  // A lane of its own, because nothing else may wait for that.
  if (thread == kWarpgroup - 1) {
    WaitForPreviousLaunch();
    ReleaseNextLaunch();
  }
  if (thread % 32 != 0) return;
  switch (thread / 32) {
    case 0:
      return Load<Format, false>(args, shared);
    case 1:
      return Load<Format, true>(args, shared);
    default:
      return Store(args, shared, thread / 32 - 2);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kGroupThreads, 1)
    concert_group_bf16(const __grid_constant__ GroupArgs args) {
  RunGroup<Bf16>(args);
}
extern "C" __global__ void __launch_bounds__(kGroupThreads, 1)
    concert_group_fp16(const __grid_constant__ GroupArgs args) {
  RunGroup<Fp16>(args);
}
extern "C" __global__ void __launch_bounds__(kGroupThreads, 1)
    concert_group_e4m3(const __grid_constant__ GroupArgs args) {
  RunGroup<E4m3>(args);
}

}  // namespace concert::kernels::cuda
