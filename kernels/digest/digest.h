// A number by which equal contents of memory are found. Whether contents that have the same one are
// equal is for a comparison to say: it is easy to make some that are not. Shared by host and device
// code, which compute the same number.
#ifndef CONCERT_KERNELS_DIGEST_DIGEST_H_
#define CONCERT_KERNELS_DIGEST_DIGEST_H_

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define CONCERT_DIGEST_FUNCTION __host__ __device__ __forceinline__
#else
#define CONCERT_DIGEST_FUNCTION inline
#endif

namespace concert::kernels {

inline constexpr uint64_t kDigestWordBytes = sizeof(uint64_t);

// What word `index` adds to the digest: the finaliser of splitmix64 (Steele, Lea and Flood, "Fast
// splittable pseudorandom number generators", OOPSLA 2014). A sum, so that words may come in any
// order.
CONCERT_DIGEST_FUNCTION uint64_t DigestOfWord(uint64_t word, uint64_t index) {
  uint64_t mixed = word + (index + 1) * 0x9e3779b97f4a7c15;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  return mixed ^ (mixed >> 31);
}

// Of `bytes` of host memory at any address: the sum of its words', little-endian, the last one
// filled up with zeros. Of none: 0.
inline uint64_t DigestOf(const void* data, uint64_t bytes) {
  const auto* from = static_cast<const unsigned char*>(data);
  const uint64_t words = bytes / kDigestWordBytes, tail_bytes = bytes % kDigestWordBytes;
  uint64_t digest = 0, word = 0;
  for (uint64_t i = 0; i < words; ++i) {
    std::memcpy(&word, from + i * kDigestWordBytes, kDigestWordBytes);
    digest += DigestOfWord(word, i);
  }
  if (tail_bytes == 0) return digest;
  word = 0;
  std::memcpy(&word, from + words * kDigestWordBytes, tail_bytes);
  return digest + DigestOfWord(word, words);
}

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_DIGEST_DIGEST_H_
