// A daemon, batches of sums, and what became of them: ops or runs.
#ifndef CONCERT_TESTS_E2E_BATCH_PROGRAMS_FIXTURE_H_
#define CONCERT_TESTS_E2E_BATCH_PROGRAMS_FIXTURE_H_

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "tests/support/raw_client.h"
#include "tests/support/test_daemon.h"

namespace concert::test {

using daemon::Resource;

inline constexpr std::chrono::seconds kTimeout{30};
inline constexpr uint32_t kFloats = 16;
inline constexpr uint64_t kBytes = kFloats * sizeof(float);

class BatchProgramsTest : public testing::Test {
 protected:
  explicit BatchProgramsTest(const TestDaemonOptions& options = {.gpus = 1}) : daemon_(options) {}
  // Programs that the library made are no reason to keep anything.
  void TearDown() override {
    EXPECT_TRUE(daemon_.WaitUntilEmpty());
    for (const Resource resource : {Resource::kBuffers, Resource::kBufferBytes, Resource::kMappings,
                                    Resource::kBufferHandles, Resource::kProgramOps}) {
      EXPECT_TRUE(Eventually([&] { return used(resource) == 0; })) << InfoOf(resource).name;
    }
  }

  uint64_t used(Resource resource) { return daemon_.engine().accounts().node().of(resource); }
  std::vector<kernels::ProgramSummary> ProgramsOf(const Session& session) {
    for (const daemon::SessionSummary& summary : daemon_.server().Sessions())
      if (summary.id == session.id()) return summary.programs;
    return {};
  }
  // Ops of others than the last call's that ended: runs, and all.
  struct Ended {
    int runs = 0, ops = 0;
  };
  // What is told of ops comes behind their tickets; of those that have ended, before this one's.
  Ended TakeEnded(Queue& queue, const Buffer& any) {
    constexpr uint64_t kMark = 4;
    queue.Copy({.src = any, .dst = {any, kMark}, .bytes = kMark}).Wait(kTimeout).Check();
    Ended ended;
    bool marked = false;
    EXPECT_TRUE(Eventually([&] {
      daemon_.records(0).Drain([&](const auto& record) {
        if constexpr (std::is_same_v<std::decay_t<decltype(record)>, daemon::OpRecord>) {
          const bool mark = record.kind == CONCERT_OP_COPY && record.bytes == 2 * kMark;
          marked |= mark;
          ended.ops += mark ? 0 : 1;
          ended.runs += record.kind == CONCERT_OP_PROGRAM ? 1 : 0;
        }
      });
      return marked;
    }));
    return ended;
  }
  // Does `step`, which submits batches and waits for them, until a batch was a run.
  template <typename Step>
  testing::AssertionResult BecomesARun(Queue& queue, const Buffer& any, Step step) {
    TakeEnded(queue, any);
    const bool ran = Eventually([&] {
      step();
      return TakeEnded(queue, any).runs > 0;
    });
    if (ran) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "no batch became a run";
  }

  TestDaemon daemon_;
};

// A batch of some x += y, and a copy of x.
struct Sums {
  explicit Sums(const Session& session, uint32_t sums = 5)
      : x(session.Allocate(kBytes).value()),
        y(session.Allocate(kBytes).value()),
        copy(session.Allocate(kBytes).value()),
        sums(sums) {
    Write(x, 0);
    Write(y, 1);
  }
  static void Write(const Buffer& buffer, float value) {
    const std::vector<float> values(kFloats, value);
    buffer.Write(values.data(), kBytes).Check();
  }
  static float Read(const Buffer& buffer) {
    float value = 0;
    buffer.Read(&value, sizeof(value)).Check();
    return value;
  }
  float X() const { return Read(x); }
  Ticket Add(Queue& queue, const SubmitOptions& options = {}) const {
    return queue.Elementwise(
        {.function = kAdd, .rows = 1, .columns = kFloats, .x = x, .y = y, .out = x, .dtype = kFp32},
        options);
  }
  std::vector<Ticket> Submit(const Session& session, Queue& queue,
                             const SubmitOptions& first = {}) const {
    std::vector<Ticket> tickets;
    Batch batch = session.BeginBatch().value();
    for (uint32_t i = 0; i < sums; ++i)
      tickets.push_back(Add(queue, i == 0 ? first : SubmitOptions()));
    tickets.push_back(queue.Copy({.src = x, .dst = copy, .bytes = kBytes}));
    batch.End().Check();
    return tickets;
  }
  void Run(const Session& session, Queue& queue) const {
    for (const Ticket& ticket : Submit(session, queue)) ticket.Wait(kTimeout).Check();
  }

  Buffer x, y, copy;
  uint32_t sums;
};

}  // namespace concert::test

#endif  // CONCERT_TESTS_E2E_BATCH_PROGRAMS_FIXTURE_H_
