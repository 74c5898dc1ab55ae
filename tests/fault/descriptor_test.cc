// Bad ops: each completes alone, with a status and a sentence that names field and value.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/fault/child.h"
#include "tests/fault/fault_fixture.h"

namespace concert::test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class DescriptorTest : public FaultTest {
 protected:
  DescriptorTest() : FaultTest({.wait_timeout = milliseconds(50)}) {}
};

struct BadOp {
  const char* name;
  void (*spoil)(concert_descriptor&);
  uint32_t status;
  const char* sentence;
};

constexpr uint64_t kFar = uint64_t{1} << 62;

const BadOp kBadOps[] = {
    {"unknown kind", [](auto& d) { d.kind = 4711; }, CONCERT_ABI_INVALID_ARGUMENT, "kind is 4711"},
    {"kind 0", [](auto& d) { d.kind = 0; }, CONCERT_ABI_INVALID_ARGUMENT, "kind is 0"},
    {"flags", [](auto& d) { d.flags = 2; }, CONCERT_ABI_INVALID_ARGUMENT,
     "reserved field or flag of the gemm"},
    {"reserved word", [](auto& d) { d.reserved1[2] = 1; }, CONCERT_ABI_INVALID_ARGUMENT,
     "reserved field"},
    {"reserved of the body", [](auto& d) { d.body.gemm.reserved0[1] = 9; },
     CONCERT_ABI_INVALID_ARGUMENT, "reserved field"},
    {"reserved of an operand", [](auto& d) { d.body.gemm.d.scales = 9; },
     CONCERT_ABI_INVALID_ARGUMENT, "reserved field"},
    {"scales of fp32", [](auto& d) { d.body.gemm.w.scales = d.body.gemm.w.buffer; },
     CONCERT_ABI_INVALID_ARGUMENT, "w_scales are given, but dtype is fp32"},
    {"fp8 into fp32",
     [](auto& d) {
       d.body.gemm.dtype = CONCERT_ABI_FP8_E4M3;
       d.body.gemm.d_dtype = CONCERT_ABI_FP32;
     },
     CONCERT_ABI_INVALID_ARGUMENT, "d_dtype is 3; D of a GEMM in fp8_e4m3 must be bf16"},
    {"d_dtype", [](auto& d) { d.body.gemm.d_dtype = 200; }, CONCERT_ABI_INVALID_ARGUMENT,
     "d_dtype is 200; D of a GEMM in fp32 has that dtype too"},
    {"no scales for the rows",
     [](auto& d) {
       d.body.gemm.dtype = CONCERT_ABI_FP8_E4M3;
       d.body.gemm.d_dtype = CONCERT_ABI_BF16;
       d.body.gemm.flags = CONCERT_GEMM_A_SCALES_PER_ROW;
     },
     CONCERT_ABI_INVALID_ARGUMENT, "the buffer of a_scales is 0"},
    {"unknown buffer of scales",
     [](auto& d) {
       d.body.gemm.dtype = CONCERT_ABI_FP8_E4M3;
       d.body.gemm.d_dtype = CONCERT_ABI_BF16;
       d.body.gemm.a.scales = 77;
     },
     CONCERT_ABI_NOT_FOUND, "a_scales.buffer is 77"},
    {"scales past the buffer",
     [](auto& d) {
       d.body.gemm.dtype = CONCERT_ABI_FP8_E4M3;
       d.body.gemm.d_dtype = CONCERT_ABI_FP16;
       d.body.gemm.w.scales = d.body.gemm.w.buffer;
       d.body.gemm.w_scales_offset = 4096;
     },
     CONCERT_ABI_INVALID_ARGUMENT, "w_scales needs 4 bytes at offset 4096"},
    {"gemm flags", [](auto& d) { d.body.gemm.flags = 0x80; }, CONCERT_ABI_INVALID_ARGUMENT,
     "flags is 128"},
    {"dtype", [](auto& d) { d.body.gemm.dtype = 9; }, CONCERT_ABI_INVALID_ARGUMENT, "dtype is 9"},
    {"activation", [](auto& d) { d.body.gemm.activation = 200; }, CONCERT_ABI_INVALID_ARGUMENT,
     "activation is 200"},
    {"too many waits", [](auto& d) { d.wait_count = 5; }, CONCERT_ABI_INVALID_ARGUMENT,
     "wait_count is 5"},
    {"endless waits", [](auto& d) { d.wait_count = ~0u; }, CONCERT_ABI_INVALID_ARGUMENT,
     "wait_count is 4294967295"},
    {"m = 0", [](auto& d) { d.body.gemm.m = 0; }, CONCERT_ABI_INVALID_ARGUMENT, "m is 0"},
    {"huge n", [](auto& d) { d.body.gemm.n = ~0u; }, CONCERT_ABI_INVALID_ARGUMENT,
     "n is 4294967295"},
    {"batch 0", [](auto& d) { d.body.gemm.batch = 0; }, CONCERT_ABI_INVALID_ARGUMENT, "batch is 0"},
    {"stride below row", [](auto& d) { d.body.gemm.lda = 3; }, CONCERT_ABI_INVALID_ARGUMENT,
     "lda is 3"},
    {"past the buffer", [](auto& d) { d.body.gemm.a.offset = 4096 - 60; },
     CONCERT_ABI_INVALID_ARGUMENT, "a needs 64 bytes at offset 4036"},
    {"offset overflows", [](auto& d) { d.body.gemm.w.offset = ~uint64_t{0} - 3; },
     CONCERT_ABI_INVALID_ARGUMENT, "extent of w does not fit"},
    {"extent overflows", [](auto& d) { d.body.gemm.lda = kFar; }, CONCERT_ABI_INVALID_ARGUMENT,
     "extent of a does not fit"},
    {"misaligned", [](auto& d) { d.body.gemm.d.offset = 514; }, CONCERT_ABI_INVALID_ARGUMENT,
     "d.offset 514 is not a multiple of 4"},
    {"overlap", [](auto& d) { d.body.gemm.d.offset = 32; }, CONCERT_ABI_INVALID_ARGUMENT,
     "d overlaps a"},
    {"no buffer", [](auto& d) { d.body.gemm.a.buffer = 0; }, CONCERT_ABI_INVALID_ARGUMENT,
     "a is required"},
    {"unknown buffer", [](auto& d) { d.body.gemm.a.buffer = 77; }, CONCERT_ABI_NOT_FOUND,
     "a.buffer is 77"},
    {"absurd buffer", [](auto& d) { d.body.gemm.d.buffer = ~0u; }, CONCERT_ABI_NOT_FOUND,
     "d.buffer is 4294967295"},
    {"foreign communicator",
     [](auto& d) {
       d.kind = CONCERT_OP_BARRIER;
       d.body.collective = {};
       d.body.collective.communicator = 1 << 8;
     },
     CONCERT_ABI_NOT_FOUND, "communicator 256 is not one this session has joined"},
    {"wait on no session",
     [](auto& d) {
       d.wait_count = 1;
       d.waits[0] = {CONCERT_TIMELINE_ID(999'999, 3), 1};
     },
     CONCERT_ABI_NOT_FOUND, "session 999999 has no queue 3"},
    {"copy of nothing",
     [](auto& d) {
       const uint32_t buffer = d.body.gemm.a.buffer;
       d.kind = CONCERT_OP_COPY;
       d.body.copy = {};
       d.body.copy.src = {buffer, 0, 0};
       d.body.copy.dst = {buffer, 0, 1024};
     },
     CONCERT_ABI_INVALID_ARGUMENT, "bytes is 0"},
};

TEST_F(DescriptorTest, EachBadOpSaysWhatIsWrongAndTheNextOneRuns) {
  RawClient client(daemon_.socket());
  ASSERT_TRUE(client.Hello());
  const uint32_t queue = client.CreateQueue(), buffer = client.AllocateBuffer(4096);
  uint64_t ticket = 0;
  for (const BadOp& bad : kBadOps) {
    SCOPED_TRACE(bad.name);
    concert_descriptor descriptor = MakeGemm(queue, ++ticket, buffer);
    bad.spoil(descriptor);
    ASSERT_TRUE(client.Push(descriptor));
    ASSERT_TRUE(client.WaitForTimeline(queue, ticket));
    const std::optional<concert_completion> completion = client.NextCompletion();
    ASSERT_TRUE(completion.has_value());
    EXPECT_EQ(completion->ticket, ticket);
    EXPECT_EQ(completion->status, bad.status);
    EXPECT_THAT(Render(*completion), HasSubstr(bad.sentence));
    ASSERT_TRUE(client.Push(MakeGemm(queue, ++ticket, buffer)));
    ASSERT_TRUE(client.WaitForTimeline(queue, ticket));
    EXPECT_FALSE(client.NextCompletion().has_value());
  }
}

TEST_F(DescriptorTest, AFreedHandleIsUnknown) {
  RawClient client(daemon_.socket());
  ASSERT_TRUE(client.Hello());
  const uint32_t queue = client.CreateQueue(), buffer = client.AllocateBuffer(4096);
  ASSERT_EQ(client.ReleaseBuffer(buffer), static_cast<uint32_t>(CONCERT_ABI_OK));
  EXPECT_EQ(client.ReleaseBuffer(buffer), static_cast<uint32_t>(CONCERT_ABI_NOT_FOUND));
  ASSERT_TRUE(Eventually([&] {
    for (const daemon::SessionSummary& session : daemon_.server().Sessions())
      if (session.id == client.session()) return session.buffers == 0;
    return false;
  }));
  ASSERT_TRUE(client.Push(MakeGemm(queue, 1, buffer)));
  ASSERT_TRUE(client.WaitForTimeline(queue, 1));
  EXPECT_THAT(Render(client.NextCompletion().value()), HasSubstr("is not a buffer"));
}

TEST_F(DescriptorTest, ABufferThatIsFreedServesTheOpsSubmittedBefore) {
  const Session session = daemon_.Connect();
  const UserTimeline gate = session.CreateUserTimeline().value();
  Queue queue = session.CreateQueue({}).value();
  const Buffer sink = FloatBuffer(session, 4, 0);
  std::optional<Buffer> source = FloatBuffer(session, 4, 5);
  // More than are admitted at once, so that the copy is still in the ring when its source is freed.
  for (int i = 0; i < 300; ++i) {
    const Ticket first = queue.Copy({.src = sink, .dst = {sink, 8}, .bytes = 4},
                                    {.waits = {i == 0 ? gate.At(1) : Ticket()}});
    ASSERT_TRUE(first.submit_status().ok());
  }
  const Ticket last = queue.Copy({.src = *source, .dst = sink, .bytes = 16});
  source.reset();
  gate.Signal(1).Check();
  EXPECT_EQ(Outcome(last), "OK");
  float value = 0;
  sink.Read(&value, sizeof(value)).Check();
  EXPECT_EQ(value, 5);
}

TEST_F(DescriptorTest, AWaitForWhatIsNeverSignalledEndsWithWhereItStood) {
  const Session session = daemon_.Connect(), other = daemon_.Connect();
  Queue queue = session.CreateQueue({}).value(), foreign = other.CreateQueue({}).value();
  const Buffer buffer = FloatBuffer(session, 8, 0);
  const CopyOp copy{.src = buffer, .dst = {buffer, 16}, .bytes = 16};
  const UserTimeline gate = session.CreateUserTimeline().value();
  EXPECT_THAT(
      Outcome(queue.Copy(copy, {.waits = {gate.At(7)}})),
      HasSubstr("DEADLINE_EXCEEDED: waited 50 ms for user timeline 0 of this session to reach 7"));
  // Another session's queue that never gets that far.
  concert_ticket never = foreign.last().get();
  never.value += 3;
  EXPECT_THAT(Outcome(queue.Copy(copy, {.waits = {session.TicketOf(never)}})),
              HasSubstr("to reach 3; it stood at 0"));
  // Itself.
  concert_ticket self = queue.last().get();
  self.value += 1;
  EXPECT_THAT(Outcome(queue.Copy(copy, {.waits = {session.TicketOf(self)}})),
              HasSubstr("DEADLINE_EXCEEDED"));
  EXPECT_EQ(Outcome(queue.Copy(copy)), "OK");
}

class LongWaitTest : public FaultTest {
 protected:
  // So long that no test can pass because of it.
  LongWaitTest() : FaultTest({.wait_timeout = std::chrono::hours(1)}) {}
};

TEST_F(LongWaitTest, AWaitForADestroyedQueueIsTold) {
  const Session session = daemon_.Connect();
  Queue waiting = session.CreateQueue({}).value(), doomed = session.CreateQueue({}).value();
  const Buffer buffer = FloatBuffer(session, 8, 0);
  const UserTimeline gate = session.CreateUserTimeline().value();
  concert_ticket never = doomed.last().get();
  never.value += 2;
  const Ticket copy = waiting.Copy({.src = buffer, .dst = {buffer, 16}, .bytes = 16},
                                   {.waits = {gate.At(1), session.TicketOf(never)}});
  gate.Signal(1).Check();
  doomed = Queue();
  EXPECT_THAT(Outcome(copy), HasSubstr("CANCELLED: waits[1] asks for value 2 of a timeline whose "
                                       "last submitted op is 0 and whose queue is gone"));
}

TEST_F(LongWaitTest, WaitsForASessionThatClosesAllEnd) {
  const Session session = daemon_.Connect();
  Session stays = daemon_.Connect(), closes = daemon_.Connect();
  const UserTimeline here = stays.CreateUserTimeline().value();
  std::optional<UserTimeline> there = closes.CreateUserTimeline().value();
  const Buffer buffer = FloatBuffer(session, 8, 0);
  const CopyOp copy{.src = buffer, .dst = {buffer, 16}, .bytes = 16};
  // The first op watches a session that stays as well, which must not hide those after it.
  Queue first = session.CreateQueue({}).value();
  std::vector<Queue> queues;
  std::vector<Ticket> tickets;
  tickets.push_back(first.Copy(copy, {.waits = {here.At(1), there->At(1)}}));
  for (int i = 0; i < 4; ++i) {
    queues.push_back(session.CreateQueue({}).value());
    tickets.push_back(queues.back().Copy(copy, {.waits = {there->At(1)}}));
  }
  // The ring is read in order: once this has run, those before it wait.
  queues.push_back(session.CreateQueue({}).value());
  EXPECT_EQ(Outcome(queues.back().Copy(copy)), "OK");
  there.reset();
  closes = Session();
  for (const Ticket& ticket : tickets) EXPECT_THAT(Outcome(ticket), HasSubstr("CANCELLED"));
}

TEST_F(LongWaitTest, AQueueThatWasWaitedForGivesItsIndexBack) {
  const Session session = daemon_.Connect();
  Queue waiting = session.CreateQueue({}).value();
  const Buffer buffer = FloatBuffer(session, 64, 0);
  const UserTimeline gate = session.CreateUserTimeline().value();
  for (uint64_t round = 1; round <= 300; ++round) {  // more than a session has queues
    Result<Queue> doomed = session.CreateQueue({});
    ASSERT_TRUE(doomed.ok()) << round << ": " << doomed.status().ToString();
    const Ticket awaited = doomed->Copy({.src = buffer, .dst = {buffer, 16}, .bytes = 16},
                                        {.waits = {gate.At(round)}});
    const Ticket copy =
        waiting.Copy({.src = {buffer, 32}, .dst = {buffer, 64}, .bytes = 16}, {.waits = {awaited}});
    *doomed = Queue();
    gate.Signal(round).Check();
    ASSERT_EQ(Outcome(copy), "OK");
  }
}

TEST_F(LongWaitTest, AnotherUsersTimelineMayNotBeWaitedFor) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to be somebody else";
  // mkdtemp's folders are their owner's.
  const std::filesystem::path folder = std::filesystem::path(daemon_.socket()).parent_path();
  ASSERT_EQ(chmod(folder.c_str(), 0711), 0);
  const Session session = daemon_.Connect();
  Queue queue = session.CreateQueue({}).value();
  Child child({"foreign", daemon_.socket(), std::to_string(queue.last().get().timeline)});
  EXPECT_EQ(child.WaitForExit(), CONCERT_ABI_NOT_FOUND);  // as one that does not exist
}

}  // namespace
}  // namespace concert::test
