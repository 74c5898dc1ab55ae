#include "daemon/device/sim/kernel_shape.h"

#include <algorithm>

#include "policies/cost/cost_model.h"

namespace concert::daemon::sim {
namespace {

constexpr int64_t kTileRows = 128, kSmallTileRows = 64, kTileColumns = 128;
// A split of K below this depth costs more in the reduction than it gains.
constexpr int64_t kMinSplitDepth = 512;
// A memory-bound kernel reaches full HBM bandwidth with about half of the SMs busy, so one SM draws
// at most 2 / sm_count of it.
constexpr double kSmHbmShare = 2.0;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The shape of `tiles` tiles that compute `flops` and move the work's bytes.
KernelShape Divide(const policies::DeviceModel& device, const policies::Work& work, int64_t tiles,
                   double flops) {
  KernelShape shape;
  shape.tiles = std::min(tiles, kMaxTiles);
  const double count = static_cast<double>(shape.tiles);
  shape.tile_bytes = static_cast<double>(work.hbm_bytes) / count;
  const double sm_flops_per_ns = policies::PeakFlops(device, work) / device.sm_count / 1e9;
  const double sm_bytes_per_ns = device.hbm_bytes_per_s * kSmHbmShare / device.sm_count / 1e9;
  shape.tile_ns = std::max(flops / count / sm_flops_per_ns, shape.tile_bytes / sm_bytes_per_ns);
  shape.floor_ns = device.kernel_floor_us * 1e3;
  return shape;
}

KernelShape ShapeOfGemm(const policies::DeviceModel& device, const policies::Work& work) {
  const int64_t m = work.m, n = work.n, k = work.k, batch = work.batch;
  const int64_t rows = m <= kSmallTileRows ? kSmallTileRows : kTileRows;
  const int64_t output_tiles = CeilDiv(m, rows) * CeilDiv(n, kTileColumns) * batch;
  const int64_t splits =
      std::clamp<int64_t>(device.sm_count / output_tiles, 1, CeilDiv(k, kMinSplitDepth));
  // Tiles are computed whole: what sticks out of D is work too.
  const double flops = 2.0 * static_cast<double>(output_tiles) *
                       static_cast<double>(rows * kTileColumns) * static_cast<double>(k);
  return Divide(device, work, output_tiles * splits, flops);
}

// A row op's arithmetic costs nothing beside its bytes.
KernelShape ShapeOfRows(const policies::DeviceModel& device, const policies::Work& work) {
  return Divide(device, work, std::max<int64_t>(1, work.m), 0);
}

}  // namespace

void KernelShape::Merge(const KernelShape& other) {
  const double own = static_cast<double>(tiles), its = static_cast<double>(other.tiles);
  tile_ns = (tile_ns * own + other.tile_ns * its) / (own + its);
  tile_bytes = (tile_bytes * own + other.tile_bytes * its) / (own + its);
  tiles += other.tiles;
  floor_ns = std::max(floor_ns, other.floor_ns);
}

KernelShape ShapeOf(const policies::DeviceModel& device, const policies::Work& work) {
  return work.is_gemm() ? ShapeOfGemm(device, work) : ShapeOfRows(device, work);
}

}  // namespace concert::daemon::sim
