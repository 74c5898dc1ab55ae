// Submitting: what descriptors of all kinds hold, when the tail moves, batches, a full ring.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/unit/client/submit_fixture.h"

namespace concert {
namespace {

using test::FakeDaemon;
using testing::HasSubstr;

class TwoRings : public SubmitTest {
 protected:
  TwoRings() : SubmitTest(FakeDaemon::Options{.rings = 2}) {}
};

TEST_F(SubmitTest, ASealedBuffersOpsCarryItsNewHandle) {
  const auto handle = [&](uint64_t position) { return daemon_.descriptor(position).body.copy.src; };
  queue_.Copy({.src = x_, .dst = y_, .bytes = 8}).submit_status().Check();
  x_.Seal().Check();
  queue_.Copy({.src = x_, .dst = y_, .bytes = 8}).submit_status().Check();
  EXPECT_NE(handle(0).buffer, handle(1).buffer);
  EXPECT_EQ(x_.Address().status().code(), CONCERT_FAILED_PRECONDITION);
}

TEST_F(SubmitTest, EveryFieldOfARowOpTravels) {
  const Ticket norm_ticket = queue_.RmsNorm({.rows = 3,
                                             .columns = 40,
                                             .x = {x_, 64},
                                             .weight = {x_, 128},
                                             .out = {y_, 16},
                                             .residual = {y_, 256},
                                             .x_stride = 48,
                                             .epsilon = 1e-3f,
                                             .dtype = kFp16,
                                             .cast_first = true});
  EXPECT_TRUE(norm_ticket.submit_status().ok());
  const concert_rms_norm_body& norm = daemon_.descriptor(0).body.rms_norm;
  EXPECT_EQ(daemon_.descriptor(0).kind, CONCERT_OP_RMS_NORM);
  EXPECT_EQ(norm.rows, 3u);
  EXPECT_EQ(norm.columns, 40u);
  EXPECT_EQ(norm.x.offset, 64u);
  EXPECT_EQ(norm.weight.offset, 128u);
  EXPECT_EQ(norm.out.offset, 16u);
  EXPECT_EQ(norm.residual.offset, 256u);
  EXPECT_EQ(norm.x.buffer, norm.weight.buffer);
  EXPECT_EQ(norm.out.buffer, norm.residual.buffer);
  EXPECT_EQ(norm.x_stride, 48u);
  EXPECT_EQ(norm.residual_stride, 40u);
  EXPECT_EQ(norm.out_stride, 40u);
  EXPECT_EQ(norm.epsilon, 1e-3f);
  EXPECT_EQ(norm.dtype, CONCERT_ABI_FP16);
  EXPECT_EQ(norm.flags, CONCERT_RMS_NORM_CAST_FIRST);

  const Ticket gated_ticket = queue_.GatedActivation({.rows = 3,
                                                      .columns = 40,
                                                      .x = {x_, 64},
                                                      .out = {y_, 16},
                                                      .out_stride = 50,
                                                      .dtype = kFp32,
                                                      .activation = kGelu,
                                                      .interleaved = true});
  EXPECT_TRUE(gated_ticket.submit_status().ok());
  const concert_gated_activation_body& gated = daemon_.descriptor(1).body.gated_activation;
  EXPECT_EQ(daemon_.descriptor(1).kind, CONCERT_OP_GATED_ACTIVATION);
  EXPECT_EQ(gated.rows, 3u);
  EXPECT_EQ(gated.columns, 40u);
  EXPECT_EQ(gated.x.offset, 64u);
  EXPECT_EQ(gated.out.offset, 16u);
  EXPECT_EQ(gated.x_stride, 80u);
  EXPECT_EQ(gated.out_stride, 50u);
  EXPECT_EQ(gated.dtype, CONCERT_ABI_FP32);
  EXPECT_EQ(gated.activation, CONCERT_ABI_ACT_GELU);
  EXPECT_EQ(gated.flags, CONCERT_GATED_INTERLEAVED);
}

TEST_F(SubmitTest, CopyAndTheNextSlotAreIndependent) {
  queue_.Gemm({.m = 1, .n = 1, .k = 1, .a = x_, .w = x_, .d = y_}).submit_status().Check();
  queue_.Copy({.src = {x_, 8}, .dst = {y_, 16}, .bytes = 24}).submit_status().Check();
  const concert_descriptor d = daemon_.descriptor(1);
  EXPECT_EQ(d.sequence, 2u);
  EXPECT_EQ(d.ticket, 2u);
  EXPECT_EQ(d.kind, CONCERT_OP_COPY);
  EXPECT_EQ(d.body.copy.src.offset, 8u);
  EXPECT_EQ(d.body.copy.dst.offset, 16u);
  EXPECT_EQ(d.body.copy.bytes, 24u);
  for (uint64_t word : d.body.copy.reserved) EXPECT_EQ(word, 0u);
}

TEST_F(SubmitTest, CollectivesOfACommunicatorAreNumbered) {
  Communicator one = session_.Join({.name = "one", .ranks = 2}).value();
  Communicator two = session_.Join({.name = "two", .ranks = 2}).value();
  queue_.AllReduce(one, {.data = y_, .count = 10, .dtype = kFp32, .reduction = kMax})
      .submit_status()
      .Check();
  queue_.Broadcast(two, {.src = x_, .dst = y_, .count = 5, .root = 1}).submit_status().Check();
  queue_.Barrier(one).submit_status().Check();
  const concert_descriptor reduce = daemon_.descriptor(0);
  EXPECT_EQ(reduce.kind, CONCERT_OP_ALL_REDUCE);
  EXPECT_EQ(reduce.body.collective.communicator, 1u << 8);
  EXPECT_EQ(reduce.body.collective.sequence, 0u);
  EXPECT_EQ(reduce.body.collective.count, 10u);
  EXPECT_EQ(reduce.body.collective.src.buffer, 2u);
  EXPECT_EQ(reduce.body.collective.dst.buffer, 2u);
  EXPECT_EQ(reduce.body.collective.dtype, CONCERT_ABI_FP32);
  EXPECT_EQ(reduce.body.collective.reduction, CONCERT_ABI_MAX);
  const concert_descriptor broadcast = daemon_.descriptor(1);
  EXPECT_EQ(broadcast.body.collective.communicator, 2u << 8);
  EXPECT_EQ(broadcast.body.collective.sequence, 0u);
  EXPECT_EQ(broadcast.body.collective.root, 1u);
  EXPECT_EQ(broadcast.body.collective.src.buffer, 1u);
  const concert_descriptor barrier = daemon_.descriptor(2);
  EXPECT_EQ(barrier.kind, CONCERT_OP_BARRIER);
  EXPECT_EQ(barrier.body.collective.sequence, 1u);
  EXPECT_EQ(barrier.body.collective.src.buffer, 0u);
}

TEST_F(TwoRings, ACollectiveGoesToTheCommunicatorsGpu) {
  Communicator group = session_.Join({.name = "g", .ranks = 2, .gpu = 1}).value();
  EXPECT_EQ(queue_.Barrier(group).submit_status().message(),
            "the communicator was joined with GPU 1, but the queue is on GPU 0");
}

TEST_F(TwoRings, EveryGpuHasItsRing) {
  Queue other = session_.CreateQueue({.gpu = 1}).value();
  other.Copy(copy_).submit_status().Check();
  EXPECT_EQ(daemon_.tail(0), 0u);
  EXPECT_EQ(daemon_.tail(1), 1u);
  EXPECT_EQ(daemon_.descriptor(0, 1).queue, 1u);
}

TEST_F(SubmitTest, WaitsAreEncodedAndNoMomentIsSkipped) {
  UserTimeline gate = session_.CreateUserTimeline().value();
  const Ticket foreign = session_.TicketOf({CONCERT_TIMELINE_ID(9, 3), 42});
  const Ticket first = queue_.Copy(copy_);
  queue_.Copy(copy_, {.waits = {first, Ticket(), gate.At(5), foreign}, .deadline_ns = 99})
      .submit_status()
      .Check();
  const concert_descriptor d = daemon_.descriptor(1);
  ASSERT_EQ(d.wait_count, 3u);
  EXPECT_EQ(d.waits[0].timeline, CONCERT_TIMELINE_ID(7, 0));
  EXPECT_EQ(d.waits[0].value, 1u);
  EXPECT_EQ(d.waits[1].timeline, CONCERT_TIMELINE_ID(7, CONCERT_TIMELINE_USER | 0u));
  EXPECT_EQ(d.waits[1].value, 5u);
  EXPECT_EQ(d.waits[2].timeline, CONCERT_TIMELINE_ID(9, 3));
  EXPECT_EQ(d.waits[2].value, 42u);
  EXPECT_EQ(d.waits[3].timeline, 0u);
  EXPECT_EQ(d.deadline_ns, 99u);
}

TEST_F(SubmitTest, TooManyWaitsAreRefusedAndCountedRight) {
  const Ticket t = queue_.Copy(copy_);
  EXPECT_EQ(queue_.Copy(copy_, {.waits = {t, t, t, t, t}}).submit_status().message(),
            "wait_count is 5; an op waits for at most 4 tickets");
  EXPECT_EQ(queue_.Copy(copy_, {.waits = {t, t, t, t, t, t}}).submit_status().message(),
            "wait_count is 6; an op waits for at most 4 tickets");
  EXPECT_EQ(daemon_.tail(), 1u);
}

TEST_F(SubmitTest, AnOpThatWaitsForAFailedSubmitFailsAlike) {
  const Ticket failed = queue_.Copy(copy_, {.waits = {queue_.last(), queue_.last(), queue_.last(),
                                                      queue_.last(), queue_.last()}});
  const Ticket next = queue_.Copy(copy_, {.waits = {failed}});
  EXPECT_EQ(next.Wait().message(), failed.Wait().message());
  EXPECT_EQ(daemon_.tail(), 0u);
}

TEST_F(SubmitTest, RingsOnlyASleepingDispatcher) {
  queue_.Copy(copy_).submit_status().Check();
  EXPECT_EQ(daemon_.Rings(), 0u);
  daemon_.SetSleeping(true);
  queue_.Copy(copy_).submit_status().Check();
  EXPECT_EQ(daemon_.Rings(), 1u);
}

TEST_F(SubmitTest, ABatchIsPublishedOnce) {
  daemon_.SetSleeping(true);
  {
    Batch batch = session_.BeginBatch().value();
    for (int i = 0; i < 3; ++i) queue_.Copy(copy_).submit_status().Check();
    {
      Batch inner = session_.BeginBatch().value();
      queue_.Copy(copy_).submit_status().Check();
    }
    EXPECT_EQ(daemon_.tail(), 0u);
    EXPECT_TRUE(batch.End().ok());
  }
  EXPECT_EQ(daemon_.tail(), 4u);
  EXPECT_EQ(daemon_.Rings(), 1u) << "one tail store, one doorbell";
}

TEST_F(SubmitTest, WaitingHandsAnOpenBatchOver) {
  Batch batch = session_.BeginBatch().value();
  const Ticket ticket = queue_.Copy(copy_);
  EXPECT_FALSE(ticket.Done());
  EXPECT_EQ(daemon_.tail(), 1u);
}

TEST_F(SubmitTest, AFullRingHandsAnOpenBatchOver) {
  Batch batch = session_.BeginBatch().value();
  for (int i = 0; i < 8; ++i) queue_.Copy(copy_).submit_status().Check();
  EXPECT_EQ(daemon_.tail(), 0u);
  EXPECT_EQ(queue_.Copy(copy_).submit_status().code(), CONCERT_RESOURCE_EXHAUSTED);
  EXPECT_EQ(daemon_.tail(), 8u);
}

// The daemon keeps it for what is published by then.
TEST_F(SubmitTest, FreeingOrSealingABufferHandsAnOpenBatchOver) {
  Batch batch = session_.BeginBatch().value();
  queue_.Copy({.src = x_, .dst = y_, .bytes = 8}).submit_status().Check();
  EXPECT_EQ(daemon_.tail(), 0u);
  x_ = Buffer();
  EXPECT_EQ(daemon_.tail(), 1u);
  queue_.Copy({.src = y_, .dst = {y_, 8}, .bytes = 8}).submit_status().Check();
  EXPECT_EQ(daemon_.tail(), 1u);
  y_.Seal().Check();
  EXPECT_EQ(daemon_.tail(), 2u);
}

TEST_F(SubmitTest, LeavingACommunicatorHandsAnOpenBatchOver) {
  Communicator communicator = session_.Join({.name = "tp", .rank = 0, .ranks = 1}).value();
  Batch batch = session_.BeginBatch().value();
  queue_.Barrier(communicator).submit_status().Check();
  EXPECT_EQ(daemon_.tail(), 0u);
  communicator = Communicator();
  EXPECT_EQ(daemon_.tail(), 1u) << "the daemon would find that it has left";
}

TEST_F(SubmitTest, EndWithoutBeginIsRefused) {
  EXPECT_EQ(concert_batch_end(session_.get(), 0, nullptr), CONCERT_FAILED_PRECONDITION);
  EXPECT_EQ(concert_batch_begin(session_.get(), 1, nullptr), CONCERT_INVALID_ARGUMENT);
}

TEST_F(SubmitTest, AFullRingIsAnErrorAndTakesNoTicket) {
  Communicator group = session_.Join({.name = "g", .ranks = 2}).value();
  for (int i = 0; i < 8; ++i) queue_.Copy(copy_).submit_status().Check();
  const Status full = queue_.Barrier(group).submit_status();
  EXPECT_EQ(full.code(), CONCERT_RESOURCE_EXHAUSTED);
  EXPECT_EQ(full.message(), "the ring of GPU 0 was full (8 ops) for 0 ms; wait for earlier ops");
  EXPECT_EQ(daemon_.tail(), 8u);
  daemon_.Consume(1);
  EXPECT_EQ(queue_.Barrier(group).get().value, 9u) << "the refused op took no ticket";
  const concert_descriptor d = daemon_.descriptor(8);
  EXPECT_EQ(d.sequence, 9u);
  EXPECT_EQ(d.body.collective.sequence, 0u) << "nor a number in its communicator";
}

TEST_F(SubmitTest, SubmitWaitsForRoom) {
  FakeDaemon daemon;
  Session session = Session::Connect({.socket_path = daemon.path(),
                                      .submit_timeout = std::chrono::seconds(60),
                                      .fallback = Fallback::kNone})
                        .value();
  Queue queue = session.CreateQueue().value();
  const Buffer buffer = session.Allocate(4096).value();
  const CopyOp copy = {.src = buffer, .dst = {buffer, 64}, .bytes = 8};
  for (int i = 0; i < 8; ++i) queue.Copy(copy).submit_status().Check();
  // Room comes from another thread, whenever that happens to run.
  std::thread dispatcher([&] { daemon.Consume(4); });
  EXPECT_TRUE(queue.Copy(copy).submit_status().ok());
  dispatcher.join();
  EXPECT_EQ(daemon.tail(), 9u);
}

TEST_F(SubmitTest, WaitingForRoomDrainsCompletions) {
  for (int i = 0; i < 8; ++i) queue_.Copy(copy_).submit_status().Check();
  daemon_.Fail(0, 1, CONCERT_ABI_CANCELLED, CONCERT_MESSAGE_DRAINING, {});
  EXPECT_EQ(daemon_.completion_head(), 0u);
  EXPECT_FALSE(queue_.Copy(copy_).submit_status().ok());
  EXPECT_EQ(daemon_.completion_head(), 1u);
}

TEST_F(SubmitTest, AnImpossibleHeadIsReported) {
  daemon_.Consume(1000);
  for (int i = 0; i < 8; ++i) queue_.Copy(copy_).submit_status().Check();
  EXPECT_EQ(queue_.Copy(copy_).submit_status().code(), CONCERT_INTERNAL);
}

TEST_F(SubmitTest, AClosedSessionTakesNoOps) {
  daemon_.CloseSession(CONCERT_MESSAGE_DRAINING);
  const Status status = queue_.Copy(copy_).submit_status();
  EXPECT_EQ(status.code(), CONCERT_UNAVAILABLE);
  EXPECT_EQ(status.message(),
            "the daemon closed the session: the daemon is draining and accepts no new ops");
}

TEST_F(SubmitTest, NullOpsAndQueuesAreRefused) {
  concert_error error;
  EXPECT_EQ(concert_submit_copy(queue_.get(), nullptr, nullptr, nullptr, &error),
            CONCERT_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "concert_copy is NULL");
  concert_copy copy = {};
  copy.struct_size = sizeof(copy);
  EXPECT_EQ(concert_submit_copy(nullptr, &copy, nullptr, nullptr, &error),
            CONCERT_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "queue is NULL");
}

// Two threads share the ring through a queue each: every descriptor arrives whole and once, and
// each queue's tickets rise by one in ring order.
TEST_F(SubmitTest, TwoThreadsMaySubmitToTwoQueues) {
  constexpr uint64_t kOps = 2000;
  FakeDaemon daemon(FakeDaemon::Options{.capacity = 16, .completion_capacity = 16});
  Session session = Session::Connect({.socket_path = daemon.path(),
                                      .submit_timeout = std::chrono::seconds(60),
                                      .fallback = Fallback::kNone})
                        .value();
  const auto submitter = [&](uint32_t priority) {
    Queue queue = session.CreateQueue({.priority = static_cast<Priority>(priority)}).value();
    for (uint64_t i = 1; i <= kOps; ++i) {
      const Ticket ticket = queue.Copy({.bytes = i});
      ASSERT_TRUE(ticket.submit_status().ok());
    }
    EXPECT_TRUE(queue.last().Wait().ok());
  };
  std::thread one(submitter, 0), two(submitter, 1);
  uint64_t tickets[2] = {0, 0};
  for (uint64_t head = 0; head < 2 * kOps;) {
    if (head == daemon.tail()) {
      std::this_thread::yield();
      continue;
    }
    const concert_descriptor d = daemon.descriptor(head);
    ASSERT_EQ(d.sequence, head + 1);
    ASSERT_LT(d.queue, 2u);
    ASSERT_EQ(d.ticket, ++tickets[d.queue]);
    ASSERT_EQ(d.body.copy.bytes, d.ticket);
    daemon.Consume(++head);
    daemon.Reach(d.queue, d.ticket);
  }
  one.join();
  two.join();
}

}  // namespace
}  // namespace concert
