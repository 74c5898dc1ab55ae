// Which batches are recognised, and for how long.
#include "client/src/remote/repeated_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace concert::client {
namespace {

using testing::ElementsAre;
using Ops = std::vector<concert_descriptor>;

concert_descriptor Copy(uint32_t from, uint32_t to, uint32_t queue) {
  concert_descriptor op{};
  op.queue = queue;
  op.kind = CONCERT_OP_COPY;
  op.body.copy.src.buffer = from;
  op.body.copy.dst.buffer = to;
  op.body.copy.bytes = 8;
  return op;
}

// Copies from buffers first, first + 1 and so on to the next.
Ops Chain(uint32_t first, uint32_t queue = 0, uint32_t count = 5) {
  Ops ops;
  for (uint32_t i = 0; i < count; ++i) ops.push_back(Copy(first + i, first + i + 1, queue));
  return ops;
}

class RepeatedBatchesTest : public testing::Test {
 protected:
  struct Came {
    uint32_t program = 0;  // it is a run of this
    std::optional<BatchToRegister> wanted;
    uint32_t released = 0;
  };

  // A batch as a ring has it, somewhere among its slots and with tickets of its own.
  Came Submit(const Ops& ops) {
    Ops ring(64);
    const uint64_t begin = position_;
    for (const concert_descriptor& op : ops) {
      concert_descriptor& slot = ring[position_ % ring.size()];
      slot = op;
      slot.sequence = ++position_;
      slot.ticket = ++ticket_;
    }
    const BatchView view{.slots = ring.data(),
                         .mask = ring.size() - 1,
                         .begin = begin,
                         .count = static_cast<uint32_t>(ops.size())};
    Came came;
    came.program = batches_.Find(view).handle;
    if (came.program == 0) came.wanted = batches_.Learn(view, &came.released);
    return came;
  }

  // Until it is asked for, and with that answer.
  Came Register(const Ops& ops, uint32_t program) {
    for (uint32_t i = 1; i < RepeatedBatches::kTimes; ++i) EXPECT_FALSE(Submit(ops).wanted) << i;
    Came came = Submit(ops);
    if (came.wanted) {
      EXPECT_TRUE(batches_.Registered(came.wanted->batch, {.handle = program}));
    }
    return came;
  }

  RepeatedBatches batches_;
  uint64_t position_ = 50, ticket_ = 1000;  // it soon goes round
};

TEST_F(RepeatedBatchesTest, OneThatComesAgainIsAskedForOnceAndFoundFromThenOn) {
  const Ops ops = Chain(1);
  const Came came = Register(ops, 77);
  ASSERT_TRUE(came.wanted);
  ASSERT_EQ(came.wanted->ops.size(), ops.size());
  for (size_t i = 0; i < ops.size(); ++i) {
    const concert_descriptor& op = came.wanted->ops[i];
    EXPECT_EQ(op.kind, CONCERT_OP_COPY);
    EXPECT_EQ(op.body.copy.src.buffer, 1 + i);
    EXPECT_EQ(op.sequence | op.ticket | op.queue, 0u) << "what differs each time is not part of it";
  }
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Submit(ops).program, 77u);
}

TEST_F(RepeatedBatchesTest, UntilTheAnswerComesItIsNotAskedForAgain) {
  const Ops ops = Chain(1);
  uint64_t batch = 0;
  for (uint32_t i = 0; i < 20; ++i) {
    const Came came = Submit(ops);
    EXPECT_EQ(came.program, 0u);
    EXPECT_EQ(came.wanted.has_value(), i + 1 == RepeatedBatches::kTimes) << i;
    if (came.wanted) batch = came.wanted->batch;
  }
  EXPECT_TRUE(batches_.Wants(batch));
  EXPECT_TRUE(batches_.Registered(batch, {.handle = 5, .better_as_ops = CONCERT_COMPANY}));
  EXPECT_FALSE(batches_.Wants(batch));
  EXPECT_FALSE(batches_.Registered(batch, {.handle = 6})) << "it has its answer";
  EXPECT_EQ(Submit(ops).program, 5u);
}

TEST_F(RepeatedBatchesTest, WhatIsPostponedIsAskedForWhenItComesAgain) {
  const Ops ops = Chain(1);
  for (uint32_t i = 1; i < RepeatedBatches::kTimes; ++i) Submit(ops);
  const Came came = Submit(ops);
  batches_.Postponed(came.wanted.value().batch);
  EXPECT_TRUE(Submit(ops).wanted);
}

TEST_F(RepeatedBatchesTest, ARefusedOneStaysSingleOps) {
  const Ops ops = Chain(1);
  Register(ops, 0);
  for (int i = 0; i < 100; ++i) {
    const Came came = Submit(ops);
    EXPECT_EQ(came.program, 0u);
    EXPECT_FALSE(came.wanted);
  }
}

TEST_F(RepeatedBatchesTest, AnyByteMakesItAnotherBatch) {
  const Ops ops = Chain(1);
  Register(ops, 77);
  for (size_t byte = 0; byte < sizeof(ops[0].body); byte += 7) {
    Ops other = ops;
    other[byte % other.size()].body.raw[byte] ^= 1;
    EXPECT_EQ(Submit(other).program, 0u) << byte;
    EXPECT_EQ(Submit(ops).program, 77u);
  }
  Ops other = ops;
  other.back().kind = CONCERT_OP_GEMM;
  EXPECT_EQ(Submit(other).program, 0u);
  other = ops;
  other.pop_back();
  EXPECT_EQ(Submit(other).program, 0u);
  other = ops;
  other.push_back(ops.back());
  EXPECT_EQ(Submit(other).program, 0u);
  EXPECT_EQ(Submit(Chain(1, /*queue=*/1)).program, 0u) << "runs of one program must be in order";
}

TEST_F(RepeatedBatchesTest, OnlyTheFirstOpMayWait) {
  Ops ops = Chain(1);
  ops[0].wait_count = 1;
  for (uint64_t step = 1; step < RepeatedBatches::kTimes; ++step) {
    ops[0].waits[0] = {.timeline = 9, .value = step};
    EXPECT_FALSE(Submit(ops).wanted);
  }
  EXPECT_TRUE(Submit(ops).wanted) << "what it waits for is not part of it";
}

TEST_F(RepeatedBatchesTest, WhatNoProgramCanBeIsNeverAskedFor) {
  const std::pair<const char*, std::function<void(Ops&)>> kEdits[] = {
      {"a wait within", [](Ops& ops) { ops[2].wait_count = 1; }},
      {"a deadline", [](Ops& ops) { ops[0].deadline_ns = 1; }},
      {"another queue", [](Ops& ops) { ops[3].queue = 1; }},
      {"flags", [](Ops& ops) { ops[1].flags = 1; }},
      {"a collective", [](Ops& ops) { ops[4].kind = CONCERT_OP_ALL_REDUCE; }},
      {"a barrier", [](Ops& ops) { ops[0].kind = CONCERT_OP_BARRIER; }},
      {"a run", [](Ops& ops) { ops[0].kind = CONCERT_OP_PROGRAM; }},
      {"few ops", [](Ops& ops) { ops.resize(RepeatedBatches::kMinOps - 1); }},
      {"no op", [](Ops& ops) { ops.clear(); }},
  };
  for (const auto& [what, edit] : kEdits) {
    Ops ops = Chain(1);
    edit(ops);
    for (int i = 0; i < 20; ++i) EXPECT_FALSE(Submit(ops).wanted) << what;
  }
}

TEST_F(RepeatedBatchesTest, BatchesTakeTurns) {
  Register(Chain(1), 11);
  Register(Chain(2), 12);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(Submit(Chain(1)).program, 11u);
    EXPECT_EQ(Submit(Chain(2)).program, 12u);
  }
}

TEST_F(RepeatedBatchesTest, OneProgramTooManyWaitsUntilAnotherIsIdle) {
  constexpr uint32_t kAll = RepeatedBatches::kPrograms;
  for (uint32_t i = 0; i < kAll; ++i) Register(Chain(10 * i + 1), i + 1);
  // All of them are at work, so that none would stay for long.
  for (uint64_t turn = 0; turn < 2 * RepeatedBatches::kIdleAfter; ++turn) {
    EXPECT_FALSE(Submit(Chain(91)).wanted);
    for (uint32_t i = 0; i < kAll; ++i) EXPECT_EQ(Submit(Chain(10 * i + 1)).program, i + 1);
  }
  // Now only the first is.
  Came came;
  for (uint64_t turn = 0; turn <= RepeatedBatches::kIdleAfter && !came.wanted; ++turn) {
    EXPECT_EQ(Submit(Chain(1)).program, 1u);
    came = Submit(Chain(91));
  }
  ASSERT_TRUE(came.wanted);
  EXPECT_EQ(came.released, 2u) << "the one that is idle for longest";
  EXPECT_EQ(Submit(Chain(11)).program, 0u);
}

TEST_F(RepeatedBatchesTest, BatchesThatComeOnceDoNotPushProgramsOut) {
  Register(Chain(1), 77);
  for (uint32_t i = 0; i < 1000; ++i) {
    EXPECT_FALSE(Submit(Chain(100 + i)).wanted);
    if (i % 50 == 0) {
      EXPECT_EQ(Submit(Chain(1)).program, 77u);
    }
  }
  // The oldest of the others are forgotten, the newest are not.
  EXPECT_EQ(Submit(Chain(1)).program, 77u);
  for (uint32_t i = 0; i < RepeatedBatches::kBatches; ++i) Submit(Chain(2000 + i));
  for (uint32_t i = 2; i < RepeatedBatches::kTimes; ++i) EXPECT_FALSE(Submit(Chain(2007)).wanted);
  EXPECT_TRUE(Submit(Chain(2007)).wanted);
  for (uint32_t i = 2; i < RepeatedBatches::kTimes; ++i) Submit(Chain(2000));
  EXPECT_FALSE(Submit(Chain(2000)).wanted);
}

TEST_F(RepeatedBatchesTest, WhereNothingEverRepeatsFewBatchesAreLookedAt) {
  for (uint32_t i = 0; i < 1000; ++i) Submit(Chain(100 + i));
  // Two take turns now, which takes longer to see.
  std::vector<uint32_t> asked_at;
  for (uint32_t i = 0; i < 200 && asked_at.size() < 2; ++i) {
    if (Submit(Chain(1 + i % 2)).wanted) asked_at.push_back(i);
  }
  ASSERT_EQ(asked_at.size(), 2u);
  EXPECT_GT(asked_at[0], RepeatedBatches::kEvery);
}

TEST_F(RepeatedBatchesTest, ABatchThatNamesAFreedBufferIsForgotten) {
  Register(Chain(1), 11);    // buffers 1 to 6
  Register(Chain(101), 12);  // 101 to 106
  EXPECT_THAT(batches_.ForgetBuffer(6).span(), ElementsAre(11));
  EXPECT_EQ(Submit(Chain(1)).program, 0u) << "it is counted anew";
  EXPECT_EQ(Submit(Chain(101)).program, 12u);
  EXPECT_EQ(batches_.ForgetBuffer(107).count, 0u);
}

TEST_F(RepeatedBatchesTest, WhatWasForgottenMeanwhileIsNotTheBatchsProgram) {
  for (uint32_t i = 1; i < RepeatedBatches::kTimes; ++i) Submit(Chain(1));
  const uint64_t batch = Submit(Chain(1)).wanted.value().batch;
  EXPECT_EQ(batches_.ForgetBuffer(3).count, 0u);
  EXPECT_FALSE(batches_.Wants(batch));
  EXPECT_FALSE(batches_.Registered(batch, {.handle = 11}));
  EXPECT_EQ(Submit(Chain(1)).program, 0u);
}

TEST_F(RepeatedBatchesTest, QueuesAreForgottenByThemselvesOrAllAtOnce) {
  Register(Chain(1, 0), 11);
  Register(Chain(1, 1), 12);
  EXPECT_THAT(batches_.ForgetQueue(0).span(), ElementsAre(11));
  EXPECT_EQ(Submit(Chain(1, 1)).program, 12u);
  EXPECT_THAT(batches_.ForgetAll().span(), ElementsAre(12));
  EXPECT_EQ(Submit(Chain(1, 1)).program, 0u);
}

}  // namespace
}  // namespace concert::client
