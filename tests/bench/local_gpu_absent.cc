// Builds without CUDA.
#include "tests/bench/local_gpu.h"
#include "tests/bench/rank_client.h"

namespace concert::bench {
namespace {

absl::Status Absent() { return absl::UnavailableError("concert-bench was built without CUDA"); }

}  // namespace

absl::StatusOr<std::unique_ptr<LocalGpu>> LocalGpu::Open(const GpuUuid&) { return Absent(); }

absl::StatusOr<std::unique_ptr<ChainClient>> MakeLocalChainClient(const GpuUuid&, bool,
                                                                  const GemmWorkload&,
                                                                  const std::vector<uint8_t>&) {
  return Absent();
}

absl::StatusOr<std::unique_ptr<LocalRank>> LocalRank::Open(const std::array<uint8_t, 16>&, uint32_t,
                                                           RankBoard&, std::span<const LocalWay>,
                                                           const RankMemorySizes&) {
  return Absent();
}

}  // namespace concert::bench
