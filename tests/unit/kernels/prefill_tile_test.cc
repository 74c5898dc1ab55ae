// Tiles of attention_prefill: with whatever lies in the client's memory.
#include "kernels/attention_prefill/prefill_tile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/support/seed.h"

namespace concert::kernels::cuda {
namespace {

struct Chunks {
  std::vector<int32_t> starts, lengths;
  uint32_t tokens, group, rows;

  AttentionPrefillArgs Args() const {
    AttentionPrefillArgs args{};
    args.attention.rows = static_cast<uint32_t>(lengths.size());
    args.attention.length_max = 1000;
    args.attention.q_heads = static_cast<uint16_t>(3 * group);
    args.attention.kv_heads = 3;
    args.attention.lengths = reinterpret_cast<Address>(lengths.data());
    args.tokens = tokens;
    args.query_starts = reinterpret_cast<Address>(starts.data());
    return args;
  }
};

class PrefillTileTest : public testing::Test {
 protected:
  uint32_t Below(uint32_t end) { return static_cast<uint32_t>(random_() % end); }

  uint32_t AnyRows() { return PrefillRows(Below(2) == 0 ? 128 : 256); }

  std::mt19937 random_{static_cast<uint32_t>(test::Seed())};
};

TEST_F(PrefillTileTest, EveryTokenOfAChunkIsInOneTile) {
  SCOPED_TRACE(testing::Message() << "seed " << test::Seed());
  for (int round = 0; round < 3000; ++round) {
    Chunks chunks{
        .starts = {static_cast<int32_t>(Below(50))}, .group = 1 + Below(8), .rows = AnyRows()};
    for (uint32_t left = 1 + Below(6); left > 0; --left) {
      const bool long_one = Below(4) == 0;
      chunks.starts.push_back(chunks.starts.back() +
                              static_cast<int32_t>(Below(long_one ? 700 : 40)));
      chunks.lengths.push_back(static_cast<int32_t>(Below(1000)));
    }
    chunks.tokens = static_cast<uint32_t>(chunks.starts.back()) + Below(50);
    if (chunks.tokens == 0) continue;
    const AttentionPrefillArgs args = chunks.Args();
    std::vector<int> visible(chunks.tokens, INT32_MIN);  // by row
    std::vector<uint32_t> sequence(chunks.tokens);
    for (uint64_t number = 0; number < PrefillTiles(args, chunks.rows); ++number) {
      const PrefillTile tile = PrefillTileOf(args, chunks.rows, number);
      ASSERT_LE(tile.tokens, PrefillTileTokens(args, chunks.rows));
      for (uint32_t i = 0; i < tile.tokens; ++i) {
        ASSERT_EQ(visible[tile.first + i], INT32_MIN) << "row in two tiles";
        visible[tile.first + i] = tile.visible + static_cast<int>(i);
        sequence[tile.first + i] = tile.sequence;
      }
    }
    for (size_t s = 0; s < chunks.lengths.size(); ++s) {
      for (int32_t row = chunks.starts[s]; row < chunks.starts[s + 1]; ++row) {
        ASSERT_EQ(visible[static_cast<size_t>(row)],
                  chunks.lengths[s] - (chunks.starts[s + 1] - row) + 1);
        ASSERT_EQ(sequence[static_cast<size_t>(row)], s);
      }
    }
    const auto in_no_tile = std::count(visible.begin(), visible.end(), INT32_MIN);
    ASSERT_EQ(in_no_tile, chunks.tokens - (chunks.starts.back() - chunks.starts.front()));
  }
}

TEST_F(PrefillTileTest, NoTileLeavesWhatThereIs) {
  SCOPED_TRACE(testing::Message() << "seed " << test::Seed());
  int with_tokens = 0;
  for (int round = 0; round < 3000; ++round) {
    Chunks chunks{.starts = {}, .tokens = 1 + Below(400), .group = 1 + Below(8), .rows = AnyRows()};
    const auto anything = [&] {
      return static_cast<int32_t>(Below(4) == 0 ? random_() : Below(600)) - 50;
    };
    const uint32_t sequences = 1 + Below(20);
    for (uint32_t i = 0; i < sequences; ++i) chunks.lengths.push_back(anything());
    for (uint32_t i = 0; i <= sequences; ++i) chunks.starts.push_back(anything());
    const AttentionPrefillArgs args = chunks.Args();
    for (uint64_t number = 0; number < PrefillTiles(args, chunks.rows); ++number) {
      const PrefillTile tile = PrefillTileOf(args, chunks.rows, number);
      if (tile.tokens == 0) continue;
      ++with_tokens;
      ASSERT_LE(tile.tokens, PrefillTileTokens(args, chunks.rows));
      ASSERT_LT(tile.sequence, sequences);
      ASSERT_LE(uint64_t{tile.first} + tile.tokens, chunks.tokens);
      ASSERT_LE(tile.visible + static_cast<int64_t>(tile.tokens) - 1, 1000);
      ASSERT_GT(tile.visible, -static_cast<int64_t>(chunks.tokens));
    }
  }
  EXPECT_GT(with_tokens, 3000);
}

}  // namespace
}  // namespace concert::kernels::cuda
