#include "daemon/quota/account.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include "daemon/quota/budget.h"
#include "daemon/quota/machine.h"

namespace concert::daemon {
namespace {

using testing::HasSubstr;

constexpr Resource kQueues = Resource::kQueues, kBuffers = Resource::kBuffers;

Limits Small() {
  Limits limits;
  limits[kQueues] = {.per_user = 4, .in_all = 6};
  limits[kBuffers] = {.per_user = 2, .in_all = 100};
  return limits;
}

TEST(ResourceTest, RowsStandInTheOrderOfTheEnumerators) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < kResourceCount; ++i) {
    const ResourceInfo& info = AllResources()[i];
    EXPECT_EQ(static_cast<size_t>(info.resource), i);
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_FALSE(info.owner.empty()) << info.name;
    EXPECT_FALSE(info.beyond.empty()) << info.name;
    EXPECT_LE(info.limit.per_user, info.limit.in_all) << info.name;
    // Something bounds it: a number, or the machine.
    EXPECT_TRUE(info.limit.per_user != kUnlimited || !info.machine.empty()) << info.name;
  }
}

TEST(BudgetTest, AUsersOwnConnectionsCannotCloseOneWhoseHelloHasCome) {
  EXPECT_LT(PerTurn(Work::kConnections), InfoOf(Resource::kConnections).limit.per_user);
}

TEST(AccountTest, AUserIsHeldToItsLimitAndAllToTheNodes) {
  Accounts accounts(Small());
  Account &alice = accounts.Of(1), &bob = accounts.Of(2);
  EXPECT_TRUE(alice.TryCharge(kQueues, 4));
  EXPECT_FALSE(alice.TryCharge(kQueues));
  EXPECT_TRUE(bob.TryCharge(kQueues, 2));
  EXPECT_FALSE(bob.TryCharge(kQueues));  // 6 of the node's 6
  EXPECT_EQ(bob.own().of(kQueues), 2u);
  alice.Release(kQueues);
  EXPECT_TRUE(bob.TryCharge(kQueues));
  EXPECT_EQ(accounts.node().of(kQueues), 6u);
}

TEST(AccountTest, SomeWhoTakeAllTheyGetLeaveRoomForOthersToBegin) {
  Limits limits;
  limits[kQueues] = {.per_user = 640, .in_all = 1280};
  Accounts accounts(limits);
  EXPECT_TRUE(accounts.Of(1).TryCharge(kQueues, 640));
  EXPECT_TRUE(accounts.Of(2).TryCharge(kQueues, 480));
  EXPECT_FALSE(accounts.Of(2).TryCharge(kQueues));  // an eighth is kept
  for (uint32_t newcomer = 3; newcomer < 11; ++newcomer) {
    EXPECT_TRUE(accounts.Of(newcomer).TryCharge(kQueues, 20));  // a 64th
    EXPECT_FALSE(accounts.Of(newcomer).TryCharge(kQueues));
  }
  EXPECT_EQ(accounts.node().of(kQueues), 1280u);
}

TEST(AccountTest, CountsThatDoNotFitANumberAreRefused) {
  Accounts accounts(Small());
  Account& account = accounts.Of(1);
  ASSERT_TRUE(account.TryCharge(kBuffers));
  EXPECT_FALSE(account.TryCharge(kBuffers, ~uint64_t{0}));
  EXPECT_EQ(account.own().of(kBuffers), 1u);
}

TEST(AccountTest, AllChargesOrNoneAndTheRefusalSaysWhatToDo) {
  Accounts accounts(Small());
  Account &alice = accounts.Of(1), &bob = accounts.Of(2);
  const Charge both[] = {{kQueues, 1}, {kBuffers, 2}};
  ASSERT_TRUE(alice.ChargeAll(both).ok());
  EXPECT_EQ(std::string(alice.ChargeAll(both).message()),
            "uid 1 holds 2 of its 2 buffers and 2 more are asked for; release some or raise "
            "max_buffers_per_uid");
  EXPECT_EQ(alice.own().of(kQueues), 1u);
  ASSERT_TRUE(bob.TryCharge(kQueues, 4));
  EXPECT_EQ(std::string(alice.ChargeAll(std::array{Charge{kQueues, 2}}).message()),
            "all users hold 5 of 6 queues and 2 more are asked for; release some");
  alice.ReleaseAll(both);
  EXPECT_TRUE(alice.unused());
}

TEST(AccountTest, UsersWithNothingAreForgotten) {
  Accounts accounts(Small());
  accounts.Of(1).TryCharge(kQueues);
  accounts.Of(2);
  accounts.DropUnused();
  ASSERT_EQ(accounts.Rows().size(), 1u);
  EXPECT_EQ(accounts.Rows()[0].uid, 1u);
  EXPECT_EQ(accounts.Rows()[0].of(kQueues), 1u);
}

TEST(AccountTest, ThreadsThatChargeAtOnceNeverExceedALimit) {
  Accounts accounts(Small());
  Account &alice = accounts.Of(1), &bob = accounts.Of(2);
  std::atomic<int> held{0};
  std::atomic<bool> exceeded{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      Account& account = i % 2 == 0 ? alice : bob;
      for (int round = 0; round < 20'000; ++round) {
        if (!account.TryCharge(kQueues)) continue;
        if (held.fetch_add(1) + 1 > 6) exceeded = true;
        held.fetch_sub(1);
        account.Release(kQueues);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(exceeded);
  EXPECT_TRUE(alice.unused() && bob.unused());
  EXPECT_EQ(accounts.node().of(kQueues), 0u);
}

TEST(MachineTest, LimitsAreWhatIsLeftWithAReserve) {
  uint64_t most = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> most;
  ASSERT_GT(most, 0u);
  Limits limits;
  FitToMachine(limits);
  EXPECT_GT(limits[Resource::kMappings].in_all, 0u);
  EXPECT_LT(limits[Resource::kMappings].in_all, most - most / 8);
  EXPECT_EQ(limits[Resource::kMappings].per_user, limits[Resource::kMappings].in_all / 2);
  EXPECT_NE(limits[Resource::kDescriptors].in_all, kUnlimited);
}

TEST(MachineTest, MemoryIsRefusedBeforeItIsGone) {
  const MemoryReserve reserve;
  EXPECT_TRUE(MemoryReserve::Allows(4096));
  EXPECT_FALSE(MemoryReserve::Allows(uint64_t{1} << 50));
  EXPECT_FALSE(MemoryReserve::Allows(~uint64_t{0}));
}

}  // namespace
}  // namespace concert::daemon
