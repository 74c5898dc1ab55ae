// Handles of another session of this process. Both sessions number them alike, so that a daemon
// could not tell them apart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/client/submit_fixture.h"

namespace concert {
namespace {

using testing::HasSubstr;

class ForeignHandleTest : public SubmitTest {
 protected:
  struct Case {
    const char* operand;
    Ticket ticket;
  };

  void ExpectRefused(const std::vector<Case>& cases) {
    for (const Case& one : cases) {
      const Status status = one.ticket.submit_status();
      EXPECT_EQ(status.code(), CONCERT_INVALID_ARGUMENT) << one.operand;
      EXPECT_EQ(status.message(), std::string(one.operand) +
                                      " is a buffer of session 8, but the queue is of session 7; "
                                      "use a buffer of the queue's session");
    }
    EXPECT_EQ(daemon_.tail(), 0u);
  }

  test::FakeDaemon other_daemon_{{.session = 8}};
  Session other_ =
      Session::Connect({.socket_path = other_daemon_.path(), .fallback = Fallback::kNone}).value();
  Buffer x = other_.Allocate(4096).value();  // buffer 1, as x_ is
};

TEST_F(ForeignHandleTest, NoOperandOfAGemmOrACopyIsTaken) {
  Queue& q = queue_;
  ExpectRefused({{"a", q.Gemm({.a = x})},
                 {"w", q.Gemm({.w = x})},
                 {"c", q.Gemm({.c = x})},
                 {"d", q.Gemm({.d = x})},
                 {"bias", q.Gemm({.bias = x})},
                 {"a_scales", q.Gemm({.a_scales = x})},
                 {"w_scales", q.Gemm({.w_scales = x})},
                 {"src", q.Copy({.src = x, .dst = y_})},
                 {"dst", q.Copy({.src = x_, .dst = x})}});
}

TEST_F(ForeignHandleTest, NoOperandOfARowOpIsTaken) {
  Queue& q = queue_;
  ExpectRefused({{"x", q.RmsNorm({.x = x})},
                 {"weight", q.RmsNorm({.weight = x})},
                 {"out", q.RmsNorm({.out = x})},
                 {"residual", q.RmsNorm({.residual = x})},
                 {"x", q.LayerNorm({.x = x})},
                 {"weight", q.LayerNorm({.weight = x})},
                 {"out", q.LayerNorm({.out = x})},
                 {"bias", q.LayerNorm({.bias = x})},
                 {"residual", q.LayerNorm({.residual = x})},
                 {"x", q.GatedActivation({.x = x})},
                 {"out", q.GatedActivation({.out = x})},
                 {"x", q.Elementwise({.x = x})},
                 {"y", q.Elementwise({.y = x})},
                 {"out", q.Elementwise({.out = x})},
                 {"x", q.Quantize({.x = x})},
                 {"out", q.Quantize({.out = x})},
                 {"scales", q.Quantize({.scales = x})}});
}

TEST_F(ForeignHandleTest, NoOperandOfAnOpOfAModelIsTaken) {
  Queue& q = queue_;
  ExpectRefused({{"ids", q.Embedding({.ids = x})},
                 {"table", q.Embedding({.table = x})},
                 {"out", q.Embedding({.out = x})},
                 {"x", q.Argmax({.x = x})},
                 {"indices", q.Argmax({.indices = x})},
                 {"counters", q.Advance({.counters = x})},
                 {"slots", q.Advance({.slots = x})},
                 {"x", q.Sample({.x = x})},
                 {"indices", q.Sample({.indices = x})},
                 {"steps", q.Sample({.steps = x})},
                 {"temperatures", q.Sample({.temperatures = x})},
                 {"top_ks", q.Sample({.top_ks = x})},
                 {"top_ps", q.Sample({.top_ps = x})},
                 {"seeds", q.Sample({.seeds = x})},
                 {"q", q.RopeAppend({.q = x})},
                 {"k", q.RopeAppend({.k = x})},
                 {"v", q.RopeAppend({.v = x})},
                 {"positions", q.RopeAppend({.positions = x})},
                 {"slots", q.RopeAppend({.slots = x})},
                 {"cos_sin", q.RopeAppend({.cos_sin = x})},
                 {"k_cache", q.RopeAppend({.cache = {.k = x}})},
                 {"v_cache", q.RopeAppend({.cache = {.v = x}})}});
}

TEST_F(ForeignHandleTest, NoOperandOfAttentionIsTaken) {
  Queue& q = queue_;
  ExpectRefused({{"q", q.AttentionDecode({.q = x})},
                 {"lengths", q.AttentionDecode({.lengths = x})},
                 {"out", q.AttentionDecode({.out = x})},
                 {"page_table", q.AttentionDecode({.page_table = x})},
                 {"k_cache", q.AttentionDecode({.cache = {.k = x}})},
                 {"v_cache", q.AttentionDecode({.cache = {.v = x}})},
                 {"q", q.AttentionPrefill({.q = x})},
                 {"query_starts", q.AttentionPrefill({.query_starts = x})},
                 {"lengths", q.AttentionPrefill({.lengths = x})},
                 {"out", q.AttentionPrefill({.out = x})},
                 {"page_table", q.AttentionPrefill({.page_table = x})},
                 {"k_cache", q.AttentionPrefill({.cache = {.k = x}})},
                 {"v_cache", q.AttentionPrefill({.cache = {.v = x}})}});
}

TEST_F(ForeignHandleTest, NoOperandOfACollectiveIsTakenAndNoCommunicator) {
  const Communicator own = session_.Join({.name = "tp", .ranks = 1}).value();
  const Communicator foreign = other_.Join({.name = "tp", .ranks = 1}).value();
  ExpectRefused({{"src", queue_.AllGather(own, {.src = x, .dst = y_})},
                 {"dst", queue_.AllGather(own, {.src = x_, .dst = x})}});
  const Status status = queue_.Barrier(foreign).submit_status();
  EXPECT_EQ(status.code(), CONCERT_INVALID_ARGUMENT);
  EXPECT_EQ(
      status.message(),
      "the communicator was joined by session 8, but the queue is of session 7; join with the "
      "queue's session");
  EXPECT_EQ(daemon_.tail(), 0u);
}

TEST_F(ForeignHandleTest, NeitherABatchNorAProgramNorARunTakesOne) {
  {
    const Batch batch = session_.BeginBatch().value();
    ExpectRefused({{"dst", queue_.Copy({.src = x_, .dst = x})}});
  }
  Program program = session_.BeginProgram().value();
  const Buffer slot = program.Binding(64).value();
  ExpectRefused({{"src", program.queue().Copy({.src = x, .dst = slot, .bytes = 64})}});
  program.queue().Copy({.src = x_, .dst = slot, .bytes = 64}).submit_status().Check();
  program.End().Check();
  ExpectRefused({{"bindings[0]", queue_.Run({.program = program, .bindings = {x}})}});
  queue_.Run({.program = program, .bindings = {y_}}).submit_status().Check();
  EXPECT_EQ(daemon_.tail(), 1u);
}

// Slots are numbered within their program.
TEST_F(ForeignHandleTest, ASlotIsForOpsOfItsOwnProgram) {
  Program one = session_.BeginProgram().value(), two = session_.BeginProgram().value();
  const Buffer slot = one.Arena(64).value(), same_number = two.Arena(64).value();
  one.queue().Copy({.src = x_, .dst = slot, .bytes = 64}).submit_status().Check();
  for (Queue* queue : {&two.queue(), &queue_}) {
    const Status status = queue->Copy({.src = x_, .dst = slot, .bytes = 64}).submit_status();
    EXPECT_EQ(status.code(), CONCERT_INVALID_ARGUMENT);
    EXPECT_THAT(status.message(), HasSubstr("dst is a slot of a program"));
  }
  two.queue().Copy({.src = x_, .dst = same_number, .bytes = 64}).submit_status().Check();
}

}  // namespace
}  // namespace concert
