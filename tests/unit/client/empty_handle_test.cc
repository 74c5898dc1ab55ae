// Handles that hold nothing: default-made, moved from, or what is left of an error. Asking them is
// never a crash.
#include <gtest/gtest.h>

#include <utility>

#include "concert/concert.hpp"

namespace concert {
namespace {

TEST(EmptyHandleTest, AccessorsAnswerWithNothing) {
  const Session session;
  EXPECT_EQ(session.get(), nullptr);
  EXPECT_EQ(session.id(), 0u);
  EXPECT_FALSE(session.is_local());
  EXPECT_EQ(session.gpu_count(), 0u);
  EXPECT_EQ(Buffer().bytes(), 0u);
  EXPECT_EQ(Buffer().get(), nullptr);
  EXPECT_EQ(Queue().last().get().timeline, 0u);
  EXPECT_TRUE(Queue().last().Wait().ok()) << "the moment when nothing is done has come";
  EXPECT_EQ(UserTimeline().At(7).get().timeline, 0u);
  EXPECT_EQ(Communicator().get(), nullptr);
}

TEST(EmptyHandleTest, CallsAreRefusedWithASentence) {
  char byte = 0;
  EXPECT_EQ(Buffer().Write(&byte, 1).message(), "buffer is NULL");
  EXPECT_EQ(Buffer().Read(&byte, 1).message(), "buffer is NULL");
  EXPECT_EQ(Buffer().Address().status().message(), "buffer is NULL");
  EXPECT_EQ(UserTimeline().Signal(1).message(), "timeline is NULL");
  EXPECT_EQ(UserTimeline().SignalOn(nullptr, 1).message(), "timeline is NULL");
  const Session session;
  EXPECT_EQ(session.Allocate(1).status().message(), "session is NULL");
  EXPECT_EQ(session.Import(&byte, 1).status().message(), "session is NULL");
  EXPECT_EQ(session.CreateQueue().status().message(), "session is NULL");
  EXPECT_EQ(session.Join({.name = "tp"}).status().message(), "session is NULL");
  EXPECT_EQ(session.CreateUserTimeline().status().message(), "session is NULL");
  EXPECT_EQ(session.BeginBatch().status().message(), "session is NULL");
  EXPECT_EQ(session.GpuInfo(0).status().message(), "session is NULL");
  EXPECT_EQ(Queue().Copy({}).submit_status().message(), "queue is NULL");
  EXPECT_EQ(Queue().Gemm({}).submit_status().message(), "queue is NULL");
  EXPECT_EQ(Queue().Barrier(Communicator()).submit_status().message(), "queue is NULL");
}

TEST(EmptyHandleTest, ATicketWithoutASessionIsDoneAndSaysWhy) {
  const Ticket ticket = Session().TicketOf({.timeline = 1, .value = 1});
  EXPECT_TRUE(ticket.Done()) << "or a loop until it is done never ends";
  EXPECT_EQ(ticket.Wait().message(), "session is NULL");
  EXPECT_EQ(ticket.WaitOn(nullptr).message(), "session is NULL");
  EXPECT_TRUE(Ticket().Done());
  EXPECT_TRUE(Ticket().Wait().ok());
  EXPECT_TRUE(Ticket().submit_status().ok());
}

TEST(EmptyHandleTest, SlicesOfNothingAreNone) {
  const Slice slice = Buffer();
  EXPECT_EQ(slice.buffer, nullptr);
}

}  // namespace
}  // namespace concert
