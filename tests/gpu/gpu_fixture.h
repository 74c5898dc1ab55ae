// What GPU tests share: the opened node, a second process, elements on the host, waiting for a
// signal.
#ifndef CONCERT_TESTS_GPU_GPU_FIXTURE_H_
#define CONCERT_TESTS_GPU_GPU_FIXTURE_H_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/device/cuda/cuda_device.h"
#include "daemon/device/cuda/cuda_node.h"
#include "tests/gpu/client_process.h"
#include "tests/support/e4m3.h"
#include "tests/support/test_device.h"

namespace concert::test {

using daemon::Address;
using daemon::Allocation;
using daemon::cuda::CudaDevice;
using kernels::Op;
using policies::Dtype;
using policies::DtypeBytes;

#define ASSERT_OK(expression)                           \
  do {                                                  \
    const absl::Status concert_status = (expression);   \
    ASSERT_TRUE(concert_status.ok()) << concert_status; \
  } while (false)

inline double ElementToDouble(Dtype dtype, const uint8_t* bytes) {
  switch (dtype) {
    case Dtype::kBf16: {
      __nv_bfloat16 x;
      std::memcpy(&x, bytes, sizeof(x));
      return __bfloat162float(x);
    }
    case Dtype::kFp16: {
      __half x;
      std::memcpy(&x, bytes, sizeof(x));
      return __half2float(x);
    }
    case Dtype::kFp8E4m3:
      return kernels::DecodeE4m3(*bytes);
    case Dtype::kFp32:
      break;
  }
  float x;
  std::memcpy(&x, bytes, sizeof(x));
  return x;
}

inline void ElementFromFloat(Dtype dtype, float value, uint8_t* bytes) {
  switch (dtype) {
    case Dtype::kBf16: {
      const __nv_bfloat16 x = __float2bfloat16(value);
      std::memcpy(bytes, &x, sizeof(x));
      return;
    }
    case Dtype::kFp16: {
      const __half x = __float2half(value);
      std::memcpy(bytes, &x, sizeof(x));
      return;
    }
    case Dtype::kFp8E4m3:
      *bytes = test::EncodeE4m3(value);
      return;
    case Dtype::kFp32:
      std::memcpy(bytes, &value, sizeof(value));
      return;
  }
}

using Clock = std::chrono::steady_clock;

inline double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// D = A W^T, all of them size x size.
inline Op SquareGemm(Address a, Address w, Address d, uint32_t size) {
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

// Memory of a GPU with its contents on the host.
class HostMirror {
 public:
  HostMirror(CudaDevice& device, uint64_t bytes, uint8_t fill = 0xff)
      : device_(device), bytes_(bytes, fill) {
    absl::StatusOr<Allocation> allocation = device.Allocate(bytes);
    if (!allocation.ok()) {
      ADD_FAILURE() << allocation.status();
      return;
    }
    allocation_ = *allocation;
    close(allocation_.export_fd);
    Upload();
  }
  HostMirror(const HostMirror&) = delete;
  HostMirror& operator=(const HostMirror&) = delete;
  ~HostMirror() { device_.Free(allocation_); }

  Address address() const { return allocation_.address; }
  std::vector<uint8_t>& bytes() { return bytes_; }
  void Upload() {
    EXPECT_TRUE(device_.CopyToDevice(allocation_.address, bytes_.data(), bytes_.size()).ok());
  }
  void Download() {
    EXPECT_TRUE(device_.CopyToHost(bytes_.data(), allocation_.address, bytes_.size()).ok());
  }
  void FillRandom(Dtype dtype, uint64_t offset, std::mt19937& random) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (uint64_t at = offset; at + DtypeBytes(dtype) <= bytes_.size(); at += DtypeBytes(dtype)) {
      ElementFromFloat(dtype, uniform(random), &bytes_[at]);
    }
    Upload();
  }

  // The first `count` bytes, of bf16, on the host only: normal numbers, the same ones again and
  // again. Not zeros, whose products take less power, and so less time.
  void RepeatNormal(uint64_t count, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<uint8_t> numbers(1 << 20);
    for (size_t at = 0; at < numbers.size(); at += 2)
      ElementFromFloat(Dtype::kBf16, normal(random), &numbers[at]);
    for (uint64_t at = 0; at < count; at += numbers.size())
      std::memcpy(&bytes_[at], numbers.data(), std::min<uint64_t>(numbers.size(), count - at));
  }

 private:
  CudaDevice& device_;
  std::vector<uint8_t> bytes_;
  Allocation allocation_;
};

// Started once per program: the client first, because CUDA does not survive a fork.
class GpuEnvironment : public testing::Environment {
 public:
  void SetUp() override {
    client_ = std::make_unique<ClientProcess>();
    const Clock::time_point start = Clock::now();
    absl::StatusOr<std::unique_ptr<daemon::Node>> node = daemon::OpenCudaNode();
    const std::chrono::duration<double> took = Clock::now() - start;
    status_ = node.status();
    if (!node.ok()) return;
    node_ = *std::move(node);
    timelines_ =
        mmap(nullptr, kTimelineBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    absl::StatusOr<Address> address = node_->RegisterHostMemory(timelines_, kTimelineBytes);
    ASSERT_TRUE(address.ok()) << address.status();
    timelines_address_ = *address;
    std::printf("[ MEASURED ] OpenCudaNode: %.2f s, %d GPU(s)\n", took.count(), node_->gpu_count());
  }
  void TearDown() override {
    if (node_ != nullptr) node_->UnregisterHostMemory(timelines_);
    node_.reset();
    client_.reset();
  }

  static constexpr uint64_t kTimelineBytes = 64 * 1024;
  absl::Status status_;
  std::unique_ptr<daemon::Node> node_;
  std::unique_ptr<ClientProcess> client_;
  void* timelines_ = nullptr;
  Address timelines_address_ = 0;
};

// Defined by cuda_smoke_test.cc; owned by GoogleTest.
extern GpuEnvironment* const kEnvironment;

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (kEnvironment->node_ == nullptr)
      CONCERT_END_WITHOUT_GPU(absl::StrCat("no usable GPU: ", kEnvironment->status_.message()));
  }
  virtual daemon::Node& node() { return *kEnvironment->node_; }
  CudaDevice& device(int gpu = 0) { return static_cast<CudaDevice&>(node().gpu(gpu)); }
  // Of collectives with a rank on each.
  std::vector<int> AllGpus() {
    std::vector<int> gpus(static_cast<size_t>(node().gpu_count()));
    std::iota(gpus.begin(), gpus.end(), 0);
    return gpus;
  }
  ClientProcess& client() { return *kEnvironment->client_; }

  // Timeline `index`: one word on a cache line of its own.
  Address TimelineAddress(int index) const { return kEnvironment->timelines_address_ + 64 * index; }
  volatile uint64_t& Timeline(int index) const {
    return *reinterpret_cast<volatile uint64_t*>(static_cast<char*>(kEnvironment->timelines_) +
                                                 64 * index);
  }
  // Whether the timeline reaches `value` within 20 s.
  bool WaitFor(int index, uint64_t value) const {
    const Clock::time_point deadline = Clock::now() + std::chrono::seconds(20);
    while (Timeline(index) < value) {
      if (Clock::now() > deadline) return false;
    }
    return true;
  }
  // Signals `index` behind all work of `lane` and waits for it.
  void Finish(policies::Lane lane, int gpu = 0, int index = 0) {
    const uint64_t value = Timeline(index) + 1;
    const daemon::TimelineWrite write = {TimelineAddress(index), value};
    ASSERT_OK(device(gpu).Signal(lane, {&write, 1}));
    ASSERT_TRUE(WaitFor(index, value)) << device(gpu).healthy();
  }
  // That a launch of `op` takes, one behind the other, without the first few.
  double MicrosecondsEach(const Op& op, int sm_budget = 0) {
    constexpr int kLaunches = 30, kWarmUp = 3;
    constexpr policies::Lane kLane = 0;
    const Op* const ops[] = {&op};
    Clock::time_point start;
    for (int i = 0; i < kWarmUp + kLaunches; ++i) {
      if (i == kWarmUp) {
        Finish(kLane);
        start = Clock::now();
      }
      const absl::Status status = device().Launch(
          {.planned = {.count = 1, .lane = kLane, .sm_budget = sm_budget}, .ops = ops});
      EXPECT_TRUE(status.ok()) << status;
    }
    Finish(kLane);
    return MicrosecondsSince(start) / kLaunches;
  }
};

}  // namespace concert::test

#endif  // CONCERT_TESTS_GPU_GPU_FIXTURE_H_
