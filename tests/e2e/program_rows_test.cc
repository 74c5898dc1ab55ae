// Runs with fewer rows than their program was recorded with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/support/raw_client.h"
#include "tests/support/seed.h"
#include "tests/support/small_model.h"
#include "tests/support/test_daemon.h"

namespace concert::test {
namespace {

using testing::HasSubstr;

constexpr std::chrono::seconds kTimeout{30};

Program RecordStep(const Session& session, const Model& model) {
  Program program = session.BeginProgram().value();
  SubmitStep(program.queue(), model, MakeSlots(program));
  return program;
}

std::vector<uint16_t> StateOf(const Model& model) {
  std::vector<uint16_t> state(kRows * kHidden);
  model.state.Read(state.data(), state.size() * kElement).Check();
  return state;
}

// Each row's token and state hang on what is in that row only.
TEST(ProgramRowsTest, RowsOfARunAreThoseOfAWholeOneAndOthersAreLeftAlone) {
  TestDaemon daemon({.gpus = 1});
  const Session session = daemon.Connect();
  const uint32_t seed = test::Seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Queue queue = session.CreateQueue().value();
  std::vector<int32_t> ids(kRows);
  std::iota(ids.begin(), ids.end(), 7);
  const Buffer in = session.Allocate(kRows * 4).value(), out = session.Allocate(kRows * 4).value();
  in.Write(ids.data(), kRows * 4).Check();
  const Model whole = MakeModel(session, seed);
  const std::vector<uint16_t> before = StateOf(whole);
  queue.Run({.program = MakeStep(session, whole), .bindings = {in, out}}).Wait(kTimeout).Check();
  const std::vector<int32_t> tokens = Tokens(out);
  const std::vector<uint16_t> state = StateOf(whole);
  for (uint32_t rows = 0; rows <= kRows; ++rows) {
    SCOPED_TRACE(testing::Message() << rows << " rows");
    const uint32_t computed = rows == 0 || rows == 3 ? kRows : rows;  // there is none for 3
    const Model model = MakeModel(session, seed);
    Program program = RecordStep(session, model);
    program.Rows({1, 2, kRows}).Check();
    program.End().Check();
    const std::vector<int32_t> poison(kRows, -5);
    out.Write(poison.data(), kRows * 4).Check();
    queue.Run({.program = program, .bindings = {in, out}, .rows = rows}).Wait(kTimeout).Check();
    std::vector<int32_t> wanted = tokens;
    std::fill(wanted.begin() + computed, wanted.end(), -5);
    EXPECT_EQ(Tokens(out), wanted);
    std::vector<uint16_t> wanted_state = state;
    std::copy(before.begin() + computed * kHidden, before.end(),
              wanted_state.begin() + computed * kHidden);
    EXPECT_EQ(StateOf(model), wanted_state);
  }
}

TEST(ProgramRowsTest, OpsWithOtherNumbersOfRowsAreTheSameInAll) {
  TestDaemon daemon({.gpus = 1});
  const Session session = daemon.Connect();
  Program program = session.BeginProgram().value();
  const Buffer x = program.Binding(4 * 16).value(), one = program.Binding(3 * 16).value();
  for (const auto& [buffer, rows] : {std::pair(&x, 4u), std::pair(&one, 3u)}) {
    program.queue()
        .Elementwise({.function = kAdd,
                      .rows = rows,
                      .columns = 4,
                      .x = *buffer,
                      .y = *buffer,
                      .out = *buffer,
                      .dtype = kFp32})
        .submit_status()
        .Check();
  }
  program.Rows({2, 4}).Check();
  program.End().Check();
  const Buffer rows = session.Allocate(4 * 16).value(), other = session.Allocate(3 * 16).value();
  std::vector<float> values(16, 1.f);
  rows.Write(values.data(), 64).Check();
  other.Write(values.data(), 48).Check();
  Queue queue = session.CreateQueue().value();
  queue.Run({.program = program, .bindings = {rows, other}, .rows = 1}).Wait(kTimeout).Check();
  rows.Read(values.data(), 64).Check();
  EXPECT_EQ(std::count(values.begin(), values.end(), 2.f), 2 * 4);
  other.Read(values.data(), 48).Check();
  EXPECT_EQ(std::count(values.begin(), values.begin() + 12, 2.f), 3 * 4);
}

TEST(ProgramRowsTest, SaysWhatIsWrongWithRows) {
  TestDaemon daemon({.gpus = 1});
  const Session session = daemon.Connect();
  const Model model = MakeModel(session, 1);
  Queue queue = session.CreateQueue().value();
  const Buffer in = session.Allocate(kRows * 4).value(), out = session.Allocate(kRows * 4).value();
  const auto run = [&](const Program& program, uint32_t rows) {
    return queue.Run({.program = program, .bindings = {in, out}, .rows = rows}).Wait(kTimeout);
  };
  Program fixed = RecordStep(session, model);
  fixed.End().Check();
  EXPECT_THAT(run(fixed, 1).message(), HasSubstr("rows is 1, but the program runs with all of its "
                                                 "rows only; call concert_program_rows"));
  EXPECT_THAT(fixed.Rows({1, kRows}).message(), HasSubstr("the program is registered"));
  Program program = RecordStep(session, model);
  EXPECT_EQ(program.Rows({0, kRows}).message(),
            "rows[0] is 0; it must be 1 at least: numbers ascend");
  EXPECT_EQ(program.Rows({1, 2, 2}).message(),
            "rows[2] is 2; it must be 3 at least: numbers ascend");
  EXPECT_EQ(program.Rows({1, 2, 3, 4, 5, 6, 7, 8, 9}).message(), "count is 9; it must be 1 to 8");
  program.Rows({1, kRows + 1}).Check();
  EXPECT_EQ(program.End().message(), "the program is to have up to 5 rows, but no op has so many");
  program.Rows({1, kRows}).Check();
  program.End().Check();
  EXPECT_EQ(run(program, kRows + 1).message(), "rows is 5; the program has at most 4");
  EXPECT_TRUE(run(program, 1).ok());
}

// x + x through the arena, of which `copied` bytes are copied on. Not yet registered.
Program RecordCopy(const Session& session, const Buffer& x, const Buffer& to, uint64_t copied) {
  Program program = session.BeginProgram().value();
  const Buffer slot = program.Arena(64).value();
  program.queue()
      .Elementwise({.rows = 4, .columns = 4, .x = x, .y = x, .out = slot, .dtype = kFp32})
      .submit_status()
      .Check();
  program.queue().Copy({.src = slot, .dst = to, .bytes = copied}).submit_status().Check();
  return program;
}

// A copy has bytes, not rows.
TEST(ProgramRowsTest, ACopyOfWhatFewerRowsDoNotWriteIsRefused) {
  TestDaemon daemon({.gpus = 1});
  const Session session = daemon.Connect();
  const Buffer x = session.Allocate(64).value(), to = session.Allocate(64).value();
  const Program whole = RecordCopy(session, x, to, 64), half = RecordCopy(session, x, to, 32);
  whole.Rows({2, 4}).Check();
  EXPECT_EQ(whole.End().message(),
            "for 2 rows: op 1, copy: src reads 64 bytes at offset 0 of arena slot 0, of which no "
            "op before it has written all");
  half.Rows({2, 4}).Check();
  EXPECT_TRUE(half.End().ok());
}

TEST(ProgramRowsTest, NothingStaysOfAProgramThatIsNotRegisteredForAllItsRows) {
  TestDaemonOptions options{.gpus = 1};
  options.limits[daemon::Resource::kProgramOps].per_user = 6;
  TestDaemon daemon(options);
  const Session session = daemon.Connect();
  const Buffer x = session.Allocate(64).value(), to = session.Allocate(64).value();
  const Program program = RecordCopy(session, x, to, 16);
  program.Rows({1, 2, 3, 4}).Check();
  EXPECT_THAT(program.End().message(),
              testing::AllOf(HasSubstr("for 4 rows: "), HasSubstr("of its 6 program_ops")));
  program.Rows({1, 2, 4}).Check();
  // The daemon lets go of the three that it had when its dispatchers have.
  EXPECT_TRUE(Eventually([&] { return program.End().ok(); })) << "all 6 ops that the user may have";
}

}  // namespace
}  // namespace concert::test
