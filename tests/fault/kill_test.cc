// kill -9 at every step of an op's way.
#include <string>

#include "tests/fault/child.h"
#include "tests/fault/fault_fixture.h"

namespace concert::test {
namespace {

using testing::HasSubstr;

class KillTest : public FaultTest, public testing::WithParamInterface<const char*> {
 protected:
  KillTest()
      : FaultTest(
            {.wait_timeout = std::chrono::hours(1), .collective_timeout = std::chrono::hours(1)}) {}
};

TEST_P(KillTest, NobodyElseIsHarmedAndNothingStays) {
  const Session session = daemon_.Connect();
  Queue queue = session.CreateQueue({}).value();
  const Communicator pair = session.Join({.name = "pair", .rank = 0, .ranks = 2}).value();
  const Buffer buffer = FloatBuffer(session, 100, 1);
  const auto reduce = [&] {
    return queue.AllReduce(pair, {.data = buffer, .count = 100, .dtype = kFp32});
  };
  Child child({GetParam(), daemon_.socket()});
  ASSERT_TRUE(child.WaitUntilStopped());
  const size_t sessions = daemon_.server().Sessions().size();
  const bool was_session = sessions > 2;  // beside the healthy one and ours
  bool joined = false;
  for (const daemon::SessionSummary& summary : daemon_.server().Sessions())
    joined |= summary.name == "doomed" && summary.communicators > 0;
  Ticket before;
  if (joined && std::string_view(GetParam()) != "offered") before = reduce();
  child.Kill();
  if (was_session) {
    EXPECT_TRUE(Eventually([&] { return daemon_.server().Sessions().size() == 2; }));
  }
  if (!joined) return;
  if (before.get().timeline != 0) {
    EXPECT_THAT(Outcome(before), HasSubstr("rank 1 left"));
  }
  EXPECT_THAT(Outcome(reduce()), HasSubstr("CANCELLED: rank 1 left communicator"));
  EXPECT_EQ(Outcome(queue.Copy({.src = buffer, .dst = {buffer, 200}, .bytes = 100})), "OK");
}

INSTANTIATE_TEST_SUITE_P(Steps, KillTest,
                         testing::Values("connected", "session", "queue", "buffer", "joined",
                                         "published", "running", "ring full", "blocked", "offered",
                                         "in a batch", "between batches"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, ' ');
                           return name;
                         });

}  // namespace
}  // namespace concert::test
