#include "policies/cost/cost_model.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace concert::policies {
namespace {

// Of each half of a sum that is split along K; only long ones are worth it (costs.split_us).
constexpr uint64_t kMinKPerSplit = 1024;
constexpr uint64_t kBlockK = 64;

// Tiles of cuBLASLt's Hopper kernels and their operand-swapped forms, as powers of two.
struct Tile {
  int log2_m, log2_n;
};
constexpr std::array<Tile, 10> kTiles = {
    {{4, 6}, {5, 6}, {6, 6}, {7, 6}, {6, 7}, {4, 7}, {5, 7}, {7, 7}, {8, 7}, {7, 8}}};

constexpr uint64_t CeilShift(uint64_t value, int shift) {
  return (value + (uint64_t{1} << shift) - 1) >> shift;
}

// How a GEMM lies on the SMs.
struct Layout {
  double us = 0;     // fill, waves and split, without the floor
  double share = 0;  // mean share of the SMs in use
  double waves = 1;
};

Layout LayOut(double blocks, double block_us, double extra_us, double sms) {
  const double waves = static_cast<double>(static_cast<uint64_t>((blocks + sms - 1) / sms));
  return {.us = waves * block_us + extra_us, .share = blocks / (waves * sms), .waves = waves};
}

Layout BestLayout(const DeviceModel& device, const Work& work, double sms) {
  const CostConstants& costs = device.costs;
  const uint64_t element = DtypeBytes(work.dtype);
  const uint64_t row_bytes = work.k * element;
  const double slowness = work.repack_bytes == 0 && row_bytes % 16 == 0 ? 1
                          : row_bytes % 4 == 0 ? costs.unaligned_words_factor
                                               : costs.unaligned_factor;
  const double peak_share = work.dtype == Dtype::kFp8E4m3 ? costs.fp8_share : 1;
  const double flops_us = 2e6 * kBlockK * device.sm_count / (PeakFlops(device, work) * peak_share);
  const double bytes_us = 1e6 * static_cast<double>(kBlockK * element) / costs.sm_bytes_per_s;
  const double k_blocks = static_cast<double>((work.k + kBlockK - 1) / kBlockK);
  Layout best;
  double best_merit = 0;
  const auto consider = [&](const Layout& layout) {
    const double merit = layout.us * (1 - costs.hoarding * layout.share);
    if (best_merit > 0 && merit >= best_merit) return;
    best = layout;
    best_merit = merit;
  };
  for (const Tile tile : kTiles) {
    const double blocks = static_cast<double>(CeilShift(work.m, tile.log2_m)) *
                          static_cast<double>(CeilShift(work.n, tile.log2_n)) *
                          std::max(1u, work.batch);
    const double rows = 1 << tile.log2_m, columns = 1 << tile.log2_n;
    const double step_us =
        std::max(flops_us * rows * columns, bytes_us * (rows + columns)) * slowness;
    const double store_us = costs.store_us_per_element * rows * columns;
    consider(LayOut(blocks, k_blocks * step_us + store_us, costs.fill_us, sms));
    if (2 * blocks <= sms && work.k >= 2 * kMinKPerSplit) {
      consider(LayOut(2 * blocks, k_blocks / 2 * step_us + store_us, costs.fill_us + costs.split_us,
                      sms));
    }
  }
  return best;
}

OpCost GemmCost(const DeviceModel& device, const Work& work, double sms) {
  OpCost cost;
  cost.hbm_us = 1e6 * static_cast<double>(work.hbm_bytes) /
                (device.hbm_bytes_per_s * device.costs.hbm_efficiency);
  const Layout layout = BestLayout(device, work, sms);
  cost.busy_us = std::max({layout.us, cost.hbm_us, RooflineUs(device, work)});
  cost.sm_share = layout.share * sms / device.sm_count;
  cost.wave_us = layout.waves > 1 ? cost.busy_us / layout.waves : 0;
  cost.crowding =
      device.costs.handover_us + device.costs.wave_crowding * (layout.waves - 1) * cost.busy_us;
  return cost;
}

// Rows that are computed each for itself: a block for each, bound by what it can draw or multiply.
OpCost RowCost(const DeviceModel& device, const Work& work, double sms) {
  OpCost cost;
  const double bytes = static_cast<double>(work.hbm_bytes);
  const double blocks = std::clamp(static_cast<double>(work.m), 1.0, sms);
  cost.sm_share = blocks / device.sm_count;
  cost.hbm_us = 1e6 * bytes / (device.hbm_bytes_per_s * device.costs.hbm_efficiency);
  const double flops_us = 1e6 * static_cast<double>(work.flops) /
                          (PeakFlops(device, work) * work.flops_share * cost.sm_share);
  cost.busy_us =
      device.costs.fill_us + (work.steps - 1) * device.kernel_floor_us +
      std::max({cost.hbm_us, 1e6 * bytes / (blocks * device.costs.sm_bytes_per_s), flops_us});
  return cost;
}

// A run of a program, which holds some SMs from its start to its end.
OpCost RunCostOf(const DeviceModel& device, const Work& work, double sms) {
  OpCost cost;
  cost.sm_share = std::clamp(static_cast<double>(work.m), 1.0, sms) / device.sm_count;
  cost.hbm_us = 1e6 * static_cast<double>(work.hbm_bytes) /
                (device.hbm_bytes_per_s * device.costs.hbm_efficiency);
  cost.busy_us = std::max(cost.hbm_us, work.run_us - device.kernel_floor_us);
  return cost;
}

double LinkUs(const DeviceModel& device, const Work& work) {
  return 1e6 * static_cast<double>(work.link_bytes) / device.link_bytes_per_s;
}

OpCost CollectiveCost(const DeviceModel& device, const Work& work) {
  OpCost cost;
  cost.hbm_us = 1e6 * static_cast<double>(work.hbm_bytes) / device.hbm_bytes_per_s;
  cost.busy_us = std::max(cost.hbm_us, LinkUs(device, work)) +
                 std::max(0.0, device.collective_floor_us - device.kernel_floor_us);
  cost.sm_share = static_cast<double>(CollectiveSms(device)) / device.sm_count;
  return cost;
}

OpCost CopyCost(const DeviceModel& device, const Work& work) {
  OpCost cost;
  cost.hbm_us = 1e6 * static_cast<double>(work.hbm_bytes) / device.hbm_bytes_per_s;
  cost.busy_us = std::max(cost.hbm_us, LinkUs(device, work));
  return cost;
}

}  // namespace

int CollectiveSms(const DeviceModel& device) {
  constexpr int kMost = 24, kPart = 5;
  if (device.collective_sms > 0) return std::min(device.collective_sms, device.sm_count - 1);
  return std::clamp(device.sm_count / kPart, 1, kMost);
}

double PeakFlops(const DeviceModel& device, const Work& work) {
  if (work.dtype == Dtype::kFp8E4m3) return device.fp8_flops;
  if (work.dtype != Dtype::kFp32) return device.tensor_flops;
  return work.allow_tf32 ? device.tf32_flops : device.fp32_flops;
}

double RooflineUs(const DeviceModel& device, const Work& work) {
  const double flops_us = static_cast<double>(work.flops) / PeakFlops(device, work);
  const double hbm_us = static_cast<double>(work.hbm_bytes) / device.hbm_bytes_per_s;
  const double link_us = static_cast<double>(work.link_bytes) / device.link_bytes_per_s;
  return 1e6 * std::max({flops_us, hbm_us, link_us});
}

OpCost CostOf(const DeviceModel& device, const Work& work, int sm_count) {
  const int sms = sm_count <= 0 ? device.sm_count : std::min(sm_count, device.sm_count);
  OpCost cost;
  switch (work.runs_on) {
    case RunsOn::kSms:
      cost = work.is_gemm()    ? GemmCost(device, work, sms)
             : work.run_us > 0 ? RunCostOf(device, work, sms)
                               : RowCost(device, work, sms);
      break;
    case RunsOn::kLinks:
      cost = CollectiveCost(device, work);
      break;
    case RunsOn::kCopyEngine:
      cost = CopyCost(device, work);
      break;
  }
  cost.solo_us = device.kernel_floor_us + cost.busy_us;
  cost.hbm_share = cost.busy_us > 0 ? cost.hbm_us / cost.busy_us : 0;
  return cost;
}

double SoloUs(const DeviceModel& device, const Work& work, int sm_count) {
  return CostOf(device, work, sm_count).solo_us;
}

double CoRunUs(const DeviceModel& device, std::span<const Work* const> works) {
  CoRunSet set(device);
  for (const Work* work : works) set.Add(CostOf(device, *work));
  return set.CoRunUs();
}

void CoRunSet::Add(const OpCost& cost) {
  ++count_;
  serial_us_ += cost.solo_us;
  longest_us_ = std::max(longest_us_, cost.solo_us);
  sm_us_ += cost.sm_share * cost.busy_us;
  hbm_us_ += cost.hbm_us;
  if (cost.crowding > 0) {
    crowding_us_ += cost.sm_share * cost.crowding;
    gemm_share_ += cost.sm_share;
    largest_gemm_share_ = std::max(largest_gemm_share_, cost.sm_share);
  }
}

double CoRunSet::CoRunUs() const {
  if (count_ < 2) return serial_us_;
  const double rivalry = std::min(1.0, gemm_share_ - largest_gemm_share_);
  const double shared_us = std::max(sm_us_ + rivalry * crowding_us_, hbm_us_);
  return std::max(longest_us_ + (count_ - 1) * issue_us_, floor_us_ + shared_us);
}

}  // namespace concert::policies
