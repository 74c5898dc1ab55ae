// Missing waits, from the client's call to the sentence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "proto/mutex.h"
#include "tests/support/eventually.h"
#include "tests/support/seed.h"
#include "tests/support/test_daemon.h"

namespace concert::test {
namespace {

using daemon::SimRaces;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint32_t kSide = 64;
constexpr uint64_t kMatrixBytes = uint64_t{kSide} * kSide * sizeof(float);

// Two layers on two queues of a daemon, y = x * w^T and z = y * w^T.
struct Layers {
  explicit Layers(SimRaces sim_races)
      : daemon_({.gpus = 1,
                 .sim_races = sim_races,
                 .adjust_server =
                     [this](daemon::ServerOptions& options) {
                       options.on_fault = [this](const daemon::Session& session,
                                                 const kernels::Failure& failure) {
                         const MutexLock lock(mutex_);
                         logged_.push_back(session.name + ": " + failure.ToString());
                       };
                     }}),
        session_(daemon_.Connect("layers")),
        first_(session_.CreateQueue({}).value()),
        second_(session_.CreateQueue({}).value()) {
    x_.Write(std::vector<float>(kSide * kSide, 0.5f).data(), kMatrixBytes).Check();
    w_.Write(std::vector<float>(kSide * kSide, 0.25f).data(), kMatrixBytes).Check();
  }

  struct Tickets {
    Ticket y, z;
  };
  // Submits both at once.
  Tickets Submit(bool with_wait) {
    Batch batch = session_.BeginBatch(0).value();
    const Ticket y = Gemm(first_, x_, y_, {});
    const Ticket z = Gemm(second_, y_, z_, with_wait ? Waits{y} : Waits{});
    return {y, z};
  }

  float Z() {
    float value = 0;
    z_.Read(&value, sizeof(value)).Check();
    return value;
  }
  std::vector<std::string> logged() {
    const MutexLock lock(mutex_);
    return logged_;
  }
  Ticket Gemm(Queue& queue, const Slice& a, const Slice& d, const Waits& waits) {
    return queue.Gemm({.m = kSide, .n = kSide, .k = kSide, .a = a, .w = w_, .d = d, .dtype = kFp32},
                      {.waits = waits});
  }

  Mutex mutex_;
  std::vector<std::string> logged_ CONCERT_GUARDED_BY(mutex_);
  TestDaemon daemon_;
  Session session_;
  Queue first_, second_;
  Buffer x_ = session_.Allocate(kMatrixBytes).value(), w_ = session_.Allocate(kMatrixBytes).value();
  Buffer y_ = session_.Allocate(kMatrixBytes).value(), z_ = session_.Allocate(kMatrixBytes).value();
};

TEST(RaceTest, ALayerThatDoesNotWaitForTheOneBeforeFailsWithASentence) {
  Layers layers(SimRaces::kError);
  const Layers::Tickets tickets = layers.Submit(/*with_wait=*/false);
  const Status status = tickets.z.Wait();
  EXPECT_EQ(status.code(), CONCERT_FAILED_PRECONDITION);
  EXPECT_EQ(status.message(),
            "op 1 of queue 1 (gemm, reads a) races with op 1 of queue 0 (gemm, writes d) for bytes "
            "0 to 16383 of buffer 3: no wait orders them; add a wait for ticket 1 of queue 0");
  EXPECT_TRUE(tickets.y.Wait().ok());
  EXPECT_EQ(layers.Z(), 0);
  // The queues go on.
  const Layers::Tickets again = layers.Submit(/*with_wait=*/true);
  EXPECT_TRUE(again.z.Wait().ok());
  EXPECT_EQ(layers.Z(), 128);
}

TEST(RaceTest, AWaitIsAllThatIsAskedFor) {
  Layers layers(SimRaces::kError);
  for (int i = 0; i < 50; ++i) {
    const Layers::Tickets tickets = layers.Submit(/*with_wait=*/true);
    const Status status = tickets.z.Wait();
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  EXPECT_EQ(layers.Z(), 128);
  EXPECT_THAT(layers.logged(), IsEmpty());
}

// Who has seen an op end need not say so.
TEST(RaceTest, AThreadThatWaitsIsAnOrder) {
  Layers layers(SimRaces::kError);
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(layers.Gemm(layers.first_, layers.x_, layers.y_, {}).Wait().ok());
    const Status status = layers.Gemm(layers.second_, layers.y_, layers.z_, {}).Wait();
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
}

// The issuer tells the dispatcher of a launch that the client may have seen the end of.
TEST(RaceTest, AThreadThatWaitsForACollectiveIsAnOrder) {
  Layers layers(SimRaces::kError);
  Communicator one = layers.session_.Join({.name = "one", .rank = 0, .ranks = 1, .gpu = 0}).value();
  for (int i = 0; i < 300; ++i) {
    const Ticket sum =
        layers.first_.AllReduce(one, {.data = layers.y_, .count = kSide * kSide, .dtype = kFp32});
    ASSERT_TRUE(sum.Wait().ok());
    const Status status = layers.Gemm(layers.second_, layers.y_, layers.z_, {}).Wait();
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
}

TEST(RaceTest, ColumnsOfOneMatrixAreNotTheSameBytes) {
  Layers layers(SimRaces::kError);
  Batch batch = layers.session_.BeginBatch(0).value();
  std::vector<Ticket> tickets;
  for (uint64_t half = 0; half < 2; ++half) {
    Queue& queue = half == 0 ? layers.first_ : layers.second_;
    tickets.push_back(queue.Gemm({.m = kSide,
                                  .n = kSide / 2,
                                  .k = kSide,
                                  .a = layers.x_,
                                  .w = layers.w_,
                                  .d = {layers.y_, half * kSide / 2 * sizeof(float)},
                                  .ldd = kSide,
                                  .dtype = kFp32}));
  }
  for (const Ticket& ticket : tickets) EXPECT_TRUE(ticket.Wait().ok());
}

TEST(RaceTest, ABufferThatIsGivenUpAtOnceIsStillNamed) {
  Layers layers(SimRaces::kError);
  const Layers::Tickets tickets = layers.Submit(/*with_wait=*/false);
  layers.y_ = {};
  EXPECT_THAT(std::string(tickets.z.Wait().message()),
              testing::HasSubstr("bytes 0 to 16383 of buffer 3"));
}

TEST(RaceTest, WarnLogsTheSentenceAndLetsTheOpRun) {
  Layers layers(SimRaces::kWarn);
  const Layers::Tickets tickets = layers.Submit(/*with_wait=*/false);
  EXPECT_TRUE(tickets.z.Wait().ok());
  EXPECT_TRUE(Eventually([&] { return !layers.logged().empty(); }));
  EXPECT_THAT(layers.logged(),
              ElementsAre("layers: op 1 of queue 1 (gemm, reads a) races with op 1 of queue 0 "
                          "(gemm, writes d) for bytes 0 to 16383 of buffer 3: no wait orders them; "
                          "add a wait for ticket 1 of queue 0"));
}

TEST(RaceTest, OffSaysNothing) {
  Layers layers(SimRaces::kOff);
  const Layers::Tickets tickets = layers.Submit(/*with_wait=*/false);
  EXPECT_TRUE(tickets.z.Wait().ok());
  layers.daemon_.Stop();  // what dispatchers have told it, the server has heard
  EXPECT_THAT(layers.logged(), IsEmpty());
}

// A client that is right: an op waits for what it must, unless the client knows that it has ended.
class RightProgram {
 public:
  explicit RightProgram(uint32_t seed) : random_(seed) {
    for (Queue& queue : queues_) queue = session_.CreateQueue({}).value();
    for (Buffer& buffer : buffers_) buffer = session_.Allocate(kMatrixBytes).value();
  }

  void Step() {
    Op op{.queue = Below(kQueues), .reads = Below(kBuffers), .writes = Below(kBuffers)};
    const bool reduce = Below(8) == 0;
    if (reduce) {
      op.reads = op.writes;
    } else if (op.reads == op.writes) {
      op.writes = (op.writes + 1) % kBuffers;
    }
    if (last_[op.queue] != kNothing) Follow(op, last_[op.queue]);
    Waits waits;
    for (size_t i = ops_.size(); i-- > 0;) {
      const bool shares =
          ops_[i].writes == op.reads || ops_[i].reads == op.writes || ops_[i].writes == op.writes;
      if (!shares || ops_[i].ended || op.before.contains(i)) continue;
      if (waits.size() < CONCERT_WAITS_MAX && Below(8) != 0) {
        waits.Add(ops_[i].ticket);
        Follow(op, i);
      } else {
        SeeEnd(i);
      }
    }
    op.ticket = Submit(op, reduce, waits);
    last_[op.queue] = ops_.size();
    ops_.push_back(op);
    if (Below(10) == 0) SeeEnd(Below(static_cast<uint32_t>(ops_.size())));
  }

  // Of all ops that failed.
  std::vector<std::string> Failures() {
    std::vector<std::string> failures;
    for (const Op& op : ops_) {
      const Status status = op.ticket.Wait();
      if (!status.ok()) failures.push_back(status.ToString());
    }
    return failures;
  }

 private:
  static constexpr uint32_t kQueues = 5, kBuffers = 7;
  static constexpr size_t kNothing = SIZE_MAX;
  struct Op {
    uint32_t queue, reads, writes;
    Ticket ticket = {};
    bool ended = false;
    std::set<size_t> before = {};  // that had not ended
  };

  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }
  Ticket Submit(const Op& op, bool reduce, const Waits& waits) {
    const Buffer &from = buffers_[op.reads], &to = buffers_[op.writes];
    Queue& queue = queues_[op.queue];
    if (!reduce) return queue.Copy({.src = from, .dst = to, .bytes = kMatrixBytes}, {waits});
    return queue.AllReduce(group_, {.data = to, .count = kSide, .dtype = kFp32}, {waits});
  }
  void Follow(Op& op, size_t before) {
    if (ops_[before].ended) return;
    op.before.insert(before);
    for (const size_t i : ops_[before].before)
      if (!ops_[i].ended) op.before.insert(i);
  }
  void SeeEnd(size_t i) {
    ops_[i].ticket.Wait().IgnoreError();
    ops_[i].ended = true;
    for (const size_t before : ops_[i].before) ops_[before].ended = true;
  }

  std::mt19937 random_;
  TestDaemon daemon_{{.gpus = 1}};
  Session session_ = daemon_.Connect();
  Communicator group_ = session_.Join({.name = "right", .rank = 0, .ranks = 1, .gpu = 0}).value();
  std::array<Queue, kQueues> queues_;
  std::array<Buffer, kBuffers> buffers_;
  std::array<size_t, kQueues> last_ = {kNothing, kNothing, kNothing, kNothing, kNothing};
  std::vector<Op> ops_;
};

TEST(RaceTest, RightProgramsAreLeftAlone) {
  RightProgram program(test::Seed());
  for (int i = 0; i < 1000; ++i) program.Step();
  EXPECT_THAT(program.Failures(), IsEmpty());
}

}  // namespace
}  // namespace concert::test
