#include <gtest/gtest.h>

#include "client/ctl/top/bars.h"
#include "client/ctl/top/figures.h"
#include "tests/unit/ctl/top_fixture.h"

namespace concert::ctl {
namespace {

TEST(TopFiguresTest, SharesAreOfWhatTheIntervalHas) {
  const TopSample sample = SampleOf(2);
  const GpuFigures busy = FiguresOf(sample.devices.devices(0), sample);
  EXPECT_NEAR(*busy[Figure::kTime], 0.43, 1e-9);
  EXPECT_NEAR(*busy[Figure::kSms], 0.31, 1e-9);
  EXPECT_NEAR(*busy[Figure::kBandwidth], 0.25, 1e-9);
  EXPECT_EQ(busy.queue_depth, 12u);
  const GpuFigures idle = FiguresOf(sample.devices.devices(1), sample);
  for (const std::optional<double>& share : idle.shares) EXPECT_FALSE(share.has_value());
}

TEST(TopFiguresTest, SensorsHaveSharesWhetherAnythingEndedOrNot) {
  TopSample sample = SampleOf(2);
  sample.delta.Clear();
  const GpuFigures figures = FiguresOf(sample.devices.devices(0), sample);
  EXPECT_NEAR(*figures[Figure::kMemory], 12.0 / 141, 1e-9);
  EXPECT_NEAR(*figures[Figure::kPower], 412.4 / 700, 1e-9);
  EXPECT_FALSE(FiguresOf(sample.devices.devices(1), sample)[Figure::kPower].has_value());
}

TEST(TopFiguresTest, SharesAreNeverMoreThanAll) {
  TopSample sample = SampleOf(1);
  v1::DeviceStats* stats = sample.delta.mutable_stats()->mutable_devices(0);
  stats->mutable_ops()->set_gpu_seconds(3);
  stats->mutable_ops()->set_moved_bytes(uint64_t{1} << 60);
  stats->set_planned_sm_seconds(1e6);
  const GpuFigures figures = FiguresOf(sample.devices.devices(0), sample);
  for (const Figure figure : {Figure::kTime, Figure::kSms, Figure::kBandwidth})
    EXPECT_EQ(figures[figure], 1.0) << NameOf(figure);
}

TEST(TopFiguresTest, BeforeTheFirstIntervalThereAreNoShares) {
  TopSample sample = SampleOf(1);
  sample.delta.clear_interval_seconds();
  const GpuFigures figures = FiguresOf(sample.devices.devices(0), sample);
  for (const Figure figure : {Figure::kTime, Figure::kSms, Figure::kBandwidth})
    EXPECT_FALSE(figures[figure].has_value()) << NameOf(figure);
}

TEST(TopHistoryTest, IsBoundedAndKnowsTheDeepestQueue) {
  History history;
  TopSample sample = SampleOf(1);
  sample.devices.mutable_devices(0)->set_queued_op_count(395);
  history.Add(sample);
  sample.devices.mutable_devices(0)->set_queued_op_count(95);
  history.Add(sample);
  EXPECT_EQ(history.DeepestQueue(0), 400u);
  EXPECT_NEAR(*history.Share(0, history.Of(0).back(), Figure::kQueue), 0.25, 1e-9);
  for (size_t i = 0; i < History::kLength; ++i) history.Add(sample);
  EXPECT_EQ(history.Of(0).size(), History::kLength);
  EXPECT_EQ(history.DeepestQueue(0), 100u);  // the deep one has gone
  EXPECT_TRUE(history.Of(7).empty());
  EXPECT_EQ(history.DeepestQueue(7), 1u);
}

TEST(TopBarsTest, BarsAreFilledInProportion) {
  EXPECT_EQ(Bar(0.5, 10), "|||||     ");
  EXPECT_EQ(Bar(1, 4), "||||");
  EXPECT_EQ(Bar(0.001, 4), "|   ");  // more than nothing
  EXPECT_EQ(Bar(std::nullopt, 3), "   ");
  EXPECT_EQ(Bar(0.5, 0), "");
  EXPECT_EQ(Bar(0.5, -3), "");
}

TEST(TopBarsTest, PlotsStandOnTheBottomWithTheNewestAtTheRight) {
  EXPECT_EQ(Plot({0.0, 0.5, 1.0}, 1, 5, true), std::vector<std::string>{"   \u2584\u2588"});
  EXPECT_EQ(Plot({0.75, 1.0}, 2, 2, true),
            (std::vector<std::string>{"\u2584\u2588", "\u2588\u2588"}));
  EXPECT_EQ(Plot({1.0, 0.0, std::nullopt, 1.0}, 1, 3, true), std::vector<std::string>{"  \u2588"});
  EXPECT_EQ(Plot({0.5, 1.0}, 1, 3, false), std::vector<std::string>{" :#"});
  EXPECT_TRUE(Plot({0.5}, 0, 3, true).empty());
}

}  // namespace
}  // namespace concert::ctl
