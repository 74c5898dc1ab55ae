// One persistent kernel for many GEMMs of different shapes: every block works through its column of
// a list of tiles that the host has made (kernels/group/plan/work_list.h). sm_90a only.
//
// Each SM runs one block of three warpgroups, or two of different launches (GroupFootprint). Two
// threads of the last one load W and A through a ring of stages; the other two warpgroups multiply,
// D^T = W * A^T; two more warps of the last one store results and signal a problem's timeline once
// its last tile is in memory; who computes a block's last tile stores it. Loading runs ahead into
// the next items, so the tensor cores wait only while results go to shared memory.
//
// docs/adr/0014-group-kernel.md says why it is so and what was tried.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/group/async.cuh"
#include "kernels/group/block.cuh"
#include "kernels/group/finish.cuh"
#include "kernels/group/group_args.h"
#include "kernels/group/split.cuh"
#include "kernels/group/store.cuh"
#include "kernels/group/wgmma.cuh"

namespace concert::kernels::cuda {
namespace {

// --- Loading: one thread for W, one for A ---

// Until the problem that `task` follows is stored. Acquires its results (release:
// CountStored). Ends for certain: a launch's blocks get an SM only after all of the previous one's
// have theirs.
__device__ __forceinline__ void WaitForPredecessor(const GroupArgs& args, const GroupTask& task) {
  if (!args.inputs_early || task.after == 0) return;
  const uint32_t* stored = args.StoredOf(task.after);
  while (!Reached(LoadAcquire(stored), task.after_stored)) {
  }
  FenceTensorCopies();
}

// Until all that was loaded has been used, by every block that it was loaded for.
__device__ __forceinline__ void WaitUsed(const Shared& shared, const Ring& ring) {
  for (int i = 0; i < kGroupMaxStages; ++i) {
    WaitParity(shared.empty + 8 * i, (ring.phases >> i & 1) ^ 1);
  }
}

// Blocks of a pair load half of A's rows each, for both.
template <class Config, bool kIsA>
__device__ __forceinline__ void Load(const GroupArgs& args, const Shared& shared) {
  constexpr int kElementsPerBlock = kRowBytes / sizeof(typename Config::Format::Input);
  constexpr bool kForPair = kIsA && Config::kBlocks == 2;
  const int part = kForPair ? ClusterRank() : 0;
  Items<Config> items(args);
  Ring ring;
  int tile_key = 0, problem = -1;
  const CUtensorMap* map = nullptr;
  if (kIsA ? !args.inputs_early : !args.weights_early) WaitForPreviousLaunch();
  for (Item item = items.Next(); !item.end();) {
    const Item next = items.Next();
    const int w_bytes = item.w_rows() * kRowBytes, a_bytes = item.a_rows() * kRowBytes;
    if (item.tile_key() != tile_key) {
      // Before the first tile there is nothing to wait for: that would take 0.5 us.
      if (tile_key != 0) WaitUsed(shared, ring);
      tile_key = item.tile_key();
      ring.stage = 0;
      ring.stages = StagesOf<Config>(w_bytes + a_bytes);
    }
    if (item.problem() != problem) {
      problem = item.problem();
      map = MapOf(args, problem, kIsA ? &GroupMaps::a : &GroupMaps::w);
      if (kIsA) WaitForPredecessor(args, TaskOf(args, problem));
    }
    const int part_rows = item.a_rows() / Config::kBlocks;
    const int row =
        kIsA ? item.a_tile() * item.a_rows() + part * part_rows : item.w_tile() * item.w_rows();
    const int bytes = kIsA ? a_bytes : w_bytes, stage_bytes = w_bytes + a_bytes;
    const uint32_t first_stage = shared.pool + (kIsA ? w_bytes + part * part_rows * kRowBytes : 0);
#pragma unroll 1
    for (int k = item.k_begin(); k < item.k_end(); ++k) {
      const uint32_t full = shared.full + 8 * ring.stage;
      WaitParity(shared.empty + 8 * ring.stage, ring.parity() ^ 1);
      ArriveExpecting(full, bytes);
      const uint32_t stage = first_stage + ring.stage * stage_bytes;
      if constexpr (kForPair) {
        LoadTileForPair(stage, map, full, k * kElementsPerBlock, row);
      } else {
        LoadTile(stage, map, full, k * kElementsPerBlock, row);
      }
      ring.Advance();
    }
    item = next;
  }
  // The other block says here that it has used what was loaded: this one must not be gone by then.
  if (kForPair) WaitUsed(shared, ring);
}

// --- Computing: two warpgroups ---

// A computing warpgroup's side of its staging buffer.
struct Handover {
  uint32_t parity = 1;  // of the buffer's last use; a new barrier's is 1
  __device__ __forceinline__ void WaitTaken(const Shared& shared, int warpgroup) {
    WaitParity(shared.taken + 8 * warpgroup, parity);
    parity ^= 1;
  }
};

// Rounds to 16 bits and hands the tile over in chunks of at most Config::kStagingRows rows of D. A
// chunk lies in the staging buffer as 128-byte rows, one per row of D, with 128-byte swizzle. With
// `stores` it is the block's last tile, which StoreLast() stores instead.
template <class Config, int kN, bool kShareW>
__device__ __forceinline__ void HandOver(const GroupArgs& args, const Shared& shared,
                                         const GroupTask& task, const Item& item, bool stores,
                                         int x, int y, const float (&d)[kN / 2], Handover& handover,
                                         int warpgroup, int thread) {
  using Format = typename Config::Format;
  constexpr int kChunks = kN > 128 ? 2 : 1, kRows = kN / kChunks;
  static_assert(kRows <= Config::kStagingRows);
  constexpr int kWRows = kShareW ? 64 : 128, kARows = kShareW ? 2 * kN : kN;
  const int lane = thread & 31, warp = thread >> 5;
  const uint32_t staging = shared.staging + warpgroup * Config::kStagingBytes;
  const Output<Format> output(task.flags);
  const bool inside = x < static_cast<int>(task.n);
  // Lane l gives the address of row l % 8 of matrix l / 8: two of columns, times two of rows of D.
  const int row_of_lane = (lane & 7) + (lane >> 4) * 8, column = warp * 2 + (lane >> 3 & 1);
  const bool ragged =
      (task.flags & GroupRecord::kRaggedRows) != 0 && x + 64 > static_cast<int>(task.n);
  const bool one_by_one = inside && (ragged || (task.flags & GroupRecord::kUnmapped) != 0);
  const int rows_to_store = inside && !one_by_one ? static_cast<int>(task.m) - y : 0;
  // One half of one block's part of one tile of each problem is its last.
  const bool last = warpgroup == 0 && RankInTile<Config>() == 0 &&
                    x + Config::kBlocks * kWRows >= static_cast<int>(task.n) &&
                    y + kARows >= static_cast<int>(task.m);
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
    SyncWarpgroup(warpgroup);
    if (LeadsWarpgroup(thread)) {
      const bool store = chunk * kRows < rows_to_store, done = chunk == kChunks - 1;
      const Message message = {item.problem(), x, y + chunk * kRows,
                               (store ? Message::kStore : 0) | (done ? Message::kTileDone : 0) |
                                   (done && last ? Message::kLastTile : 0)};
      if (stores) {
        StoreLast(args, shared, warpgroup, staging, message);
      } else {
        Tell(shared, warpgroup, message);
      }
    }
  }
}

// Says that a stage has been read: one thread of each warp, to every block that loads for this one.
template <class Config>
class EmptySignal {
 public:
  __device__ __forceinline__ EmptySignal(const Shared& shared, int thread)
      : sends_((thread & 31) < Config::kBlocks),
        empty_(Config::kBlocks == 2 ? InBlock(shared.empty, thread & 1) : shared.empty) {}

  __device__ __forceinline__ void operator()(int stage) const {
    if (!sends_) return;
    if constexpr (Config::kBlocks == 2) {
      ArriveInCluster(empty_ + 8 * stage);
    } else {
      Arrive(empty_ + 8 * stage);
    }
  }

 private:
  const bool sends_;
  const uint32_t empty_;
};

// One item. kN rows of A per warpgroup; kShareW: both take the same 64 rows of W. True if there is
// nothing left to tell the storing thread: `next` is the end, and StoreLast() has said so.
template <class Config, int kN, bool kShareW>
__device__ __forceinline__ bool Compute(const GroupArgs& args, const Shared& shared,
                                        const Item& item, const Item& next, Ring& ring,
                                        Handover& handover, int warpgroup, int thread) {
  using Format = typename Config::Format;
  constexpr int kWBytes = (kShareW ? 64 : 128) * kRowBytes;
  // Of a last tile that is computed in part, that of the whole.
  const int stage_bytes = kWBytes + Uniform(item.a_rows()) * kRowBytes;
  ring = {Uniform(ring.stage), StagesOf<Config>(stage_bytes), Uniform(ring.phases)};
  const int blocks = Uniform(item.k_end() - item.k_begin());
  const EmptySignal<Config> signal_empty(shared, thread);
  float d[kN / 2];
  const auto multiply = [&](bool first) {
    WaitParity(shared.full + 8 * ring.stage, ring.parity());
    WgmmaFence();
    const uint32_t stage = shared.pool + ring.stage * stage_bytes;
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
  // While that is multiplied, and not before: that the first block of A is there says that what
  // finishing reads may be read, too.
  const GroupTask& task = TaskOf(args, item.problem());
  const int x = kShareW ? item.w_tile() * 64 : item.w_tile() * 128 + warpgroup * 64;
  Columns columns;
  if (task.flags & GroupRecord::kFinish) {
    columns = Columns::Read<Format>(task, args.records[task.record], x, thread);
  }
  int previous = ring.stage;
  ring.Advance();
#pragma unroll 1
  for (int block = 1; block < blocks; ++block) {
    multiply(false);
    WgmmaWait<1>();
    signal_empty(previous);
    previous = ring.stage;
    ring.Advance();
  }
  WgmmaWait<0>();
  signal_empty(previous);
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) asm volatile("" : "+f"(d[i])::"memory");

  if (item.splits() > 1 && !SumParts<Config, kN>(args, shared, item, d, warpgroup, thread)) {
    return false;
  }
  const int y = item.a_tile() * item.a_rows() + (kShareW ? warpgroup * kN : 0);
  if (task.flags & GroupRecord::kFinish) {
    Finish<Format, kN>(task, args.records[task.record], columns, x, y, thread, d);
  }
  // Only now, when the next item has long been read.
  const bool stores =
      Uniform(next.end() && item.splits() == 1 && WhoComputesLastStores(args) ? 1 : 0) != 0;
  HandOver<Config, kN, kShareW>(args, shared, task, item, stores, x, y, d, handover, warpgroup,
                                thread);
  return stores;
}

// Whether there are pairs' tiles of which a block computes this much.
template <int kWRows, int kARows>
constexpr bool kIsOfPair = [] {
  for (const GroupTile tile : kGroupPairTiles) {
    if (tile.w_rows == 2 * kWRows && tile.a_rows == kARows) return true;
  }
  return false;
}();

template <class Config>
__device__ __forceinline__ void ComputeAll(const GroupArgs& args, const Shared& shared,
                                           int warpgroup, int thread) {
  Items<Config> items(args);
  Ring ring;
  Handover handover;
  int tile_key = 0;
  bool told = false;  // the storing thread, that there is no more
  for (Item item = items.Next(); __shfl_sync(~0u, !item.end(), 0);) {
    const Item next = items.Next();
    const int key = __shfl_sync(~0u, item.tile_key(), 0);
    if (key != tile_key) ring.stage = 0;
    tile_key = key;
#define CONCERT_TILE(w_rows, a_rows)                                                               \
  case TileKey(w_rows, a_rows):                                                                    \
    if constexpr (constexpr int kN = (w_rows) == 64 ? (a_rows) / 2 : (a_rows);                     \
                  kN <= Config::kMaxRows && (Config::kBlocks == 1 || kIsOfPair<w_rows, a_rows>)) { \
      told = Compute<Config, kN, (w_rows) == 64>(args, shared, item, next, ring, handover,         \
                                                 warpgroup, thread);                               \
    }                                                                                              \
    break;
    switch (__shfl_sync(~0u, item.computed_key(), 0)) {
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
  if (told) return;
  handover.WaitTaken(shared, warpgroup);
  if (LeadsWarpgroup(thread)) Tell(shared, warpgroup, {0, 0, 0, Message::kExit});
}

// Lets the next launch of the stream start, and makes this one end after the previous one: who
// waits for this launch waits for all before it. A lane of its own, because nothing else may wait
// for that; one block is enough.
__device__ __forceinline__ void LineUp(const GroupArgs& args) {
  const bool last_to_end = blockIdx.x == 0;
  if (!last_to_end || !args.release_late) ReleaseNextLaunch();
  if (!last_to_end) return;
  WaitForPreviousLaunch();
  ReleaseNextLaunch();
}

template <class Config>
__device__ __forceinline__ void RunGroup(const GroupArgs& args) {
  extern __shared__ uint8_t raw[];
  const Shared shared = Shared::Of<Config>(raw);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kGroupMaxStages; ++i) {
      InitBarrier(shared.full + 8 * i, 2);                     // the threads that load W and A
      InitBarrier(shared.empty + 8 * i, 8 * Config::kBlocks);  // the computing warps
    }
    for (int i = 0; i < 2; ++i) {
      InitBarrier(shared.handed_over + 8 * i, 1);
      InitBarrier(shared.taken + 8 * i, 1);
    }
    PublishBarriers();
  }
  const int warpgroup = Uniform(threadIdx.x / kWarpgroup), thread = threadIdx.x % kWarpgroup;
  if constexpr (Config::kBlocks == 2) {
    SyncCluster();  // the other block's copies and signals come to these barriers, too
  } else {
    __syncthreads();
  }
  if (warpgroup < 2) {
    ClaimRegisters<Config::kComputingRegisters>();
    return ComputeAll<Config>(args, shared, warpgroup, thread);
  }
  ReleaseRegisters<Config::kLoadingRegisters>();

  const int warp = Uniform(thread / 32);
  const Election election = Elect();
  if (warp == 3 && thread % 32 == (election.leader ^ 1)) LineUp(args);  // who stores must not wait
  if (!election.is_leader) return;
  switch (warp) {
    case 0:
      return Load<Config, false>(args, shared);
    case 1:
      return Load<Config, true>(args, shared);
    default:
      return Store<Config>(args, shared, warp - 2);
  }
}

}  // namespace

#define CONCERT_GROUP_KERNEL(name, format, footprint, cluster)                                 \
  extern "C" __global__ void cluster __launch_bounds__(kGroupThreads, footprint.blocks_per_sm) \
      name(const __grid_constant__ GroupArgs args) {                                           \
    RunGroup<Config<format, footprint>>(args);                                                 \
  }
CONCERT_GROUP_KERNEL(concert_group_wide_bf16, Bf16, kGroupWide, )
CONCERT_GROUP_KERNEL(concert_group_wide_fp16, Fp16, kGroupWide, )
CONCERT_GROUP_KERNEL(concert_group_wide_e4m3, E4m3, kGroupWide, )
CONCERT_GROUP_KERNEL(concert_group_narrow_bf16, Bf16, kGroupNarrow, )
CONCERT_GROUP_KERNEL(concert_group_narrow_fp16, Fp16, kGroupNarrow, )
CONCERT_GROUP_KERNEL(concert_group_narrow_e4m3, E4m3, kGroupNarrow, )
CONCERT_GROUP_KERNEL(concert_group_pairs_bf16, Bf16, kGroupPairs, __cluster_dims__(2, 1, 1))
CONCERT_GROUP_KERNEL(concert_group_pairs_fp16, Fp16, kGroupPairs, __cluster_dims__(2, 1, 1))
CONCERT_GROUP_KERNEL(concert_group_pairs_e4m3, E4m3, kGroupPairs, __cluster_dims__(2, 1, 1))
#undef CONCERT_GROUP_KERNEL

}  // namespace concert::kernels::cuda
