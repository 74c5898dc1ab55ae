#include "tests/bench/local_gpu.h"

#include <fstream>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/bench/graph_launches.h"
#include "tests/bench/local_context.h"
#include "tests/bench/local_gemm.h"
#include "tests/bench/local_isolated.h"
#include "tests/bench/local_library.h"

namespace concert::bench {
namespace {

using local::Context;
using local::Cublas;
using local::EnqueueAll;
using local::Graph;
using local::LibraryGroup;
using local::LtGemm;
using local::LtTuner;

class GraphRun : public LocalRun {
 public:
  // The group, where there is one, holds what the graph's nodes read.
  GraphRun(Graph graph, int batches, std::unique_ptr<LibraryGroup> group)
      : group_(std::move(group)), graph_(std::move(graph)), batches_(batches) {}

  absl::StatusOr<double> Run(int batches) override {
    const absl::StatusOr<double> replay_us = graph_.Time((batches + batches_ - 1) / batches_);
    if (!replay_us.ok()) return replay_us.status();
    return *replay_us / batches_;
  }

 private:
  std::unique_ptr<LibraryGroup> group_;
  Graph graph_;
  int batches_;
};

class CudaGpu : public LocalGpu {
 public:
  explicit CudaGpu(std::unique_ptr<Context> context) : context_(std::move(context)) {}

  absl::StatusOr<std::unique_ptr<LocalRun>> Record(const GemmWorkload& workload, uint64_t memory,
                                                   Form form) override;
  absl::StatusOr<std::unique_ptr<LocalIsolated>> Isolate(const GemmWorkload& workload,
                                                         uint64_t memory,
                                                         IsolatedForm form) override;
  std::shared_ptr<uint8_t[]> AllocatePinned(uint64_t bytes) override;
  Versions versions() const override;

 private:
  absl::StatusOr<std::unique_ptr<LocalRun>> RecordLibrary(const GemmWorkload& workload,
                                                          uint64_t memory);
  // The kernel of each launch.
  absl::StatusOr<std::vector<LtGemm>> KernelsOf(const GemmWorkload& workload, uint64_t memory,
                                                const std::vector<GraphLaunch>& launches);

  std::unique_ptr<Context> context_;
  LtTuner tuner_;
  std::optional<absl::StatusOr<std::unique_ptr<Cublas>>> cublas_;  // opened on first use
};

absl::StatusOr<std::vector<LtGemm>> CudaGpu::KernelsOf(const GemmWorkload& workload,
                                                       uint64_t memory,
                                                       const std::vector<GraphLaunch>& launches) {
  std::map<std::pair<int, std::optional<policies::Degree>>, LtGemm> known;
  std::vector<LtGemm> kernels;
  for (const GraphLaunch& launch : launches) {
    const auto key = std::pair(launch.gemm, launch.tuned_for);
    if (!known.contains(key)) {
      absl::StatusOr<LtGemm> kernel =
          launch.tuned_for
              ? tuner_.Fastest(*context_, workload, memory, launch.gemm, *launch.tuned_for)
              : LtGemm::Plan(*context_, workload.shape(launch.gemm));
      if (!kernel.ok()) return kernel.status();
      known.emplace(key, *kernel);
    }
    kernels.push_back(known.at(key));
  }
  return kernels;
}

absl::StatusOr<std::unique_ptr<LocalRun>> CudaGpu::Record(const GemmWorkload& workload,
                                                          uint64_t memory, Form form) {
  CONCERT_BENCH_RETURN_IF_ERROR(*context_, api.driver, cuCtxSetCurrent, context_->context);
  if (form == Form::kGroupLibrary) return RecordLibrary(workload, memory);
  const auto launches = LaunchesOf(form, workload, context_->sm_count);
  if (!launches.ok()) return launches.status();
  const absl::StatusOr<std::vector<LtGemm>> kernels = KernelsOf(workload, memory, *launches);
  if (!kernels.ok()) return kernels.status();
  absl::StatusOr<Graph> graph = Graph::Capture(*context_, [&] {
    return EnqueueAll(*context_, workload, memory, /*first_set=*/0, *launches, *kernels);
  });
  if (!graph.ok()) return graph.status();
  return std::make_unique<GraphRun>(*std::move(graph), workload.batches_per_round(), nullptr);
}

absl::StatusOr<std::unique_ptr<LocalIsolated>> CudaGpu::Isolate(const GemmWorkload& workload,
                                                                uint64_t memory,
                                                                IsolatedForm form) {
  CONCERT_BENCH_RETURN_IF_ERROR(*context_, api.driver, cuCtxSetCurrent, context_->context);
  std::vector<GraphLaunch> launches = LaunchesOfBatch(workload);
  const bool graph = form == IsolatedForm::kGraph;
  if (!graph) {
    for (GraphLaunch& launch : launches) launch = {launch.batch, launch.gemm, 0, std::nullopt};
  }
  absl::StatusOr<std::vector<LtGemm>> kernels = KernelsOf(workload, memory, launches);
  if (!kernels.ok()) return kernels.status();
  if (graph) return local::MakeIsolatedGraph(*context_, workload, memory, launches, *kernels);
  return local::MakePlainLaunches(*context_, workload, memory, *std::move(kernels));
}

absl::StatusOr<std::unique_ptr<LocalRun>> CudaGpu::RecordLibrary(const GemmWorkload& workload,
                                                                 uint64_t memory) {
  if (!cublas_) cublas_ = Cublas::Open(*context_);
  if (!cublas_->ok()) return cublas_->status();
  auto group = LibraryGroup::Make(*context_, ***cublas_, workload, memory);
  if (!group.ok()) return group.status();
  const int batches = workload.batches_per_round();
  absl::StatusOr<Graph> graph = Graph::Capture(*context_, [&] {
    absl::Status status;
    for (int batch = 0; batch < batches && status.ok(); ++batch)
      status = (*group)->Enqueue(batch % workload.sets());
    return status;
  });
  // A library that cannot be captured has no best case to compare with.
  if (!graph.ok()) return absl::NotFoundError(graph.status().message());
  return std::make_unique<GraphRun>(*std::move(graph), batches, *std::move(group));
}

std::shared_ptr<uint8_t[]> CudaGpu::AllocatePinned(uint64_t bytes) {
  const auto& driver = context_->api.driver;
  void* memory = nullptr;
  if (driver.cuCtxSetCurrent(context_->context) != CUDA_SUCCESS ||
      driver.cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE) != CUDA_SUCCESS) {
    return nullptr;
  }
  return {static_cast<uint8_t*>(memory),
          [&driver](uint8_t* freed) { driver.cuMemFreeHost(freed); }};
}

std::string Dotted(int64_t version, int64_t major_unit, int64_t minor_unit) {
  return absl::StrCat(version / major_unit, ".", version % major_unit / minor_unit);
}

LocalGpu::Versions CudaGpu::versions() const {
  Versions versions;
  int cuda = 0, nccl = 0;
  if (context_->api.driver.cuDriverGetVersion(&cuda) == CUDA_SUCCESS)
    versions.cuda = Dotted(cuda, 1000, 10);
  const size_t cublas = context_->api.cublaslt.cublasLtGetVersion();  // 130100
  versions.cublas = absl::StrCat(Dotted(cublas, 10000, 100), ".", cublas % 100);
  if (context_->api.nccl && context_->api.nccl->ncclGetVersion(&nccl) == 0) {  // 22803
    versions.nccl = absl::StrCat(Dotted(nccl, 10000, 100), ".", nccl % 100);
  }
  // "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build ..."
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; versions.driver.empty() && file >> word;) {
    if (word.find('.') != std::string::npos &&
        word.find_first_not_of("0123456789.") == std::string::npos) {
      versions.driver = word;
    }
  }
  return versions;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalGpu>> LocalGpu::Open(const GpuUuid& uuid) {
  absl::StatusOr<std::unique_ptr<Context>> context =
      Context::Open(uuid, kMaxStreams, /*high_priority=*/false);
  if (!context.ok()) return context.status();
  return std::make_unique<CudaGpu>(*std::move(context));
}

}  // namespace concert::bench
