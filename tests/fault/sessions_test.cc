// What many sessions, connections and buffers, one after the other or at once, must not do to the
// control thread.
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "daemon/quota/budget.h"
#include "tests/fault/fault_fixture.h"

namespace concert::test {
namespace {

using daemon::Resource;
using testing::HasSubstr;

class SessionsTest : public FaultTest {
 protected:
  explicit SessionsTest(uint32_t first_session = 1)
      : FaultTest({.adjust_server = [first_session](daemon::ServerOptions& options) {
          options.hello_timeout_ns = 3'600'000'000'000;
          options.first_session = first_session;
        }}) {}

  const daemon::SessionSummary* Find(uint32_t id) {
    summaries_ = daemon_.server().Sessions();
    for (const daemon::SessionSummary& summary : summaries_)
      if (summary.id == id) return &summary;
    return nullptr;
  }

  std::vector<daemon::SessionSummary> summaries_;
};

TEST_F(SessionsTest, WhoKeepsSilentOnManySocketsLocksNobodyOut) {
  std::vector<std::unique_ptr<RawClient>> silent;
  const uint64_t most = daemon::InfoOf(Resource::kConnections).limit.per_user;
  for (uint64_t i = 0; i < 2 * most; ++i)
    silent.push_back(std::make_unique<RawClient>(daemon_.socket()));
  for (int i = 0; i < 20; ++i) {
    RawClient client(daemon_.socket());
    EXPECT_TRUE(client.Hello()) << i;
  }
  EXPECT_EQ(daemon_.server().counters().refused, 0u);
  EXPECT_GE(daemon_.server().counters().evicted, most);
}

TEST_F(SessionsTest, AreListedWithWhatTheyHoldAtOnce) {
  RawClient client(daemon_.socket());
  ASSERT_TRUE(client.Hello());
  ASSERT_NE(Find(client.session()), nullptr);
  const uint32_t queue = client.CreateQueue(), buffer = client.AllocateBuffer(5000);
  client.AllocateBuffer(1);
  client.Join("alone", 0, 1);
  const daemon::SessionSummary* summary = Find(client.session());
  ASSERT_NE(summary, nullptr);
  EXPECT_EQ(summary->queues, 1u);
  EXPECT_EQ(summary->buffers, 2u);
  EXPECT_EQ(summary->buffer_bytes, 3 * 4096u);
  EXPECT_EQ(summary->communicators, 1u);
  client.ReleaseBuffer(buffer);
  auto destroy = RawClient::Make<concert_destroy_queue>(CONCERT_CONTROL_DESTROY_QUEUE);
  destroy.queue = queue;
  client.Call<concert_control_reply>(destroy);
  EXPECT_TRUE(Eventually([&] {
    summary = Find(client.session());
    return summary->queues == 0 && summary->buffers == 1 && summary->buffer_bytes == 4096;
  }));
}

TEST_F(SessionsTest, TablesOfBuffersAreAsLargeAsWhatWasHeldAtOnce) {
  ASSERT_TRUE(healthy_->Progresses());  // it has all of its own
  RawClient client(daemon_.socket());
  ASSERT_TRUE(client.Hello());
  const auto handles = [&] {
    return daemon_.engine().accounts().node().of(Resource::kBufferHandles);
  };
  const uint64_t before = handles();
  for (int i = 0; i < 2000; ++i) {
    const uint32_t buffer = client.AllocateBuffer(64);
    ASSERT_NE(buffer, 0u);
    ASSERT_EQ(client.ReleaseBuffer(buffer), static_cast<uint32_t>(CONCERT_ABI_OK));
    ASSERT_TRUE(Eventually([&] { return Find(client.session())->buffers == 0; }));
  }
  EXPECT_EQ(handles(), before + 1);
}

TEST_F(SessionsTest, AnEntryUsedAgainHasAnotherHandle) {
  RawClient client(daemon_.socket());
  ASSERT_TRUE(client.Hello());
  const uint32_t queue = client.CreateQueue(), old = client.AllocateBuffer(4096);
  ASSERT_EQ(client.ReleaseBuffer(old), static_cast<uint32_t>(CONCERT_ABI_OK));
  ASSERT_TRUE(Eventually([&] { return Find(client.session())->buffers == 0; }));
  const uint32_t buffer = client.AllocateBuffer(4096);
  EXPECT_NE(buffer, old);
  EXPECT_EQ(client.ReleaseBuffer(old), static_cast<uint32_t>(CONCERT_ABI_NOT_FOUND));
  ASSERT_TRUE(client.Push(MakeGemm(queue, 1, old)));
  ASSERT_TRUE(client.Push(MakeGemm(queue, 2, buffer)));
  ASSERT_TRUE(client.WaitForTimeline(queue, 2));
  EXPECT_THAT(Render(client.NextCompletion().value()),
              HasSubstr("a.buffer is " + std::to_string(old) + ", which is not a buffer"));
  EXPECT_FALSE(client.NextCompletion().has_value());
}

TEST_F(SessionsTest, OneThatEndsWithManyBuffersLeavesNothing) {
  RawClient client(daemon_.socket());
  ASSERT_TRUE(client.Hello());
  // More than are freed in one turn of the control thread.
  const uint64_t count = 3 * daemon::PerTurn(daemon::Work::kBuffers) + 1;
  for (uint64_t i = 0; i < count; ++i) ASSERT_NE(client.AllocateBuffer(64), 0u);
  client.Disconnect();
  // The healthy client's three are left.
  EXPECT_TRUE(
      Eventually([&] { return daemon_.engine().accounts().node().of(Resource::kBuffers) == 3; }));
}

class LastSessionIdTest : public SessionsTest {
 protected:
  LastSessionIdTest() : SessionsTest(std::numeric_limits<uint32_t>::max() - 1) {}
};

TEST_F(LastSessionIdTest, AfterTheHighestIdTheyStartAgainWithout0) {
  ASSERT_TRUE(healthy_->Progresses());  // it has the first
  RawClient last(daemon_.socket()), first(daemon_.socket()), second(daemon_.socket());
  for (RawClient* client : {&last, &first, &second}) ASSERT_TRUE(client->Hello());
  EXPECT_EQ(last.session(), std::numeric_limits<uint32_t>::max());
  EXPECT_EQ(first.session(), 1u);
  EXPECT_EQ(second.session(), 2u);
  for (RawClient* client : {&last, &first, &second}) {
    const uint32_t queue = client->CreateQueue(), buffer = client->AllocateBuffer(4096);
    ASSERT_TRUE(client->Push(MakeGemm(queue, 1, buffer)));
    EXPECT_TRUE(client->WaitForTimeline(queue, 1));
  }
}

}  // namespace
}  // namespace concert::test
