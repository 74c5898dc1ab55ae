#include "kernels/group/plan/cost.h"

#include <algorithm>
#include <cmath>

namespace concert::kernels {

GroupCosts::GroupCosts(const GroupCostConstants& constants, std::span<const GroupTile> tiles)
    : constants_(constants), shapes_(tiles) {
  const GroupCostConstants& c = constants_;
  for (size_t i = 0; i < tiles.size(); ++i) {
    const GroupTile tile = tiles[i];
    // What a block holds, and what it loads itself.
    const uint32_t sharing = BlocksPerTile(tile), w_rows = tile.w_rows / sharing;
    const uint32_t stage_bytes = (w_rows + tile.a_rows) * kGroupBlockKBytes;
    const uint32_t stages = std::min(c.ring_stages, c.ring_bytes / stage_bytes);
    const double a_rows = 1.0 * tile.a_rows / sharing;
    const double dear_bytes = (w_rows + c.a_byte_share * a_rows) * kGroupBlockKBytes;
    const double us_per_a_row =
        w_rows == 128 ? c.stage_us_per_a_row_w128 : c.stage_us_per_a_row_w64;
    const uint32_t partial_bytes = tile.w_rows * tile.a_rows * sizeof(float);
    tiles_[i] = {.item_us = c.item_us + c.item_us_per_a_row * tile.a_rows,
                 .split_us = c.split_us + partial_bytes / c.split_bytes_per_us,
                 .partial_bytes = partial_bytes};
    const double least_us =
        std::max(us_per_a_row * tile.a_rows + c.stage_us, c.load_latency_us / stages);
    for (int rows = 0; rows < kGroupRowsCount; ++rows) {
      const double load_us = dear_bytes / (c.sm_bytes_per_us * c.rows_share[rows]);
      tiles_[i].stage_us[rows] = std::max(least_us, load_us);
    }
  }
}

// It multiplies as a smaller tile does, and what lies beyond the rows of A is not fetched.
double GroupCosts::TailUs(int tile, int tail_rows, GroupRows rows, uint32_t k_blocks,
                          bool split) const {
  const GroupTile like = {shapes_[tile].w_rows, static_cast<uint16_t>(tail_rows)};
  const auto found = std::find(shapes_.begin(), shapes_.end(), like);
  return ItemUs(static_cast<int>(found - shapes_.begin()), rows, k_blocks, split);
}

double GroupCosts::Us(double score) { return std::cbrt(std::sqrt(score)); }

double HbmBytes(const policies::Problem& problem) {
  const double m = problem.m, n = problem.n, k = problem.k;
  return (m * k + n * k) * policies::DtypeBytes(problem.dtype) + m * n * 2;
}

}  // namespace concert::kernels
