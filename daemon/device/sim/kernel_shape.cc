#include "daemon/device/sim/kernel_shape.h"

#include <algorithm>

#include "policies/cost/cost_model.h"

namespace concert::daemon::sim {
namespace {

constexpr int64_t kTileRows = 128, kSmallTileRows = 64, kTileColumns = 128;
// A split of K below this depth costs more in the reduction than it gains.
constexpr int64_t kMinSplitDepth = 512;
// Filling a tile's pipeline and storing its results: what 128 rows take in the group kernel
// (GroupCostConstants::item_us, measured). With it the model is as far off as ADR 22 says.
constexpr double kTileStartNs = 1200;
// A memory-bound kernel reaches full HBM bandwidth with about half of the SMs busy, so one SM draws
// at most 2 / sm_count of it.
constexpr double kSmHbmShare = 2.0;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t TileRows(const policies::Work& work) {
  return work.m <= kSmallTileRows ? kSmallTileRows : kTileRows;
}

// Tiles of D, or rows.
int64_t OutputTiles(const policies::Work& work) {
  if (!work.is_gemm()) return std::max<int64_t>(1, work.m);
  return CeilDiv(work.m, TileRows(work)) * CeilDiv(work.n, kTileColumns) * work.batch;
}

// How many tiles of a kernel with `all_tiles` outputs work on each of this GEMM's.
int64_t Splits(const policies::DeviceModel& device, const policies::Work& work, int64_t all_tiles) {
  if (!work.is_gemm()) return 1;
  return std::clamp<int64_t>(device.sm_count / all_tiles, 1, CeilDiv(work.k, kMinSplitDepth));
}

// What the work's tiles take together, each on an SM of its own. A row op's arithmetic costs
// nothing beside its bytes.
double TilesNs(const policies::DeviceModel& device, const policies::Work& work, int64_t tiles) {
  const double sm_bytes_per_ns = device.hbm_bytes_per_s * kSmHbmShare / device.sm_count / 1e9;
  const double bytes_ns = static_cast<double>(work.hbm_bytes) / sm_bytes_per_ns;
  if (work.run_us > 0) return std::min(bytes_ns, 1e3 * work.run_us * static_cast<double>(tiles));
  if (!work.is_gemm()) return bytes_ns;
  // Tiles are computed whole: what sticks out of D is work too.
  const double flops = 2.0 * static_cast<double>(OutputTiles(work) * TileRows(work)) *
                       static_cast<double>(kTileColumns) * static_cast<double>(work.k);
  const double sm_flops_per_ns = policies::PeakFlops(device, work) / device.sm_count / 1e9;
  return std::max(bytes_ns, static_cast<double>(tiles) * kTileStartNs + flops / sm_flops_per_ns);
}

// Of programs there is one model, the policies' (ADR 24). That is what a run takes alone; beside
// others its tiles share SMs and HBM.
double FloorUs(const policies::DeviceModel& device, const policies::Work& work) {
  return work.run_us > 0 ? work.run_us : work.steps * device.kernel_floor_us;
}

}  // namespace

KernelShape ShapeOf(const policies::DeviceModel& device, std::span<const kernels::Op* const> ops) {
  int64_t output_tiles = 0, all_tiles = 0;
  for (const kernels::Op* op : ops) output_tiles += OutputTiles(op->work);
  double ns = 0, bytes = 0;
  double floor_us = device.kernel_floor_us;
  for (const kernels::Op* op : ops) {
    const int64_t tiles = OutputTiles(op->work) * Splits(device, op->work, output_tiles);
    all_tiles += tiles;
    ns += TilesNs(device, op->work, tiles);
    bytes += static_cast<double>(op->work.hbm_bytes);
    floor_us = std::max(floor_us, FloorUs(device, op->work));
  }
  KernelShape shape{.tiles = std::min(all_tiles, kMaxTiles), .floor_ns = floor_us * 1e3};
  shape.tile_ns = ns / static_cast<double>(shape.tiles);
  shape.tile_bytes = bytes / static_cast<double>(shape.tiles);
  return shape;
}

KernelShape InBlocks(const KernelShape& shape, int sms) {
  if (shape.tiles <= sms) return shape;
  KernelShape blocks = shape;
  blocks.tiles = sms;
  blocks.tile_ns *= static_cast<double>(CeilDiv(shape.tiles, sms));
  blocks.tile_bytes *= static_cast<double>(shape.tiles) / sms;
  return blocks;
}

}  // namespace concert::daemon::sim
