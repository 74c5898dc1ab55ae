// The fixture of the conformance suite: one backend, buffers, ops made by admission, timelines.
#ifndef CONCERT_TESTS_CONFORMANCE_DEVICE_FIXTURE_H_
#define CONCERT_TESTS_CONFORMANCE_DEVICE_FIXTURE_H_

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "kernels/op_table.h"
#include "tests/conformance/backend.h"
#include "tests/conformance/numbers.h"
#include "tests/support/test_device.h"

namespace concert::daemon::conformance {

class DeviceTest : public testing::TestWithParam<std::string> {
 protected:
  static constexpr size_t kPage = 65536;  // a multiple of any page size here

  void SetUp() override {
    absl::StatusOr<std::shared_ptr<Backend>> backend = OpenBackend(GetParam());
    if (!backend.ok()) CONCERT_END_WITHOUT_GPU(backend.status());
    backend_ = *backend;
    page_.reset(static_cast<uint64_t*>(aligned_alloc(kPage, kPage)));
    std::fill_n(page_.get(), kPage / sizeof(uint64_t), 0);
    absl::StatusOr<Address> registered = node().RegisterHostMemory(page_.get(), kPage);
    ASSERT_TRUE(registered.ok()) << registered.status();
    page_address_ = *registered;
    buffers_.push_back({});  // handle 0
  }

  void TearDown() override {
    if (backend_ == nullptr) return;
    for (const Allocation& allocation : allocations_) {
      if (allocation.export_fd >= 0) close(allocation.export_fd);
      node().gpu(allocation.gpu).Free(allocation);
    }
    node().UnregisterHostMemory(page_.get());
  }

  Node& node() { return backend_->node(); }
  Device& gpu(int index = 0) { return node().gpu(index); }

  // A new buffer's handle. Its address: AddressOf(handle).
  uint32_t NewBuffer(uint64_t bytes, int on_gpu = 0) {
    absl::StatusOr<Allocation> allocation = gpu(on_gpu).Allocate(bytes);
    EXPECT_TRUE(allocation.ok()) << allocation.status();
    if (!allocation.ok()) return 0;
    allocations_.push_back(*allocation);
    buffers_.push_back({allocation->address, allocation->bytes, on_gpu, allocation->pool});
    return static_cast<uint32_t>(buffers_.size() - 1);
  }
  uint32_t NewBuffer(const Bytes& content, int on_gpu = 0) {
    const uint32_t buffer = NewBuffer(content.size(), on_gpu);
    Write(buffer, content);
    return buffer;
  }
  uint32_t NewPoisoned(uint64_t bytes, int on_gpu = 0) {
    return NewBuffer(Bytes(bytes, kPoison), on_gpu);
  }

  Address AddressOf(uint32_t buffer) const { return buffers_[buffer].address; }
  void Write(uint32_t buffer, const Bytes& content) {
    backend_->Write(buffers_[buffer].gpu, AddressOf(buffer), content.data(), content.size());
  }
  // While launched work may use it.
  void WriteAsClient(uint32_t buffer, const Bytes& content) {
    backend_->WriteAsClient(allocations_[buffer - 1], content.data(), content.size());
  }
  Bytes Read(uint32_t buffer, uint64_t bytes, uint64_t offset = 0) {
    Bytes content(bytes);
    backend_->Read(buffers_[buffer].gpu, content.data(), AddressOf(buffer) + offset, bytes);
    return content;
  }

  // The op of a descriptor, through admission.
  Op Admit(const concert_descriptor& descriptor, int on_gpu = 0, uint32_t ranks = 0,
           uint32_t rank = 0) {
    Op op;
    const kernels::AdmitContext context{
        .gpu = on_gpu, .buffers = buffers_, .ranks = ranks, .rank = rank};
    const kernels::Failure failure =
        kernels::FindOpKind(descriptor.kind)->admit(descriptor, context, op);
    EXPECT_TRUE(failure.ok()) << failure.ToString();
    return op;
  }
  Op Copy(uint32_t src, uint32_t dst, uint64_t bytes, uint64_t src_offset = 0) {
    concert_descriptor descriptor{};
    descriptor.kind = CONCERT_OP_COPY;
    descriptor.body.copy.src = {src, 0, src_offset};
    descriptor.body.copy.dst = {dst, 0, 0};
    descriptor.body.copy.bytes = bytes;
    return Admit(descriptor);
  }

  // Timeline words, each on a cache line of its own.
  uint64_t& Word(int index) { return page_.get()[index * 8]; }
  Address WordAddress(int index) const { return page_address_ + static_cast<uint64_t>(index) * 64; }

  void Launch(Lane lane, std::initializer_list<const Op*> ops,
              policies::Form form = policies::Form::kSingle, int on_gpu = 0) {
    const absl::Status status = gpu(on_gpu).Launch(
        {.planned = {.form = form, .lane = lane}, .ops = {ops.begin(), ops.size()}});
    ASSERT_TRUE(status.ok()) << status;
  }
  void Signal(Lane lane, int word, uint64_t value, int on_gpu = 0) {
    const TimelineWrite write{WordAddress(word), value};
    const absl::Status status = gpu(on_gpu).Signal(lane, {&write, 1});
    ASSERT_TRUE(status.ok()) << status;
  }
  void WaitFor(int word, uint64_t value) {
    ASSERT_TRUE(backend_->WaitFor(Word(word), value)) << "timeline stands at " << Word(word);
  }
  // Launches one op and waits for it.
  void Run(const Op& op, Lane lane = 0) {
    Launch(lane, {&op});
    Signal(lane, 0, ++runs_);
    WaitFor(0, runs_);
  }

  std::shared_ptr<Backend> backend_;

 private:
  struct FreeDeleter {
    void operator()(void* data) const { free(data); }
  };
  std::unique_ptr<uint64_t, FreeDeleter> page_;
  Address page_address_ = 0;
  std::vector<Allocation> allocations_;
  std::vector<kernels::BufferRange> buffers_;
  uint64_t runs_ = 0;
};

inline std::string BackendName(const testing::TestParamInfo<std::string>& info) {
  return info.param;
}

#define CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(suite)                                     \
  INSTANTIATE_TEST_SUITE_P(                                                             \
      , suite, testing::Values("sim_virtual", "sim_real_time", "sim_flat_out", "cuda"), \
      BackendName)

// For suites of what single ops compute, which takes long and does not depend on the simulator's
// pace.
#define CONCERT_INSTANTIATE_FOR_EACH_DEVICE(suite) \
  INSTANTIATE_TEST_SUITE_P(, suite, testing::Values("sim_flat_out", "cuda"), BackendName)

}  // namespace concert::daemon::conformance

#endif  // CONCERT_TESTS_CONFORMANCE_DEVICE_FIXTURE_H_
