// Memory that ends in the middle of sealing weights and registering programs: with a little more of
// it each time, every allocation on that way is once the one that fails. Each is refused with a
// sentence and leaves nothing; what was there before works on.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/raw_client.h"
#include "tests/support/test_daemon.h"

namespace concert::test {
namespace {

using daemon::InfoOf;
using daemon::Resource;

constexpr std::chrono::seconds kTimeout{30};
constexpr uint32_t kRows = 3, kWidth = 64, kReplicas = 2;
constexpr uint64_t kBytes = kRows * kWidth * sizeof(float),
                   kWeightBytes = kWidth * kWidth * sizeof(float);

// What is held of everything. Not the entries of a session's table, which grows and stays.
struct Held {
  uint64_t device_bytes = 0, sealed_bytes = 0;
  std::vector<uint64_t> resources;

  // What the daemon is just letting go of may have been counted in `before`.
  bool AtMost(const Held& before) const {
    for (size_t i = 0; i < resources.size(); ++i)
      if (resources[i] > before.resources[i]) return false;
    return device_bytes <= before.device_bytes && sealed_bytes <= before.sealed_bytes;
  }
};

class ScarceMemoryTest : public testing::Test {
 protected:
  // What a client gets of all this: its sealed weights, and programs over them.
  struct Client {
    Session session;
    std::array<Buffer, 2> weights;
    std::array<Buffer, kReplicas> state;
    std::array<Program, kReplicas> programs;
    std::array<bool, kReplicas> registered{};
  };

  void SetUp() override {
    if (!OnSim()) GTEST_SKIP() << "GPUs round up to megabytes";
  }
  static bool OnSim() {
    TestDaemon daemon({.gpus = 1});
    return daemon.engine().node().gpu(0).info().backend == "sim";
  }

  static Held HeldBy(TestDaemon& daemon) {
    Held held{daemon.node().gpu(0).used_bytes(), daemon.server().sealed_bytes(0).held, {}};
    for (const Resource resource :
         {Resource::kBuffers, Resource::kBufferBytes, Resource::kMappings, Resource::kDescriptors,
          Resource::kProgramOps, Resource::kSessions, Resource::kQueues}) {
      held.resources.push_back(daemon.engine().accounts().node().of(resource));
    }
    return held;
  }

  // Whether it could be done; else no more is held than before.
  bool Try(TestDaemon& daemon, const std::function<Status()>& what) {
    const Held before = HeldBy(daemon);
    const Status status = what();
    if (status.ok()) return true;
    ++refused_;
    EXPECT_EQ(status.code(), CONCERT_RESOURCE_EXHAUSTED) << status.ToString();
    EXPECT_TRUE(Eventually([&] { return HeldBy(daemon).AtMost(before); })) << status.ToString();
    return false;
  }
  bool Allocate(TestDaemon& daemon, const Session& session, uint64_t bytes, Buffer& buffer) {
    return Try(daemon, [&] {
      Result<Buffer> made = session.Allocate(bytes);
      if (made.ok()) buffer = std::move(made).value();
      return made.status();
    });
  }

  static void Record(Client& client, size_t replica) {
    Program& program = client.programs[replica] = client.session.BeginProgram().value();
    const Buffer in = program.Binding(kBytes).value(), between = program.Arena(kBytes).value();
    const Slice rows[] = {in, between, client.state[replica]};
    for (size_t i = 0; i < client.weights.size(); ++i) {
      program.queue()
          .Gemm({.m = kRows,
                 .n = kWidth,
                 .k = kWidth,
                 .a = rows[i],
                 .w = client.weights[i],
                 .d = rows[i + 1],
                 .dtype = kFp32})
          .submit_status()
          .Check();
    }
  }

  // As far as it goes. False if something was refused.
  bool Take(TestDaemon& daemon, Client& client) {
    Result<Session> session =
        Session::Connect({.socket_path = daemon.socket(), .client_name = "scarce"});
    if (!session.ok()) return false;
    client.session = std::move(session).value();
    bool all = true;
    for (Buffer& buffer : client.weights) {
      if (!Allocate(daemon, client.session, kWeightBytes, buffer)) return false;
      const std::vector<float> ones(kWidth * kWidth, 1);
      buffer.Write(ones.data(), kWeightBytes).Check();
    }
    for (Buffer& buffer : client.state)
      if (!Allocate(daemon, client.session, kBytes, buffer)) return false;
    for (const Buffer& buffer : client.weights) all &= Try(daemon, [&] { return buffer.Seal(); });
    for (size_t i = 0; i < kReplicas; ++i) {
      Record(client, i);
      client.registered[i] = Try(daemon, [&] { return client.programs[i].End(); });
      all &= client.registered[i];
    }
    return all;
  }

  // With or without their pass.
  void ExpectRunsAreRight(Client& client) {
    Result<Queue> queue = client.session.CreateQueue();
    if (!queue.ok()) return;
    const std::vector<float> twos(kRows * kWidth, 2), wanted(kRows * kWidth, 2.f * kWidth * kWidth);
    for (size_t i = 0; i < kReplicas; ++i) {
      if (!client.registered[i]) continue;
      const size_t other = 1 - i;  // whose state is the input, for want of other memory
      client.state[other].Write(twos.data(), kBytes).Check();
      queue->Run({.program = client.programs[i], .bindings = {client.state[other]}})
          .Wait(kTimeout)
          .Check();
      std::vector<float> got(kRows * kWidth);
      client.state[i].Read(got.data(), kBytes).Check();
      ASSERT_EQ(got, wanted);
    }
  }

  // Whether there was enough for all of it, the pass of the replicas included.
  bool TakeAndGiveBack(const TestDaemonOptions& options) {
    TestDaemon daemon(options);
    bool all = false;
    {
      Client client;
      all = Take(daemon, client);
      if (client.session.get() != nullptr) {
        ExpectRunsAreRight(client);
        const auto programs = daemon.server().Sessions()[0].programs;
        for (const kernels::ProgramSummary& program : programs)
          all &= program.replicas == kReplicas;
      }
    }
    EXPECT_TRUE(daemon.WaitUntilEmpty());
    for (const daemon::ResourceInfo& info : daemon::AllResources()) {
      EXPECT_TRUE(Eventually([&] {
        return daemon.engine().accounts().node().of(info.resource) == 0;
      })) << info.name;
    }
    EXPECT_EQ(daemon.node().gpu(0).used_bytes(), 0u);
    EXPECT_EQ(daemon.server().sealed_bytes(0).held, 0u);
    return all;
  }

  // With more and more of something until there is enough.
  void Sweep(const std::function<void(TestDaemonOptions&, uint64_t)>& allow, uint64_t unit = 1) {
    constexpr uint64_t kMost = 100;
    for (uint64_t amount = 1; amount <= kMost; ++amount) {
      SCOPED_TRACE(testing::Message() << "with " << amount * unit);
      TestDaemonOptions options{.gpus = 1};
      allow(options, amount * unit);
      const bool enough = TakeAndGiveBack(options);
      if (HasFailure()) return;
      if (!enough) continue;
      std::printf("%lu are enough; %d requests were refused with less\n", amount * unit, refused_);
      EXPECT_GT(refused_, 0);
      return;
    }
    FAIL() << kMost * unit << " are not enough";
  }
  void SweepQuota(Resource resource, uint64_t unit = 1) {
    SCOPED_TRACE(std::string(InfoOf(resource).name));
    Sweep([&](TestDaemonOptions& options,
              uint64_t amount) { options.limits[resource].per_user = amount; },
          unit);
  }

  int refused_ = 0;
};

TEST_F(ScarceMemoryTest, OfTheGpu) {
  Sweep([](TestDaemonOptions& options, uint64_t bytes) { options.sim_memory_bytes = bytes; }, 4096);
}
TEST_F(ScarceMemoryTest, OfTheQuota) { SweepQuota(Resource::kBufferBytes, 4096); }
TEST_F(ScarceMemoryTest, Buffers) { SweepQuota(Resource::kBuffers); }
TEST_F(ScarceMemoryTest, BufferHandles) { SweepQuota(Resource::kBufferHandles); }
TEST_F(ScarceMemoryTest, Mappings) { SweepQuota(Resource::kMappings); }
TEST_F(ScarceMemoryTest, ProgramOps) { SweepQuota(Resource::kProgramOps); }

}  // namespace
}  // namespace concert::test
