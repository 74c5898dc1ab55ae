// Small messages: what a peer needs is sent into its inbox as words that carry the epoch as their
// tag, so that data is its own flag and nobody waits for a fence.
#ifndef CONCERT_KERNELS_COMM_PEER_INBOX_CUH_
#define CONCERT_KERNELS_COMM_PEER_INBOX_CUH_

#include <cstdint>

#include "kernels/comm/peer_args.h"
#include "kernels/comm/peer_block.cuh"
#include "kernels/comm/reduction.cuh"
#include "kernels/cuda_api/element.cuh"

namespace concert::kernels::cuda {

__device__ inline void Send(TaggedWords* to, uint2 words, uint32_t tag) {
  // 16 bytes at once, of which each half arrives whole: a word and its tag.
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to),
               "l"(uint64_t{tag} << 32 | words.x), "l"(uint64_t{tag} << 32 | words.y)
               : "memory");
}

__device__ inline void Look(const TaggedWords* from, uint64_t& low, uint64_t& high) {
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(low), "=l"(high)
               : "l"(from)
               : "memory");
}

// `count` words of the message from `rank` that begins at `from`, `stride` apart: they are on their
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

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_COMM_PEER_INBOX_CUH_
