#include "daemon/session/connections.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <deque>

namespace concert::daemon {
namespace {

constexpr uint64_t kMost = 2;  // connections of a user

class ConnectionsTest : public testing::Test {
 protected:
  static Limits MakeLimits() {
    Limits limits;
    limits[Resource::kConnections].per_user = kMost;
    limits[Resource::kDescriptors].per_user = kMost + Connections::kMostLeaving;
    return limits;
  }

  Account& alice() { return accounts_.Of(1); }
  uint64_t used(Resource resource) { return accounts_.node().of(resource); }

  // The client's end of a new one of alice.
  const UniqueFd& Connect(int64_t now_ns) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    newest_ = connections_.Add(UniqueFd(ends[1]), 1, alice(), now_ns);
    return clients_.emplace_back(ends[0]);
  }
  static bool HungUp(const UniqueFd& client) {
    pollfd look{.fd = client.get(), .events = POLLIN, .revents = 0};
    return poll(&look, 1, 0) > 0 && (look.revents & POLLHUP) != 0;
  }
  int Events() const {
    epoll_event events[16];
    return epoll_wait(epoll_.get(), events, 16, 0);
  }

  Accounts accounts_{MakeLimits()};
  const UniqueFd epoll_{epoll_create1(EPOLL_CLOEXEC)};
  Connections connections_{epoll_.get()};
  Connection* newest_ = nullptr;
  std::deque<UniqueFd> clients_;
};

TEST_F(ConnectionsTest, TheOldestGivesWayAndIsClosedLater) {
  const UniqueFd& first = Connect(0);
  const UniqueFd& second = Connect(0);
  Connect(7);
  ASSERT_NE(newest_, nullptr);
  EXPECT_EQ(connections_.evicted(), 1u);
  EXPECT_EQ(used(Resource::kConnections), kMost);
  connections_.CloseLeaving(7 + Connections::kLeavesAfterNs - 1);
  EXPECT_FALSE(HungUp(first)) << "it would connect again at once";
  EXPECT_EQ(used(Resource::kDescriptors), kMost + 1);
  connections_.CloseLeaving(7 + Connections::kLeavesAfterNs);
  EXPECT_TRUE(HungUp(first));
  EXPECT_FALSE(HungUp(second));
  EXPECT_EQ(used(Resource::kDescriptors), kMost);
}

TEST_F(ConnectionsTest, NothingIsDoneForOneThatGaveWay) {
  const UniqueFd& first = Connect(0);
  const uint64_t key = newest_->key;
  for (uint64_t i = 0; i < kMost; ++i) Connect(0);
  ASSERT_EQ(send(first.get(), "x", 1, MSG_NOSIGNAL), 1);
  EXPECT_EQ(Events(), 0);
  EXPECT_EQ(connections_.Find(key), nullptr);
  ASSERT_EQ(send(clients_.back().get(), "x", 1, MSG_NOSIGNAL), 1);
  EXPECT_EQ(Events(), 1);
}

TEST_F(ConnectionsTest, ThoseThatLeaveAreBoundedAndMakeRoomForDescriptors) {
  const UniqueFd& first = Connect(0);
  for (uint64_t i = 0; i < kMost + Connections::kMostLeaving - 1; ++i) Connect(0);
  EXPECT_FALSE(HungUp(first));
  Connect(0);
  EXPECT_TRUE(HungUp(first));
  EXPECT_EQ(used(Resource::kDescriptors), kMost + Connections::kMostLeaving);
  // The user holds all descriptors that it may: the next that leaves makes room.
  Connect(0);
  ASSERT_NE(newest_, nullptr);
  EXPECT_EQ(used(Resource::kDescriptors), kMost + Connections::kMostLeaving);
  while (connections_.CloseOne()) {
  }
  EXPECT_EQ(used(Resource::kDescriptors), 0u);
  EXPECT_EQ(used(Resource::kConnections), 0u);
}

}  // namespace
}  // namespace concert::daemon
