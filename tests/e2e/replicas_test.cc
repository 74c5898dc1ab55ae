// Programs over the same weights through libconcert and a daemon: their runs go together, and each
// gives what it gives alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <type_traits>
#include <vector>

#include "tests/support/raw_client.h"
#include "tests/support/seed.h"
#include "tests/support/small_model.h"
#include "tests/support/test_daemon.h"

namespace concert::test {
namespace {

constexpr std::chrono::seconds kTimeout{30};
constexpr uint64_t kTokensStride = 256;  // between the tokens of one step and the next

std::vector<uint16_t> Contents(const Buffer& buffer) {
  std::vector<uint16_t> contents(buffer.bytes() / kElement);
  buffer.Read(contents.data(), buffer.bytes()).Check();
  return contents;
}

// A client's sequences: their state, the tokens of each step, and what a run for a step needs.
class Sequences {
 public:
  Sequences(const Session& session, uint32_t seed, uint64_t steps)
      : queue_(session.CreateQueue().value()),
        tokens_(session.Allocate(kTokensStride * (steps + 1)).value()) {
    std::mt19937 random(seed);
    state_ = RandomBf16(session, kRows * kHidden, random);
    std::vector<int32_t> ids(kRows);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % kVocabulary);
    tokens_.Write(ids.data(), kRows * 4).Check();
  }

  const Buffer& state() const { return state_; }
  void Submit(const Program& program, const SubmitOptions& options = {}) {
    const uint64_t at = kTokensStride * step_++;
    queue_
        .Run({.program = program, .bindings = {{tokens_, at}, {tokens_, at + kTokensStride}}},
             options)
        .submit_status()
        .Check();
  }
  void Wait() { queue_.last().Wait(kTimeout).Check(); }
  bool done() const { return step_ == tokens_.bytes() / kTokensStride - 1; }

  void ExpectSame(const Sequences& other) const {
    EXPECT_EQ(Contents(state_), Contents(other.state_));
    for (uint64_t step = 0; step <= step_; ++step) {
      std::vector<int32_t> its(kRows), others(kRows);
      tokens_.Read(its.data(), kRows * 4, kTokensStride * step).Check();
      other.tokens_.Read(others.data(), kRows * 4, kTokensStride * step).Check();
      ASSERT_EQ(its, others) << "step " << step;
    }
  }

 private:
  Queue queue_;
  Buffer tokens_, state_;
  uint64_t step_ = 0;
};

// Opens for all sessions at once: runs behind it are ready together, however slowly this thread
// gets to submit them beside others on its CPU.
class Gate {
 public:
  explicit Gate(const Session& session)
      : word_(session.CreateUserTimeline().value()),
        queue_(session.CreateQueue().value()),
        memory_(session.Allocate(128).value()),
        op_(queue_.Copy({.src = memory_, .dst = {memory_, 64}, .bytes = 64},
                        {.waits = {word_.At(1)}})) {
    op_.submit_status().Check();
  }

  SubmitOptions Behind(const Session& session) const {
    return {.waits = {session.TicketOf(op_.get())}};
  }
  void Open() { word_.Signal(1).Check(); }

 private:
  UserTimeline word_;
  Queue queue_;
  Buffer memory_;
  Ticket op_;
};

// Launches of several ops, of which there are none but passes here, among those of the next so many
// ops. Plans are told of a moment after clients see that their ops have ended.
uint32_t Passes(TestDaemon& daemon, size_t ops) {
  uint32_t passes = 0;
  size_t told = 0;
  EXPECT_TRUE(Eventually([&] {
    daemon.records(0).Drain([&](const auto& record) {
      if constexpr (std::is_same_v<std::decay_t<decltype(record)>, daemon::PlanRecord>) {
        passes += record.op_count > record.launch_count ? 1 : 0;
        told += record.op_count;
      }
    });
    return told >= ops;
  })) << "of "
      << told << " ops of " << ops;
  return passes;
}

// Of each program, of all sessions, with how many it goes together, in ascending order.
std::vector<uint32_t> ReplicaCounts(TestDaemon& daemon) {
  std::vector<uint32_t> counts;
  for (const auto& session : daemon.server().Sessions()) {
    for (const kernels::ProgramSummary& program : session.programs)
      counts.push_back(program.replicas);
  }
  std::sort(counts.begin(), counts.end());
  return counts;
}

// Whether there are so many programs and all of them replicas: those that were given back go when
// the daemon comes to it, and until then they are replicas of the others, too.
bool AreReplicas(TestDaemon& daemon, uint32_t programs) {
  return ReplicaCounts(daemon) == std::vector<uint32_t>(programs, programs);
}

TEST(ReplicasTest, RunsGoTogetherAndGiveWhatTheyGiveAlone) {
  constexpr uint32_t kReplicas = 5, kSteps = 40;
  TestDaemon daemon({.gpus = 1});
  const Session session = daemon.Connect("replicas");
  SCOPED_TRACE(testing::Message() << "seed " << test::Seed());
  const Model model = MakeModel(session, test::Seed());
  std::vector<std::unique_ptr<Sequences>> alone, together;
  for (uint32_t i = 0; i < kReplicas; ++i) {
    alone.push_back(std::make_unique<Sequences>(session, test::Seed() + i, kSteps));
    together.push_back(std::make_unique<Sequences>(session, test::Seed() + i, kSteps));
  }
  for (const auto& sequences : alone) {
    const Program program = MakeStep(session, model, sequences->state());
    while (!sequences->done()) sequences->Submit(program);
    sequences->Wait();
  }
  EXPECT_EQ(Passes(daemon, kReplicas * kSteps), 0);
  std::vector<Program> programs;
  for (const auto& sequences : together)
    programs.push_back(MakeStep(session, model, sequences->state()));
  EXPECT_TRUE(Eventually([&] { return AreReplicas(daemon, kReplicas); }));
  Gate gate(session);
  for (uint32_t i = 0; i < kReplicas; ++i) {
    together[i]->Submit(programs[i], gate.Behind(session));
    while (!together[i]->done()) together[i]->Submit(programs[i]);
  }
  gate.Open();
  for (const auto& sequences : together) sequences->Wait();
  for (uint32_t i = 0; i < kReplicas; ++i) together[i]->ExpectSame(*alone[i]);
  EXPECT_GT(Passes(daemon, 1 + kReplicas * kSteps), kSteps / 2);
  programs.resize(1);
  EXPECT_TRUE(Eventually([&] { return AreReplicas(daemon, 1); }));
}

// Weights of sessions are the same memory once they are sealed; what is not sealed, as a table that
// each has for itself, does not keep programs apart.
TEST(ReplicasTest, SessionsThatSealTheirWeightsHaveReplicas) {
  constexpr uint32_t kReplicas = 3, kSteps = 20;
  TestDaemon daemon({.gpus = 1});
  SCOPED_TRACE(testing::Message() << "seed " << test::Seed());
  std::vector<Session> sessions;
  std::vector<Model> models;
  std::vector<std::unique_ptr<Sequences>> alone, together;
  std::vector<Program> programs;
  for (uint32_t i = 0; i < kReplicas; ++i) {
    sessions.push_back(daemon.Connect("replica"));
    alone.push_back(std::make_unique<Sequences>(sessions[i], test::Seed() + i, kSteps));
    together.push_back(std::make_unique<Sequences>(sessions[i], test::Seed() + i, kSteps));
    models.push_back(MakeModel(sessions[i], test::Seed()));
    for (Buffer* weights : {&models[i].table, &models[i].up, &models[i].down})
      weights->Seal().Check();  // not the norm's
    const Program program = MakeStep(sessions[i], models[i], alone[i]->state());
    while (!alone[i]->done()) alone[i]->Submit(program);
    alone[i]->Wait();
    programs.push_back(MakeStep(sessions[i], models[i], together[i]->state()));
  }
  Passes(daemon, kReplicas * kSteps);
  EXPECT_TRUE(Eventually([&] { return AreReplicas(daemon, kReplicas); }));
  Gate gate(sessions[0]);
  for (uint32_t i = 0; i < kReplicas; ++i) {
    together[i]->Submit(programs[i], gate.Behind(sessions[i]));
    while (!together[i]->done()) together[i]->Submit(programs[i]);
  }
  gate.Open();
  for (uint32_t i = 0; i < kReplicas; ++i) {
    together[i]->Wait();
    together[i]->ExpectSame(*alone[i]);
  }
  EXPECT_GT(Passes(daemon, 1 + kReplicas * kSteps), kSteps / 2);
}

// A head whose rows come from the client's own memory and whose logits it keeps there.
class Head {
 public:
  // 34 MiB of weights: worth doing once for all; and a K that is no multiple of 64, so that no step
  // kernel does it.
  static constexpr uint32_t kIn = 1032, kLogits = 17 * 1024 + 4;

  Head(const Session& session, const Buffer& weights, std::mt19937& random)
      : queue_(session.CreateQueue().value()),
        hidden_(RandomBf16(session, kRows * kIn, random)),
        logits_(RandomBf16(session, kRows * kLogits, random)),
        next_(session.Allocate(kRows * 4).value()),
        program_(session.BeginProgram().value()) {
    const Buffer next = program_.Binding(kRows * 4).value();
    Queue& ops = program_.queue();
    ops.Gemm({.m = kRows, .n = kLogits, .k = kIn, .a = hidden_, .w = weights, .d = logits_})
        .submit_status()
        .Check();
    ops.Argmax({.rows = kRows, .columns = kLogits, .x = logits_, .indices = next})
        .submit_status()
        .Check();
    program_.End().Check();
  }

  void Submit(const SubmitOptions& options = {}) {
    queue_.Run({.program = program_, .bindings = {{next_}}}, options).submit_status().Check();
  }
  // With the outcome of runs so far, as numbers.
  std::vector<float> Logits() const {
    queue_.last().Wait(kTimeout).Check();
    std::vector<float> logits;
    for (const uint16_t bits : Contents(logits_)) logits.push_back(FromBf16(bits));
    return logits;
  }
  std::vector<int32_t> Next() const { return Tokens(next_); }

 private:
  Queue queue_;
  Buffer hidden_, logits_, next_;
  Program program_;
};

TEST(ReplicasTest, LogitsThatEachKeepsAreItsOwn) {
  constexpr uint32_t kReplicas = 3;
  TestDaemon daemon({.gpus = 1});
  const Session session = daemon.Connect("replicas");
  std::mt19937 random(test::Seed());
  SCOPED_TRACE(testing::Message() << "seed " << test::Seed());
  const Buffer weights = RandomBf16(session, uint64_t{Head::kIn} * Head::kLogits, random);
  std::vector<std::unique_ptr<Head>> heads;
  for (uint32_t i = 0; i < kReplicas; ++i)
    heads.push_back(std::make_unique<Head>(session, weights, random));
  EXPECT_TRUE(Eventually([&] { return AreReplicas(daemon, kReplicas); }));
  std::vector<std::vector<float>> alone;
  for (const auto& head : heads) {
    head->Submit();
    alone.push_back(head->Logits());
  }
  EXPECT_EQ(Passes(daemon, kReplicas), 0u);
  Gate gate(session);
  for (const auto& head : heads) head->Submit(gate.Behind(session));
  gate.Open();
  for (uint32_t i = 0; i < kReplicas; ++i) {
    const std::vector<float> together = heads[i]->Logits();
    const std::vector<int32_t> next = heads[i]->Next();
    for (uint32_t row = 0; row < kRows; ++row) {
      const auto begin = together.begin() + row * Head::kLogits;
      EXPECT_EQ(std::max_element(begin, begin + Head::kLogits) - begin, next[row]);
    }
    // Rows of others may be summed in another order, and then be rounded to a neighbour.
    for (size_t at = 0; at < together.size(); ++at)
      ASSERT_NEAR(together[at], alone[i][at], 0.01f + 0.01f * std::abs(alone[i][at])) << at;
  }
  EXPECT_EQ(Passes(daemon, 1 + kReplicas), 1u);
}

// Programs that only look alike, as one whose op writes what it reads and one whose op does not.
TEST(ReplicasTest, WhoFitsNobodyKeepsNobodyApart) {
  TestDaemon daemon({.gpus = 1});
  const Session session = daemon.Connect("replicas");
  const Model model = MakeModel(session, test::Seed());
  std::mt19937 random(test::Seed());
  const Buffer states[] = {RandomBf16(session, kRows * kHidden, random),
                           RandomBf16(session, kRows * kHidden, random)};
  std::vector<Program> programs;
  programs.push_back(MakeStep(session, model));
  for (const Buffer& state : states) programs.push_back(MakeStep(session, model, state));
  EXPECT_TRUE(Eventually([&] { return ReplicaCounts(daemon) == std::vector<uint32_t>{1, 2, 2}; }));
  // And who comes later and fits the first is with it.
  programs.push_back(MakeStep(session, model));
  EXPECT_TRUE(Eventually([&] {
    return ReplicaCounts(daemon) == std::vector<uint32_t>{2, 2, 2, 2};
  }));
}

// Two GEMMs, 10 MB of weights: the step kernel reads them twice sooner than a graph gets from one
// to the other, and not eight times.
TEST(ReplicasTest, FewGoBesideEachOtherAndManyTogether) {
  constexpr uint32_t kIn = 1024, kMiddle = 2560, kMany = 8;
  TestDaemon daemon({.gpus = 1});
  const Session session = daemon.Connect("replicas");
  std::mt19937 random(test::Seed());
  const Buffer up = RandomBf16(session, kIn * kMiddle, random);
  const Buffer down = RandomBf16(session, kIn * kMiddle, random);
  const auto make = [&] {
    Program program = session.BeginProgram().value();
    const Buffer in = program.Binding(kRows * kIn * kElement).value();
    const Buffer middle = program.Arena(kRows * kMiddle * kElement).value();
    const Buffer out = program.Binding(kRows * kIn * kElement).value();
    Queue& ops = program.queue();
    ops.Gemm({.m = kRows, .n = kMiddle, .k = kIn, .a = in, .w = up, .d = middle})
        .submit_status()
        .Check();
    ops.Gemm({.m = kRows, .n = kIn, .k = kMiddle, .a = middle, .w = down, .d = out})
        .submit_status()
        .Check();
    program.End().Check();
    return program;
  };
  const auto are = [&](const std::vector<uint32_t>& counts) {
    return Eventually([&] { return ReplicaCounts(daemon) == counts; });
  };
  std::vector<Program> programs;
  std::vector<Queue> queues;
  const Buffer in = RandomBf16(session, kRows * kIn, random);
  const Buffer out = session.Allocate(kMany * kRows * kIn * kElement).value();
  // A run of each of the first so many, ready together; how many passes they were.
  const auto run = [&](uint32_t count) {
    Gate gate(session);
    for (uint32_t i = 0; i < count; ++i) {
      queues[i]
          .Run({.program = programs[i], .bindings = {{in}, {out, i * kRows * kIn * kElement}}},
               gate.Behind(session))
          .submit_status()
          .Check();
    }
    gate.Open();
    for (uint32_t i = 0; i < count; ++i) queues[i].last().Wait(kTimeout).Check();
    return Passes(daemon, 1 + count);
  };
  for (uint32_t i = 0; i < kMany; ++i) queues.push_back(session.CreateQueue().value());
  for (int i = 0; i < 2; ++i) programs.push_back(make());
  EXPECT_TRUE(are({1, 1}));
  while (programs.size() < kMany) programs.push_back(make());
  EXPECT_TRUE(are(std::vector<uint32_t>(kMany, kMany)));
  EXPECT_EQ(run(2), 0u);
  // What of them is seen to be ready at first may be too little.
  EXPECT_TRUE(Eventually([&] { return run(kMany) > 0; }));
  programs.resize(2);
  EXPECT_TRUE(are({1, 1}));
  programs.push_back(make());
  EXPECT_TRUE(are({1, 1, 1}));
}

// Clients that come and go while others run: each gets what it gets alone, and nothing stays.
TEST(ReplicasTest, ProgramsComeAndGoWhileOthersRun) {
  constexpr uint32_t kReplicas = 6, kSteps = 60;
  TestDaemon daemon({.gpus = 1});
  const uint32_t seed = test::Seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  {
    const Session session = daemon.Connect("replicas");
    const Model model = MakeModel(session, seed);
    std::vector<std::unique_ptr<Sequences>> alone, together;
    std::vector<Program> programs(kReplicas);
    for (uint32_t i = 0; i < kReplicas; ++i) {
      alone.push_back(std::make_unique<Sequences>(session, seed + i, kSteps));
      together.push_back(std::make_unique<Sequences>(session, seed + i, kSteps));
      const Program program = MakeStep(session, model, alone[i]->state());
      while (!alone[i]->done()) alone[i]->Submit(program);
      alone[i]->Wait();
    }
    const auto all_done = [&] {
      return std::all_of(together.begin(), together.end(),
                         [](const auto& sequences) { return sequences->done(); });
    };
    while (!all_done()) {
      const uint32_t i = random() % kReplicas;
      if (random() % 8 == 0) programs[i] = Program();  // with runs in flight
      if (programs[i].get() == nullptr)
        programs[i] = MakeStep(session, model, together[i]->state());
      for (uint32_t runs = random() % 4; runs > 0 && !together[i]->done(); --runs)
        together[i]->Submit(programs[i]);
    }
    for (uint32_t i = 0; i < kReplicas; ++i) {
      together[i]->Wait();
      together[i]->ExpectSame(*alone[i]);
    }
    EXPECT_GT(Passes(daemon, 2 * kReplicas * kSteps), 0);
  }
  EXPECT_TRUE(daemon.WaitUntilEmpty());
}

}  // namespace
}  // namespace concert::test
