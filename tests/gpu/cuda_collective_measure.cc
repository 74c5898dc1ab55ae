// What collectives of all GPUs take by every transport, alone and beside GEMMs: what the constants
// in policies/seam/transport.h are fitted to.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/comm/collective_op.h"
#include "tests/gpu/gpu_fixture.h"

namespace concert::test {
namespace {

class MeasureCollectivesTest : public GpuTest {
 protected:
  using Choices = std::vector<policies::TransportChoice>;

  Choices AllChoices() {
    using policies::Transport;
    Choices choices = {{Transport::kNccl, 0}};
    if (!device(0).info().model.transports.Has(Transport::kPeer)) return choices;
    for (const uint16_t sms : {4, 8, 12, 16}) choices.push_back({Transport::kPeer, sms});
    for (const uint16_t sms : {4, 8, 12}) choices.push_back({Transport::kHybrid, sms});
    choices.push_back({Transport::kCopyEngine, 0});
    return choices;
  }

  std::vector<std::unique_ptr<HostMirror>> MemoryOfAll(uint64_t bytes) {
    std::vector<std::unique_ptr<HostMirror>> memory;
    for (const int gpu : AllGpus())
      memory.push_back(std::make_unique<HostMirror>(device(gpu), bytes, 0));
    return memory;
  }

  // The ranks of a collective about a tensor of so many bytes, in place where the kind allows it.
  static std::vector<Op> OpsOf(uint16_t kind, uint64_t bytes,
                               const std::vector<std::unique_ptr<HostMirror>>& memory) {
    const bool whole = kind == CONCERT_OP_ALL_REDUCE || kind == CONCERT_OP_BROADCAST;
    const uint64_t slot = whole ? 0 : bytes / memory.size();
    std::vector<Op> ops(memory.size());
    for (size_t rank = 0; rank < ops.size(); ++rank) {
      ops[rank].kind = kind;
      ops[rank].collective = {};
      ops[rank].collective.count = (whole ? bytes : slot) / 2;
      ops[rank].collective.dtype = Dtype::kBf16;
      Address &src = ops[rank].collective.src, &dst = ops[rank].collective.dst;
      src = dst = memory[rank]->address();
      if (kind == CONCERT_OP_ALL_GATHER) src += rank * slot;
      if (kind == CONCERT_OP_REDUCE_SCATTER) dst += rank * slot;
      if (kind == CONCERT_OP_ALL_TO_ALL) dst += bytes;
    }
    return ops;
  }

  // From the call until all ranks' words are seen.
  double RunUs(const std::vector<Op>& ops, const policies::TransportChoice& choice) {
    std::vector<daemon::RankPart> parts;
    for (const int gpu : AllGpus()) {
      parts.push_back(
          {.gpu = gpu, .op = &ops[gpu], .signal = {TimelineAddress(gpu), Timeline(gpu) + 1}});
    }
    const Clock::time_point start = Clock::now();
    EXPECT_TRUE(node().LaunchCollective(parts, choice).ok());
    for (const daemon::RankPart& part : parts) {
      EXPECT_TRUE(WaitFor(part.gpu, part.signal.value)) << device(part.gpu).healthy();
    }
    return MicrosecondsSince(start);
  }

  // From the first launch until so many GEMMs on each GPU, on the SMs that are left, and the
  // collective are over.
  double RunBesideUs(const std::vector<Op>& gemms, int count, const std::vector<Op>& ops,
                     const policies::TransportChoice& choice) {
    const int sm_count = device(0).info().model.sm_count;
    const int budget = choice.sms == 0 ? 0 : sm_count - choice.sms;
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < count; ++i) {
      for (const int gpu : AllGpus()) {
        const Op* gemm[] = {&gemms[gpu]};
        EXPECT_TRUE(
            device(gpu).Launch({.planned = {.lane = 0, .sm_budget = budget}, .ops = gemm}).ok());
      }
    }
    RunUs(ops, choice);
    for (const int gpu : AllGpus()) Finish(0, gpu, /*index=*/node().gpu_count() + gpu);
    return MicrosecondsSince(start);
  }

  // Prints medians of a collective alone and beside so many GEMMs on each GPU.
  void MeasureBeside(const std::vector<Op>& ops, uint64_t bytes, const Choices& choices,
                     const std::vector<Op>& gemms, int count) {
    for (const policies::TransportChoice& choice : choices) {
      std::vector<double> alone, beside;
      for (int round = 0; round < 12 && !HasFailure(); ++round) {
        alone.push_back(RunUs(ops, choice));
        beside.push_back(RunBesideUs(gemms, count, ops, choice));
      }
      if (HasFailure()) return;
      std::sort(alone.begin(), alone.end());
      std::sort(beside.begin(), beside.end());
      std::printf(
          "[ MEASURED ] %s of %3d MiB by %s-%-2d: %7.1f us alone, %7.1f us until it and %d "
          "GEMM(s) of %u^3 are over\n",
          concert_op_kind_name(ops[0].kind), static_cast<int>(bytes >> 20),
          policies::kTransportNames[static_cast<size_t>(choice.transport)].data(), choice.sms,
          alone[6], beside[6], count, gemms[0].gemm.m);
    }
  }

  // The medians of all choices, which take turns; 0 where one does not carry it.
  std::vector<double> Medians(const std::vector<Op>& ops, const Choices& choices, int rounds) {
    const policies::TransportSet can = kernels::TransportsOf(ops[0], ops.size(), /*pool=*/true);
    std::vector<std::vector<double>> seen(choices.size());
    for (int round = -2; round < rounds && !HasFailure(); ++round) {
      for (size_t i = 0; i < choices.size(); ++i) {
        if (!can.Has(choices[i].transport)) continue;
        const double us = RunUs(ops, choices[i]);
        if (round >= 0) seen[i].push_back(us);
      }
    }
    std::vector<double> medians;
    for (std::vector<double>& times : seen) {
      std::sort(times.begin(), times.end());
      medians.push_back(times.empty() ? 0 : times[times.size() / 2]);
    }
    return medians;
  }
};

// By copies, where blocks or (0 SMs) a neighbour's engines carry what a rank keeps, and by kernels.
TEST_F(MeasureCollectivesTest, BesideGemms) {
  using policies::Transport;
  if (node().gpu_count() < 2 || !device(0).info().model.transports.Has(Transport::kPeer))
    GTEST_SKIP() << "needs two GPUs with peer kernels";
  ASSERT_OK(node().Connect(AllGpus()));
  constexpr uint64_t kMost = uint64_t{256} << 20, kMatrix = uint64_t{8192} * 8192 * 2;
  const auto memory = MemoryOfAll(2 * kMost + 3 * kMatrix);
  const std::pair<uint16_t, Choices> kinds[] = {
      {CONCERT_OP_ALL_TO_ALL,
       {{Transport::kCopyEngine, 0}, {Transport::kCopyEngine, 4}, {Transport::kCopyEngine, 8}}},
      {CONCERT_OP_ALL_REDUCE,
       {{Transport::kPeer, 4},
        {Transport::kPeer, 12},
        {Transport::kHybrid, 4},
        {Transport::kHybrid, 8}}}};
  for (const auto& [size, count] : {std::pair(8192u, 1), {4096u, 8}}) {
    std::vector<Op> gemms;
    for (const auto& of_rank : memory) {
      const Address at = of_rank->address() + 2 * kMost;
      gemms.push_back(SquareGemm(at, at + kMatrix, at + 2 * kMatrix, size));
    }
    for (const auto& [kind, choices] : kinds) {
      for (const uint64_t bytes : {kMost / 4, kMost}) {
        MeasureBeside(OpsOf(kind, bytes, memory), bytes, choices, gemms, count);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(MeasureCollectivesTest, EveryKindAndSizeByEveryTransport) {
  if (node().gpu_count() < 2) GTEST_SKIP() << "needs two GPUs";
  ASSERT_OK(node().Connect(AllGpus()));
  const Choices choices = AllChoices();
  constexpr uint64_t kMost = uint64_t{1} << 30;
  const auto memory = MemoryOfAll(kMost);
  std::printf("[ MEASURED ] %-14s %10s", "us", "KiB");
  for (const policies::TransportChoice& choice : choices) {
    const size_t transport = static_cast<size_t>(choice.transport);
    std::printf(" %6s-%-2d", policies::kTransportNames[transport].data(), choice.sms);
  }
  std::printf("\n");
  for (const uint16_t kind :
       {CONCERT_OP_ALL_REDUCE, CONCERT_OP_ALL_GATHER, CONCERT_OP_REDUCE_SCATTER,
        CONCERT_OP_ALL_TO_ALL, CONCERT_OP_BROADCAST}) {
    for (const uint64_t kib : {1, 16, 64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576}) {
      const uint64_t bytes = kib << 10;
      if (kind == CONCERT_OP_ALL_TO_ALL && 2 * bytes > kMost) continue;  // never in place
      const std::vector<double> medians =
          Medians(OpsOf(kind, bytes, memory), choices, bytes > (64 << 20) ? 8 : 40);
      if (HasFailure()) return;
      std::printf("[ MEASURED ] %-14s %10llu", concert_op_kind_name(kind),
                  static_cast<unsigned long long>(kib));
      for (const double us : medians) std::printf(" %9.1f", us);
      std::printf("\n");
    }
  }
}

}  // namespace
}  // namespace concert::test
