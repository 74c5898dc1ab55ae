// Large messages, by the SM's bulk copies (compute capability 9.0): blocks of the same number meet
// before, since a peer's memory is not ours until its stream has come here, and after, since ours
// is not whole before.
#ifndef CONCERT_KERNELS_COMM_PEER_BULK_CUH_
#define CONCERT_KERNELS_COMM_PEER_BULK_CUH_

#include <cstdint>

#include "kernels/comm/peer_args.h"
#include "kernels/comm/peer_block.cuh"
#include "kernels/comm/reduction.cuh"
#include "kernels/cuda_api/element.cuh"
#include "kernels/group/async.cuh"

namespace concert::kernels::cuda {

// Tells the blocks of this number of all peers that this one has come to a meeting. One thread.
__device__ inline void Announce(const PeerArgs& args, int meeting) {
  for (uint32_t step = 1; step < args.ranks; ++step) {
    const uint32_t peer = (args.rank + step) % args.ranks;
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(
                     &args.exchange[peer]->arrived[meeting][blockIdx.x][args.rank]),
                 "r"(args.epoch)
                 : "memory");
  }
}

// Until those of all peers have come, too. One thread.
__device__ inline void AwaitPeers(const PeerArgs& args, int meeting) {
  for (uint32_t step = 1; step < args.ranks; ++step) {
    const uint32_t peer = (args.rank + step) % args.ranks;
    Patience patience(args, peer);
    for (;;) {
      uint32_t epoch;
      // Acquire: what the peer's block has released.
      asm volatile("ld.acquire.sys.global.u32 %0, [%1];"
                   : "=r"(epoch)
                   : "l"(&args.exchange[args.rank]->arrived[meeting][blockIdx.x][peer])
                   : "memory");
      if (static_cast<int32_t>(epoch - args.epoch) >= 0) break;
      patience.Check();
    }
  }
}

// Blocks of this number of all ranks meet. One thread. Before: what the streams have done here and
// there is visible to all. After: likewise what was stored, once its copies are complete.
__device__ inline void Meet(const PeerArgs& args, int meeting) {
  // Release, of what this block has stored: once for all peers. A fence waits until what is on its
  // way to any of them has arrived, flags included.
  FenceSystem();
  Announce(args, meeting);
  AwaitPeers(args, meeting);
}

__device__ inline void InitBarriers(BulkMemory& memory) {
  for (int stage = 0; stage < kStages; ++stage) {
    InitBarrier(SharedAddress(&memory.loaded[stage]), 1);
    InitBarrier(SharedAddress(&memory.added[stage]), kAddingThreads);
    InitBarrier(SharedAddress(&memory.freed[stage]), 1);
  }
  PublishBarriers();
}

__device__ inline void Load(void* shared, const char* from, uint32_t bytes, uint64_t& barrier) {
  LoadBytes(SharedAddress(shared), reinterpret_cast<uint64_t>(from), bytes,
            SharedAddress(&barrier));
}

__device__ inline void Store(char* to, const void* shared, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(SharedAddress(shared)), "r"(bytes)
               : "memory");
}
__device__ inline void CommitStores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until all but the newest `kNewest` groups of stores have read their shared memory.
template <int kNewest>
__device__ void WaitStoresRead() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kNewest) : "memory");
}
// Until all stores are where they go, for whoever looks there in another way than bulk copies.
__device__ inline void CompleteStores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
}
// Bulk copies have a proxy of their own: before a meeting what they have stored, behind it what
// they will load.
__device__ inline void MeetAroundBulkCopies(const PeerArgs& args, int meeting) {
  CompleteStores();
  Meet(args, meeting);
  asm volatile("fence.proxy.async;" ::: "memory");
}

// Newest stores of a block that may still read their stages. With two, an SM that reduces loads 70
// instead of 80 GB/s of a peer's memory (two H100s).
inline constexpr int kUnread = 1;

// The part of [0, bytes) of tile `tile`, in multiples of 16 bytes.
__device__ inline uint32_t TileBytes(uint64_t bytes, uint64_t tile, uint32_t tile_bytes) {
  const uint64_t left = bytes - tile * tile_bytes;
  return left < tile_bytes ? static_cast<uint32_t>(left) : tile_bytes;
}

// Every rank stores its messages where its peers (and, out of place, it itself) want them. One
// thread a block: it only issues copies. Bytes are a multiple of 16.
__device__ inline void Push(const PeerArgs& args, BulkMemory& memory) {
  if (threadIdx.x != 0) return;
  InitBarriers(memory);
  const bool sends = args.root == kNoRoot || args.root == args.rank;
  const char* src = args.src[args.rank];
  // One message for everybody is loaded once; else a tile goes to one peer, the next to the next.
  const uint32_t messages = args.src_step == 0 ? 1 : args.ranks;
  // 32 bits, in which the divisions below are a few instructions: tiles are only small where there
  // are few.
  const auto tiles = static_cast<uint32_t>((args.bytes + args.tile_bytes - 1) / args.tile_bytes);
  const uint32_t count = sends ? tiles * messages : 0;
  const auto peer_of = [&](uint32_t index) {
    return (args.rank + 1 + index % messages) % args.ranks;
  };
  const auto load = [&](uint32_t index, int stage) {
    const uint64_t tile = index / messages;
    const uint32_t bytes = TileBytes(args.bytes, tile, args.tile_bytes);
    ArriveExpecting(SharedAddress(&memory.loaded[stage]), bytes);
    Load(memory.stages[stage], src + peer_of(index) * args.src_step + tile * args.tile_bytes, bytes,
         memory.loaded[stage]);
  };
  const auto store = [&](uint32_t peer, uint64_t tile, int stage) {
    char* to = args.dst[peer] + args.rank * args.dst_step;
    if (to == src + peer * args.src_step) return;  // in place
    Store(to + tile * args.tile_bytes, memory.stages[stage],
          TileBytes(args.bytes, tile, args.tile_bytes));
  };
  constexpr int kAhead = kStages - kUnread;
  uint32_t next = blockIdx.x;
  const auto fill = [&] {
    for (int i = 0; i < kAhead && next < count; ++i, next += gridDim.x) load(next, i);
  };
  if (!args.fetches) fill();  // own memory, as the stream has left it
  MeetAroundBulkCopies(args, 0);
  if (args.fetches) fill();
  uint32_t turn = 0;
  for (uint32_t index = blockIdx.x; index < count; index += gridDim.x, ++turn) {
    const int stage = static_cast<int>(turn % kStages);
    WaitParity(SharedAddress(&memory.loaded[stage]), turn / kStages % 2);
    if (messages == 1) {
      for (uint32_t step = 1; step <= args.ranks; ++step) {
        store((args.rank + step) % args.ranks, index, stage);
      }
    } else {
      store(peer_of(index), index / messages, stage);
    }
    CommitStores();
    if (next < count) {
      WaitStoresRead<kUnread>();
      load(next, static_cast<int>((turn + kAhead) % kStages));
      next += gridDim.x;
    }
  }
  MeetAroundBulkCopies(args, 1);
  EndBlock(args);
}

// One pack of every rank's part, added in rank order, where rank 0's lies. `kRanks` 0: args.ranks.
// The reduction is known when this is compiled: to ask for it at every element took longer than all
// else (an SM loaded 44 instead of 81 GB/s, which its shared memory bounds; two H100s). Of four
// ranks known likewise it loads 46, of ranks that it counts 53 (four H100s).
template <typename Pair, uint32_t kRanks, uint32_t kReduction>
__device__ void AddPack(const PeerArgs& args, char* first, uint32_t part_bytes) {
  constexpr int kPairs = 16 / sizeof(Pair);
  using Pairs = Pack<Pair, kPairs>;
  const uint32_t ranks = kRanks == 0 ? args.ranks : kRanks;
  float2 sums[kPairs];
#pragma unroll
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const auto part = *reinterpret_cast<const Pairs*>(first + rank * part_bytes);
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const float2 x = ToFloats(part.values[j]);
      sums[j] = rank == 0 ? x
                          : make_float2(Combine(sums[j].x, x.x, kReduction),
                                        Combine(sums[j].y, x.y, kReduction));
    }
  }
  Pairs result;
#pragma unroll
  for (int j = 0; j < kPairs; ++j) Round(sums[j], result.values[j]);
  *reinterpret_cast<Pairs*>(first) = result;
}

// What a block of Reduce goes through, and where its rank's bytes lie.
struct ReduceTiles {
  uint32_t part_bytes;  // of a tile, of one rank
  uint64_t count;       // of this rank, of which a block has every gridDim.x-th
  uint64_t src_begin, dst_begin;

  __device__ explicit ReduceTiles(const PeerArgs& args)
      : part_bytes(kStageBytes / args.ranks & ~127u),
        count((args.bytes + part_bytes - 1) / part_bytes),
        src_begin(args.rank * args.src_step),
        dst_begin(args.rank * args.dst_step) {}
  __device__ uint32_t Bytes(const PeerArgs& args, uint64_t tile) const {
    return TileBytes(args.bytes, tile, part_bytes);
  }
};

// Of a tile: which stage it is in, and how often that was used before.
struct StageTurn {
  int stage = 0;
  uint32_t round = 0;
};

// Calls visit(tile, stage, round) for the block's tiles. Whose turn it would be next.
template <typename Visit>
__device__ StageTurn ForTiles(const ReduceTiles& tiles, Visit visit) {
  StageTurn turn;
  for (uint64_t tile = blockIdx.x; tile < tiles.count; tile += gridDim.x) {
    visit(tile, turn.stage, turn.round);
    if (++turn.stage == kStages) turn.stage = 0, ++turn.round;
  }
  return turn;
}

// One thread: fills stages as they become free.
__device__ inline StageTurn LoadTiles(const PeerArgs& args, const ReduceTiles& tiles,
                                      BulkMemory& memory) {
  return ForTiles(tiles, [&](uint64_t tile, int stage, uint32_t round) {
    if (round > 0) WaitParity(SharedAddress(&memory.freed[stage]), (round - 1) % 2);
    const uint32_t bytes = tiles.Bytes(args, tile);
    ArriveExpecting(SharedAddress(&memory.loaded[stage]), bytes * args.ranks);
    // The farthest first: own memory answers soonest.
    for (uint32_t step = 1; step <= args.ranks; ++step) {
      const uint32_t rank = (args.rank + step) % args.ranks;
      Load(memory.stages[stage] + rank * tiles.part_bytes,
           args.src[rank] + tiles.src_begin + tile * tiles.part_bytes, bytes, memory.loaded[stage]);
    }
  });
}

// The thread that loads: until all tiles before this turn are there. From the turn, since a
// division of 64 bits, of how many tiles they are, is a call, and with one more the compiler has
// warps that add converge in every tile (reduce_scatter of 256 MiB on 8 SMs of two H200s: 606 us
// instead of the 547 without that wait).
__device__ inline void AwaitLoads(BulkMemory& memory, StageTurn next) {
#pragma unroll 1
  for (int stage = 0; stage < kStages; ++stage) {
    const uint32_t rounds = next.round + (stage < next.stage ? 1 : 0);
    if (rounds > 0) WaitParity(SharedAddress(&memory.loaded[stage]), (rounds - 1) % 2);
  }
}

// kAddingThreads threads.
template <typename Pair, uint32_t kRanks, uint32_t kReduction>
__device__ void AddTiles(const PeerArgs& args, const ReduceTiles& tiles, BulkMemory& memory) {
  ForTiles(tiles, [&](uint64_t tile, int stage, uint32_t round) {
    const uint32_t bytes = tiles.Bytes(args, tile);
    WaitParity(SharedAddress(&memory.loaded[stage]), round % 2);
#pragma unroll 2  // of two ranks a thread has two packs of a whole tile
    for (uint32_t offset = 16 * threadIdx.x; offset < bytes; offset += 16 * kAddingThreads) {
      AddPack<Pair, kRanks, kReduction>(args, memory.stages[stage] + offset, tiles.part_bytes);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // before the store's bulk copies
    Arrive(SharedAddress(&memory.added[stage]));
  });
}

template <typename Pair, uint32_t kRanks>
__device__ void AddAllTiles(const PeerArgs& args, const ReduceTiles& tiles, BulkMemory& memory) {
  switch (args.reduction) {
    case kMaxReduction:
      return AddTiles<Pair, kRanks, kMaxReduction>(args, tiles, memory);
    case kMinReduction:
      return AddTiles<Pair, kRanks, kMinReduction>(args, tiles, memory);
    default:
      return AddTiles<Pair, kRanks, kSumReduction>(args, tiles, memory);
  }
}

// One thread: stores what is added, and frees its stage once that has been read.
template <bool kEverywhere>
__device__ void StoreTiles(const PeerArgs& args, const ReduceTiles& tiles, BulkMemory& memory) {
  int unread = 0, oldest = 0;
  ForTiles(tiles, [&](uint64_t tile, int stage, uint32_t round) {
    WaitParity(SharedAddress(&memory.added[stage]), round % 2);
    for (uint32_t step = 1; step <= args.ranks; ++step) {
      const uint32_t rank = (args.rank + step) % args.ranks;
      if (!kEverywhere && rank != args.rank) continue;
      Store(args.dst[rank] + tiles.dst_begin + tile * tiles.part_bytes, memory.stages[stage],
            tiles.Bytes(args, tile));
    }
    CommitStores();
    if (++unread <= kUnread) return;
    WaitStoresRead<kUnread>();
    Arrive(SharedAddress(&memory.freed[oldest]));
    if (++oldest == kStages) oldest = 0;
    --unread;
  });
}

// Every rank reduces its message of all ranks' memory and stores the result where it belongs: in
// its own dst or, if kEverywhere, at its place in every rank's. `args.bytes` is what this rank
// reduces, a multiple of 16; it begins at src_step * rank in src and dst_step * rank in dst. Three
// roles that wait for each other by stage only: a loading thread, adding warps, a storing thread.
template <typename Pair, bool kEverywhere>
__device__ void Reduce(const PeerArgs& args, BulkMemory& memory) {
  const ReduceTiles tiles(args);
  if (threadIdx.x == kLoadingThread) {
    InitBarriers(memory);
    MeetAroundBulkCopies(args, 0);
  }
  __syncthreads();
  // Peers wait in the end until their memory has been read and, if kEverywhere, written.
  if (threadIdx.x == kLoadingThread) {
    const StageTurn next = LoadTiles(args, tiles, memory);
    if (!kEverywhere) {
      AwaitLoads(memory, next);
      Announce(args, 1);
    }
  } else if (threadIdx.x == kStoringThread) {
    StoreTiles<kEverywhere>(args, tiles, memory);
    if (kEverywhere) {
      MeetAroundBulkCopies(args, 1);
    } else {
      CompleteStores();
      AwaitPeers(args, 1);
    }
    EndBlock(args);
  } else if (threadIdx.x < kAddingThreads) {
    if (args.ranks == 2) {
      AddAllTiles<Pair, 2>(args, tiles, memory);
    } else {
      AddAllTiles<Pair, 0>(args, tiles, memory);
    }
  }
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_COMM_PEER_BULK_CUH_
