// Random programs through libconcert and a daemon: a run gives what its ops give one by one, and
// the same bits each time, alone, beside others and in passes.
//
// CONCERT_TEST_REPETITIONS says how many programs are tried.
#include "tests/e2e/random_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/op_table.h"
#include "kernels/step/at_work.h"
#include "tests/conformance/numbers.h"
#include "tests/support/raw_client.h"
#include "tests/support/repetitions.h"
#include "tests/support/seed.h"
#include "tests/support/test_daemon.h"

namespace concert::test {
namespace {

using daemon::conformance::Bytes, daemon::conformance::Decode;

constexpr std::chrono::seconds kTimeout{60};

// What a run leaves: images of state and bindings.
struct Left {
  Bytes state, bindings;
  bool operator==(const Left&) const = default;
  const Bytes& at(Place place) const { return place == Place::kState ? state : bindings; }
};

Bytes ReadBytes(const Buffer& buffer, uint64_t bytes, uint64_t offset) {
  Bytes contents(bytes);
  if (bytes > 0) buffer.Read(contents.data(), bytes, offset).Check();
  return contents;
}

// An image in memory of a session.
class Copied {
 public:
  Copied(const Session& session, const Bytes& image, uint64_t at = 0)
      : image_(image), at_(at), buffer_(session.Allocate(image.size() + at + 1).value()) {
    Reset();
  }
  void Reset() const { buffer_.Write(image_.data(), image_.size(), at_).Check(); }
  Slice operator[](const Piece& piece) const { return {buffer_, at_ + piece.offset}; }
  Bytes Read() const { return ReadBytes(buffer_, image_.size(), at_); }

 private:
  const Bytes& image_;
  const uint64_t at_;
  Buffer buffer_;
};

// The ops of a program over buffers, one by one.
Left RunOneByOne(const Session& session, const RandomProgram& text, const Copied& weights) {
  const Copied state(session, text.image(Place::kState)), arena(session, text.image(Place::kArena)),
      bindings(session, text.image(Place::kBinding));
  const Copied* const places[kPlaces] = {&weights, &state, &arena, &bindings};
  Queue queue = session.CreateQueue().value();
  for (const RandomProgram::Submit& submit : text.ops) {
    submit(queue,
           [&](size_t piece) {
             return (*places[static_cast<size_t>(text.pieces[piece].place)])[text.pieces[piece]];
           })
        .submit_status()
        .Check();
  }
  queue.last().Wait(kTimeout).Check();
  return {state.Read(), bindings.Read()};
}

// A program with a state of its own, whose runs have their bindings at any address.
class Recorded {
 public:
  Recorded(const Session& session, const RandomProgram& text, const Copied& weights,
           uint64_t bindings_at)
      : text_(text),
        state_(session, text.image(Place::kState)),
        bindings_(session, text.image(Place::kBinding), bindings_at),
        program_(session.BeginProgram().value()) {
    std::vector<Buffer> slots(text.pieces.size());
    for (size_t i = 0; i < slots.size(); ++i) {
      const Piece& piece = text.pieces[i];
      if (piece.place == Place::kArena) slots[i] = program_.Arena(piece.bytes).value();
      if (piece.place == Place::kBinding) slots[i] = program_.Binding(piece.bytes).value();
    }
    for (const RandomProgram::Submit& submit : text.ops) {
      submit(program_.queue(),
             [&](size_t piece) {
               const Piece& range = text.pieces[piece];
               if (range.place == Place::kWeights) return weights[range];
               return range.place == Place::kState ? state_[range] : Slice(slots[piece]);
             })
          .submit_status()
          .Check();
    }
    registered_ = program_.End();
  }

  const Status& registered() const { return registered_; }
  // From the same state and bindings as each time.
  Ticket Run(Queue& queue, const SubmitOptions& options = {}) const {
    state_.Reset();
    bindings_.Reset();
    return Again(queue, options);
  }
  // From what the run before left.
  Ticket Again(Queue& queue, const SubmitOptions& options = {}) const {
    RunOp run{.program = program_, .bindings = {}};
    for (const Piece& piece : text_.pieces)
      if (piece.place == Place::kBinding) run.bindings.push_back(bindings_[piece]);
    return queue.Run(run, options);
  }
  Left Read() const { return {state_.Read(), bindings_.Read()}; }

 private:
  const RandomProgram& text_;
  const Copied state_, bindings_;
  Program program_;
  Status registered_;
};

class RandomProgramsTest : public testing::Test {
 protected:
  bool OnSim() { return daemon_.engine().node().gpu(0).info().backend == "sim"; }

  // What is computed by the same kernels has the same bits. Others, as those that a library chooses
  // by the number of rows, round each in its own way.
  void ExpectSame(const RandomProgram& text, const Left& left, const Left& wanted) {
    EXPECT_TRUE(left == wanted) << FirstDifference(text, left, wanted);
  }
  void ExpectNear(const RandomProgram& text, const Left& left, const Left& wanted) {
    for (const Piece& piece : text.pieces) {
      if (piece.place != Place::kState && piece.place != Place::kBinding) continue;
      if (piece.drawn) continue;
      const auto contents = [&](const Left& of) {
        const uint8_t* const begin = &of.at(piece.place)[piece.offset];
        return Bytes(begin, begin + piece.bytes);
      };
      EXPECT_LT(Distance(piece.dtype, contents(left), contents(wanted)), ToleranceOf(piece.dtype))
          << "piece of dtype " << piece.dtype << " at " << piece.offset;
    }
  }
  // On the simulator a program runs what its ops run by themselves.
  void ExpectAsOps(const RandomProgram& text, const Left& left, const Left& wanted) {
    OnSim() ? ExpectSame(text, left, wanted) : ExpectNear(text, left, wanted);
  }

  void Check(uint32_t seed);
  void CountFinite(const RandomProgram& text, const Left& left);
  void CheckBeside(const RandomProgram& text, const Recorded& program, const Left& wanted);
  void CheckInPass(const RandomProgram& text, const Recorded& program, const Copied& weights,
                   const Left& wanted);

  // Whoever ran before no longer counts as at work: the runs behind these have one engine, and the
  // same SMs.
  void BeAlone(const Recorded& program) {
    if (OnSim()) return;
    for (uint64_t i = 0; i < kernels::cuda::AtWork::kIdleAfter; ++i)
      program.Again(queue_).Wait(kTimeout).Check();
  }
  // A program is a graph because of an op that the step kernel does not know, not of a stage that
  // was planned wrong.
  void CheckPlans() {
    for (const auto& session : daemon_.server().Sessions()) {
      for (const kernels::ProgramSummary& program : session.programs) {
        EXPECT_THAT(program.why_no_step, testing::Not(testing::StartsWith("stage ")));
        lists_ += program.why_no_step.empty() ? 1 : 0;
      }
    }
  }
  // Plans with several runs, as far as is told by now: it comes behind tickets.
  void CountPasses() {
    daemon_.records(0).Drain([&](const auto& record) {
      if constexpr (std::is_same_v<std::decay_t<decltype(record)>, daemon::PlanRecord>)
        passes_ += record.op_count > 1 && record.ops[0].kind == CONCERT_OP_PROGRAM &&
                           record.ops[1].kind == CONCERT_OP_PROGRAM
                       ? 1
                       : 0;
    });
  }

  TestDaemon daemon_{{.gpus = 1}};
  const Session session_ = daemon_.Connect("programs"), company_ = daemon_.Connect("company");
  const Buffer numbers_ = company_.Allocate(3 * 4096).value();
  Queue queue_ = session_.CreateQueue().value(), other_ = session_.CreateQueue().value();
  Queue high_ = session_.CreateQueue({.priority = kHigh}).value();
  Queue company_queue_ = company_.CreateQueue().value();
  uint64_t ops_ = 0, pairs_ = 0, passes_ = 0, long_ = 0, lists_ = 0;
  uint64_t numbers_seen_ = 0, finite_ = 0;

 private:
  // Neighbours of e4m3 are up to an eighth apart: what differs before it is rounded to them may
  // come to lie a whole step apart, and a piece may have no more than a few numbers.
  static double ToleranceOf(Dtype dtype) { return dtype == kFp8E4m3 ? 0.125 : 0.05; }

  // Numbers by their distance, and what is no number, or index, by its bits.
  static double Distance(Dtype dtype, const Bytes& got, const Bytes& wanted) {
    if (dtype == kInt32 || dtype == kInt64) return got == wanted ? 0 : INFINITY;
    const auto type = static_cast<policies::Dtype>(dtype);
    const std::vector<double> a = Decode(type, got), b = Decode(type, wanted);
    double difference = 0, norm = 1e-6;
    for (size_t i = 0; i < a.size(); ++i) {
      if (!std::isfinite(a[i]) && !std::isfinite(b[i])) continue;
      difference += (a[i] - b[i]) * (a[i] - b[i]), norm += b[i] * b[i];
    }
    return std::sqrt(difference / norm);
  }

  static std::string FirstDifference(const RandomProgram& text, const Left& left,
                                     const Left& wanted) {
    for (const Place place : {Place::kState, Place::kBinding}) {
      for (size_t i = 0; i < wanted.at(place).size(); ++i) {
        if (left.at(place)[i] == wanted.at(place)[i]) continue;
        for (const Piece& piece : text.pieces) {
          if (piece.place != place || i < piece.offset || i >= piece.offset + piece.bytes) continue;
          return "byte " + std::to_string(i - piece.offset) + " of " + std::to_string(piece.bytes) +
                 " of a piece of dtype " + std::to_string(piece.dtype);
        }
        return "a guard";
      }
    }
    return "nothing differs";
  }
};

// Of the numbers that the ops have left.
void RandomProgramsTest::CountFinite(const RandomProgram& text, const Left& left) {
  for (const Piece& piece : text.pieces) {
    const bool seen = piece.place == Place::kState || piece.place == Place::kBinding;
    if (!seen || piece.dtype == kInt32 || piece.dtype == kInt64) continue;
    const uint8_t* const begin = &left.at(piece.place)[piece.offset];
    const Bytes bytes(begin, begin + piece.bytes);
    for (const double number : Decode(static_cast<policies::Dtype>(piece.dtype), bytes))
      ++numbers_seen_, finite_ += std::isfinite(number) ? 1 : 0;
  }
}

void RandomProgramsTest::Check(uint32_t seed) {
  const RandomProgram text = MakeRandomProgram(seed);
  SCOPED_TRACE("CONCERT_SEED=" + std::to_string(seed) + ", " + text.Describe());
  const Copied weights(session_, text.image(Place::kWeights));
  const Left wanted = RunOneByOne(session_, text, weights);
  const Recorded program(session_, text, weights, seed % 8);
  ASSERT_TRUE(program.registered().ok()) << program.registered().ToString();
  CheckPlans();
  BeAlone(program);
  program.Run(queue_).Wait(kTimeout).Check();
  const Left first = program.Read();
  ExpectAsOps(text, first, wanted);
  // What the arena had before, of the first run or of whoever had the memory, is nobody's.
  program.Run(queue_).Wait(kTimeout).Check();
  ExpectSame(text, program.Read(), first);
  CheckBeside(text, program, wanted);
  if (seed % 4 == 0) CheckInPass(text, program, weights, wanted);
  EXPECT_TRUE(weights.Read() == text.image(Place::kWeights));
  CountFinite(text, wanted);
  CountPasses();
  ops_ += text.ops.size(), long_ += text.length_max > 4096 ? 1 : 0;
}

// With another session's GEMMs, in another class, so that it has other SMs.
void RandomProgramsTest::CheckBeside(const RandomProgram& text, const Recorded& program,
                                     const Left& wanted) {
  for (int i = 0; i < 2; ++i) {
    company_queue_
        .Gemm({.m = 16,
               .n = 16,
               .k = 16,
               .a = numbers_,
               .w = {numbers_, 4096},
               .d = {numbers_, 8192}})
        .submit_status()
        .Check();
  }
  program.Run(high_).Wait(kTimeout).Check();
  ExpectAsOps(text, program.Read(), wanted);
  company_queue_.last().Wait(kTimeout).Check();
}

// With a replica that is ready at the same time.
void RandomProgramsTest::CheckInPass(const RandomProgram& text, const Recorded& program,
                                     const Copied& weights, const Left& wanted) {
  const Recorded replica(session_, text, weights, 0);
  ASSERT_TRUE(replica.registered().ok()) << replica.registered().ToString();
  Ticket one, two;
  {
    const Batch batch = session_.BeginBatch().value();
    one = program.Run(queue_), two = replica.Run(other_);
  }
  one.Wait(kTimeout).Check();
  two.Wait(kTimeout).Check();
  ++pairs_;
  ExpectNear(text, program.Read(), wanted);
  ExpectNear(text, replica.Read(), wanted);
}

// A kind that comes new is to be a step of Author.
TEST(RandomProgramTest, HasEveryKindThatMayBePartOfOne) {
  std::set<std::string> missing;
  for (const kernels::OpKind& kind : kernels::AllOpKinds()) {
    if (!kind.collective && kind.kind != CONCERT_OP_PROGRAM)
      missing.insert(concert_op_kind_name(kind.kind));
  }
  for (uint32_t i = 0; i < 2000 && !missing.empty(); ++i) {
    const RandomProgram program = MakeRandomProgram(test::Seed() + i);
    for (const char* kind : program.kinds) missing.erase(kind);
  }
  EXPECT_THAT(missing, testing::IsEmpty());
}

TEST_F(RandomProgramsTest, RunsGiveWhatTheirOpsGiveAndTheSameEachTime) {
  const uint32_t seed = test::Seed(), programs = test::Repetitions(60);
  for (uint32_t i = 0; i < programs; ++i) {
    Check(seed + i);
    if (HasFailure()) return;
  }
  EXPECT_TRUE(pairs_ < 10 || Eventually([&] {
                CountPasses();
                return passes_ > 0;
              }));
  std::printf(
      "%u programs of %.1f ops, %lu of them for the step kernel, too; %lu with contexts of more "
      "than 4096 tokens; %lu pairs of replicas, %lu in a pass; %.1f %% of the numbers were "
      "finite\n",
      programs, static_cast<double>(ops_) / programs, lists_, long_, pairs_, passes_,
      100 * static_cast<double>(finite_) / static_cast<double>(numbers_seen_));
  // Most say something of what was computed.
  EXPECT_GT(finite_, numbers_seen_ * 9 / 10);
}

}  // namespace
}  // namespace concert::test
