// A GPU for measuring what the service itself costs.
#ifndef CONCERT_TESTS_BENCH_NULL_DEVICE_H_
#define CONCERT_TESTS_BENCH_NULL_DEVICE_H_

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "daemon/check.h"
#include "daemon/device/device.h"

namespace concert::bench {

// Launches nothing; a signal is stored by the caller.
class NullDevice : public daemon::Device {
 public:
  explicit NullDevice(int sm_count = policies::DeviceModel{}.sm_count) {
    info_.backend = info_.name = "null";
    info_.model.group_kernel = true, info_.model.sm_count = sm_count;
    info_.model.transports = policies::TransportSet::All();
  }
  const daemon::DeviceInfo& info() const override { return info_; }
  absl::StatusOr<daemon::Allocation> Allocate(uint64_t bytes) override {
    const int fd = memfd_create("concert-null", MFD_CLOEXEC);
    CONCERT_CHECK(fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) == 0);
    const daemon::Address address = next_;
    next_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return daemon::Allocation{.address = address, .bytes = bytes, .export_fd = fd};
  }
  absl::StatusOr<daemon::Allocation> Import(const daemon::ImportRequest&) override {
    return absl::UnimplementedError("the null device imports nothing");
  }
  void Free(const daemon::Allocation&) override {}
  absl::StatusOr<uint64_t> Digest(daemon::Address, uint64_t) override { return 0; }
  absl::StatusOr<bool> Same(daemon::Address, daemon::Address, uint64_t) override { return true; }
  absl::Status Copy(daemon::Address, daemon::Address, uint64_t) override {
    return absl::OkStatus();
  }
  absl::Status Launch(const daemon::LaunchRequest& launch) override {
    return Signal(launch.planned.lane, launch.writes);
  }
  absl::Status Signal(daemon::Lane, std::span<const daemon::TimelineWrite> writes) override {
    for (const daemon::TimelineWrite& write : writes) {
      std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(write.address))
          .store(write.value, std::memory_order_release);
    }
    return absl::OkStatus();
  }
  absl::Status Order(daemon::Lane, daemon::Lane) override { return absl::OkStatus(); }
  std::vector<policies::Variant> Variants(const policies::Problem&, int) override { return {}; }
  void UseTuned(std::shared_ptr<const policies::TunedTable>) override {}
  absl::Status healthy() const override { return absl::OkStatus(); }

 private:
  static constexpr uint64_t kAlignment = 1 << 20;
  daemon::DeviceInfo info_;
  daemon::Address next_ = kAlignment;
};

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_NULL_DEVICE_H_
