#include "tests/bench/local_isolated.h"

#include <chrono>
#include <utility>

#include "tests/bench/local_host_word.h"

namespace concert::bench::local {
namespace {

using Clock = std::chrono::steady_clock;

class PlainLaunches : public LocalIsolated {
 public:
  PlainLaunches(const Context& context, const GemmWorkload& workload, uint64_t memory,
                std::vector<LtGemm> kernels)
      : context_(context),
        workload_(workload),
        memory_(memory),
        kernels_(std::move(kernels)),
        word_(context) {}
  absl::Status Prepare() { return word_.Prepare(); }

  absl::StatusOr<double> RunOnce(int set) override {
    const Clock::time_point begin = Clock::now();
    for (int gemm = 0; gemm < workload_.gemms(); ++gemm) {
      absl::Status enqueued =
          kernels_[gemm].Enqueue(context_, memory_, workload_.place(set, gemm), /*stream=*/0);
      if (!enqueued.ok()) return enqueued;
    }
    if (absl::Status written = word_.Write(/*stream=*/0, ++batches_); !written.ok()) return written;
    return word_.Await(batches_, begin);
  }

 private:
  const Context& context_;
  const GemmWorkload& workload_;
  const uint64_t memory_;
  const std::vector<LtGemm> kernels_;  // by GEMM
  HostWord word_;                      // the GPU counts batches up here
  uint64_t batches_ = 0;
};

class IsolatedGraph : public LocalIsolated {
 public:
  explicit IsolatedGraph(const Context& context) : word_(context) {}
  absl::Status Prepare() { return word_.Prepare(); }

  // The write of the word is a node of the graph, so that its value is the same every time.
  absl::Status AddSet(const Context& context, const std::function<absl::Status()>& enqueue) {
    absl::StatusOr<Graph> graph = Graph::Capture(context, [&] {
      const absl::Status enqueued = enqueue();
      return enqueued.ok() ? word_.Write(/*stream=*/0, 1) : enqueued;
    });
    if (graph.ok()) graphs_.push_back(*std::move(graph));
    return graph.status();
  }

  absl::StatusOr<double> RunOnce(int set) override {
    word_.Clear();
    const Clock::time_point begin = Clock::now();
    if (absl::Status launched = graphs_[set].Launch(); !launched.ok()) return launched;
    return word_.Await(1, begin);
  }

 private:
  HostWord word_;
  std::vector<Graph> graphs_;  // by set
};

}  // namespace

absl::StatusOr<std::unique_ptr<LocalIsolated>> MakePlainLaunches(const Context& context,
                                                                 const GemmWorkload& workload,
                                                                 uint64_t memory,
                                                                 std::vector<LtGemm> kernels) {
  auto launches = std::make_unique<PlainLaunches>(context, workload, memory, std::move(kernels));
  if (absl::Status prepared = launches->Prepare(); !prepared.ok()) return prepared;
  return launches;
}

absl::StatusOr<std::unique_ptr<LocalIsolated>> MakeIsolatedGraph(
    const Context& context, const GemmWorkload& workload, uint64_t memory,
    const std::vector<GraphLaunch>& launches, const std::vector<LtGemm>& kernels) {
  auto isolated = std::make_unique<IsolatedGraph>(context);
  if (absl::Status prepared = isolated->Prepare(); !prepared.ok()) return prepared;
  for (int set = 0; set < workload.sets(); ++set) {
    absl::Status added = isolated->AddSet(
        context, [&] { return EnqueueAll(context, workload, memory, set, launches, kernels); });
    if (!added.ok()) return added;
  }
  return isolated;
}

}  // namespace concert::bench::local
