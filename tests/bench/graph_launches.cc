#include "tests/bench/graph_launches.h"

#include <algorithm>

#include "tests/bench/model_rounds.h"

namespace concert::bench {
namespace {

using Form = LocalGpu::Form;
using policies::Degree;

// GEMM i of every batch, or of every batch in flight, on a stream of its own.
struct Layout {
  int streams = 1;
  int batches = 1;  // that have streams of their own
  std::optional<Degree> tuned_for;
};

Layout LayoutOf(Form form, int gemms) {
  const int streams = std::min(gemms, kMaxStreams);
  switch (form) {
    case Form::kSerialTuned:
      return {.tuned_for = Degree::kSolo};
    case Form::kStreams:
      return {.streams = streams};
    case Form::kStreamsTuned:
      return {.streams = streams, .tuned_for = policies::DegreeOf(streams)};
    case Form::kStreamsWide:
      return {.streams = std::min(gemms * GemmWorkload::kBatchesInFlight, kMaxStreams),
              .batches = GemmWorkload::kBatchesInFlight};
    default:
      return {};
  }
}

absl::StatusOr<std::vector<GraphLaunch>> LaunchesOfGoldyloc(const GemmWorkload& workload,
                                                            int sm_count) {
  const auto planned = LaunchesOfRound("goldyloc", workload, sm_count);
  if (!planned.ok()) return planned.status();
  std::vector<GraphLaunch> launches;
  for (const RoundLaunch& launch : *planned)
    launches.push_back({launch.batch, launch.gemm, launch.lane, launch.degree});
  return launches;
}

}  // namespace

absl::StatusOr<std::vector<GraphLaunch>> LaunchesOf(Form form, const GemmWorkload& workload,
                                                    int sm_count) {
  if (form == Form::kGoldyloc) return LaunchesOfGoldyloc(workload, sm_count);
  const int gemms = workload.gemms();
  const Layout layout = LayoutOf(form, gemms);
  std::vector<GraphLaunch> launches;
  for (int batch = 0; batch < workload.batches_per_round(); ++batch) {
    for (int gemm = 0; gemm < gemms; ++gemm) {
      const int stream = (batch % layout.batches * gemms + gemm) % layout.streams;
      launches.push_back({batch, gemm, stream, layout.tuned_for});
    }
  }
  return launches;
}

std::vector<GraphLaunch> LaunchesOfBatch(const GemmWorkload& workload) {
  const Layout layout = LayoutOf(Form::kStreamsTuned, workload.gemms());
  std::vector<GraphLaunch> launches;
  for (int gemm = 0; gemm < workload.gemms(); ++gemm)
    launches.push_back({0, gemm, gemm % layout.streams, layout.tuned_for});
  return launches;
}

int StreamCount(const std::vector<GraphLaunch>& launches) {
  int streams = 1;
  for (const GraphLaunch& launch : launches) streams = std::max(streams, launch.stream + 1);
  return streams;
}

}  // namespace concert::bench
