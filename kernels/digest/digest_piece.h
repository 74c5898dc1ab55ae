// What one thread of the kernels in digest.cu does. Shared by host and device code: tests run it on
// the host, thread by thread.
//
// Each block has a piece of its own, which its threads read 16 bytes at a time where the addresses
// allow it, so that the HBM is the bound.
#ifndef CONCERT_KERNELS_DIGEST_DIGEST_PIECE_H_
#define CONCERT_KERNELS_DIGEST_DIGEST_PIECE_H_

#include <cstdint>

#include "kernels/digest/digest.h"

namespace concert::kernels::cuda {

inline constexpr uint32_t kDigestThreads = 256;
// Of one block. Few, so that a block ends after some microseconds and ops of other streams get its
// SM: a digest of much memory takes milliseconds.
inline constexpr uint64_t kDigestBlockBytes = 64 << 10;

// Adds the digest of `bytes` from `data` on, at any address, to *result.
struct DigestArgs {
  uint64_t data;
  uint64_t bytes;
  uint64_t result;  // address of 8 bytes, 0 before
};

// Makes *result 1 if the ranges differ.
struct CompareArgs {
  uint64_t a, b;  // any addresses
  uint64_t bytes;
  uint64_t result;  // address of 8 bytes, 0 before
};

// Of either kernel.
CONCERT_DIGEST_FUNCTION uint64_t DigestBlocks(uint64_t bytes) {
  return bytes / kDigestBlockBytes + (bytes % kDigestBlockBytes != 0);
}

// Two words that lie at a multiple of their size.
struct alignas(2 * kDigestWordBytes) DigestPair {
  uint64_t first, second;
};

// The first `count` bytes of a word, at any address; the others are 0.
CONCERT_DIGEST_FUNCTION uint64_t LoadBytes(uint64_t address, uint64_t count) {
  const auto* from = reinterpret_cast<const uint8_t*>(address);
  uint64_t word = 0;
  for (uint64_t i = 0; i < count; ++i) word |= static_cast<uint64_t>(from[i]) << (8 * i);
  return word;
}

CONCERT_DIGEST_FUNCTION DigestPair LoadPair(uint64_t base, uint64_t index) {
  return reinterpret_cast<const DigestPair*>(base)[index];
}

// What a thread of a block reads: pairs of words first, then the words that are left, then the
// bytes behind the last word of all.
struct DigestShare {
  uint64_t pair, pair_end;
  uint64_t word, word_end;
  uint64_t tail_bytes;  // 0: not this thread's
};

CONCERT_DIGEST_FUNCTION DigestShare ShareOf(uint64_t bytes, bool in_pairs, uint32_t block,
                                            uint32_t thread) {
  constexpr uint64_t kBlockWords = kDigestBlockBytes / kDigestWordBytes;
  const uint64_t words = bytes / kDigestWordBytes, begin = block * kBlockWords;
  const uint64_t end = begin + kBlockWords < words ? begin + kBlockWords : words;
  const bool last = block == DigestBlocks(bytes) - 1 && thread == 0;
  const uint64_t pair_end = in_pairs ? end / 2 : 0;
  return {begin / 2 + thread, pair_end, (in_pairs ? pair_end * 2 : begin) + thread, end,
          last ? bytes % kDigestWordBytes : 0};
}

// To be summed over all threads of all blocks.
CONCERT_DIGEST_FUNCTION uint64_t DigestOfShare(const DigestArgs& args, uint32_t block,
                                               uint32_t thread) {
  const bool in_pairs = args.data % sizeof(DigestPair) == 0;
  const DigestShare share = ShareOf(args.bytes, in_pairs, block, thread);
  uint64_t sum = 0;
  for (uint64_t pair = share.pair; pair < share.pair_end; pair += kDigestThreads) {
    const DigestPair words = LoadPair(args.data, pair);
    sum += DigestOfWord(words.first, 2 * pair) + DigestOfWord(words.second, 2 * pair + 1);
  }
  for (uint64_t word = share.word; word < share.word_end; word += kDigestThreads) {
    sum += DigestOfWord(LoadBytes(args.data + word * kDigestWordBytes, kDigestWordBytes), word);
  }
  if (share.tail_bytes == 0) return sum;
  const uint64_t word = args.bytes / kDigestWordBytes;
  return sum + DigestOfWord(LoadBytes(args.data + word * kDigestWordBytes, share.tail_bytes), word);
}

// Whether the thread sees a difference.
CONCERT_DIGEST_FUNCTION bool ShareDiffers(const CompareArgs& args, uint32_t block,
                                          uint32_t thread) {
  const bool in_pairs = (args.a | args.b) % sizeof(DigestPair) == 0;
  const DigestShare share = ShareOf(args.bytes, in_pairs, block, thread);
  bool differs = false;
  for (uint64_t pair = share.pair; pair < share.pair_end; pair += kDigestThreads) {
    const DigestPair a = LoadPair(args.a, pair), b = LoadPair(args.b, pair);
    differs |= a.first != b.first || a.second != b.second;
  }
  for (uint64_t word = share.word; word < share.word_end; word += kDigestThreads) {
    const uint64_t offset = word * kDigestWordBytes;
    differs |= LoadBytes(args.a + offset, kDigestWordBytes) !=
               LoadBytes(args.b + offset, kDigestWordBytes);
  }
  if (share.tail_bytes == 0) return differs;
  const uint64_t offset = args.bytes - share.tail_bytes;
  return differs | (LoadBytes(args.a + offset, share.tail_bytes) !=
                    LoadBytes(args.b + offset, share.tail_bytes));
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_DIGEST_DIGEST_PIECE_H_
