#include "tests/bench/local_host_word.h"

#include <atomic>
#include <cstdlib>

#include "daemon/clock.h"

namespace concert::bench::local {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr std::chrono::seconds kWordLimit(30);
constexpr int kWordPollsPerClockRead = 1024;

}  // namespace

HostWord::~HostWord() {
  if (address_ != 0) context_.api.driver.cuMemHostUnregister(word_);
  std::free(word_);
}

absl::Status HostWord::Prepare() {
  word_ = static_cast<uint64_t*>(std::aligned_alloc(kPageBytes, kPageBytes));
  *word_ = 0;
  CONCERT_BENCH_RETURN_IF_ERROR(context_, api.driver, cuMemHostRegister, word_, kPageBytes,
                                CU_MEMHOSTREGISTER_DEVICEMAP);
  CONCERT_BENCH_RETURN_IF_ERROR(context_, api.driver, cuMemHostGetDevicePointer, &address_, word_,
                                0);
  return absl::OkStatus();
}

void HostWord::Clear() { std::atomic_ref<uint64_t>(*word_).store(0, std::memory_order_relaxed); }

absl::Status HostWord::Write(CUstream stream, uint64_t value) const {
  CONCERT_BENCH_RETURN_IF_ERROR(context_, api.driver, cuStreamWriteValue64, stream, address_, value,
                                CU_STREAM_WRITE_VALUE_DEFAULT);
  return absl::OkStatus();
}

bool HostWord::Reached(uint64_t value) const {
  return std::atomic_ref<uint64_t>(*word_).load(std::memory_order_acquire) >= value;
}

absl::StatusOr<double> HostWord::Await(uint64_t value,
                                       std::chrono::steady_clock::time_point begin) const {
  using Clock = std::chrono::steady_clock;
  for (int polls = 1; !Reached(value); ++polls) {
    daemon::CpuRelax();
    if (polls % kWordPollsPerClockRead == 0 && Clock::now() > begin + kWordLimit)
      return absl::DeadlineExceededError("a batch of this process did not finish in 30 s");
  }
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

}  // namespace concert::bench::local
