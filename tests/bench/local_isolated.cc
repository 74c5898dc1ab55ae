#include "tests/bench/local_isolated.h"

#include <atomic>
#include <chrono>
#include <cstdlib>

#include "daemon/clock.h"
#include "tests/bench/local_gemm.h"

namespace concert::bench::local {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPageBytes = 4096;
constexpr std::chrono::seconds kLimit(30);
constexpr int kPollsPerClockRead = 1024;

class Isolated : public LocalIsolated {
 public:
  Isolated(const Context& context, const GemmWorkload& workload, uint64_t memory)
      : context_(context), workload_(workload), memory_(memory) {}
  ~Isolated() override;
  absl::Status Prepare();
  absl::StatusOr<double> RunOnce(int set) override;

 private:
  const Context& context_;
  const GemmWorkload& workload_;
  const uint64_t memory_;
  std::vector<LtGemm> gemms_;
  uint64_t* word_ = nullptr;  // the GPU counts batches up here
  CUdeviceptr word_address_ = 0;
  uint64_t value_ = 0;
};

Isolated::~Isolated() {
  if (word_address_ != 0) context_.api.driver.cuMemHostUnregister(word_);
  std::free(word_);
}

absl::Status Isolated::Prepare() {
  CONCERT_BENCH_RETURN_IF_ERROR(context_, api.driver, cuCtxSetCurrent, context_.context);
  for (int gemm = 0; gemm < workload_.gemms(); ++gemm) {
    absl::StatusOr<LtGemm> planned = LtGemm::Plan(context_, workload_.shape(gemm));
    if (!planned.ok()) return planned.status();
    gemms_.push_back(*planned);
  }
  word_ = static_cast<uint64_t*>(std::aligned_alloc(kPageBytes, kPageBytes));
  *word_ = 0;
  CONCERT_BENCH_RETURN_IF_ERROR(context_, api.driver, cuMemHostRegister, word_, kPageBytes,
                                CU_MEMHOSTREGISTER_DEVICEMAP);
  CONCERT_BENCH_RETURN_IF_ERROR(context_, api.driver, cuMemHostGetDevicePointer, &word_address_,
                                word_, 0);
  return absl::OkStatus();
}

absl::StatusOr<double> Isolated::RunOnce(int set) {
  const CUstream stream = context_.streams[0];
  const Clock::time_point begin = Clock::now();
  for (int gemm = 0; gemm < workload_.gemms(); ++gemm) {
    absl::Status enqueued =
        gemms_[gemm].Enqueue(context_, memory_, workload_.place(set, gemm), /*stream=*/0);
    if (!enqueued.ok()) return enqueued;
  }
  CONCERT_BENCH_RETURN_IF_ERROR(context_, api.driver, cuStreamWriteValue64, stream, word_address_,
                                ++value_, CU_STREAM_WRITE_VALUE_DEFAULT);
  // Acquire: pairs with the stream's write, which comes after the GEMMs' results.
  const std::atomic_ref<uint64_t> word(*word_);
  for (int polls = 1; word.load(std::memory_order_acquire) < value_; ++polls) {
    daemon::CpuRelax();
    if (polls % kPollsPerClockRead == 0 && Clock::now() > begin + kLimit)
      return absl::DeadlineExceededError("a batch of plain launches did not finish in 30 s");
  }
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalIsolated>> MakeIsolated(const Context& context,
                                                            const GemmWorkload& workload,
                                                            uint64_t memory) {
  auto isolated = std::make_unique<Isolated>(context, workload, memory);
  if (absl::Status prepared = isolated->Prepare(); !prepared.ok()) return prepared;
  return isolated;
}

}  // namespace concert::bench::local
