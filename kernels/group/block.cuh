// What the threads of a group kernel's block share: the work list, shared memory, the ring of
// stages and the maps.
#ifndef CONCERT_KERNELS_GROUP_BLOCK_CUH_
#define CONCERT_KERNELS_GROUP_BLOCK_CUH_

#include <cstdint>

#include "kernels/group/async.cuh"
#include "kernels/group/group_args.h"

namespace concert::kernels::cuda {

inline constexpr int kWarpgroup = 128;
inline constexpr int kRowBytes = kGroupBlockKBytes;

// Dtypes, and what a block may take of an SM.
template <class FormatOfOperands, GroupFootprint kFootprint>
struct Config {
  using Format = FormatOfOperands;
  static constexpr uint32_t kPoolBytes = kFootprint.pool_bytes;
  static constexpr uint32_t kStagingBytes = kFootprint.staging_bytes / 2;  // of a warpgroup
  static constexpr int kStagingRows = kStagingBytes / kRowBytes;
  static constexpr int kMaxRows = kFootprint.max_rows;
  static constexpr int kBlocks = kFootprint.pairs ? 2 : 1;  // that work on one tile
  static constexpr int kComputingRegisters = kFootprint.blocks_per_sm == 1 ? 232 : 104;
  static constexpr int kLoadingRegisters = kFootprint.blocks_per_sm == 1 ? 40 : 32;
};

// An item of the list, decoded.
struct Item {
  int4 raw;

  __device__ bool end() const { return problem() == GroupItem::kEnd; }
  __device__ int problem() const { return raw.x & 0xffff; }
  // Equal for items that lie alike in the stages.
  __device__ int tile_key() const { return raw.x >> 16 & ~0xf0; }
  // TileKey of what is computed.
  __device__ int computed_key() const {
    const int tail = raw.x >> 20 & 0xf;
    return tail == 0 ? tile_key() : (raw.x >> 16 & 0xf) | tail << 8;
  }
  __device__ int w_rows() const { return (raw.x >> 16 & 0xf) * 64; }
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

// This block's place among those that work on one tile.
template <class Config>
__device__ __forceinline__ int RankInTile() {
  if constexpr (Config::kBlocks == 1) return 0;
  return ClusterRank();
}

// This block's column of the list, or its pair's: then of each tile the part that is this block's,
// as if there were tiles of that size.
template <class Config>
class Items {
 public:
  __device__ explicit Items(const GroupArgs& args)
      : next_(reinterpret_cast<const int4*>(args.items) + blockIdx.x / Config::kBlocks) {}
  __device__ Item Next() {
    Item item{__ldg(next_)};
    next_ += gridDim.x / Config::kBlocks;
    if constexpr (Config::kBlocks == 2) {
      const int rank = ClusterRank();
      item.raw.x -= 2 << 16;                           // w_rows: 128 of 256
      item.raw.y += item.w_tile() + rank;              // w_tile
      item.raw.w += (item.split_tile() + rank) << 16;  // split_tile
    }
    return item;
  }

 private:
  const int4* next_;
};

// What a computing warpgroup tells the thread that stores for it, of what lies in the staging
// buffer.
struct Message {
  enum Flags {
    kStore = 1,
    kTileDone = 2,  // the last of what the warpgroup has of a tile
    kLastTile = 4,  // and of its problem: the timeline must be written
    kExit = 8,      // no more messages; nothing is to be stored
  };
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

static_assert(sizeof(SharedTail) <= 512);  // GroupFootprint::shared_bytes()

// Addresses in shared memory.
struct Shared {
  uint32_t pool, staging, full, empty, handed_over, taken;
  SharedTail* tail;

  template <class Config>
  __device__ static Shared Of(uint8_t* raw) {
    const uint32_t start = SharedAddress(raw), pool = (start + 1023) & ~1023u;
    Shared shared;
    shared.pool = pool;
    shared.staging = pool + Config::kPoolBytes;
    shared.tail = reinterpret_cast<SharedTail*>(raw + (pool - start) + Config::kPoolBytes +
                                                2 * Config::kStagingBytes);
    shared.full = SharedAddress(shared.tail->full);
    shared.empty = SharedAddress(shared.tail->empty);
    shared.handed_over = SharedAddress(shared.tail->handed_over);
    shared.taken = SharedAddress(shared.tail->taken);
    return shared;
  }
};

// Says that all threads of a warp have the same value. What is computed from it then stays in
// registers that the warp shares, where wgmma and tensor copies want their operands. With it,
// Elect() and no wait for an empty ring, chains of 512x1024x1024 take 6.9 instead of 8.1 us a step
// (H200).
template <class T>
__device__ __forceinline__ T Uniform(T value) {
  return __shfl_sync(~0u, value, 0);
}

// Barriers of one computing warpgroup; named barrier 0 is __syncthreads'.
__device__ __forceinline__ void SyncWarpgroup(int warpgroup) {
  NamedSync(1 + warpgroup, kWarpgroup);
}

// True in one thread of a warpgroup, the same one every time; see Election. REQUIRES: all threads
// of the warpgroup call it with their number.
__device__ __forceinline__ bool LeadsWarpgroup(int thread) {
  const Election election = Elect();
  return Uniform(thread) == 0 && election.is_leader;
}

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

template <class Config>
__host__ __device__ constexpr int StagesOf(int stage_bytes) {
  const int fit = static_cast<int>(Config::kPoolBytes) / stage_bytes;
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

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GROUP_BLOCK_CUH_
