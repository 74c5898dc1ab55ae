#include "daemon/tuning/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policies/auto/sm_budgets.h"
#include "tests/unit/tuning/fake_bench.h"
#include "tests/unit/tuning/rows_for_test.h"

namespace concert::daemon {
namespace {

using policies::Degree;
using policies::Form;
using policies::TunedKey;

const Environment kHere{"0123456789abcdef", "a GPU"};
const TuningItem kSmall{.problem = {.m = 16, .n = 64, .k = 64}};
const TuningItem kLarge{.problem = {.m = 4096, .n = 4096, .k = 4096}};

class TunerTest : public testing::Test {
 protected:
  TunerTest() : store_(Store::OpenInMemory()) {
    // Each GEMM takes longer with more threads in its way; variant 5 is the best in sets and on
    // part of the GPU, 2 the best alone.
    bench_.time_us = [](std::span<const Candidate> set, Form, int sm_budget) {
      float us = 0;
      for (const Candidate& member : set) {
        const int best = set.size() > 1 || sm_budget > 0 ? 5 : 2;
        us += 10.0f + static_cast<float>(std::abs(member.variant.tile_m - best));
      }
      return us;
    };
  }

  absl::Status Run(std::vector<TuningItem> items, TunerOptions options = {}) {
    Tuner tuner(bench_, *store_, kHere, options);
    const absl::Status status = tuner.Run(items, [](const TuningProgress&) {});
    progress_ = tuner.progress();
    return status;
  }
  policies::TunedRow Row(const TuningItem& item, Degree degree, uint16_t sm_budget = 0) {
    const Form form = degree == Degree::kSolo ? Form::kSingle : Form::kStreams;
    const auto row = store_->Get(kHere, {item.problem, sm_budget, degree, form});
    EXPECT_TRUE(row);
    return row ? row->tuned : policies::TunedRow{};
  }

  FakeBench bench_;
  const std::unique_ptr<Store> store_;
  TuningProgress progress_;
};

TEST_F(TunerTest, FindsWhatIsBestAloneTogetherAndOnPartOfTheGpu) {
  ASSERT_TRUE(Run({kSmall}).ok());
  EXPECT_EQ(Row(kSmall, Degree::kSolo).variant.tile_m, 2);
  for (const Degree degree : {Degree::kTwo, Degree::kFour, Degree::kEight, Degree::kMany}) {
    const policies::TunedRow row = Row(kSmall, degree);
    EXPECT_EQ(row.variant.tile_m, 5);
    EXPECT_FLOAT_EQ(row.median_us, 10);  // of one GEMM
    EXPECT_GE(row.samples, static_cast<uint32_t>(kFinalSamples));
  }
  EXPECT_EQ(Row(kSmall, Degree::kSolo, 68).variant.tile_m, 5);
  EXPECT_EQ(Row(kSmall, Degree::kSolo, 64).variant.sm_budget, 64);
  EXPECT_EQ(progress_.written_rows, 7u);
  const auto row = store_->Get(kHere, {kSmall.problem, 0, Degree::kSolo, Form::kSingle});
  EXPECT_GT(row->runner_up_us, row->tuned.median_us);
}

// The table finds a row by its exact budget.
TEST_F(TunerTest, PoliciesFindWhatIsTunedOnPartOfTheGpu) {
  using policies::Budget;
  for (const int sm_count : {1, 8, 114, 128, 132, 144}) {
    TunerOptions options{.force = true};
    options.device.sm_count = sm_count;
    ASSERT_TRUE(Run({kSmall}, options).ok());
    const policies::SmBudgets budgets(options.device, nullptr);
    for (const Budget budget : {Budget::kBesideReserve, Budget::kReserve})
      Row(kSmall, Degree::kSolo, static_cast<uint16_t>(budgets.SmsOf(budget)));
  }
}

TEST_F(TunerTest, GroupsAreMeasuredWhereThereIsAKernel) {
  bench_.variants = 1;
  TunerOptions options;
  options.device.group_kernel = true;
  ASSERT_TRUE(Run({kSmall}, options).ok());
  const auto row = store_->Get(kHere, {kSmall.problem, 0, Degree::kEight, Form::kGroup});
  ASSERT_TRUE(row);
  EXPECT_EQ(row->tuned.variant.source, policies::Variant::Source::kGroup);
}

TEST_F(TunerTest, TheMostValuableComesFirstAndACutRunGoesOnWhereItStopped) {
  bench_.samples_left = 500;
  EXPECT_TRUE(absl::IsCancelled(Run({kSmall, kLarge})));
  EXPECT_EQ(bench_.calls.front().first.front().problem, kLarge.problem);
  const uint32_t first = progress_.written_rows;
  EXPECT_GT(first, 2u);
  EXPECT_LT(first, 14u);
  Row(kSmall, Degree::kSolo);  // both alone before any set
  Row(kLarge, Degree::kSolo);

  bench_.samples_left = 1 << 30;
  bench_.calls.clear();
  ASSERT_TRUE(Run({kSmall, kLarge}).ok());
  EXPECT_EQ(progress_.skipped_rows, first);
  EXPECT_EQ(progress_.written_rows, 14u - first);
  bench_.calls.clear();
  ASSERT_TRUE(Run({kSmall, kLarge}).ok());
  EXPECT_TRUE(bench_.calls.empty());
  ASSERT_TRUE(Run({kSmall, kLarge}, {.force = true}).ok());
  EXPECT_EQ(progress_.kept_rows, 14u);  // nothing is better beyond noise
}

TEST_F(TunerTest, FrequentProblemsComeBeforeRareOnes) {
  TuningItem frequent = kSmall;
  frequent.count = 1'000'000;
  bench_.samples_left = 1;
  Run({kLarge, frequent}).IgnoreError();
  EXPECT_EQ(bench_.calls.front().first.front().problem, kSmall.problem);
}

TEST_F(TunerTest, FinalistsAreJudgedInSimilarAndMixedSets) {
  bench_.per_budget = false;
  // 5 wins by a little among its like, but is bad beside another problem; 4 is not.
  bench_.time_us = [](std::span<const Candidate> set, Form, int) {
    const bool mixed = set.front().problem != set.back().problem;
    const int variant = set.front().variant.tile_m;
    if (variant == 5) return mixed ? 30.0f : 10.0f;
    if (variant == 4) return 10.5f;
    return 20.0f;
  };
  ASSERT_TRUE(Run({kSmall, kLarge}).ok());
  EXPECT_EQ(Row(kSmall, Degree::kTwo).variant.tile_m, 4);
  EXPECT_FLOAT_EQ(Row(kSmall, Degree::kTwo).median_us, 5.25f);
  EXPECT_EQ(Row(kSmall, Degree::kSolo).variant.tile_m, 5);
}

TEST_F(TunerTest, AProblemThatCannotRunIsCountedAndTheRestGoesOn) {
  bench_.time_us = [](std::span<const Candidate> set, Form, int) {
    return set.front().problem == kLarge.problem ? -1.0f : 10.0f;
  };
  ASSERT_TRUE(Run({kSmall, kLarge}).ok());
  EXPECT_EQ(progress_.failed_rows, 7u);
  EXPECT_EQ(progress_.written_rows, 7u);
}

TEST_F(TunerTest, VerifyMarksWhatHasDrifted) {
  ASSERT_TRUE(Run({kSmall}).ok());
  const auto verify = [&] {
    Tuner tuner(bench_, *store_, kHere, {});
    std::vector<VerifiedRow> rows;
    EXPECT_TRUE(tuner.Verify(100, [&](const VerifiedRow& row) { rows.push_back(row); }).ok());
    return rows;
  };
  for (const VerifiedRow& row : verify()) EXPECT_FALSE(row.drifted);
  EXPECT_EQ(store_->LoadTable(kHere)->rows().size(), 7u);

  const auto before = bench_.time_us;
  bench_.time_us = [&](std::span<const Candidate> set, Form form, int sm_budget) {
    const float us = before(set, form, sm_budget);
    return set.size() == 8 ? 2 * us : us;
  };
  size_t drifted = 0;
  for (const VerifiedRow& row : verify()) {
    EXPECT_EQ(row.drifted, row.row.key.degree == Degree::kEight);
    drifted += row.drifted ? 1 : 0;
  }
  EXPECT_EQ(drifted, 1u);
  EXPECT_EQ(store_->LoadTable(kHere)->rows().size(), 6u);
  // A stale row is measured again, and then replaced although it is slower.
  ASSERT_TRUE(Run({kSmall}).ok());
  EXPECT_EQ(progress_.written_rows, 1u);
  EXPECT_FLOAT_EQ(Row(kSmall, Degree::kEight).median_us, 20);
}

}  // namespace
}  // namespace concert::daemon
