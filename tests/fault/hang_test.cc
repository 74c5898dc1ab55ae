// A GPU whose driver hangs: its dispatcher reads no message any more. The control thread keeps what
// it has for it and serves everybody else.
#include <atomic>
#include <string>

#include "daemon/sched/lease_holder.h"
#include "tests/fault/fault_fixture.h"

namespace concert::test {
namespace {

using testing::HasSubstr;

// Keeps the dispatcher of GPU 0 in a turn, as a call of the driver that does not return would.
class Hang final : public daemon::LeaseHolder {
 public:
  explicit Hang(daemon::DispatcherMailbox& mailbox) {
    daemon::DispatcherMessage lease(daemon::DispatcherMessage::Type::kLease);
    lease.lease_holder = this;
    EXPECT_TRUE(mailbox.TryPush(lease));
    begun_.wait(false);
  }
  void End() {
    ended_ = true;
    ended_.notify_all();
  }
  bool Turn(daemon::Device&, bool) override {
    begun_ = true;
    begun_.notify_all();
    ended_.wait(false);
    return false;
  }

 private:
  std::atomic<bool> begun_{false}, ended_{false};
};

class HangTest : public FaultTest {
 protected:
  HangTest() : FaultTest({}, 1) {}  // the healthy client works on GPU 1
  ~HangTest() override { hang_.End(); }
  void SetUp() override { ASSERT_TRUE(healthy_->Progresses()); }

  daemon::DispatcherMailbox& mailbox() { return daemon_.engine().dispatcher(0).mailbox(); }
  void FillMailbox() {
    while (mailbox().TryPush(daemon::DispatcherMessage(daemon::DispatcherMessage::Type::kWake))) {
    }
  }
  Session Connect(uint64_t gpu_mask) {
    return Session::Connect({.socket_path = daemon_.socket(), .gpu_mask = gpu_mask}).value();
  }

  Hang hang_{mailbox()};
};

TEST_F(HangTest, NobodyWaitsForADispatcherThatReadsNothing) {
  FillMailbox();
  const Session stuck = Connect(1);
  // A user's places in communicators are given back before that dispatcher has read anything, so
  // that of all requests these could go on for ever.
  std::string refusal;
  constexpr int kMoreThanAreKept = 1 << 16;
  for (int i = 0; i < kMoreThanAreKept && refusal.empty(); ++i) {
    const Result<Communicator> joined = stuck.Join({.name = "alone", .rank = 0, .ranks = 1});
    if (!joined.ok()) refusal = joined.status().ToString();
  }
  EXPECT_THAT(refusal, HasSubstr("RESOURCE_EXHAUSTED: GPU 0: the dispatcher leaves"));
  EXPECT_THAT(stuck.CreateQueue({}).status().ToString(), HasSubstr("GPU 0: the dispatcher leaves"));
  EXPECT_THAT(stuck.Allocate(64).status().ToString(), HasSubstr("GPU 0: the dispatcher leaves"));
  {
    const Session other = Connect(2);
    Queue queue = other.CreateQueue({.gpu = 1}).value();
    const Buffer buffer = FloatBuffer(other, 8, 2, 1);
    EXPECT_EQ(Outcome(queue.Copy({.src = buffer, .dst = {buffer, 16}, .bytes = 16})), "OK");
  }
  EXPECT_TRUE(healthy_->Progresses());
  hang_.End();
  EXPECT_TRUE(Eventually([&] { return stuck.CreateQueue({}).ok(); }));
}

TEST_F(HangTest, OpsWaitForMessagesThatAreLate) {
  FillMailbox();
  const Session session = Connect(1);
  Queue queue = session.CreateQueue({}).value();
  const Buffer buffer = FloatBuffer(session, 8, 2);
  const Communicator alone = session.Join({.name = "alone", .rank = 0, .ranks = 1}).value();
  const Ticket copy = queue.Copy({.src = buffer, .dst = {buffer, 16}, .bytes = 16});
  const Ticket barrier = queue.Barrier(alone);
  hang_.End();
  EXPECT_EQ(Outcome(copy), "OK");
  EXPECT_EQ(Outcome(barrier), "OK");
}

}  // namespace
}  // namespace concert::test
