// The cuda device on real GPUs: memory, signals, order, health; and what its calls cost.
#include <fcntl.h>

#include <algorithm>
#include <string>

#include "kernels/comm/collective_op.h"
#include "proto/ring/control_abi.h"
#include "tests/gpu/gpu_fixture.h"
#include "tests/support/seed.h"

namespace concert::tests {

GpuEnvironment* const kEnvironment =
    static_cast<GpuEnvironment*>(testing::AddGlobalTestEnvironment(new GpuEnvironment));

namespace {

using Clock = std::chrono::steady_clock;

double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

void PrintQuantiles(const char* what, std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  std::printf("[ MEASURED ] %s: p50 %.2f us, p99 %.2f us\n", what, samples[samples.size() / 2],
              samples[samples.size() * 99 / 100]);
}

Op SquareGemm(Address a, Address w, Address d, uint32_t size) {
  Op op;
  op.kind = CONCERT_OP_GEMM;
  kernels::GemmArgs& g = op.gemm;
  g = {};
  g.m = g.n = g.k = size, g.batch = 1;
  g.a = a, g.w = w, g.d = d;
  g.lda = g.ldw = g.ldd = size;
  g.alpha = 1;
  g.dtype = g.d_dtype = Dtype::kBf16;
  return op;
}

TEST(CudaNodeWithoutGpu, SaysWhyItCannotOpen) {
  if (kEnvironment->node_ != nullptr) GTEST_SKIP() << "there is a GPU";
  EXPECT_EQ(kEnvironment->status_.code(), absl::StatusCode::kUnavailable) << kEnvironment->status_;
  EXPECT_FALSE(kEnvironment->status_.message().empty());
}

TEST_F(GpuTest, ProbesWhatTheGpuIs) {
  for (int gpu = 0; gpu < node().gpu_count(); ++gpu) {
    const daemon::DeviceInfo& info = device(gpu).info();
    std::printf(
        "[ MEASURED ] GPU %d: %s, cc %d, %.1f GiB, %d SMs, peer access %d, %.0f TFLOP/s, %.2f TB/s "
        "HBM, "
        "%d copy engines\n",
        gpu, info.name.c_str(), info.compute_capability, info.memory_bytes / 1073741824.0,
        info.model.sm_count, info.peer_access, info.model.tensor_flops / 1e12,
        info.model.hbm_bytes_per_s / 1e12, info.model.copy_engines);
    EXPECT_EQ(info.gpu, gpu);
    EXPECT_EQ(info.backend, "cuda");
    EXPECT_GE(info.compute_capability, 70);
    EXPECT_GT(info.model.sm_count, 0);
    EXPECT_GT(info.model.tensor_flops, 0);
    EXPECT_GT(info.model.hbm_bytes_per_s, 0);
    EXPECT_TRUE(device(gpu).healthy().ok());
  }
}

TEST_F(GpuTest, PoolMemoryIsZeroedAndBounded) {
  absl::StatusOr<Allocation> dirty = device().Allocate(3 << 20);
  ASSERT_TRUE(dirty.ok()) << dirty.status();
  EXPECT_GE(dirty->bytes, 3u << 20);
  EXPECT_TRUE(dirty->pool);
  std::vector<uint8_t> bytes(dirty->bytes, 0xa5);
  ASSERT_OK(device().CopyToDevice(dirty->address, bytes.data(), bytes.size()));
  close(dirty->export_fd);
  device().Free(*dirty);
  absl::StatusOr<Allocation> clean = device().Allocate(3 << 20);
  ASSERT_TRUE(clean.ok()) << clean.status();
  ASSERT_OK(device().CopyToHost(bytes.data(), clean->address, bytes.size()));
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), 0), static_cast<long>(bytes.size()));
  close(clean->export_fd);
  device().Free(*clean);
  for (const uint64_t bytes_asked : {uint64_t{1} << 50, UINT64_MAX, UINT64_MAX - 100}) {
    EXPECT_EQ(device().Allocate(bytes_asked).status().code(), absl::StatusCode::kResourceExhausted)
        << bytes_asked;
  }
  EXPECT_EQ(device().Allocate(0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(device().healthy().ok());
}

TEST_F(GpuTest, ClientImportsPoolMemory) {
  absl::StatusOr<Allocation> pool = device().Allocate(2 << 20);
  ASSERT_TRUE(pool.ok()) << pool.status();
  const ClientMessage reply =
      client().Call({.command = ClientCommand::kImportPool, .bytes = pool->bytes, .value = 0x77},
                    pool->export_fd);
  EXPECT_EQ(reply.result, CUDA_SUCCESS);
  EXPECT_EQ(reply.value, 0u) << "the client saw memory that was not zeroed";
  uint8_t byte = 0;
  ASSERT_OK(device().CopyToHost(&byte, pool->address + pool->bytes - 1, 1));
  EXPECT_EQ(byte, 0x77) << "the daemon does not see what the client wrote";
  close(pool->export_fd);
  device().Free(*pool);
}

void CheckImport(CudaDevice& device, ClientProcess& client, const daemon::ImportRequest& good,
                 uint8_t value) {
  absl::StatusOr<Allocation> imported = device.Import(good);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_FALSE(imported->pool);
  EXPECT_EQ(imported->bytes, good.bytes);
  uint8_t byte = 0;
  ASSERT_OK(device.CopyToHost(&byte, imported->address, 1));
  EXPECT_EQ(byte, value);
  if (good.offset == 0) {
    byte = 0x99;
    ASSERT_OK(device.CopyToDevice(imported->address, &byte, 1));
    EXPECT_EQ(client.Call({.command = ClientCommand::kReadExported}).value, 0x99u);
  }
  device.Free(*imported);
}

// Every way in which the request may lie about the allocation's size.
void CheckBadRanges(CudaDevice& device, const daemon::ImportRequest& good) {
  daemon::ImportRequest bad = good;
  bad.allocation_bytes = good.allocation_bytes + (64 << 20);
  bad.bytes = bad.allocation_bytes - bad.offset;
  EXPECT_EQ(device.Import(bad).status().code(), absl::StatusCode::kInvalidArgument)
      << device.Import(bad).status();
  bad = good;
  bad.offset = good.allocation_bytes;
  EXPECT_EQ(device.Import(bad).status().code(), absl::StatusCode::kInvalidArgument);
  bad = good;
  bad.offset = UINT64_MAX - 100;
  EXPECT_EQ(device.Import(bad).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(device.healthy().ok()) << device.healthy();
}

TEST_F(GpuTest, ImportsIpcMemory) {
  constexpr uint64_t kBytes = 4 << 20;
  const ClientMessage exported =
      client().Call({.command = ClientCommand::kExportIpc, .bytes = kBytes, .value = 0x5a});
  ASSERT_EQ(exported.result, CUDA_SUCCESS);
  daemon::ImportRequest request = {
      .kind = CONCERT_IMPORT_CUDA_IPC, .bytes = kBytes, .allocation_bytes = kBytes};
  std::memcpy(request.ipc_handle.data(), exported.ipc_handle, sizeof(exported.ipc_handle));
  CheckBadRanges(device(), request);
  CheckImport(device(), client(), request, 0x5a);
  request.offset = 4096, request.bytes = 1024;
  CheckImport(device(), client(), request, 0x5a);
  request.ipc_handle.fill(0x3c);
  EXPECT_EQ(device().Import(request).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(device().healthy().ok()) << device().healthy();
}

TEST_F(GpuTest, ImportsVmmMemory) {
  constexpr uint64_t kBytes = 4 << 20;
  int fd = -1;
  const ClientMessage exported = client().Call(
      {.command = ClientCommand::kExportVmm, .bytes = kBytes, .value = 0x33}, -1, &fd);
  ASSERT_EQ(exported.result, CUDA_SUCCESS);
  ASSERT_GE(fd, 0);
  daemon::ImportRequest request = {
      .kind = CONCERT_IMPORT_CUDA_VMM, .fd = fd, .bytes = kBytes, .allocation_bytes = kBytes};
  CheckBadRanges(device(), request);
  CheckImport(device(), client(), request, 0x33);
  request.offset = 4096, request.bytes = 1024;
  CheckImport(device(), client(), request, 0x33);
  close(fd);
}

TEST_F(GpuTest, RefusesWhatIsNoCudaMemory) {
  const int memfd = memfd_create("not-cuda", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(memfd, 2 << 20), 0);
  for (const int fd : {memfd, -1, 0}) {
    const daemon::ImportRequest request = {
        .kind = CONCERT_IMPORT_CUDA_VMM, .fd = fd, .bytes = 2 << 20, .allocation_bytes = 2 << 20};
    EXPECT_EQ(device().Import(request).status().code(), absl::StatusCode::kInvalidArgument)
        << device().Import(request).status();
  }
  close(memfd);
  EXPECT_EQ(device().Import({.kind = 99, .bytes = 1, .allocation_bytes = 1}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(device().healthy().ok());
}

// A large copy on lane 0, then on lane 1 a copy of its last byte: right only if lane 1 waits.
TEST_F(GpuTest, OrderMakesALaneWait) {
  constexpr uint64_t kBytes = 256 << 20;
  HostMirror source(device(), kBytes, 0x42), middle(device(), kBytes, 0), last(device(), 64, 0);
  Op large, small;
  large.kind = small.kind = CONCERT_OP_COPY;
  large.copy = {source.address(), middle.address(), kBytes};
  small.copy = {middle.address() + kBytes - 64, last.address(), 64};
  const Op* large_ops[] = {&large};
  const Op* small_ops[] = {&small};
  ASSERT_OK(device().Launch({.ops = large_ops}));
  ASSERT_OK(device().Order(policies::kFirstHighLane, 0));
  ASSERT_OK(device().Launch({.planned = {.lane = policies::kFirstHighLane}, .ops = small_ops}));
  Finish(policies::kFirstHighLane);
  last.Download();
  EXPECT_EQ(std::count(last.bytes().begin(), last.bytes().end(), 0x42), 64);
}

TEST_F(GpuTest, SignalsManyTimelinesAtOnce) {
  std::vector<daemon::TimelineWrite> writes;
  for (int i = 0; i < 200; ++i)
    writes.push_back({TimelineAddress(100 + i), static_cast<uint64_t>(1000 + i)});
  ASSERT_OK(device().Signal(3, writes));
  for (int i = 0; i < 200; ++i) EXPECT_TRUE(WaitFor(100 + i, 1000 + i)) << i;
}

// A client's stream waits on a timeline that it has mapped read-only from the daemon's sealed
// memfd.
TEST_F(GpuTest, ClientStreamWaitsOnReadOnlyTimeline) {
  constexpr uint64_t kBytes = 4096;
  const int memfd = memfd_create("timelines", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(memfd, kBytes), 0);
  auto* words = static_cast<volatile uint64_t*>(
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0));
  ASSERT_EQ(fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE), 0);
  absl::StatusOr<Address> address = node().RegisterHostMemory(const_cast<uint64_t*>(words), kBytes);
  ASSERT_TRUE(address.ok()) << address.status();
  const ClientMessage reply =
      client().Call({.command = ClientCommand::kWaitTimeline, .bytes = kBytes, .value = 7}, memfd);
  std::printf(
      "[ MEASURED ] client: READ_ONLY_HOST_REGISTER_SUPPORTED %d; cuMemHostRegister of a read-only "
      "mapping "
      "of a FUTURE_WRITE-sealed memfd: READ_ONLY flag -> %d, without -> %d; cuStreamWaitValue64 -> "
      "%d\n",
      reply.read_only_supported, reply.result, reply.plain_register_result, reply.wait_result);
  const daemon::TimelineWrite write = {*address, 7};
  ASSERT_OK(device().Signal(0, {&write, 1}));
  if (reply.result == CUDA_SUCCESS && reply.wait_result == CUDA_SUCCESS) {
    const ClientMessage finished = client().Call({.command = ClientCommand::kFinishWait});
    std::printf("[ MEASURED ] client: stream passed the wait: CUresult %d\n", finished.result);
    EXPECT_EQ(finished.result, CUDA_SUCCESS);
  }
  Finish(0);
  EXPECT_EQ(words[0], 7u);
  node().UnregisterHostMemory(const_cast<uint64_t*>(words));
  close(memfd);
}

TEST_F(GpuTest, MeasureHostCosts) {
  constexpr uint32_t kSize = 128;
  HostMirror memory(device(), 3 * kSize * kSize * 2, 0);
  const uint64_t step = kSize * kSize * 2;
  const Op op =
      SquareGemm(memory.address(), memory.address() + step, memory.address() + 2 * step, kSize);
  const Op* ops[] = {&op};
  std::vector<double> launch, signal, round_trip, order, signal_only;
  for (int i = 0; i < 2000; ++i) {
    const Clock::time_point start = Clock::now();
    ASSERT_OK(device().Launch({.ops = ops}));
    const double launched = MicrosecondsSince(start);
    const uint64_t value = Timeline(0) + 1;
    const daemon::TimelineWrite write = {TimelineAddress(0), value};
    ASSERT_OK(device().Signal(0, {&write, 1}));
    const double signalled = MicrosecondsSince(start);
    ASSERT_TRUE(WaitFor(0, value));
    const double seen = MicrosecondsSince(start);
    const Clock::time_point order_start = Clock::now();
    ASSERT_OK(device().Order(1, 0));
    const double ordered = MicrosecondsSince(order_start);
    const daemon::TimelineWrite again = {TimelineAddress(0), value + 1};
    const Clock::time_point signal_start = Clock::now();
    ASSERT_OK(device().Signal(2, {&again, 1}));
    ASSERT_TRUE(WaitFor(0, value + 1));
    const double alone = MicrosecondsSince(signal_start);
    if (i < 100) continue;
    launch.push_back(launched), signal.push_back(signalled - launched), round_trip.push_back(seen);
    order.push_back(ordered), signal_only.push_back(alone);
  }
  PrintQuantiles("Launch (128^3 bf16 GEMM, seen before), host", launch);
  PrintQuantiles("Signal of one word, host", signal);
  PrintQuantiles("Order, host", order);
  PrintQuantiles("Launch + Signal until the word is seen", round_trip);
  PrintQuantiles("Signal alone until the word is seen", signal_only);
}

// Host time per Launch while the GPU is busy, for cuBLASLt's kernels and for concert's own.
TEST_F(GpuTest, MeasureLaunchBursts) {
  HostMirror memory(device(), 64 << 20, 0);
  struct Shape {
    const char* what;
    uint32_t size;
    uint64_t offset;  // bytes
    uint16_t kind;
  };
  for (const Shape& shape : {Shape{"128^3 GEMM", 128, 0, CONCERT_OP_GEMM},
                             Shape{"1024^3 GEMM", 1024, 0, CONCERT_OP_GEMM},
                             Shape{"unaligned 128^3 GEMM", 128, 2, CONCERT_OP_GEMM},
                             Shape{"copy of 64 KiB", 128, 0, CONCERT_OP_COPY}}) {
    Op op = SquareGemm(memory.address() + shape.offset, memory.address() + (8 << 20),
                       memory.address() + (16 << 20), shape.size);
    op.kind = shape.kind;
    if (shape.kind == CONCERT_OP_COPY)
      op.copy = {memory.address(), memory.address() + (16 << 20), 64 << 10};
    const Op* ops[] = {&op};
    std::vector<double> each;
    constexpr int kBurst = 16;
    for (int i = 0; i < 200; ++i) {
      const Clock::time_point start = Clock::now();
      for (int j = 0; j < kBurst; ++j) ASSERT_OK(device().Launch({.ops = ops}));
      each.push_back(MicrosecondsSince(start) / kBurst);
      Finish(0);
    }
    PrintQuantiles((std::string("Launch in bursts of 16, ") + shape.what + ", host").c_str(), each);
  }
}

TEST_F(GpuTest, MeasureGemmRateAndHeuristic) {
  constexpr uint32_t kSize = 8192;
  const uint64_t step = uint64_t{kSize} * kSize * 2;
  std::mt19937 random(Seed());
  HostMirror memory(device(), 3 * step, 0);
  std::vector<uint8_t>& bytes = memory.bytes();
  for (uint64_t i = 0; i < 2 * step; i += 2) {  // bf16 between 1 and 2, either sign
    bytes[i] = static_cast<uint8_t>(random());
    bytes[i + 1] = (random() & 1) != 0 ? 0x3f : 0xbf;
  }
  memory.Upload();
  const Op op =
      SquareGemm(memory.address(), memory.address() + step, memory.address() + 2 * step, kSize);
  const Op* ops[] = {&op};
  const Clock::time_point first = Clock::now();
  ASSERT_OK(device().Launch({.ops = ops}));
  std::printf(
      "[ MEASURED ] first Launch of a new problem (heuristic and module load), host: %.0f us\n",
      MicrosecondsSince(first));
  Op other = op;
  std::vector<double> planned;
  for (uint32_t m = 100; m < 200; ++m) {
    other.gemm.m = m, other.gemm.n = other.gemm.k = 1024;
    const Op* other_ops[] = {&other};
    const Clock::time_point start = Clock::now();
    ASSERT_OK(device().Launch({.ops = other_ops}));
    planned.push_back(MicrosecondsSince(start));
  }
  PrintQuantiles("Launch of a new problem, host", planned);
  Finish(0);
  constexpr int kRuns = 20;
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < kRuns; ++i) ASSERT_OK(device().Launch({.ops = ops}));
  Finish(0);
  const double us = MicrosecondsSince(start) / kRuns;
  std::printf("[ MEASURED ] 8192^3 bf16 GEMM: %.0f us, %.0f TFLOP/s\n", us,
              2.0 * kSize * kSize * kSize / us / 1e6);
}

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

  // Ranks 0 and 1 of a collective about a tensor of so many bytes, in place where the kind allows
  // it.
  static std::array<Op, 2> OpsOf(uint16_t kind, uint64_t bytes, const Address (&memory)[2]) {
    const bool whole = kind == CONCERT_OP_ALL_REDUCE || kind == CONCERT_OP_BROADCAST;
    const uint64_t slot = whole ? 0 : bytes / 2;
    std::array<Op, 2> ops;
    for (size_t rank = 0; rank < 2; ++rank) {
      ops[rank].kind = kind;
      ops[rank].collective = {};
      ops[rank].collective.count = bytes / 2 / (whole ? 1 : 2);
      ops[rank].collective.dtype = Dtype::kBf16;
      Address &src = ops[rank].collective.src, &dst = ops[rank].collective.dst;
      src = dst = memory[rank];
      if (kind == CONCERT_OP_ALL_GATHER) src += rank * slot;
      if (kind == CONCERT_OP_REDUCE_SCATTER) dst += rank * slot;
      if (kind == CONCERT_OP_ALL_TO_ALL) dst += bytes;
    }
    return ops;
  }

  // From the call until both ranks' words are seen.
  double RunUs(const std::array<Op, 2>& ops, const policies::TransportChoice& choice) {
    std::vector<daemon::RankPart> parts;
    for (int rank = 0; rank < 2; ++rank) {
      parts.push_back(
          {.gpu = rank, .op = &ops[rank], .signal = {TimelineAddress(rank), Timeline(rank) + 1}});
    }
    const Clock::time_point start = Clock::now();
    EXPECT_TRUE(node().LaunchCollective(parts, choice).ok());
    EXPECT_TRUE(WaitFor(0, parts[0].signal.value) && WaitFor(1, parts[1].signal.value))
        << device(0).healthy() << device(1).healthy();
    return MicrosecondsSince(start);
  }

  // From the first launch until `gemms` on each GPU, on the SMs that are left, and an all-to-all of
  // theirs are over.
  double RunBesideUs(const std::array<Op, 2>& gemms, int count, const std::array<Op, 2>& ops,
                     const policies::TransportChoice& choice) {
    const int sm_count = device(0).info().model.sm_count;
    const int budget = choice.sms == 0 ? 0 : sm_count - choice.sms;
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < count; ++i) {
      for (int rank = 0; rank < 2; ++rank) {
        const Op* gemm[] = {&gemms[rank]};
        EXPECT_TRUE(
            device(rank).Launch({.planned = {.lane = 0, .sm_budget = budget}, .ops = gemm}).ok());
      }
    }
    RunUs(ops, choice);
    for (int rank = 0; rank < 2; ++rank) Finish(0, rank, /*index=*/2 + rank);
    return MicrosecondsSince(start);
  }

  // Prints medians of a collective alone and beside so many GEMMs on each GPU.
  void MeasureBeside(const std::array<Op, 2>& ops, uint64_t bytes, const Choices& choices,
                     const std::array<Op, 2>& gemms, int count) {
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
  std::vector<double> Medians(const std::array<Op, 2>& ops, const Choices& choices, int rounds) {
    const policies::TransportSet can = kernels::TransportsOf(ops[0], 2, /*pool=*/true);
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
  ASSERT_OK(node().Connect(std::vector<int>{0, 1}));
  constexpr uint64_t kMost = uint64_t{256} << 20, kMatrix = uint64_t{8192} * 8192 * 2;
  HostMirror a(device(0), 2 * kMost + 3 * kMatrix, 0), b(device(1), 2 * kMost + 3 * kMatrix, 0);
  const Address memory[] = {a.address(), b.address()};
  const std::pair<uint16_t, Choices> kinds[] = {
      {CONCERT_OP_ALL_TO_ALL,
       {{Transport::kCopyEngine, 0}, {Transport::kCopyEngine, 4}, {Transport::kCopyEngine, 8}}},
      {CONCERT_OP_ALL_REDUCE,
       {{Transport::kPeer, 4},
        {Transport::kPeer, 12},
        {Transport::kHybrid, 4},
        {Transport::kHybrid, 8}}}};
  for (const auto& [size, count] : {std::pair(8192u, 1), {4096u, 8}}) {
    std::array<Op, 2> gemms;
    for (int rank = 0; rank < 2; ++rank) {
      const Address at = memory[rank] + 2 * kMost;
      gemms[rank] = SquareGemm(at, at + kMatrix, at + 2 * kMatrix, size);
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
  ASSERT_OK(node().Connect(std::vector<int>{0, 1}));
  const Choices choices = AllChoices();
  constexpr uint64_t kMost = uint64_t{768} << 20;
  HostMirror a(device(0), kMost, 0), b(device(1), kMost, 0);
  const Address memory[] = {a.address(), b.address()};
  std::printf("[ MEASURED ] %-14s %10s", "us", "KiB");
  for (const policies::TransportChoice& choice : choices) {
    const size_t transport = static_cast<size_t>(choice.transport);
    std::printf(" %6s-%-2d", policies::kTransportNames[transport].data(), choice.sms);
  }
  std::printf("\n");
  for (const uint16_t kind :
       {CONCERT_OP_ALL_REDUCE, CONCERT_OP_ALL_GATHER, CONCERT_OP_REDUCE_SCATTER,
        CONCERT_OP_ALL_TO_ALL, CONCERT_OP_BROADCAST}) {
    for (const uint64_t kib : {1, 8, 32, 64, 128, 512, 2048, 16384, 65536, 262144, 786432}) {
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
}  // namespace concert::tests
