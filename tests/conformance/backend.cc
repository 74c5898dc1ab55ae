#include "tests/conformance/backend.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "daemon/device/sim/sim_node.h"
#include "proto/ring/control_abi.h"
#include "tests/support/eventually.h"

#ifdef CONCERT_WITH_CUDA
#include "daemon/device/cuda/cuda_device.h"
#include "daemon/device/cuda/cuda_node.h"
#endif

namespace concert::daemon::conformance {
namespace {

bool PollFor(const uint64_t& word, uint64_t value) {
  const std::atomic_ref<uint64_t> timeline(const_cast<uint64_t&>(word));
  // Acquire: pairs with the device's store of the timeline after the results.
  return test::Eventually([&] { return timeline.load(std::memory_order_acquire) >= value; });
}

class SimBackend final : public Backend {
 public:
  explicit SimBackend(sim::Pace pace) : pace_(pace) {
    sim::SimOptions options;
    options.pace = pace;
    node_ = *sim::SimNode::Open(options);
  }

  Node& node() override { return *node_; }
  void Write(int /*gpu*/, Address to, const void* from, uint64_t bytes) override {
    std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  }
  // Through the file: ThreadSanitizer would take stores of this process for a race of the executor.
  void WriteAsClient(const Allocation& to, const void* from, uint64_t bytes) override {
    EXPECT_EQ(pwrite(to.export_fd, from, bytes, 0), static_cast<ssize_t>(bytes));
  }
  void Read(int /*gpu*/, void* to, Address from, uint64_t bytes) override {
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  }
  uint32_t export_kind() const override { return CONCERT_IMPORT_MEMFD; }
  bool WaitFor(const uint64_t& word, uint64_t value) override {
    if (pace_ != sim::Pace::kVirtual) return PollFor(word, value);
    node_->RunUntilIdle();
    return word >= value;
  }
  bool Fault(int gpu) override {
    node_->gpu(gpu).Fault();
    return true;
  }

 private:
  const sim::Pace pace_;
  std::unique_ptr<sim::SimNode> node_;
};

#ifdef CONCERT_WITH_CUDA
class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(std::unique_ptr<Node> node) : node_(std::move(node)) {}

  Node& node() override { return *node_; }
  void Write(int gpu, Address to, const void* from, uint64_t bytes) override {
    const absl::Status status = DeviceAt(gpu).CopyToDevice(to, from, bytes);
    EXPECT_TRUE(status.ok()) << status;
  }
  void WriteAsClient(const Allocation& to, const void* from, uint64_t bytes) override {
    Write(to.gpu, to.address, from, bytes);
  }
  void Read(int gpu, void* to, Address from, uint64_t bytes) override {
    const absl::Status status = DeviceAt(gpu).CopyToHost(to, from, bytes);
    EXPECT_TRUE(status.ok()) << status;
  }
  uint32_t export_kind() const override { return CONCERT_IMPORT_CUDA_VMM; }
  bool WaitFor(const uint64_t& word, uint64_t value) override { return PollFor(word, value); }
  bool Fault(int) override { return false; }

 private:
  cuda::CudaDevice& DeviceAt(int gpu) { return static_cast<cuda::CudaDevice&>(node_->gpu(gpu)); }

  std::unique_ptr<Node> node_;
};

absl::StatusOr<std::shared_ptr<Backend>> OpenCudaBackend() {
  // Contexts and communicators take seconds to make.
  static const auto opened = []() -> absl::StatusOr<std::shared_ptr<Backend>> {
    absl::StatusOr<std::unique_ptr<Node>> node = OpenCudaNode();
    if (!node.ok()) return node.status();
    return std::make_shared<CudaBackend>(*std::move(node));
  }();
  return opened;
}
#else
absl::StatusOr<std::shared_ptr<Backend>> OpenCudaBackend() {
  return absl::UnimplementedError("built without CUDA");
}
#endif

}  // namespace

absl::StatusOr<std::shared_ptr<Backend>> OpenBackend(const std::string& name) {
  if (name == "sim_virtual") return std::make_shared<SimBackend>(sim::Pace::kVirtual);
  if (name == "sim_real_time") return std::make_shared<SimBackend>(sim::Pace::kRealTime);
  if (name == "sim_flat_out") return std::make_shared<SimBackend>(sim::Pace::kFlatOut);
  return OpenCudaBackend();
}

}  // namespace concert::daemon::conformance
