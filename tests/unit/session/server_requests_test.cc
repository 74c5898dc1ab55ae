// Whose requests are handled when.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <semaphore>
#include <vector>

#include "daemon/quota/budget.h"
#include "tests/support/raw_client.h"
#include "tests/unit/sched/null_node.h"
#include "tests/unit/session/server_bed.h"

namespace concert::daemon {
namespace {

using concert::test::RawClient;

concert_hello FirstWords() {
  auto hello = RawClient::Make<concert_hello>(CONCERT_CONTROL_HELLO);
  hello.abi_major = CONCERT_ABI_MAJOR;
  hello.abi_minor = CONCERT_ABI_MINOR;
  return hello;
}

// The control thread is held up until everybody has sent what they send, so that what it does first
// is its choice.
TEST(ServerRequestsTest, WhoConnectsIsNotBehindAllRequestsOfOthers) {
  constexpr int kSessions = 100;
  constexpr uint32_t kRequestsOfEach = 8;  // no more answers than may be unread
  std::vector<std::unique_ptr<RawClient>> clients;
  std::atomic<int> to_come{kSessions};
  std::binary_semaphore held_up{0}, go_on{0};
  std::atomic<int64_t> answered{-1};  // sessions, when the last is introduced
  NullNode node(1);
  ServerBed bed(node, {.on_open = [&](const Session&) {
                  switch (to_come.fetch_sub(1)) {
                    case 0:
                      held_up.release();
                      go_on.acquire();
                      return;
                    case -1:
                      answered = std::count_if(clients.begin(), clients.end(),
                                               [](const auto& one) { return one->HasAnswer(); });
                  }
                }});
  for (int i = 0; i < kSessions; ++i) {
    clients.push_back(std::make_unique<RawClient>(bed.socket()));
    ASSERT_TRUE(clients.back()->Hello());
  }
  RawClient holder(bed.socket());
  ASSERT_TRUE(holder.Send(FirstWords()));
  ASSERT_TRUE(held_up.try_acquire_for(std::chrono::minutes(1)));
  const auto refused = RawClient::Make<concert_release_buffer>(CONCERT_CONTROL_RELEASE_BUFFER);
  for (const auto& client : clients) {
    for (uint32_t i = 0; i < kRequestsOfEach; ++i) ASSERT_TRUE(client->Send(refused));
  }
  RawClient late(bed.socket());
  ASSERT_TRUE(late.Send(FirstWords()));
  go_on.release();
  EXPECT_FALSE(late.Receive().empty());
  // It is found among the others' sockets, accepted and introduced, each in one turn.
  EXPECT_LE(answered, 3 * PerTurn(Work::kRequests) / kRequestsOfEach);
  for (const auto& client : clients) {
    for (uint32_t i = 0; i < kRequestsOfEach; ++i)
      EXPECT_EQ(client->Receive().size(), sizeof(concert_control_reply));
  }
}

}  // namespace
}  // namespace concert::daemon
