// The cuda device on real GPUs: memory, signals, order, health; and what its calls cost.
#include <fcntl.h>

#include <algorithm>
#include <string>

#include "kernels/comm/collective_op.h"
#include "proto/ring/control_abi.h"
#include "tests/gpu/gpu_fixture.h"
#include "tests/support/seed.h"

namespace concert::test {

GpuEnvironment* const kEnvironment =
    static_cast<GpuEnvironment*>(testing::AddGlobalTestEnvironment(new GpuEnvironment));

namespace {

void PrintQuantiles(const char* what, std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  std::printf("[ MEASURED ] %s: p50 %.2f us, p99 %.2f us\n", what, samples[samples.size() / 2],
              samples[samples.size() * 99 / 100]);
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

}  // namespace
}  // namespace concert::test
