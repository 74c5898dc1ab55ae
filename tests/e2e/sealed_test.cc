// Sealed buffers through libconcert and a daemon: equal contents of a user are in memory once, and
// nobody writes them any more.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/support/raw_client.h"
#include "tests/support/seed.h"
#include "tests/support/test_daemon.h"

namespace concert::test {
namespace {

using daemon::InfoOf;
using daemon::Resource;
using testing::HasSubstr;

constexpr std::chrono::seconds kTimeout{30};
constexpr uint32_t kRows = 3, kColumns = 40, kInner = 50;
constexpr uint64_t kWeightBytes = kColumns * kInner * sizeof(float);

std::vector<float> RandomFloats(size_t count, uint32_t seed) {
  std::mt19937 random(test::Seed() + seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random() % 2001) / 1000.f - 1.f;
  return values;
}

Buffer BufferOf(const Session& session, const std::vector<float>& values) {
  Buffer buffer = session.Allocate(values.size() * sizeof(float)).value();
  buffer.Write(values.data(), values.size() * sizeof(float)).Check();
  return buffer;
}

std::vector<float> ReadFloats(const Buffer& buffer) {
  std::vector<float> values(buffer.bytes() / sizeof(float));
  buffer.Read(values.data(), buffer.bytes()).Check();
  return values;
}

Buffer SealedWeights(const Session& session, uint32_t seed) {
  Buffer weights = BufferOf(session, RandomFloats(kColumns * kInner, seed));
  weights.Seal().Check();
  return weights;
}

class SealedTest : public testing::Test {
 protected:
  explicit SealedTest(const TestDaemonOptions& options = {.gpus = 1}) : daemon_(options) {}
  // Every session leaves nothing.
  void TearDown() override {
    EXPECT_TRUE(daemon_.WaitUntilEmpty());
    for (const Resource resource : {Resource::kBuffers, Resource::kBufferBytes, Resource::kMappings,
                                    Resource::kBufferHandles}) {
      EXPECT_TRUE(Eventually([&] { return used(resource) == 0; })) << InfoOf(resource).name;
    }
    EXPECT_EQ(daemon_.server().sealed_bytes(0).held, 0u);
    EXPECT_EQ(daemon_.server().sealed_bytes(0).saved, 0u);
    if (OnSim()) {
      EXPECT_EQ(daemon_.node().gpu(0).used_bytes(), 0u);
    }
  }

  bool OnSim() { return daemon_.engine().node().gpu(0).info().backend == "sim"; }
  uint64_t used(Resource resource) { return daemon_.engine().accounts().node().of(resource); }
  daemon::SessionSummary SummaryOf(uint32_t session) {
    for (const daemon::SessionSummary& summary : daemon_.server().Sessions())
      if (summary.id == session) return summary;
    return {};
  }
  // What the daemon has let go of goes in its own time.
  void ExpectBuffers(uint64_t buffers, uint64_t memories) {
    EXPECT_TRUE(Eventually([&] { return used(Resource::kBuffers) == buffers; }))
        << used(Resource::kBuffers) << " buffers";
    const uint64_t of_sessions = 2 * daemon_.server().session_count();
    EXPECT_TRUE(Eventually([&] { return used(Resource::kMappings) == of_sessions + memories; }))
        << used(Resource::kMappings) - of_sessions << " memories";
  }
  // D of a GEMM of the same A with these weights.
  static std::vector<float> Multiply(const Session& session, const Slice& weights) {
    const Buffer a = BufferOf(session, RandomFloats(kRows * kInner, 99));
    const Buffer d = session.Allocate(kRows * kColumns * sizeof(float)).value();
    session.CreateQueue()
        .value()
        .Gemm(
            {.m = kRows, .n = kColumns, .k = kInner, .a = a, .w = weights, .d = d, .dtype = kFp32})
        .Wait(kTimeout)
        .Check();
    return ReadFloats(d);
  }

  TestDaemon daemon_;
};

TEST_F(SealedTest, EqualContentsOfAUserAreInMemoryOnce) {
  const Session a = daemon_.Connect("a"), b = daemon_.Connect("b");
  const Buffer plain = BufferOf(a, RandomFloats(kColumns * kInner, 1));
  const std::vector<float> wanted = Multiply(a, plain);
  const Buffer first = SealedWeights(a, 1), second = SealedWeights(b, 1);
  ExpectBuffers(3, 2);
  EXPECT_EQ(Multiply(a, first), wanted);
  EXPECT_EQ(Multiply(b, second), wanted);
  const uint64_t bytes = SummaryOf(a.id()).sealed_bytes;
  EXPECT_GE(bytes, kWeightBytes);
  EXPECT_EQ(SummaryOf(a.id()).shared_bytes, 0u);
  EXPECT_EQ(SummaryOf(b.id()).sealed_bytes, bytes);
  EXPECT_EQ(SummaryOf(b.id()).shared_bytes, bytes);
  const Buffer other = SealedWeights(b, 2);
  ExpectBuffers(4, 3);
  EXPECT_NE(Multiply(b, other), wanted);
  EXPECT_EQ(SummaryOf(b.id()).sealed_bytes, 2 * bytes);
  EXPECT_EQ(SummaryOf(b.id()).shared_bytes, bytes);
}

TEST_F(SealedTest, ASessionSharesWithItself) {
  const Session session = daemon_.Connect();
  const Buffer first = SealedWeights(session, 1), second = SealedWeights(session, 1);
  ExpectBuffers(2, 1);
  EXPECT_EQ(Multiply(session, first), Multiply(session, second));
}

// What sessions are said to share adds up to what is saved, whoever goes first, and how.
TEST_F(SealedTest, WhoIsLeftAloneSharesNothing) {
  Session sessions[] = {daemon_.Connect("a"), daemon_.Connect("b"), daemon_.Connect("c")};
  std::vector<Buffer> buffers;
  for (const Session& session : sessions) buffers.push_back(SealedWeights(session, 1));
  const uint32_t ids[] = {sessions[0].id(), sessions[1].id(), sessions[2].id()};
  const uint64_t bytes = SummaryOf(ids[0]).sealed_bytes;
  const auto expect_shared = [&](std::vector<uint64_t> shared) {
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(Eventually([&] { return SummaryOf(ids[i]).shared_bytes == shared[i]; }))
          << "session " << i;
    }
  };
  expect_shared({0, bytes, bytes});
  buffers[0] = Buffer();
  expect_shared({0, 0, bytes});
  buffers[0] = SealedWeights(sessions[0], 1);  // now it is the last
  expect_shared({bytes, 0, bytes});
  EXPECT_EQ(daemon_.server().sealed_bytes(0).held, bytes);
  EXPECT_EQ(daemon_.server().sealed_bytes(0).saved, 2 * bytes);
  sessions[1] = Session();  // before what it has made
  expect_shared({bytes, 0, 0});
  const Buffer again = SealedWeights(sessions[2], 1);
  expect_shared({bytes, 0, bytes});
  buffers[2] = Buffer();
  expect_shared({0, 0, bytes});
  buffers[0] = Buffer();
  expect_shared({0, 0, 0});
  EXPECT_EQ(SummaryOf(ids[2]).sealed_bytes, bytes);
}

TEST_F(SealedTest, MemoryLivesAsLongAsAnyHolder) {
  const std::vector<float> wanted = [&] {
    const Session session = daemon_.Connect();
    return Multiply(session, SealedWeights(session, 1));
  }();
  for (int order = 0; order < 2; ++order) {
    Session sessions[] = {daemon_.Connect("a"), daemon_.Connect("b")};
    Buffer buffers[] = {SealedWeights(sessions[0], 1), SealedWeights(sessions[1], 1)};
    ExpectBuffers(2, 1);
    buffers[order] = Buffer();
    ExpectBuffers(1, 1);
    EXPECT_EQ(Multiply(sessions[1 - order], buffers[1 - order]), wanted);
    buffers[order] = SealedWeights(sessions[order], 1);
    ExpectBuffers(2, 1);
    sessions[order] = Session();  // before what it has made
    EXPECT_TRUE(Eventually([&] { return daemon_.server().session_count() == 1; }));
    ExpectBuffers(1, 1);
    EXPECT_EQ(Multiply(sessions[1 - order], buffers[1 - order]), wanted);
    buffers[1 - order] = Buffer();
    ExpectBuffers(0, 0);
  }
}

TEST_F(SealedTest, ASealedBufferHasNoMemoryHere) {
  const Session session = daemon_.Connect();
  const Buffer weights = SealedWeights(session, 1);
  float value = 0;
  for (const Status& status : {weights.Address().status(), weights.Write(&value, sizeof(value)),
                               weights.Read(&value, sizeof(value))}) {
    EXPECT_EQ(status.code(), CONCERT_FAILED_PRECONDITION);
    EXPECT_THAT(status.message(), HasSubstr("a sealed buffer has no memory in this process"));
  }
  EXPECT_EQ(weights.bytes(), kWeightBytes);
  const Status again = weights.Seal();
  EXPECT_EQ(again.code(), CONCERT_FAILED_PRECONDITION);
  EXPECT_THAT(again.message(), HasSubstr("is sealed already"));
  // By an op, as the sentence says.
  const Buffer copy = session.Allocate(kWeightBytes).value();
  session.CreateQueue()
      .value()
      .Copy({.src = weights, .dst = copy, .bytes = kWeightBytes})
      .Wait(kTimeout)
      .Check();
  EXPECT_EQ(ReadFloats(copy), RandomFloats(kColumns * kInner, 1));
}

TEST_F(SealedTest, AnOpThatWouldWriteItIsRefused) {
  const Session session = daemon_.Connect();
  const Buffer weights = SealedWeights(session, 1);
  const Buffer other = session.Allocate(kWeightBytes).value();
  const std::vector<float> before = Multiply(session, weights);
  Queue queue = session.CreateQueue().value();
  const Status copy = queue.Copy({.src = other, .dst = weights, .bytes = 64}).Wait(kTimeout);
  EXPECT_EQ(copy.code(), CONCERT_FAILED_PRECONDITION);
  EXPECT_THAT(copy.message(), HasSubstr("dst lies in buffer "));
  EXPECT_THAT(copy.message(), HasSubstr("which is sealed: ops only read it"));
  const Status gemm = queue
                          .Gemm({.m = 4,
                                 .n = 4,
                                 .k = 4,
                                 .a = other,
                                 .w = {other, 1024},
                                 .d = weights,
                                 .dtype = kFp32})
                          .Wait(kTimeout);
  EXPECT_THAT(gemm.message(), HasSubstr("d lies in buffer "));
  // Nor may a program's op, nor a program to which it is bound.
  Program writes = session.BeginProgram().value();
  writes.queue().Copy({.src = other, .dst = weights, .bytes = 64}).submit_status().Check();
  EXPECT_THAT(writes.End().message(), HasSubstr("op 0, copy: dst lies in buffer "));
  Program program = session.BeginProgram().value();
  const Buffer slot = program.Binding(64).value();
  program.queue().Copy({.src = other, .dst = slot, .bytes = 64}).submit_status().Check();
  program.End().Check();
  EXPECT_THAT(queue.Run({.program = program, .bindings = {weights}}).Wait(kTimeout).message(),
              HasSubstr("bindings[0] lies in buffer "));
  EXPECT_EQ(Multiply(session, weights), before);
}

// As a client that keeps a mapping of what it had.
TEST_F(SealedTest, WhatTheClientDoesToItsOldMemoryChangesNothing) {
  if (!OnSim()) GTEST_SKIP() << "the memory is a memfd on the simulator only";
  const Session session = daemon_.Connect();
  const std::vector<float> values = RandomFloats(kColumns * kInner, 1);
  const int fd = memfd_create("weights", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(fd, 8192), 0);
  ASSERT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  const auto write = [&](const std::vector<float>& to) {
    ASSERT_EQ(pwrite(fd, to.data(), kWeightBytes, 4), static_cast<ssize_t>(kWeightBytes));
  };
  write(values);
  concert_import import{};
  import.memory = CONCERT_MEMORY_MEMFD;
  import.fd = fd;
  import.offset = 4;  // and no multiple of a word
  import.bytes = kWeightBytes;
  const Buffer weights = session.Import(import).value();
  const std::vector<float> wanted = Multiply(session, weights);
  weights.Seal().Check();
  write(RandomFloats(kColumns * kInner, 2));
  EXPECT_EQ(Multiply(session, weights), wanted);
  // And it is equal to what it was when it was sealed.
  const Buffer equal = SealedWeights(session, 1);
  ExpectBuffers(2, 1);
  EXPECT_EQ(Multiply(session, equal), wanted);
  close(fd);
}

TEST_F(SealedTest, BeforeTheProgramsThatUseIt) {
  const Session session = daemon_.Connect();
  const Buffer weights = BufferOf(session, RandomFloats(16, 1));
  const Buffer out = session.Allocate(64).value();
  const auto record = [&] {
    Program program = session.BeginProgram().value();
    program.queue().Copy({.src = weights, .dst = out, .bytes = 64}).submit_status().Check();
    program.End().Check();
    return program;
  };
  Program program = record();
  const Status refused = weights.Seal();
  EXPECT_EQ(refused.code(), CONCERT_FAILED_PRECONDITION);
  EXPECT_THAT(refused.message(), HasSubstr("is used by 1 program; seal weights before the programs "
                                           "that use them are registered"));
  Queue queue = session.CreateQueue().value();
  queue.Run({.program = program}).Wait(kTimeout).Check();
  EXPECT_EQ(ReadFloats(weights), RandomFloats(16, 1));  // as it was
  program = Program();
  EXPECT_TRUE(Eventually([&] { return weights.Seal().ok(); }));
  program = record();
  queue.Run({.program = program}).Wait(kTimeout).Check();
  EXPECT_EQ(ReadFloats(out), RandomFloats(16, 1));
}

TEST_F(SealedTest, OpsThatWereSubmittedBeforeReadTheOldMemory) {
  const Session session = daemon_.Connect();
  const Buffer weights = BufferOf(session, RandomFloats(16, 1));
  const Buffer out = session.Allocate(64).value();
  UserTimeline go = session.CreateUserTimeline().value();
  Queue queue = session.CreateQueue().value();
  const Ticket copy = queue.Copy({.src = weights, .dst = out, .bytes = 64}, {.waits = {go.At(1)}});
  weights.Seal().Check();
  go.Signal(1).Check();
  copy.Wait(kTimeout).Check();
  EXPECT_EQ(ReadFloats(out), RandomFloats(16, 1));
  ExpectBuffers(2, 2);
}

// What libconcert would not send.
TEST_F(SealedTest, UnknownHandlesAreRefused) {
  RawClient client(daemon_.socket());
  ASSERT_TRUE(client.Hello());
  const auto seal = [&](uint32_t buffer, uint32_t reserved = 0) {
    auto request = RawClient::Make<concert_seal_buffer>(CONCERT_CONTROL_SEAL_BUFFER);
    request.buffer = buffer;
    request.reserved = reserved;
    return client.Call<concert_buffer_reply>(request);
  };
  const uint32_t buffer = client.AllocateBuffer(64);
  const uint32_t released = client.AllocateBuffer(64);
  client.ReleaseBuffer(released);
  for (const uint32_t handle : {0u, 1u << 20, released, CONCERT_SLOT_HANDLE(0), ~0u}) {
    const concert_buffer_reply reply = seal(handle);
    EXPECT_EQ(reply.reply.status, static_cast<uint32_t>(CONCERT_ABI_NOT_FOUND)) << handle;
    EXPECT_THAT(reply.reply.message, HasSubstr("is not a buffer of this session; name one that"));
  }
  EXPECT_THAT(seal(buffer, 5).reply.message,
              HasSubstr("reserved of the request is 5; it must be 0"));
  const concert_buffer_reply sealed = seal(buffer);
  EXPECT_EQ(sealed.reply.status, static_cast<uint32_t>(CONCERT_ABI_OK));
  EXPECT_NE(sealed.buffer, buffer);
  EXPECT_THAT(seal(buffer).reply.message, HasSubstr("is not a buffer of this session"));
  EXPECT_THAT(seal(sealed.buffer).reply.message, HasSubstr("is sealed already"));
  concert_descriptor copy{};
  copy.kind = CONCERT_OP_COPY;
  copy.body.copy.src.buffer = sealed.buffer;
  copy.body.copy.dst.buffer = client.AllocateBuffer(64);
  copy.body.copy.bytes = 8;
  const concert_program_reply program = client.CreateProgram({}, {&copy, 1});
  ASSERT_EQ(program.reply.status, static_cast<uint32_t>(CONCERT_ABI_OK)) << program.reply.message;
  EXPECT_THAT(seal(program.program).reply.message, HasSubstr("is a program; only memory"));
  EXPECT_EQ(client.ReleaseBuffer(sealed.buffer), static_cast<uint32_t>(CONCERT_ABI_OK));
  EXPECT_THAT(seal(sealed.buffer).reply.message, HasSubstr("is not a buffer of this session"));
  client.Disconnect();
}

TEST_F(SealedTest, ManySessionsThatEndInTheMiddleLeaveNothing) {
  std::mt19937 random(test::Seed());
  const Session survivor = daemon_.Connect("survivor");
  const Buffer weights = SealedWeights(survivor, 0);
  const std::vector<float> wanted = Multiply(survivor, weights);
  for (int round = 0; round < 30; ++round) {
    Session session = daemon_.Connect("short-lived");
    std::vector<Buffer> sealed;
    for (int i = 0; i < 6; ++i) sealed.push_back(SealedWeights(session, random() % 3));
    sealed.erase(sealed.begin() + random() % 6);
    Queue queue = session.CreateQueue().value();
    const Buffer to = session.Allocate(kWeightBytes).value();
    for (const Buffer& buffer : sealed)
      queue.Copy({.src = buffer, .dst = to, .bytes = kWeightBytes}).submit_status().Check();
    if (round % 2 == 0) session = Session();  // before what it has made
  }
  EXPECT_TRUE(Eventually([&] { return daemon_.server().session_count() == 1; }));
  ExpectBuffers(1, 1);
  EXPECT_EQ(Multiply(survivor, weights), wanted);
}

class SealedQuotaTest : public SealedTest {
 protected:
  static daemon::Limits MakeLimits() {
    daemon::Limits limits;
    limits[Resource::kBuffers].per_user = 3;
    return limits;
  }
  SealedQuotaTest() : SealedTest({.gpus = 1, .limits = MakeLimits()}) {}
};

// While it is sealed a buffer counts twice; what is refused is as it was.
TEST_F(SealedQuotaTest, ABufferThatIsRefusedIsAsItWas) {
  const Session session = daemon_.Connect();
  const Buffer first = BufferOf(session, RandomFloats(16, 1));
  const Buffer second = session.Allocate(64).value();
  {
    const Buffer third = session.Allocate(64).value();
    const Status refused = first.Seal();
    EXPECT_EQ(refused.code(), CONCERT_RESOURCE_EXHAUSTED);
    EXPECT_THAT(refused.message(), HasSubstr("of its 3 buffers"));
    EXPECT_EQ(ReadFloats(first), RandomFloats(16, 1));
  }
  EXPECT_TRUE(Eventually([&] { return first.Seal().ok(); }));
  ExpectBuffers(2, 2);
}

}  // namespace
}  // namespace concert::test
