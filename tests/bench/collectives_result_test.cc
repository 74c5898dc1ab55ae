#include "tests/bench/collectives_result.h"

#include "gtest/gtest.h"

namespace concert::bench {
namespace {

using nlohmann::json;

json Entry(uint64_t bytes, double concert_us, double memory_bytes_per_s = 4.2e12) {
  const CollectiveShape shape = {.kind = CollectiveKind::kAllReduce, .bytes = bytes, .ranks = 4};
  return DescribeCollective("all_reduce", shape,
                            {.alone = {{"concert", {concert_us}},
                                       {"nccl", {30}},
                                       {"concert_8_sms", {20}},
                                       {"nccl_8_ctas", {40}}},
                             .beside = {{"concert", {25}}, {"nccl", {75}}},
                             .gemms_beside = {{"concert", {200}}},
                             .both = {{"concert", {210}}}},
                            memory_bytes_per_s);
}

TEST(CollectivesResultTest, BandwidthsAreThoseOfNcclTests) {
  const json entry = Entry(1'000'000, 10);
  EXPECT_DOUBLE_EQ(entry["algbw_gb_per_s"]["concert"], 100);
  EXPECT_DOUBLE_EQ(entry["busbw_gb_per_s"]["concert"], 150) << "2 (n - 1) / n";
  EXPECT_DOUBLE_EQ(entry["beside_busbw_gb_per_s"]["concert"], 60);
  EXPECT_DOUBLE_EQ(entry["both_us"]["concert"]["p50"], 210);
  EXPECT_DOUBLE_EQ(entry["bound_us"], 1.5e6 / 450e3);
  const json slow = Entry(1'000'000, 10, /*memory_bytes_per_s=*/1e9);
  EXPECT_GT(slow["bound_us"], 1000) << "a million bytes at 1 GB/s";
  EXPECT_DOUBLE_EQ(entry["speedup_over"]["nccl"], 3);
  EXPECT_DOUBLE_EQ(entry["beside_speedup_over"]["nccl"], 3);
  EXPECT_DOUBLE_EQ(entry["speedup_8_sms"], 2);
}

TEST(CollectivesResultTest, SummaryTellsSmallOnesAndTheOthersApart) {
  const json summary = CollectivesSummary(
      json::array({Entry(1024, 10), Entry(65536, 15), Entry(1 << 20, 60)}), /*tolerance=*/0.02);
  EXPECT_DOUBLE_EQ(summary["small"]["worst"], 2);
  EXPECT_DOUBLE_EQ(summary["speedup_over"]["nccl"]["worst"], 0.5);
  EXPECT_DOUBLE_EQ(summary["eight_sms"]["geomean"], 2);
  EXPECT_DOUBLE_EQ(summary["beside"]["worst"], 3);
  EXPECT_FALSE(CollectivesSummary(json::array({Entry(1 << 20, 10)}), 0.02).contains("small"));
}

}  // namespace
}  // namespace concert::bench
