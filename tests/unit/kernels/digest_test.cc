#include "kernels/digest/digest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "kernels/digest/digest_piece.h"
#include "tests/support/seed.h"

namespace concert::kernels {
namespace {

std::vector<uint8_t> RandomBytes(size_t count, std::mt19937_64& random) {
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

// The outputs of splitmix64 with the seed 0 (from its authors' reference).
TEST(DigestTest, AWordOfZeroAddsWhatSplitmix64Gives) {
  EXPECT_EQ(DigestOfWord(0, 0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(DigestOfWord(0, 1), 0x6e789e6aa1b965f4u);
  EXPECT_EQ(DigestOfWord(0, 2), 0x06c45d188009454fu);
}

TEST(DigestTest, IsTheSumOfItsWordsTheLastFilledUpWithZeros) {
  std::mt19937_64 random(test::Seed());
  const std::vector<uint8_t> bytes = RandomBytes(27, random);
  uint64_t sum = 0;
  for (uint64_t i = 0; i < 4; ++i) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + 8 * i, i < 3 ? 8 : 3);
    sum += DigestOfWord(word, i);
  }
  EXPECT_EQ(DigestOf(bytes.data(), 27), sum);
  EXPECT_EQ(DigestOf(bytes.data(), 0), 0u);
}

TEST(DigestTest, IsTheSameAtAnyAddressAndKnowsNothingBehindItsEnd) {
  std::mt19937_64 random(test::Seed());
  const std::vector<uint8_t> bytes = RandomBytes(100, random);
  for (size_t shift = 0; shift < 16; ++shift) {
    std::vector<uint8_t> moved(150, static_cast<uint8_t>(random()));
    std::memcpy(moved.data() + shift, bytes.data(), bytes.size());
    EXPECT_EQ(DigestOf(moved.data() + shift, 100), DigestOf(bytes.data(), 100));
  }
}

TEST(DigestTest, EveryBitAndTheOrderOfWordsCount) {
  std::mt19937_64 random(test::Seed());
  std::vector<uint8_t> bytes = RandomBytes(61, random);
  std::set<uint64_t> seen = {DigestOf(bytes.data(), bytes.size())};
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    seen.insert(DigestOf(bytes.data(), bytes.size()));
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
  }
  EXPECT_EQ(seen.size(), 1 + 8 * bytes.size());
  std::swap_ranges(bytes.begin(), bytes.begin() + 8, bytes.begin() + 8);
  seen.insert(DigestOf(bytes.data(), bytes.size()));
  EXPECT_EQ(seen.size(), 2 + 8 * bytes.size());
}

// Around the sizes of words, pairs and blocks.
constexpr uint64_t kSizes[] = {1,     7,     8,     9,     15,    16,    17,     4097,
                               65528, 65536, 65537, 65544, 65560, 65552, 131083, 200000};

template <typename DoShare>
void ForEachThread(uint64_t bytes, DoShare do_share) {
  for (uint32_t block = 0; block < cuda::DigestBlocks(bytes); ++block) {
    for (uint32_t thread = 0; thread < cuda::kDigestThreads; ++thread) do_share(block, thread);
  }
}

TEST(DigestTest, TheKernelsThreadsTogetherGiveIt) {
  std::mt19937_64 random(test::Seed());
  for (const uint64_t bytes : kSizes) {
    alignas(16) static uint8_t memory[200032];
    const std::vector<uint8_t> content = RandomBytes(sizeof(memory), random);
    std::copy(content.begin(), content.end(), memory);
    for (const uint64_t offset : {0, 3, 8, 16}) {
      const cuda::DigestArgs args{
          .data = reinterpret_cast<uint64_t>(memory) + offset, .bytes = bytes, .result = 0};
      uint64_t sum = 0;
      ForEachThread(bytes, [&](uint32_t block, uint32_t thread) {
        sum += cuda::DigestOfShare(args, block, thread);
      });
      EXPECT_EQ(sum, DigestOf(memory + offset, bytes)) << bytes << " bytes at " << offset;
    }
  }
}

TEST(DigestTest, OneOfTheKernelsThreadsSeesADifference) {
  std::mt19937_64 random(test::Seed());
  alignas(16) static uint8_t a[200032], b[200032];
  for (const uint64_t bytes : kSizes) {
    for (const uint64_t offset : {0, 1, 16}) {
      const std::vector<uint8_t> content = RandomBytes(bytes, random);
      std::copy(content.begin(), content.end(), a);
      std::copy(content.begin(), content.end(), b + offset);
      b[offset + bytes] = static_cast<uint8_t>(a[bytes] + 1);  // behind the range
      const cuda::CompareArgs args{.a = reinterpret_cast<uint64_t>(a),
                                   .b = reinterpret_cast<uint64_t>(b) + offset,
                                   .bytes = bytes,
                                   .result = 0};
      const auto differences = [&] {
        int seen = 0;
        ForEachThread(bytes, [&](uint32_t block, uint32_t thread) {
          seen += cuda::ShareDiffers(args, block, thread) ? 1 : 0;
        });
        return seen;
      };
      EXPECT_EQ(differences(), 0) << bytes << " bytes at " << offset;
      for (const uint64_t at : {uint64_t{0}, bytes - 1, random() % bytes}) {
        a[at] ^= static_cast<uint8_t>(1u << random() % 8);
        EXPECT_EQ(differences(), 1) << at << " of " << bytes << " bytes at " << offset;
        a[at] = content[at];
      }
    }
  }
}

}  // namespace
}  // namespace concert::kernels
