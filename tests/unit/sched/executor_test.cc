#include "daemon/sched/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/bench/null_device.h"

namespace concert::daemon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Writes down what it is asked to do; one kind of call may fail.
class RecordingDevice final : public bench::NullDevice {
 public:
  absl::Status Launch(const LaunchRequest& launch) override {
    std::string call = absl::StrCat("launch on ", launch.planned.lane, ":");
    for (size_t i = 0; i < launch.ops.size(); ++i) {
      absl::StrAppend(&call, " ticket ", launch.ops[i]->ticket, " ends as ", launch.writes[i].value,
                      " after ", launch.after[i].launches_back);
    }
    return Record("launch", call);
  }
  absl::Status Signal(Lane lane, std::span<const TimelineWrite> writes) override {
    std::string call = absl::StrCat("signal on ", lane, ":");
    for (const TimelineWrite& write : writes) absl::StrAppend(&call, " ", write.value);
    return Record("signal", call);
  }
  absl::Status Order(Lane lane, Lane before) override {
    return Record("order", absl::StrCat("order ", lane, " behind ", before));
  }

  std::vector<std::string> calls;
  std::string failing;

 private:
  absl::Status Record(const std::string& what, const std::string& call) {
    calls.push_back(call);
    return what == failing ? absl::InternalError(what) : absl::OkStatus();
  }
};

class ExecutorTest : public testing::Test {
 protected:
  ExecutorTest() : issuer_(kCapacity), executor_(device_, issuer_) {}

  absl::Status LaunchTwo(uint16_t order_mask) {
    executor_.Begin();
    for (uint64_t i = 0; i < ops_.size(); ++i) {
      ops_[i].ticket = i + 1;
      executor_.Add(ops_[i], {.address = 0, .value = 10 + i});
    }
    const std::vector<kernels::Predecessor> after = {{}, {.launches_back = 2, .op = 0}};
    LaunchRequest launch = {.planned = {.lane = 5}, .order_mask = order_mask, .after = after};
    return executor_.Launch(launch);
  }

  std::vector<IssuerMessage> Messages() {
    std::vector<IssuerMessage> messages;
    for (IssuerMessage message; issuer_.TryPop(message);) messages.push_back(message);
    return messages;
  }

  static constexpr uint32_t kCapacity = 1 << 16;
  static_assert(kCapacity > 2 * kRoomForParts);

  RecordingDevice device_;
  IssuerMailbox issuer_;
  Executor executor_;
  std::vector<Op> ops_{2};
};

TEST_F(ExecutorTest, OrdersTheLaneBeforeItLaunches) {
  ASSERT_TRUE(LaunchTwo(0b1001).ok());
  EXPECT_THAT(device_.calls,
              ElementsAre("order 5 behind 0", "order 5 behind 3",
                          "launch on 5: ticket 1 ends as 10 after 0 ticket 2 ends as 11 after 2"));
}

TEST_F(ExecutorTest, NothingIsLaunchedOutOfOrder) {
  device_.failing = "order";
  EXPECT_FALSE(LaunchTwo(0b1).ok());
  EXPECT_THAT(device_.calls, ElementsAre("order 5 behind 0"));
}

TEST_F(ExecutorTest, OpsOfALaunchThatFailedCanStillBeEnded) {
  device_.failing = "launch";
  EXPECT_FALSE(LaunchTwo(0).ok());
  device_.calls.clear();
  EXPECT_TRUE(executor_.Signal(5).ok());
  EXPECT_THAT(device_.calls, ElementsAre("signal on 5: 10 11"));
}

TEST_F(ExecutorTest, APartIsOfferedOnceItsLaneIsInOrder) {
  const Membership membership{.communicator = 7, .rank = 1};
  const RankPart part{.gpu = 0, .lane = policies::kCollectiveLane, .op = &ops_[0], .id = 3};
  ASSERT_TRUE(executor_.Offer(membership, part, 0b10).ok());
  const std::vector<IssuerMessage> offered = Messages();
  ASSERT_EQ(offered.size(), 1u);
  EXPECT_EQ(offered[0].type, IssuerMessage::Type::kPart);
  EXPECT_EQ(offered[0].communicator, 7u);
  EXPECT_EQ(offered[0].rank, 1u);
  EXPECT_EQ(offered[0].part.id, 3u);

  device_.failing = "order";
  EXPECT_FALSE(executor_.Offer(membership, part, 0b10).ok());
  EXPECT_THAT(Messages(), IsEmpty());
}

TEST_F(ExecutorTest, RefusalsLeaveRoomForEveryPart) {
  const Membership membership{.communicator = 7, .rank = 1};
  for (uint32_t i = 0; i < kCapacity; ++i) executor_.Refuse(membership, i);
  const RankPart part{.lane = policies::kCollectiveLane, .op = &ops_[0]};
  // Without room, Offer would end the process.
  for (uint32_t i = 0; i < kRoomForParts - 1; ++i) {
    ASSERT_TRUE(executor_.Offer(membership, part, 0).ok());
  }
  EXPECT_EQ(Messages()[0].refused_sequence, 0u);
}

}  // namespace
}  // namespace concert::daemon
