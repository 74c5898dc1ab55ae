// What may be wrong with a program, with its runs, and with what they read, beyond what
// program_test.cc has: each is refused with a sentence or has a meaning, and harms nobody.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/raw_client.h"
#include "tests/support/test_daemon.h"

namespace concert::test {
namespace {

using testing::HasSubstr;

constexpr std::chrono::seconds kTimeout{30};

template <typename T>
Buffer Upload(const Session& session, const std::vector<T>& values) {
  Buffer buffer = session.Allocate(values.size() * sizeof(T)).value();
  buffer.Write(values.data(), values.size() * sizeof(T)).Check();
  return buffer;
}

template <typename T>
std::vector<T> Download(const Buffer& buffer) {
  std::vector<T> values(buffer.bytes() / sizeof(T));
  buffer.Read(values.data(), buffer.bytes()).Check();
  return values;
}

void Copy(Program& program, const Slice& src, const Slice& dst, uint64_t bytes = 64) {
  program.queue().Copy({.src = src, .dst = dst, .bytes = bytes}).submit_status().Check();
}

// Ops follow one another as they are recorded, and read of a slot what ops before them wrote. So
// there is no way to say a cycle: who tries has an op that reads what only a later one writes.
TEST(BadProgramTest, ACycleReadsWhatNoOpBeforeItHasWritten) {
  TestDaemon daemon({.gpus = 1});
  const Session session = daemon.Connect();
  Program cycle = session.BeginProgram().value();
  const Buffer one = cycle.Arena(64).value(), two = cycle.Arena(64).value();
  Copy(cycle, one, two);
  Copy(cycle, two, one);
  EXPECT_EQ(cycle.End().message(),
            "op 0, copy: src reads 64 bytes at offset 0 of arena slot 0, of which no op before it "
            "has written all");
  Program itself = session.BeginProgram().value();
  const Buffer sum = itself.Arena(64).value();
  itself.queue()
      .Elementwise({.rows = 1, .columns = 16, .x = sum, .y = sum, .out = sum, .dtype = kFp32})
      .submit_status()
      .Check();
  EXPECT_THAT(itself.End().message(),
              HasSubstr("reads 64 bytes at offset 0 of arena slot 0, of which no op before it"));
  // What a run leaves in a slot is not there for the next.
  Program again = session.BeginProgram().value();
  const Buffer kept = again.Arena(64).value(), out = session.Allocate(64).value();
  Copy(again, kept, out);
  Copy(again, out, kept);
  EXPECT_THAT(again.End().message(), HasSubstr("op 0, copy: src reads 64 bytes"));
}

TEST(BadProgramTest, AnotherProgramsSlotIsRefused) {
  TestDaemon daemon({.gpus = 1});
  const Session session = daemon.Connect();
  const Buffer buffer = session.Allocate(64).value();
  Program other = session.BeginProgram().value();
  const Buffer same_number = other.Arena(64).value();
  Program program = session.BeginProgram().value();
  const Buffer own = program.Arena(64).value();
  Copy(program, buffer, own);
  EXPECT_THAT(
      program.queue().Copy({.src = own, .dst = same_number, .bytes = 64}).submit_status().message(),
      HasSubstr("dst is a slot of a program"));
  EXPECT_TRUE(program.End().ok());
  // Outside of any program.
  Queue queue = session.CreateQueue().value();
  EXPECT_THAT(queue.Copy({.src = own, .dst = buffer, .bytes = 64}).Wait(kTimeout).message(),
              HasSubstr("src is a slot of a program"));
  // A slot whose handle is gone is still the program's.
  Program dropped = session.BeginProgram().value();
  {
    const Buffer slot = dropped.Arena(64).value();
    Copy(dropped, buffer, slot);
  }
  EXPECT_TRUE(dropped.End().ok());
}

// What comes over the socket and the ring when nothing keeps a client from it.
class RawProgramTest : public testing::Test {
 protected:
  RawProgramTest() {
    EXPECT_TRUE(client_.Hello());
    queue_ = client_.CreateQueue();
    from_ = client_.AllocateBuffer(64), to_ = client_.AllocateBuffer(64);
    copy_.kind = CONCERT_OP_COPY;
    copy_.body.copy = {.src = {from_, 0, 0}, .dst = {to_, 0, 0}, .bytes = 64, .reserved = {}};
  }
  void TearDown() override {
    client_.Disconnect();
    EXPECT_TRUE(daemon_.WaitUntilEmpty());
  }
  void Run(uint32_t program) {
    concert_descriptor run{};
    run.kind = CONCERT_OP_PROGRAM;
    run.queue = queue_;
    run.ticket = ++ticket_;
    run.body.program.program = program;
    ASSERT_TRUE(client_.Push(run));
  }
  // What became of the last run; "" if it went well.
  std::string Outcome() {
    EXPECT_TRUE(client_.WaitForTimeline(queue_, ticket_));
    const auto completion = client_.NextCompletion();
    return completion ? Render(*completion) : "";
  }

  TestDaemon daemon_{{.gpus = 1}};
  RawClient client_{daemon_.socket()};
  uint32_t queue_ = 0, from_ = 0, to_ = 0;
  uint64_t ticket_ = 0;
  concert_descriptor copy_{};
};

TEST_F(RawProgramTest, AProgramOfAnotherSessionIsNotFound) {
  RawClient other(daemon_.socket());
  ASSERT_TRUE(other.Hello());
  const concert_program_reply mine = client_.CreateProgram({}, {&copy_, 1});
  ASSERT_NE(mine.program, 0u);
  // It has as many buffers, and then some, so that its program has a handle that is none here.
  concert_descriptor its = copy_;
  its.body.copy.src.buffer = other.AllocateBuffer(64);
  for (int i = 0; i < 5; ++i) its.body.copy.dst.buffer = other.AllocateBuffer(64);
  const concert_program_reply foreign = other.CreateProgram({}, {&its, 1});
  ASSERT_NE(foreign.program, 0u);
  Run(foreign.program);
  EXPECT_THAT(Outcome(), HasSubstr("program is " + std::to_string(foreign.program) +
                                   ", which is not a program of this session; register it first"));
  Run(mine.program);
  EXPECT_EQ(Outcome(), "");
  other.Disconnect();
}

TEST_F(RawProgramTest, RunsOfReleasedProgramsAndOfBuffersAreNotFound) {
  const concert_program_reply program = client_.CreateProgram({}, {&copy_, 1});
  ASSERT_NE(program.program, 0u);
  EXPECT_EQ(client_.ReleaseBuffer(program.program), static_cast<uint32_t>(CONCERT_ABI_OK));
  // The dispatcher learns of it a moment later.
  EXPECT_TRUE(Eventually([&] { return daemon_.server().Sessions()[0].programs.empty(); }));
  for (const uint32_t handle : {program.program, from_, 0u, ~0u, CONCERT_SLOT_HANDLE(0)}) {
    Run(handle);
    EXPECT_THAT(Outcome(), HasSubstr("which is not a program of this session")) << handle;
  }
}

// The handle that the program is going to have.
TEST_F(RawProgramTest, ARunThatIsRungBeforeItsProgramIsRegisteredIsRefusedAndTheNextIsNot) {
  const uint32_t next = to_ + 1;
  Run(next);
  EXPECT_THAT(Outcome(), HasSubstr("program is " + std::to_string(next) +
                                   ", which is not a program of this session; register it first"));
  const concert_program_reply program = client_.CreateProgram({}, {&copy_, 1});
  ASSERT_EQ(program.program, next);
  Run(next);
  EXPECT_EQ(Outcome(), "");
}

// While the control thread is at it: the run is refused or whole, and never anything else.
TEST_F(RawProgramTest, ARunThatIsRungDuringTheRegistrationIsRefusedOrWhole) {
  constexpr uint32_t kOps = 400;
  std::vector<concert_descriptor> ops(kOps, copy_);
  const int fd = memfd_create("program", MFD_CLOEXEC);
  const size_t bytes = ops.size() * sizeof(concert_descriptor);
  ASSERT_EQ(write(fd, ops.data(), bytes), static_cast<ssize_t>(bytes));
  auto request = RawClient::Make<concert_create_program>(CONCERT_CONTROL_CREATE_PROGRAM);
  request.op_count = kOps;
  int refused = 0, whole = 0;
  uint32_t next = to_ + 1;  // the handle of an entry that nobody had before
  for (int round = 0; round < 100; ++round) {
    ASSERT_TRUE(client_.Send(&request, sizeof(request), {&fd, 1}));
    for (int run = 0; run < 20; ++run) {
      Run(next);
      const std::string outcome = Outcome();
      outcome.empty() ? ++whole : ++refused;
      ASSERT_TRUE(outcome.empty() ||
                  outcome.find("which is not a program of this session") != std::string::npos)
          << outcome;
    }
    const std::vector<char> packet = client_.Receive();
    concert_program_reply reply;
    ASSERT_EQ(packet.size(), sizeof(reply));
    std::memcpy(&reply, packet.data(), sizeof(reply));
    ASSERT_EQ(reply.program, next) << reply.reply.message;
    ++next;
  }
  close(fd);
  std::printf("%d runs were refused, %d whole\n", refused, whole);
  EXPECT_GT(refused, 0);
}

// A run has as many rows as its program was recorded with: of a binding that has more, the first.
TEST(BadProgramTest, RowsBeyondThoseThatWereRecordedAreNeitherReadNorWritten) {
  constexpr uint32_t kRows = 3, kMore = 5, kColumns = 16;
  TestDaemon daemon({.gpus = 1});
  const Session session = daemon.Connect();
  Program program = session.BeginProgram().value();
  constexpr uint64_t kBytes = kRows * kColumns * sizeof(float);
  const Buffer x = program.Binding(kBytes).value(), out = program.Binding(kBytes).value();
  program.queue()
      .Elementwise({.rows = kRows, .columns = kColumns, .x = x, .y = x, .out = out, .dtype = kFp32})
      .submit_status()
      .Check();
  program.End().Check();
  std::vector<float> values(kMore * kColumns), wanted(kMore * kColumns, -1);
  std::iota(values.begin(), values.end(), 0.f);
  for (uint32_t i = 0; i < kRows * kColumns; ++i) wanted[i] = 2 * values[i];
  const Buffer in = Upload(session, values),
               to = Upload(session, std::vector<float>(kMore * kColumns, -1));
  Queue queue = session.CreateQueue().value();
  queue.Run({.program = program, .bindings = {in, to}}).Wait(kTimeout).Check();
  EXPECT_EQ(Download<float>(to), wanted);
  EXPECT_EQ(Download<float>(in), values);
  // And a batch of fewer rows has no room for what is recorded.
  const Buffer fewer = session.Allocate(kBytes - kColumns * sizeof(float)).value();
  EXPECT_THAT(queue.Run({.program = program, .bindings = {in, fewer}}).Wait(kTimeout).message(),
              HasSubstr("bindings[1] needs 192 bytes at offset 0, but buffer"));
}

// As a client that keeps a mapping of what it has sealed.
TEST(BadProgramTest, WeightsThatChangeBehindTheirSealingChangeNoRun) {
  TestDaemon daemon({.gpus = 1});
  if (daemon.engine().node().gpu(0).info().backend != "sim")
    GTEST_SKIP() << "the memory is a memfd on the simulator only";
  const Session session = daemon.Connect();
  const int fd = memfd_create("weights", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(fd, 4096), 0);
  ASSERT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  const std::vector<uint8_t> right(64, 1), wrong(64, 2);
  ASSERT_EQ(pwrite(fd, right.data(), 64, 0), 64);
  concert_import import{};
  import.memory = CONCERT_MEMORY_MEMFD;
  import.fd = fd;
  import.bytes = 64;
  const Buffer weights = session.Import(import).value(), out = session.Allocate(64).value();
  weights.Seal().Check();
  Program program = session.BeginProgram().value();
  Copy(program, weights, out);
  program.End().Check();
  Queue queue = session.CreateQueue().value();
  for (int run = 0; run < 3; ++run) {
    ASSERT_EQ(pwrite(fd, wrong.data(), 64, 0), 64);
    queue.Run({.program = program}).Wait(kTimeout).Check();
    EXPECT_EQ(Download<uint8_t>(out), right);
  }
  close(fd);
}

// A step that looks everything up in tables that its runs bring.
class TablesTest : public testing::Test {
 protected:
  static constexpr uint32_t kRows = 4, kVocabulary = 10, kPositions = 8, kPages = 4, kPageSize = 4;
  static constexpr uint32_t kHeadDim = 64, kColumns = 3 * kHeadDim, kLengthMax = 8, kMost = 20;
  static constexpr uint64_t kGuard = 4096;

  struct Tables {
    std::vector<int64_t> ids;
    std::vector<int32_t> positions, slots, pages, lengths, counters;
  };
  struct Left {
    std::vector<uint16_t> out, keys, values;
    std::vector<int32_t> counters;
    bool operator==(const Left&) const = default;
  };

  TablesTest() {
    std::vector<uint16_t> bits(kVocabulary * kColumns);
    for (size_t i = 0; i < bits.size(); ++i)  // small numbers in bf16
      bits[i] = static_cast<uint16_t>(0x3e00 + i * 37 % 0x180 + (i % 3 == 0 ? 0x8000 : 0));
    table_ = Upload(session_, bits);
    std::vector<float> angles(kPositions * kHeadDim);
    for (size_t i = 0; i < angles.size(); ++i) angles[i] = 1 / static_cast<float>(1 + i % 17);
    cos_sin_ = Upload(session_, angles);
    Record();
  }

  void Record() {
    const auto binding = [&](uint64_t bytes) { return program_.Binding(bytes).value(); };
    const Buffer ids = binding(kRows * 8), positions = binding(kRows * 4),
                 slots = binding(kRows * 4), pages = binding(kRows * 2 * 4),
                 lengths = binding(kRows * 4), counters = binding(kRows * 4),
                 out = binding(kRows * kHeadDim * 2);
    const Buffer heads = program_.Arena(kRows * kColumns * 2).value();
    const KvCache cache{
        .k = {keys_, kGuard}, .v = {values_, kGuard}, .pages = kPages, .page_size = kPageSize};
    Queue& queue = program_.queue();
    const auto check = [](const Ticket& ticket) { ticket.submit_status().Check(); };
    check(queue.Embedding({.rows = kRows,
                           .columns = kColumns,
                           .vocabulary = kVocabulary,
                           .ids = ids,
                           .table = table_,
                           .out = heads,
                           .index_dtype = kInt64}));
    check(queue.RopeAppend({.rows = kRows,
                            .q_heads = 1,
                            .kv_heads = 1,
                            .head_dim = kHeadDim,
                            .positions_max = kPositions,
                            .q = heads,
                            .k = {heads, kHeadDim * 2},
                            .v = {heads, 2 * kHeadDim * 2},
                            .positions = positions,
                            .slots = slots,
                            .cos_sin = cos_sin_,
                            .cache = cache,
                            .q_stride = kColumns,
                            .k_stride = kColumns,
                            .v_stride = kColumns}));
    check(queue.AttentionDecode({.rows = kRows,
                                 .q_heads = 1,
                                 .kv_heads = 1,
                                 .head_dim = kHeadDim,
                                 .length_max = kLengthMax,
                                 .q = heads,
                                 .lengths = lengths,
                                 .out = out,
                                 .cache = cache,
                                 .page_table = pages,
                                 .q_stride = kColumns,
                                 .table_stride = 2,
                                 .scale = 0.125f}));
    check(queue.Advance({.rows = kRows, .counter_max = kMost, .counters = counters}));
    program_.End().Check();
  }

  // From the same caches each time.
  Left Run(const Tables& tables) {
    std::vector<uint16_t> cache(keys_.bytes() / 2);
    for (size_t i = 0; i < cache.size(); ++i) cache[i] = static_cast<uint16_t>(0x3e00 + i % 0x200);
    for (const Buffer* buffer : {&keys_, &values_})
      buffer->Write(cache.data(), cache.size() * 2).Check();
    const Buffer ids = Upload(session_, tables.ids), positions = Upload(session_, tables.positions),
                 slots = Upload(session_, tables.slots), pages = Upload(session_, tables.pages),
                 lengths = Upload(session_, tables.lengths),
                 counters = Upload(session_, tables.counters),
                 out = session_.Allocate(kRows * kHeadDim * 2).value();
    const Status status =
        queue_
            .Run({.program = program_,
                  .bindings = {ids, positions, slots, pages, lengths, counters, out}})
            .Wait(kTimeout);
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(Download<int32_t>(pages), tables.pages);
    return {Download<uint16_t>(out), Download<uint16_t>(keys_), Download<uint16_t>(values_),
            Download<int32_t>(counters)};
  }

  TestDaemon daemon_{{.gpus = 1}};
  const Session session_ = daemon_.Connect();
  Queue queue_ = session_.CreateQueue().value();
  Buffer table_, cos_sin_;
  const Buffer keys_ = session_.Allocate(kPages * kPageSize * kHeadDim * 2 + 2 * kGuard).value(),
               values_ = session_.Allocate(keys_.bytes()).value();
  Program program_ = session_.BeginProgram().value();
};

TEST_F(TablesTest, WhatIsOutOfRangeWhenItRunsIsTakenForTheNearestInRange) {
  const Tables hostile = {.ids = {12, INT64_MAX, INT64_MIN, 3},
                          .positions = {-4, 99, 3, INT_MIN},
                          .slots = {5, 100, INT_MIN, 2},
                          .pages = {-1, 77, INT_MIN, INT_MAX, 2, 1, 4, 3},
                          .lengths = {-3, 1000, 2, INT_MAX},
                          .counters = {-5, 900, 7, INT_MIN}};
  const Tables nearest = {.ids = {9, 9, -1, 3},  // below 0: a row of zeros
                          .positions = {0, 7, 3, 0},
                          .slots = {5, 15, -1, 2},  // below 0: nothing is appended
                          .pages = {0, 3, 0, 3, 2, 1, 3, 3},
                          .lengths = {0, 8, 2, 8},
                          .counters = {0, 20, 7, 0}};
  const Left left = Run(hostile);
  EXPECT_TRUE(left == Run(nearest));
  EXPECT_EQ(left.counters, (std::vector<int32_t>{1, 20, 8, 1}));
  // Other tables leave something else, so that the comparison means something.
  Tables other = nearest;
  other.pages[2] = 1;
  EXPECT_FALSE(left == Run(other));
}

}  // namespace
}  // namespace concert::test
