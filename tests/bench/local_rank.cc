// A rank that calls cuBLASLt and NCCL itself.
#include <algorithm>
#include <set>
#include <utility>

#include "tests/bench/local_gemm.h"
#include "tests/bench/local_host_word.h"
#include "tests/bench/local_nccl.h"
#include "tests/bench/rank_client.h"
#include "tests/bench/rank_poll.h"

namespace concert::bench {
namespace {

using local::Context;
using local::HostWord;
using local::LtGemm;
using local::RankNccl;

constexpr uint64_t kGpuPageBytes = 2 << 20;  // of GPU memory; windows are made of whole ones

class CudaRank : public LocalRank {
 public:
  explicit CudaRank(std::unique_ptr<Context> context)
      : context_(std::move(context)), gemms_end_(*context_), collective_end_(*context_) {}
  ~CudaRank() override {
    context_->api.driver.cuCtxSetCurrent(context_->context);
    if (urgent_ != nullptr) context_->api.driver.cuStreamDestroy(urgent_);
    if (gemm_memory_ != 0) context_->api.driver.cuMemFree(gemm_memory_);
  }

  absl::Status Prepare(uint32_t rank, RankBoard& board, std::span<const LocalWay> ways,
                       const RankMemorySizes& sizes);
  std::unique_ptr<RankClient> Client(const LocalWay& way) override;

  const Context& context() const { return *context_; }
  const RankNccl& nccl() const { return *nccl_; }
  CUdeviceptr memory(RankMemory memory) const {
    return memory == RankMemory::kGemm     ? gemm_memory_
           : memory == RankMemory::kSource ? source_
                                           : output_;
  }
  // The stream for collectives.
  CUstream StreamOf(LocalWay::Order order) const {
    if (order == LocalWay::Order::kPriority) return urgent_;
    return context_->streams[order == LocalWay::Order::kStreams ? 1 : 0];
  }

  HostWord& gemms_end() { return gemms_end_; }
  HostWord& collective_end() { return collective_end_; }
  uint64_t NextRun() { return ++runs_; }

 private:
  std::unique_ptr<Context> context_;
  CUstream urgent_ = nullptr;  // of the highest priority
  CUdeviceptr gemm_memory_ = 0, source_ = 0, output_ = 0;
  std::unique_ptr<RankNccl> nccl_;
  HostWord gemms_end_, collective_end_;  // the GPU counts runs up here
  uint64_t runs_ = 0;
};

absl::Status CudaRank::Prepare(uint32_t rank, RankBoard& board, std::span<const LocalWay> ways,
                               const RankMemorySizes& sizes) {
  int lowest = 0, highest = 0;
  CONCERT_BENCH_RETURN_IF_ERROR(*context_, api.driver, cuCtxGetStreamPriorityRange, &lowest,
                                &highest);
  CONCERT_BENCH_RETURN_IF_ERROR(*context_, api.driver, cuStreamCreateWithPriority, &urgent_,
                                CU_STREAM_NON_BLOCKING, highest);
  CONCERT_BENCH_RETURN_IF_ERROR(*context_, api.driver, cuMemAlloc, &gemm_memory_,
                                std::max<uint64_t>(sizes.gemm, 1));
  for (HostWord* word : {&gemms_end_, &collective_end_}) {
    if (absl::Status prepared = word->Prepare(); !prepared.ok()) return prepared;
  }
  absl::StatusOr<std::unique_ptr<RankNccl>> nccl = RankNccl::Open(*context_, rank, board.ranks);
  if (!nccl.ok()) return nccl.status();
  nccl_ = *std::move(nccl);
  for (const auto& [bytes, address] :
       {std::pair(sizes.source, &source_), std::pair(sizes.output, &output_)}) {
    const uint64_t pages = std::max<uint64_t>(1, (bytes + kGpuPageBytes - 1) / kGpuPageBytes);
    const absl::StatusOr<CUdeviceptr> allocated = nccl_->Allocate(pages * kGpuPageBytes);
    if (!allocated.ok()) return allocated.status();
    *address = *allocated;
  }
  std::set<LocalWay::Library> libraries;  // in the same order in every rank
  for (const LocalWay& way : ways) libraries.insert(way.library);
  return nccl_->Connect(board, std::vector(libraries.begin(), libraries.end()));
}

class CudaRankClient : public RankClient {
 public:
  CudaRankClient(CudaRank& rank, const LocalWay& way)
      : rank_(rank), way_(way), stream_(rank.StreamOf(way.order)) {}

  absl::Status Prepare(const OverlapTask& task, const GemmWorkload& workload) override;
  absl::StatusOr<RunEnds> Run(bool gemms, bool collective, uint64_t start_ns) override;
  absl::Status Write(RankMemory memory, uint64_t offset, std::span<const uint8_t> data) override {
    const Context& context = rank_.context();
    CONCERT_BENCH_RETURN_IF_ERROR(context, api.driver, cuMemcpyHtoDAsync,
                                  rank_.memory(memory) + offset, data.data(), data.size(),
                                  context.streams[0]);
    return Synchronize();
  }
  absl::Status Read(RankMemory memory, uint64_t offset, std::span<uint8_t> data) override {
    const Context& context = rank_.context();
    CONCERT_BENCH_RETURN_IF_ERROR(context, api.driver, cuMemcpyDtoHAsync, data.data(),
                                  rank_.memory(memory) + offset, data.size(), context.streams[0]);
    return Synchronize();
  }

 private:
  absl::Status Synchronize() {
    const Context& context = rank_.context();
    CONCERT_BENCH_RETURN_IF_ERROR(context, api.driver, cuStreamSynchronize, context.streams[0]);
    return absl::OkStatus();
  }
  absl::Status LaunchGemms(uint64_t run);
  absl::Status LaunchCollective(uint64_t run);

  CudaRank& rank_;
  const LocalWay way_;
  const CUstream stream_;  // of the collective
  OverlapTask task_;
  const GemmWorkload* workload_ = nullptr;
  std::vector<LtGemm> gemm_;  // one
};

std::unique_ptr<RankClient> CudaRank::Client(const LocalWay& way) {
  return std::make_unique<CudaRankClient>(*this, way);
}

absl::Status CudaRankClient::Prepare(const OverlapTask& task, const GemmWorkload& workload) {
  if (way_.library == LocalWay::Library::kZeroCta) {
    if (!rank_.nccl().zero_cta().ok()) return rank_.nccl().zero_cta();
    const CollectiveKind kind = task.collective.kind;
    if (kind != CollectiveKind::kAllGather && kind != CollectiveKind::kAllToAll) {
      return absl::NotFoundError(
          "NCCL's copy engines carry all_gather and all_to_all; the rest would go by its kernels");
    }
  }
  absl::StatusOr<LtGemm> gemm = LtGemm::Plan(rank_.context(), task.gemm);
  if (!gemm.ok()) return gemm.status();
  gemm_ = {*std::move(gemm)};
  task_ = task;
  workload_ = &workload;
  return absl::OkStatus();
}

absl::Status CudaRankClient::LaunchGemms(uint64_t run) {
  for (uint32_t i = 0; i < task_.repeat; ++i) {
    const int set = static_cast<int>(i) % workload_->sets();
    absl::Status launched = gemm_.front().Enqueue(rank_.context(), rank_.memory(RankMemory::kGemm),
                                                  workload_->place(set, 0), /*stream=*/0);
    if (!launched.ok()) return launched;
  }
  return rank_.gemms_end().Write(/*stream=*/0, run);
}

absl::Status CudaRankClient::LaunchCollective(uint64_t run) {
  absl::Status launched =
      rank_.nccl().Launch(way_.library, task_.collective, rank_.memory(RankMemory::kSource),
                          rank_.memory(RankMemory::kOutput), stream_);
  return launched.ok() ? rank_.collective_end().Write(stream_, run) : launched;
}

absl::StatusOr<RunEnds> CudaRankClient::Run(bool gemms, bool collective, uint64_t start_ns) {
  const bool gemms_first = way_.order == LocalWay::Order::kSerial;
  const uint64_t run = rank_.NextRun();
  const Context& context = rank_.context();  // others of this process use theirs in between
  CONCERT_BENCH_RETURN_IF_ERROR(context, api.driver, cuCtxSetCurrent, context.context);
  absl::Status launched;
  if (gemms && gemms_first) launched = LaunchGemms(run);
  if (collective && launched.ok()) launched = LaunchCollective(run);
  if (gemms && !gemms_first && launched.ok()) launched = LaunchGemms(run);
  if (!launched.ok()) return launched;

  return PollEnds(
      start_ns, gemms, collective, [&] { return rank_.gemms_end().Reached(run); },
      [&] { return rank_.collective_end().Reached(run); });
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalRank>> LocalRank::Open(const std::array<uint8_t, 16>& uuid,
                                                           uint32_t rank, RankBoard& board,
                                                           std::span<const LocalWay> ways,
                                                           const RankMemorySizes& sizes) {
  absl::StatusOr<std::unique_ptr<Context>> context =
      Context::Open(uuid, /*streams=*/2, /*high_priority=*/false);
  if (!context.ok()) return context.status();
  auto local = std::make_unique<CudaRank>(*std::move(context));
  if (absl::Status prepared = local->Prepare(rank, board, ways, sizes); !prepared.ok())
    return prepared;
  return local;
}

}  // namespace concert::bench
