#include "tests/bench/collective_shape.h"

#include "gtest/gtest.h"

namespace concert::bench {
namespace {

CollectiveShape Of(CollectiveKind kind) { return {.kind = kind, .bytes = 4800, .ranks = 3}; }

TEST(CollectiveShapeTest, CountsAsNcclTestsDo) {
  const CollectiveShape gather = Of(CollectiveKind::kAllGather);
  EXPECT_EQ(gather.src_bytes(), 1600u);
  EXPECT_EQ(gather.dst_bytes(), 4800u);
  EXPECT_EQ(gather.count(), 800u) << "elements of one rank";
  const CollectiveShape scatter = Of(CollectiveKind::kReduceScatter);
  EXPECT_EQ(scatter.src_bytes(), 4800u);
  EXPECT_EQ(scatter.dst_bytes(), 1600u);
  EXPECT_EQ(scatter.count(), 800u);
  EXPECT_EQ(Of(CollectiveKind::kAllToAll).count(), 800u) << "per peer";
  EXPECT_EQ(Of(CollectiveKind::kAllReduce).count(), 2400u);
  EXPECT_EQ(Of(CollectiveKind::kBroadcast).count(), 2400u);
}

TEST(CollectiveShapeTest, BusFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(Of(CollectiveKind::kAllReduce).bus_factor(), 4.0 / 3);
  EXPECT_DOUBLE_EQ(Of(CollectiveKind::kAllGather).bus_factor(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(Of(CollectiveKind::kReduceScatter).bus_factor(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(Of(CollectiveKind::kAllToAll).bus_factor(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(Of(CollectiveKind::kBroadcast).bus_factor(), 1);
}

TEST(CollectiveShapeTest, MemoryIsReadAndWrittenOnce) {
  EXPECT_DOUBLE_EQ(Of(CollectiveKind::kAllReduce).hbm_bytes(), 9600);
  EXPECT_DOUBLE_EQ(Of(CollectiveKind::kAllGather).hbm_bytes(), 4800) << "a slot read, two written";
  EXPECT_DOUBLE_EQ(Of(CollectiveKind::kReduceScatter).hbm_bytes(), 6400);
  EXPECT_DOUBLE_EQ(Of(CollectiveKind::kBroadcast).hbm_bytes(), 4800);
}

TEST(CollectiveShapeTest, NamesAreFoundAgain) {
  for (const CollectiveKind kind : kAllCollectiveKinds)
    EXPECT_EQ(FindCollectiveKind(KindName(kind)), kind);
  EXPECT_FALSE(FindCollectiveKind("gather").has_value());
}

}  // namespace
}  // namespace concert::bench
