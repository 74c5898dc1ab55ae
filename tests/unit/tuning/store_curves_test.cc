// Curves in the tuning store: kept, read, refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "daemon/tuning/store.h"
#include "policies/cost/collective_cost.h"
#include "tests/unit/tuning/curves_for_test.h"
#include "tests/unit/tuning/rows_for_test.h"
#include "tests/unit/tuning/store_fixture.h"

namespace concert::daemon::store_curves_test {
namespace {

using policies::Transport;
using PutResult = Store::PutResult;
using testing::HasSubstr;

const Environment kHere{"0123456789abcdef", "a node"};
const Environment kElsewhere{"fedcba9876543210", "another node"};

using StoreCurvesTest = StoreFixture;

TEST_F(StoreCurvesTest, ACurveComesBackFromTheFileAsItWas) {
  const StoredCurve stored = CurveFor(Transport::kPeer);
  ASSERT_EQ(Store::Open(path_)->PutCurve(kHere, stored).value(), PutResult::kInserted);
  const auto store = Store::Open(path_);
  EXPECT_TRUE(store->quarantined().empty());
  const std::vector<StoredCurve> curves = store->Curves(kHere);
  ASSERT_EQ(curves.size(), 1u);
  EXPECT_EQ(curves[0].transport, stored.transport);
  EXPECT_EQ(curves[0].ranks, stored.ranks);
  EXPECT_EQ(curves[0].curve, stored.curve);
  EXPECT_EQ(curves[0].fit_error, stored.fit_error);
  EXPECT_EQ(curves[0].measured_at_s, stored.measured_at_s);
  EXPECT_TRUE(store->Curves(kElsewhere).empty()) << "another environment's";
  EXPECT_FALSE(store->LoadCurves(kElsewhere));
}

TEST_F(StoreCurvesTest, WhatWasMeasuredLaterStays) {
  const auto store = Store::OpenInMemory();
  StoredCurve stored = CurveFor(Transport::kNccl);
  ASSERT_TRUE(store->PutCurve(kHere, stored).ok());
  stored.measured_at_s -= 1;
  stored.curve.floor_us = 1;
  EXPECT_EQ(store->PutCurve(kHere, stored).value(), PutResult::kKept);
  stored.measured_at_s += 2;
  EXPECT_EQ(store->PutCurve(kHere, stored).value(), PutResult::kReplaced);
  ASSERT_EQ(store->Curves(kHere).size(), 1u);
  EXPECT_EQ(store->Curves(kHere)[0].curve.floor_us, 1);
}

TEST_F(StoreCurvesTest, WhatHasNotBeenMeasuredIsTheConstantsAndMoreRanksCount) {
  const auto store = Store::OpenInMemory();
  EXPECT_FALSE(store->LoadCurves(kHere));
  for (const int ranks : {2, 4, 8}) {
    StoredCurve stored = CurveFor(Transport::kPeer, ranks);
    stored.curve.floor_us = ranks;
    ASSERT_TRUE(store->PutCurve(kHere, stored).ok());
  }
  const auto curves = store->LoadCurves(kHere);
  ASSERT_TRUE(curves);
  EXPECT_EQ(curves->Of(Transport::kPeer, 2).floor_us, 2);
  EXPECT_EQ(curves->Of(Transport::kPeer, 3).floor_us, 8);
  EXPECT_EQ(curves->Of(Transport::kNccl, 2), policies::kTransportCurves.Of(Transport::kNccl, 2));
  const auto table = store->LoadTable(kHere, curves);
  EXPECT_EQ(policies::CurvesOf(table.get()).Of(Transport::kPeer, 2).floor_us, 2);
  EXPECT_EQ(policies::CurvesOf(nullptr).Of(Transport::kPeer, 2),
            policies::kTransportCurves.Of(Transport::kPeer, 2));
}

TEST_F(StoreCurvesTest, NumbersThatNobodyCanHaveMeasuredAreRefusedWithASentence) {
  const auto store = Store::OpenInMemory();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const CurveField& field : CurveFields()) {
    for (const double bad : {nan, -1.0, 1e300, std::numeric_limits<double>::infinity()}) {
      if (field.name == "small_bytes" && !(bad < 0)) continue;  // a double cannot say it
      StoredCurve stored = CurveFor(Transport::kPeer);
      if (field.name == "small_bytes") {
        stored.curve.small_bytes = uint64_t{1} << 40;
      } else {
        field.set(stored.curve, bad);
      }
      const auto put = store->PutCurve(kHere, stored);
      EXPECT_EQ(put.status().code(), absl::StatusCode::kInvalidArgument) << field.name;
      EXPECT_THAT(std::string(put.status().message()), HasSubstr(std::string(field.name)));
    }
  }
  for (const int ranks : {-1, 0, 1, 65}) {
    EXPECT_THAT(
        std::string(store->PutCurve(kHere, CurveFor(Transport::kPeer, ranks)).status().message()),
        HasSubstr("ranks is " + std::to_string(ranks)));
  }
  EXPECT_TRUE(store->Curves(kHere).empty());
}

TEST_F(StoreCurvesTest, HostileRowsAreSkippedAndCounted) {
  ASSERT_TRUE(Store::Open(path_)->PutCurve(kHere, CurveFor(Transport::kPeer)).ok());
  const std::string good = CurveToJson(CurveFor(Transport::kNccl).curve);
  const auto with = [&](const std::string& number) {
    std::string text = good;
    const size_t at = text.find("21.5");
    return text.replace(at, 4, number);
  };
  int transport = 0;
  const auto insert = [&](const std::string& name, const std::string& ranks,
                          const std::string& curve) {
    Sql("INSERT INTO curves(environment, transport, ranks, curve, fit_error, measured_at_s) "
        "VALUES('0123456789abcdef', '" +
        name + "', " + ranks + ", '" + curve + "', 0.1, 1)");
    ++transport;
  };
  insert("nccl", "2", with("1e999"));
  insert("nccl", "3", with("-5"));
  insert("nccl", "4", with("NaN"));
  insert("nccl", "5", with("\"12\""));
  insert("nccl", "6", "[]");
  insert("nccl", "7", "{}");
  insert("nccl", "-2", good);
  insert("nccl", "1000", good);
  insert("carrier pigeon", "2", good);
  insert("ce", "2", std::string(60'000, '['));
  const auto store = Store::Open(path_);
  ASSERT_EQ(store->Curves(kHere).size(), 1u);
  EXPECT_EQ(store->Curves(kHere)[0].transport, Transport::kPeer);
  EXPECT_EQ(store->invalid_rows(), 2u * static_cast<unsigned>(transport));
}

TEST_F(StoreCurvesTest, AFileFromBeforeThereWereCurvesKeepsItsRows) {
  ASSERT_TRUE(Store::Open(path_)->Put(kHere, RowFor(64)).ok());
  Sql("DROP TABLE curves");
  const auto store = Store::Open(path_);
  EXPECT_TRUE(store->quarantined().empty());
  EXPECT_EQ(store->Rows(kHere).size(), 1u);
  EXPECT_TRUE(store->PutCurve(kHere, CurveFor(Transport::kPeer)).ok());
}

}  // namespace
}  // namespace concert::daemon::store_curves_test
