// Collectives between GPUs by kernels of ours, one launch a rank, over memory that every GPU has
// mapped.
//
// Small messages go through inboxes (low_latency): what a peer needs is sent as words that carry
// the epoch as their tag, so that data is its own flag and nobody waits for a fence. Large ones
// move by the SM's bulk copies (push, reduce): blocks of the same number meet before, since a
// peer's memory is not ours until its stream has come here, and after, since ours is not whole
// before.
//
// Reductions add in rank order, in fp32, and round once: every rank has the same bits, run after
// run.
//
// Every wait has a bound. A rank that waits in vain reports whom it missed and ends its context:
// what would come after it on the stream must not run, and the peers' results are lost as well.
#include <type_traits>

#include "kernels/comm/peer_args.h"
#include "kernels/comm/reduction.cuh"
#include "kernels/cuda_api/element.cuh"
#include "kernels/group/async.cuh"

namespace concert::kernels::cuda {
namespace {

constexpr uint64_t kPatienceNs = 10'000'000'000;  // a peer's kernel may wait for SMs until then

// Bounds a wait: asked now and then, ends the context when a rank has not come in time.
class Patience {
 public:
  __device__ Patience(const PeerArgs& args, uint32_t rank) : args_(args), rank_(rank) {}
  __device__ void Check() {
    if (++turns_ % kTurns != 0) return;
    const uint64_t now = NowNs();
    if (until_ == 0) until_ = now + kPatienceNs;
    if (now < until_) return;
    args_.report->block = blockIdx.x;
    args_.report->epoch = args_.epoch;
    args_.report->missing = 1 + rank_;
    __threadfence_system();
    __trap();
  }

 private:
  static constexpr uint32_t kTurns = 1024;  // so that waiting costs no look at the clock
  const PeerArgs& args_;
  const uint32_t rank_;
  uint32_t turns_ = 0;
  uint64_t until_ = 0;
};

// One thread of every block, when all that the block has stored happens before: the last of them
// writes the rank's signal. The kernel itself does, since a stream's write behind it begins when
// the grid is gone, and takes a fence that waits for GEMMs beside it.
__device__ void EndBlock(const PeerArgs& args) {
  if (args.signal_address == 0) return;
  // Release, and by the last one acquire: what the blocks have stored.
  uint32_t& ended = args.exchange[args.rank]->ended;
  if (gridDim.x > 1) {
    if (AddAcquireRelease(&ended, 1) != gridDim.x - 1) return;
    ended = 0;  // the channel's next collective is behind this kernel
  }
  // Before: release of all that to the host, and to whoever is told by it.
  FenceSystem();
  StoreRelaxedSystem(args.signal_address, args.signal_value);
}

// ---- Through inboxes

__device__ void Send(TaggedWords* to, uint2 words, uint32_t tag) {
  // 16 bytes at once, of which each half arrives whole: a word and its tag.
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to),
               "l"(uint64_t{tag} << 32 | words.x), "l"(uint64_t{tag} << 32 | words.y)
               : "memory");
}

__device__ void Look(const TaggedWords* from, uint64_t& low, uint64_t& high) {
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(low), "=l"(high)
               : "l"(from)
               : "memory");
}

// `count` words of the message from `rank` that begins at `from`, kStride apart: they are on their
// way together, so that a thread waits for the links once.
template <int kWords>
__device__ void Receive(const TaggedWords* from, uint64_t stride, int count, const PeerArgs& args,
                        uint32_t rank, uint2 (&words)[kWords]) {
  uint64_t low[kWords], high[kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    if (i < count) Look(from + i * stride, low[i], high[i]);
  }
  Patience patience(args, rank);
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    if (i >= count) break;
    while (low[i] >> 32 != args.epoch || high[i] >> 32 != args.epoch) {
      patience.Check();
      Look(from + i * stride, low[i], high[i]);
    }
    words[i] = make_uint2(static_cast<uint32_t>(low[i]), static_cast<uint32_t>(high[i]));
  }
}

// 8 bytes at `offset` of a message of `bytes`, which may end in between and begin at any element.
template <typename Element>
struct Words {
  static constexpr int kCount = 8 / sizeof(Element);
  union {
    uint2 words;
    Element elements[kCount];
  };

  __device__ static Words Load(const char* message, uint64_t offset, uint64_t bytes) {
    Words result;
    result.words = make_uint2(0, 0);
    if (reinterpret_cast<uintptr_t>(message) % 8 == 0 && offset + 8 <= bytes) {
      result.words = *reinterpret_cast<const uint2*>(message + offset);
      return result;
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const uint64_t at = offset + i * sizeof(Element);
      if (at < bytes) result.elements[i] = *reinterpret_cast<const Element*>(message + at);
    }
    return result;
  }

  __device__ void Store(char* message, uint64_t offset, uint64_t bytes) const {
    if (reinterpret_cast<uintptr_t>(message) % 8 == 0 && offset + 8 <= bytes) {
      *reinterpret_cast<uint2*>(message + offset) = words;
      return;
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const uint64_t at = offset + i * sizeof(Element);
      if (at < bytes) *reinterpret_cast<Element*>(message + at) = elements[i];
    }
  }
};

// What a thread has of every message: words `first`, `first + stride`, ...
struct ThreadWords {
  uint64_t first, stride, count;

  __device__ explicit ThreadWords(const PeerArgs& args)
      : first(uint64_t{blockIdx.x} * blockDim.x + threadIdx.x),
        stride(uint64_t{gridDim.x} * blockDim.x),
        count((args.bytes + 7) / 8) {}
};

// Why two inboxes are enough: a rank sends for epoch e + 2, into the inbox of e, only after it has
// received all of e + 1; its peer has sent that after it had read all of e, since both launches are
// on one stream. So every rank sends every peer at least a word, even where the kind needs none.
template <typename Element>
__device__ void SendWords(const PeerArgs& args, const ThreadWords& own) {
  const bool sends = args.root == kNoRoot || args.root == args.rank;
  const char* src = args.src[args.rank];
  for (uint32_t step = 1; step < args.ranks; ++step) {
    const uint32_t peer = (args.rank + step) % args.ranks;
    TaggedWords* to = &args.exchange[peer]->inbox[args.epoch % 2][args.rank * own.count];
    if (!sends) {
      if (own.first == 0) Send(to, make_uint2(0, 0), args.epoch);
      continue;
    }
    const char* message = src + peer * args.src_step;
#pragma unroll 4
    for (uint64_t i = own.first; i < own.count; i += own.stride) {
      Send(to + i, Words<Element>::Load(message, 8 * i, args.bytes).words, args.epoch);
    }
  }
}

// Up to kWords words of every rank's message, from word `i` on: added in rank order, or each
// stored where it belongs.
template <typename Element, bool kReduces, int kWords>
__device__ void ReceiveWords(const PeerArgs& args, const ThreadWords& own, uint64_t i) {
  constexpr int kCount = Words<Element>::kCount;
  const int count =
      static_cast<int>(min(uint64_t{kWords}, (own.count - i + own.stride - 1) / own.stride));
  const TaggedWords* inbox = args.exchange[args.rank]->inbox[args.epoch % 2];
  const char* src = args.src[args.rank] + args.rank * args.src_step;
  char* dst = args.dst[args.rank];
  float sums[kWords][kCount];
  for (uint32_t rank = 0; rank < args.ranks; ++rank) {
    const bool sent = args.root == kNoRoot || args.root == rank;
    uint2 words[kWords];
    if (rank == args.rank) {
#pragma unroll
      for (int k = 0; k < kWords; ++k) {
        if (k >= count) break;
        words[k] = Words<Element>::Load(src, 8 * (i + k * own.stride), args.bytes).words;
      }
    } else if (sent || i == 0) {
      Receive(inbox + rank * own.count + i, own.stride, sent ? count : 1, args, rank, words);
    }
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      if (k >= count) break;
      Words<Element> part;
      part.words = words[k];
      if constexpr (kReduces) {
#pragma unroll
        for (int j = 0; j < kCount; ++j) {
          const float x = ToFloat(part.elements[j]);
          sums[k][j] = rank == 0 ? x : Combine(sums[k][j], x, args.reduction);
        }
      } else if (sent) {
        part.Store(dst + rank * args.dst_step, 8 * (i + k * own.stride), args.bytes);
      }
    }
  }
  if constexpr (kReduces) {
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      if (k >= count) break;
      Words<Element> result;
#pragma unroll
      for (int j = 0; j < kCount; ++j) result.elements[j] = FromFloat<Element>(sums[k][j]);
      result.Store(dst, 8 * (i + k * own.stride), args.bytes);
    }
  }
}

// A thread sends all that it has before it waits for anything.
template <typename Element, bool kReduces>
__device__ void LowLatency(const PeerArgs& args) {
  constexpr int kWords = 4;  // that a thread waits for at once
  const ThreadWords own(args);
  SendWords<Element>(args, own);
  for (uint64_t i = own.first; i < own.count; i += kWords * own.stride) {
    ReceiveWords<Element, kReduces, kWords>(args, own, i);
  }
  __syncthreads();
  if (threadIdx.x == 0) EndBlock(args);
}

// ---- By bulk copies (compute capability 9.0)

// Blocks of this number of all ranks meet. Thread 0 only. Before: what the streams have done here
// and there is visible to all. After: likewise what was stored, once its copies are complete.
__device__ void Meet(const PeerArgs& args, int meeting) {
  __threadfence_system();  // before: release, what this block has stored
  for (uint32_t step = 1; step < args.ranks; ++step) {
    const uint32_t peer = (args.rank + step) % args.ranks;
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(
                     &args.exchange[peer]->arrived[meeting][blockIdx.x][args.rank]),
                 "r"(args.epoch)
                 : "memory");
  }
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

__device__ void InitBarriers(BulkMemory& memory) {
  for (int stage = 0; stage < kStages; ++stage) {
    InitBarrier(SharedAddress(&memory.loaded[stage]), 1);
    InitBarrier(SharedAddress(&memory.added[stage]), kAddingThreads);
    InitBarrier(SharedAddress(&memory.freed[stage]), 1);
  }
  PublishBarriers();
}

__device__ void Load(void* shared, const char* from, uint32_t bytes, uint64_t& barrier) {
  LoadBytes(SharedAddress(shared), reinterpret_cast<uint64_t>(from), bytes,
            SharedAddress(&barrier));
}

__device__ void Store(char* to, const void* shared, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(SharedAddress(shared)), "r"(bytes)
               : "memory");
}
__device__ void CommitStores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until all but the newest `kNewest` groups of stores have read their shared memory.
template <int kNewest>
__device__ void WaitStoresRead() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kNewest) : "memory");
}
// Bulk copies have a proxy of their own: before a meeting what they have stored, behind it what
// they will load.
__device__ void MeetAroundBulkCopies(const PeerArgs& args, int meeting) {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
  Meet(args, meeting);
  asm volatile("fence.proxy.async;" ::: "memory");
}

// The part of [0, bytes) of tile `tile`, in multiples of 16 bytes.
__device__ uint32_t TileBytes(uint64_t bytes, uint64_t tile, uint32_t tile_bytes) {
  const uint64_t left = bytes - tile * tile_bytes;
  return left < tile_bytes ? static_cast<uint32_t>(left) : tile_bytes;
}

// Every rank stores its messages where its peers (and, out of place, it itself) want them. One
// thread a block: it only issues copies. Bytes are a multiple of 16.
__device__ void Push(const PeerArgs& args, BulkMemory& memory) {
  if (threadIdx.x != 0) return;
  InitBarriers(memory);
  MeetAroundBulkCopies(args, 0);
  const bool sends = args.root == kNoRoot || args.root == args.rank;
  const char* src = args.src[args.rank];
  // One message for everybody is loaded once; else a tile goes to one peer, the next to the next.
  const uint32_t messages = args.src_step == 0 ? 1 : args.ranks;
  const uint64_t tiles = (args.bytes + kStageBytes - 1) / kStageBytes;
  const uint64_t count = sends ? tiles * messages : 0;
  const auto peer_of = [&](uint64_t index) {
    return static_cast<uint32_t>((args.rank + 1 + index % messages) % args.ranks);
  };
  const auto load = [&](uint64_t index, int stage) {
    const uint64_t tile = index / messages;
    const uint32_t bytes = TileBytes(args.bytes, tile, kStageBytes);
    ArriveExpecting(SharedAddress(&memory.loaded[stage]), bytes);
    Load(memory.stages[stage], src + peer_of(index) * args.src_step + tile * kStageBytes, bytes,
         memory.loaded[stage]);
  };
  const auto store = [&](uint32_t peer, uint64_t tile, int stage) {
    char* to = args.dst[peer] + args.rank * args.dst_step;
    if (to == src + peer * args.src_step) return;  // in place
    Store(to + tile * kStageBytes, memory.stages[stage], TileBytes(args.bytes, tile, kStageBytes));
  };
  constexpr int kAhead = kStages - 2;  // stores of two stages may still read them
  uint64_t next = blockIdx.x;
  for (int i = 0; i < kAhead && next < count; ++i, next += gridDim.x) load(next, i);
  uint64_t turn = 0;
  for (uint64_t index = blockIdx.x; index < count; index += gridDim.x, ++turn) {
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
      WaitStoresRead<2>();
      load(next, static_cast<int>((turn + kAhead) % kStages));
      next += gridDim.x;
    }
  }
  MeetAroundBulkCopies(args, 1);
  EndBlock(args);
}

// One pack of every rank's part, added in rank order, where rank 0's lies. `kRanks` 0: args.ranks.
template <typename Element, uint32_t kRanks>
__device__ void AddPack(const PeerArgs& args, char* first, uint32_t part_bytes) {
  constexpr int kWidth = 16 / sizeof(Element);
  using Elements = Pack<Element, kWidth>;
  const uint32_t ranks = kRanks == 0 ? args.ranks : kRanks;
  float sums[kWidth];
#pragma unroll
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const auto part = *reinterpret_cast<const Elements*>(first + rank * part_bytes);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float x = ToFloat(part.values[j]);
      sums[j] = rank == 0 ? x : Combine(sums[j], x, args.reduction);
    }
  }
  Elements result;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) result.values[j] = FromFloat<Element>(sums[j]);
  *reinterpret_cast<Elements*>(first) = result;
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

// Calls visit(tile, stage, round) for the block's tiles; a stage is used once a round.
template <typename Visit>
__device__ void ForTiles(const ReduceTiles& tiles, Visit visit) {
  int stage = 0;
  uint32_t round = 0;
  for (uint64_t tile = blockIdx.x; tile < tiles.count; tile += gridDim.x) {
    visit(tile, stage, round);
    if (++stage == kStages) stage = 0, ++round;
  }
}

// One thread: fills stages as they become free.
__device__ void LoadTiles(const PeerArgs& args, const ReduceTiles& tiles, BulkMemory& memory) {
  ForTiles(tiles, [&](uint64_t tile, int stage, uint32_t round) {
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

// kAddingThreads threads.
template <typename Element, uint32_t kRanks>
__device__ void AddTiles(const PeerArgs& args, const ReduceTiles& tiles, BulkMemory& memory) {
  ForTiles(tiles, [&](uint64_t tile, int stage, uint32_t round) {
    const uint32_t bytes = tiles.Bytes(args, tile);
    WaitParity(SharedAddress(&memory.loaded[stage]), round % 2);
#pragma unroll 4
    for (uint32_t offset = 16 * threadIdx.x; offset < bytes; offset += 16 * kAddingThreads) {
      AddPack<Element, kRanks>(args, memory.stages[stage] + offset, tiles.part_bytes);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // before the store's bulk copies
    Arrive(SharedAddress(&memory.added[stage]));
  });
}

// One thread: stores what is added, and frees its stage once that has been read.
template <bool kEverywhere>
__device__ void StoreTiles(const PeerArgs& args, const ReduceTiles& tiles, BulkMemory& memory) {
  constexpr int kUnread = 2;  // stores that may still read their stages
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
template <typename Element, bool kEverywhere>
__device__ void Reduce(const PeerArgs& args, BulkMemory& memory) {
  const ReduceTiles tiles(args);
  if (threadIdx.x == kLoadingThread) {
    InitBarriers(memory);
    MeetAroundBulkCopies(args, 0);
  }
  __syncthreads();
  if (threadIdx.x == kLoadingThread) {
    LoadTiles(args, tiles, memory);
  } else if (threadIdx.x == kStoringThread) {
    StoreTiles<kEverywhere>(args, tiles, memory);
    MeetAroundBulkCopies(args, 1);
    EndBlock(args);
  } else if (threadIdx.x < kAddingThreads) {
    if (args.ranks == 2) {
      AddTiles<Element, 2>(args, tiles, memory);
    } else {
      AddTiles<Element, 0>(args, tiles, memory);
    }
  }
}

}  // namespace

#define CONCERT_SMALL(name, Element, reduces)                                   \
  extern "C" __global__ void __launch_bounds__(kPeerThreads, kSmallBlocksPerSm) \
      peer_small_##name(const __grid_constant__ PeerArgs args) {                \
    LowLatency<Element, reduces>(args);                                         \
  }
CONCERT_SMALL(move_2, uint16_t, false)
CONCERT_SMALL(move_4, uint32_t, false)
CONCERT_SMALL(reduce_bf16, __nv_bfloat16, true)
CONCERT_SMALL(reduce_fp16, __half, true)
CONCERT_SMALL(reduce_fp32, float, true)

#define CONCERT_BULK(name, threads, call)                  \
  extern "C" __global__ void __launch_bounds__(threads, 1) \
      peer_##name(const __grid_constant__ PeerArgs args) { \
    extern __shared__ __align__(128) BulkMemory memory[];  \
    call(args, *memory);                                   \
  }
CONCERT_BULK(push, kPushThreads, Push)
CONCERT_BULK(reduce_bf16, kReduceThreads, (Reduce<__nv_bfloat16, false>))
CONCERT_BULK(reduce_fp16, kReduceThreads, (Reduce<__half, false>))
CONCERT_BULK(reduce_fp32, kReduceThreads, (Reduce<float, false>))
CONCERT_BULK(all_reduce_bf16, kReduceThreads, (Reduce<__nv_bfloat16, true>))
CONCERT_BULK(all_reduce_fp16, kReduceThreads, (Reduce<__half, true>))
CONCERT_BULK(all_reduce_fp32, kReduceThreads, (Reduce<float, true>))

}  // namespace concert::kernels::cuda
