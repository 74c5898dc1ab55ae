// Programs through libconcert and a daemon: a run gives what its ops give one by one, and whatever
// is wrong with one is said in a sentence.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/support/raw_client.h"
#include "tests/support/seed.h"
#include "tests/support/small_model.h"
#include "tests/support/test_daemon.h"

namespace concert::test {
namespace {

constexpr std::chrono::seconds kTimeout{30};

std::string Sentence(const Status& status) { return status.message(); }

TEST(ProgramTest, RunsGiveWhatTheirOpsGiveOneByOne) {
  TestDaemon daemon({.gpus = 1});
  const Session session = daemon.Connect("model");
  const uint32_t seed = test::Seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  const Model model = MakeModel(session, seed), twin = MakeModel(session, seed);
  const StepMemory memory = MakeBuffers(session);
  const Program program = MakeStep(session, twin);
  Queue single = session.CreateQueue().value(), runs = session.CreateQueue().value();
  // Bindings of their own for each step, so that one may follow another without a look from here.
  std::vector<int32_t> ids(kRows);
  std::iota(ids.begin(), ids.end(), 7);
  memory.ids.Write(ids.data(), kRows * 4).Check();
  Buffer tokens = session.Allocate(256 * 11).value();
  tokens.Write(ids.data(), kRows * 4).Check();
  for (uint64_t step = 0; step < 10; ++step) {
    runs.Run({.program = program, .bindings = {{tokens, 256 * step}, {tokens, 256 * (step + 1)}}})
        .submit_status()
        .Check();
    SubmitStep(single, model, memory);
    single.last().Wait(kTimeout).Check();
    std::vector<int32_t> got(kRows);
    runs.last().Wait(kTimeout).Check();
    tokens.Read(got.data(), kRows * 4, 256 * (step + 1)).Check();
    ASSERT_EQ(got, Tokens(memory.next)) << "step " << step;
    memory.ids.Write(got.data(), kRows * 4).Check();
  }
  std::vector<uint16_t> state(kRows * kHidden), its(kRows * kHidden);
  model.state.Read(state.data(), state.size() * kElement).Check();
  twin.state.Read(its.data(), its.size() * kElement).Check();
  EXPECT_EQ(state, its);
}

// Sums of sums, each in a slot of its own, however slots share memory.
TEST(ProgramTest, SlotsThatShareMemoryKeepWhatIsStillRead) {
  constexpr uint32_t kElements = 256, kSlots = 24, kOps = 60, kPrograms = 100;
  constexpr uint64_t kBytes = kElements * sizeof(float);
  TestDaemon daemon({.gpus = 1});
  const Session session = daemon.Connect();
  std::mt19937 random(test::Seed());
  SCOPED_TRACE(testing::Message() << "seed " << test::Seed());
  Queue single = session.CreateQueue().value(), runs = session.CreateQueue().value();
  std::vector<float> values(kElements), wanted(kElements), got(kElements);
  std::iota(values.begin(), values.end(), 1.f);
  std::vector<Buffer> buffers(kSlots);
  for (Buffer& buffer : buffers) buffer = session.Allocate(kBytes).value();
  buffers[0].Write(values.data(), kBytes).Check();
  const Buffer in = session.Allocate(kBytes).value(), out = session.Allocate(kBytes).value();
  in.Write(values.data(), kBytes).Check();
  for (uint32_t i = 0; i < kPrograms; ++i) {
    Program program = session.BeginProgram().value();
    std::vector<Buffer> slots(kSlots);
    slots[0] = program.Binding(kBytes).value();
    for (uint32_t slot = 1; slot + 1 < kSlots; ++slot) slots[slot] = program.Arena(kBytes).value();
    slots.back() = program.Binding(kBytes).value();
    std::vector<uint32_t> written = {0};
    const auto add = [&](uint32_t to) {
      const uint32_t x = written[random() % written.size()], y = written[random() % written.size()];
      for (const auto& [queue, memory] :
           {std::pair(&single, &buffers), std::pair(&program.queue(), &slots)}) {
        queue
            ->Elementwise({.function = kAdd,
                           .rows = 1,
                           .columns = kElements,
                           .x = (*memory)[x],
                           .y = (*memory)[y],
                           .out = (*memory)[to],
                           .dtype = kFp32})
            .submit_status()
            .Check();
      }
      written.push_back(to);
    };
    for (uint32_t op = 0; op < kOps; ++op) add(1 + random() % (kSlots - 2));
    add(kSlots - 1);
    program.End().Check();
    runs.Run({.program = program, .bindings = {in, out}}).Wait(kTimeout).Check();
    single.last().Wait(kTimeout).Check();
    buffers.back().Read(wanted.data(), kBytes).Check();
    out.Read(got.data(), kBytes).Check();
    ASSERT_EQ(got, wanted) << "program " << i;
  }
}

TEST(ProgramTest, ABindingThatIsOnlyReadIsLeftAsItIs) {
  TestDaemon daemon({.gpus = 1});
  const Session session = daemon.Connect();
  Program program = session.BeginProgram().value();
  const Buffer from = program.Binding(64).value(), to = program.Binding(64).value();
  program.queue().Copy({.src = from, .dst = {to, 16}, .bytes = 32}).submit_status().Check();
  program.End().Check();
  const Buffer a = session.Allocate(128).value(), b = session.Allocate(128).value();
  std::vector<uint8_t> ones(128, 1), twos(128, 2);
  a.Write(ones.data(), 128).Check();
  b.Write(twos.data(), 128).Check();
  Queue queue = session.CreateQueue().value();
  queue.Run({.program = program, .bindings = {{a, 5}, {b, 7}}}).Wait(kTimeout).Check();
  std::vector<uint8_t> got(128);
  b.Read(got.data(), 128).Check();
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(got[i], i >= 7 + 16 && i < 7 + 16 + 32 ? 1 : 2) << i;
}

TEST(ProgramTest, BuffersLiveAsLongAsProgramsThatUseThem) {
  TestDaemon daemon({.gpus = 1});
  const Session session = daemon.Connect();
  Queue queue = session.CreateQueue().value();
  Program first = session.BeginProgram().value();
  Program second;
  const Buffer out = session.Allocate(64).value();
  {
    const Buffer weights = session.Allocate(64).value();
    std::vector<uint8_t> threes(64, 3);
    weights.Write(threes.data(), 64).Check();
    second = session.BeginProgram().value();
    for (Program* program : {&first, &second}) {
      program->queue().Copy({.src = weights, .dst = out, .bytes = 64}).submit_status().Check();
      program->End().Check();
    }
  }
  queue.Run({.program = first}).Wait(kTimeout).Check();
  first = Program();
  // What a freed buffer had may be anybody's; what is still used is not.
  const Buffer other = session.Allocate(64).value();
  queue.Run({.program = second}).Wait(kTimeout).Check();
  std::vector<uint8_t> got(64);
  out.Read(got.data(), 64).Check();
  EXPECT_EQ(got, std::vector<uint8_t>(64, 3));
  // Two, the weights and the program.
  EXPECT_TRUE(Eventually([&] { return daemon.server().Sessions()[0].buffers == 4; }));
  second = Program();
  EXPECT_TRUE(Eventually([&] { return daemon.server().Sessions()[0].buffers == 2; }));
}

TEST(ProgramTest, RunsThatWereSubmittedBeforeAProgramIsFreedStillRun) {
  TestDaemon daemon({.gpus = 1});
  const Session session = daemon.Connect();
  Queue queue = session.CreateQueue().value();
  UserTimeline go = session.CreateUserTimeline().value();
  const Buffer a = session.Allocate(64).value(), b = session.Allocate(64).value();
  std::vector<uint8_t> fours(64, 4), got(64);
  a.Write(fours.data(), 64).Check();
  Program program = session.BeginProgram().value();
  program.queue().Copy({.src = a, .dst = b, .bytes = 64}).submit_status().Check();
  program.End().Check();
  const Ticket run = queue.Run({.program = program}, {.waits = {go.At(1)}});
  program = Program();
  go.Signal(1).Check();
  run.Wait(kTimeout).Check();
  b.Read(got.data(), 64).Check();
  EXPECT_EQ(got, fours);
}

TEST(ProgramTest, SaysWhatIsWrongWithWhatIsRecorded) {
  TestDaemon daemon({.gpus = 2});
  const Session session = daemon.Connect();
  const Buffer buffer = session.Allocate(1024).value();
  Program program = session.BeginProgram().value();
  Queue& queue = program.queue();
  EXPECT_EQ(Sentence(program.End()), "op_count is 0; a program has between 1 and 10000 ops");
  queue.Copy({.src = buffer, .dst = {buffer, 512}, .bytes = 512}).submit_status().Check();
  const Ticket ticket = queue.last();
  EXPECT_NE(Sentence(queue
                         .Copy({.src = buffer, .dst = {buffer, 512}, .bytes = 8},
                               {.waits = {ticket}, .deadline_ns = 1})
                         .submit_status())
                .find("an op of a program has no waits and no deadline"),
            std::string::npos);
  queue.Copy({.src = buffer, .dst = {buffer, 511}, .bytes = 513}).submit_status().Check();
  EXPECT_EQ(
      Sentence(program.End()),
      "op 1, copy: dst overlaps src; give dst memory of its own (d may be c, out of a norm x, "
      "of an elementwise op x or y, and dst of a collective src, each in the same place)");
}

TEST(ProgramTest, ACollectiveIsNoPartOfOne) {
  TestDaemon daemon({.gpus = 2});
  const Session session = daemon.Connect();
  const Communicator group = session.Join({.name = "pair", .rank = 0, .ranks = 2}).value();
  Program program = session.BeginProgram().value();
  program.queue().Barrier(group).submit_status().Check();
  EXPECT_EQ(Sentence(program.End()),
            "op 0, barrier: barrier cannot be part of a program; submit it by itself");
}

TEST(ProgramTest, SaysWhatIsWrongWithARun) {
  TestDaemon daemon({.gpus = 1});
  const Session session = daemon.Connect("one"), other = daemon.Connect("two");
  Queue queue = session.CreateQueue().value(), foreign = other.CreateQueue().value();
  Program program = session.BeginProgram().value();
  const Buffer slot = program.Binding(128).value(), buffer = session.Allocate(128).value();
  EXPECT_EQ(Sentence(queue.Run({.program = program, .bindings = {buffer}}).submit_status()),
            "the program is not registered; call concert_program_end first");
  program.queue().Copy({.src = slot, .dst = {slot, 64}, .bytes = 64}).submit_status().Check();
  program.End().Check();
  EXPECT_EQ(Sentence(program.End()),
            "the program is registered and cannot be changed; begin another");
  EXPECT_FALSE(slot.Address().ok());
  const auto fails = [&](Queue& on, std::vector<Slice> bindings) {
    return Sentence(on.Run({.program = program, .bindings = bindings}).Wait(kTimeout));
  };
  EXPECT_EQ(fails(queue, {}), "binding_count is 0; it must be between 1 and 1");
  EXPECT_NE(fails(queue, {{buffer, 1}}).find("bindings[0] needs 128 bytes at offset 1, but buffer"),
            std::string::npos);
  EXPECT_NE(fails(queue, {slot}).find("bindings[0] is a slot of a program"), std::string::npos);
  EXPECT_EQ(fails(foreign, {buffer}),
            "the program is not one of the queue's session, but of session " +
                std::to_string(session.id()));
  EXPECT_NE(fails(queue, std::vector<Slice>(11, buffer)).find("binding_count is 11"),
            std::string::npos);
  EXPECT_EQ(fails(queue, {buffer}), "");
}

TEST(ProgramTest, ARunOnAnotherGpuIsRefused) {
  TestDaemon daemon({.gpus = 2});
  if (daemon.gpu_count() < 2) GTEST_SKIP() << "needs two GPUs";
  const Session session = daemon.Connect();
  Queue elsewhere = session.CreateQueue({.gpu = 1}).value();
  const Buffer a = session.Allocate(8).value(), b = session.Allocate(8).value();
  Program program = session.BeginProgram().value();
  program.queue().Copy({.src = a, .dst = b, .bytes = 8}).submit_status().Check();
  program.End().Check();
  EXPECT_NE(Sentence(elsewhere.Run({.program = program}).Wait(kTimeout))
                .find("program lies on GPU 0, but the queue is on GPU 1"),
            std::string::npos);
}

// Not yet registered, with an arena of so many bytes.
Program RecordWithArena(const Session& session, const Buffer& buffer, uint64_t arena_bytes) {
  Program program = session.BeginProgram().value();
  const Buffer slot = program.Arena(arena_bytes).value();
  program.queue().Copy({.src = buffer, .dst = slot, .bytes = 4096}).submit_status().Check();
  return program;
}

// The quota is exactly what a buffer and one such program take on the device, with what it rounds
// up and wants beside the arena.
TEST(ProgramTest, TheArenaIsChargedAndGivenBack) {
  constexpr uint64_t kArenaBytes = 4 << 20;  // more than any device rounds up
  TestDaemonOptions options{.gpus = 1};
  const auto taken = [](TestDaemon& daemon) { return daemon.server().Sessions()[0].buffer_bytes; };
  {
    TestDaemon daemon(options);
    const Session session = daemon.Connect();
    const Buffer buffer = session.Allocate(4096).value();
    const uint64_t without = taken(daemon);
    Program program = RecordWithArena(session, buffer, kArenaBytes);
    program.End().Check();
    EXPECT_GE(taken(daemon), without + kArenaBytes);
    options.limits[daemon::Resource::kBufferBytes].per_user = taken(daemon);
  }
  TestDaemon daemon(options);
  const Session session = daemon.Connect();
  const Buffer buffer = session.Allocate(4096).value();
  for (const uint64_t bytes : {2 * kArenaBytes, kArenaBytes, kArenaBytes}) {
    Program program = RecordWithArena(session, buffer, bytes);
    const Status status = program.End();
    EXPECT_EQ(status.ok(), bytes == kArenaBytes) << status.message();
    const Status refused =
        status.ok() ? RecordWithArena(session, buffer, kArenaBytes).End() : status;
    EXPECT_NE(refused.message().find("buffer_bytes"), std::string::npos) << refused.message();
    program = Program();
    EXPECT_TRUE(Eventually([&] { return daemon.server().Sessions()[0].buffers == 1; }));
  }
}

TEST(ProgramTest, ASessionMayEndInTheMiddleOfRuns) {
  TestDaemon daemon({.gpus = 1});
  const Session survivor = daemon.Connect("survivor");
  const Model model = MakeModel(survivor, 1);
  const Program program = MakeStep(survivor, model);
  Queue queue = survivor.CreateQueue().value();
  const Buffer tokens = survivor.Allocate(kRows * 4 * 2).value();
  for (int round = 0; round < 50; ++round) {
    {
      Session session = daemon.Connect("short-lived");
      const Model its = MakeModel(session, 2);
      const Program step = MakeStep(session, its);
      Queue runs = session.CreateQueue().value();
      const Buffer memory = session.Allocate(kRows * 4 * 2).value();
      for (int i = 0; i < 20; ++i) {
        runs.Run({.program = step, .bindings = {memory, {memory, kRows * 4}}})
            .submit_status()
            .Check();
      }
      if (round % 2 == 0) session = Session();  // before what it has made
    }
    queue.Run({.program = program, .bindings = {tokens, {tokens, kRows * 4}}})
        .Wait(kTimeout)
        .Check();
  }
  EXPECT_TRUE(Eventually([&] { return daemon.server().session_count() == 1; }));
}

// What libconcert would not send.
TEST(ProgramTest, HostileRequestsAreRefused) {
  TestDaemon daemon({.gpus = 1});
  RawClient client(daemon.socket());
  ASSERT_TRUE(client.Hello());
  const auto create = [&](int fd, uint32_t gpu, uint32_t slots, uint32_t ops, uint32_t flags = 0) {
    return std::string(client.CreateProgram(fd, gpu, slots, ops, flags).reply.message);
  };
  const int memory = memfd_create("program", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(memory, 320), 0);
  EXPECT_EQ(create(memory, 0, 0, 10'001),
            "op_count is 10001; a program has between 1 and 10000 ops");
  EXPECT_EQ(create(memory, 0, 1025, 1), "slot_count is 1025; a program has at most 1024 slots");
  EXPECT_EQ(create(memory, 0, 1, 1), "the program's memfd is shorter than its 1 slots and 1 ops");
  EXPECT_EQ(create(memory, 0, 0, 1, 2), "flags is 2; the only flag of a program is 1 (of a batch)");
  EXPECT_EQ(create(memory, 0, 1, 1, CONCERT_PROGRAM_OF_BATCH),
            "slot_count is 1; a program that is a batch has no slots");
  EXPECT_EQ(create(memory, 7, 0, 1), "gpu is 7, which this session has no ring on");
  EXPECT_EQ(create(memory, 0, 0, 1),
            "op 0, invalid: kind is 0, which this daemon does not know; the highest kind is " +
                std::to_string(CONCERT_OP_KIND_COUNT));
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);  // a read of it would wait for ever
  EXPECT_EQ(create(pipe_fds[0], 0, 0, 1), "the program's fd is not a memfd");
  for (const int fd : {memory, pipe_fds[0], pipe_fds[1]}) close(fd);
}

TEST(ProgramTest, OperatorsSeeWhatIsRegistered) {
  TestDaemon daemon({.gpus = 1});
  const Session session = daemon.Connect();
  Program program = MakeStep(session, MakeModel(session, 1));
  const auto programs = [&] { return daemon.server().Sessions()[0].programs; };
  ASSERT_EQ(programs().size(), 1u);
  const kernels::ProgramSummary summary = programs()[0];
  EXPECT_EQ(summary.op_count, 8u);
  EXPECT_EQ(summary.bindings, 2u);
  EXPECT_EQ(summary.kinds[0], (std::pair<uint16_t, uint32_t>(CONCERT_OP_GEMM, 3)));
  EXPECT_LT(summary.arena_bytes, summary.slot_bytes);
  EXPECT_GT(summary.predicted_us, 8.0);  // each is a kernel
  const daemon::DeviceInfo& info = daemon.engine().node().gpu(0).info();
  if (info.backend == "sim" || info.compute_capability == 90) {
    EXPECT_EQ(summary.why_no_step, "op 2, gemm: k is no multiple of 64");
  }
  ASSERT_EQ(summary.engines->size(), 1u);
  const kernels::EngineTimes& graph = summary.engines->front();
  EXPECT_EQ(graph.engine, kernels::ProgramEngine::kGraph);
  EXPECT_EQ(graph.predicted_us, summary.predicted_us);
  EXPECT_EQ(graph.parts[0].what, "bindings");
  EXPECT_EQ(graph.parts[1].what, "embedding");
  program = Program();
  EXPECT_TRUE(Eventually([&] { return programs().empty(); }));
}

// A run's plan says what the program was predicted to take, and on the simulator that is what it
// takes.
TEST(ProgramTest, RunsArePredictedAndTakeThatOnTheSimulator) {
  TestDaemon daemon({.gpus = 1});
  const Session session = daemon.Connect();
  constexpr uint32_t kRowsOfStep = 8, kWidth = 256;
  const Buffer weights = session.Allocate(2 * kWidth * kWidth).value();
  const Buffer x = session.Allocate(2 * kRowsOfStep * kWidth).value();
  Program program = session.BeginProgram().value();
  const Buffer slots[] = {program.Binding(x.bytes()).value(), program.Arena(x.bytes()).value()};
  for (int i = 0; i < 20; ++i) {
    program.queue()
        .Gemm({.m = kRowsOfStep,
               .n = kWidth,
               .k = kWidth,
               .a = slots[i % 2],
               .w = weights,
               .d = slots[(i + 1) % 2]})
        .submit_status()
        .Check();
  }
  program.End().Check();
  const kernels::ProgramSummary summary = daemon.server().Sessions()[0].programs[0];
  Queue queue = session.CreateQueue().value();
  const bool is_sim = daemon.engine().node().gpu(0).info().backend == "sim";
  const policies::Time before = is_sim ? daemon.node().Now() : 0;
  queue.Run({.program = program, .bindings = {x}}).Wait(kTimeout).Check();
  daemon::PlanRecord plan{};
  const auto look = [&](const auto& record) {
    if constexpr (std::is_same_v<std::decay_t<decltype(record)>, daemon::PlanRecord>) plan = record;
  };
  ASSERT_TRUE(Eventually([&] { return daemon.records(0).Drain(look), plan.op_count > 0; }));
  EXPECT_EQ(plan.ops[0].kind, CONCERT_OP_PROGRAM);
  // Of what is launched on an idle GPU, the launch takes its time, too.
  const policies::DeviceModel& model = daemon.engine().node().gpu(0).info().model;
  EXPECT_NEAR(plan.predicted_us, summary.predicted_us + model.launch_us + model.launch_op_us, 0.01);
  if (!is_sim) return;
  ASSERT_EQ(summary.engines->size(), 2u) << summary.why_no_step;
  EXPECT_EQ(summary.engines->front().engine, kernels::ProgramEngine::kStep);
  EXPECT_LT(summary.engines->front().predicted_us, summary.engines->back().predicted_us);
  const auto took = static_cast<double>(daemon.node().Now() - before);
  EXPECT_NEAR(took * 1e-3, model.launch_us + summary.predicted_us, 0.01);
}

TEST(ProgramTest, ProgramsOfASessionAreBounded) {
  TestDaemon daemon({.gpus = 1});
  const Session session = daemon.Connect();
  const Buffer a = session.Allocate(8).value(), b = session.Allocate(8).value();
  std::vector<Program> programs;
  Status status;
  while (status.ok() && programs.size() < 300) {
    programs.push_back(session.BeginProgram().value());
    programs.back().queue().Copy({.src = a, .dst = b, .bytes = 8}).submit_status().Check();
    status = programs.back().End();
  }
  EXPECT_EQ(status.message(), "the session has 256 programs and may have no more; free some");
}

TEST(ProgramTest, OpsOfAllProgramsAreBounded) {
  TestDaemonOptions options{.gpus = 1};
  options.limits[daemon::Resource::kProgramOps].per_user = 25'000;
  TestDaemon daemon(options);
  const Session session = daemon.Connect();
  const Buffer a = session.Allocate(8).value(), b = session.Allocate(8).value();
  std::vector<Program> programs;
  Status status;
  for (int i = 0; i < 3; ++i) {
    programs.push_back(session.BeginProgram().value());
    for (int op = 0; op < 10'000; ++op)
      programs.back().queue().Copy({.src = a, .dst = b, .bytes = 8}).submit_status().Check();
    status = programs.back().End();
    EXPECT_EQ(status.ok(), i < 2);
  }
  EXPECT_NE(status.message().find("of its 25000 program_ops"), std::string::npos)
      << status.message();
  EXPECT_EQ(
      Sentence(programs.back().queue().Copy({.src = a, .dst = b, .bytes = 8}).submit_status()),
      "a program may have 10000 ops");
  programs.erase(programs.begin());
  EXPECT_TRUE(Eventually([&] { return programs.back().End().ok(); }));
}

}  // namespace
}  // namespace concert::test
