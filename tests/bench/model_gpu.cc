#include "tests/bench/model_gpu.h"

#include <algorithm>

#include "policies/cost/cost_model.h"

namespace concert::bench {
namespace {

// What memory-bound launches get of HBM (one H200): what is written stays in the L2 for a while.
constexpr double kBytesPerUs = kernels::GroupCostConstants{}.hbm_bytes_per_us;

int TileOf(const kernels::GroupItem& item) {
  return static_cast<int>(std::find_if(std::begin(kernels::kGroupTiles),
                                       std::end(kernels::kGroupTiles),
                                       [&](const kernels::GroupTile& tile) {
                                         return tile.w_rows == 64 * item.w_rows_div_64 &&
                                                tile.a_rows == 16 * item.a_rows_div_16;
                                       }) -
                          std::begin(kernels::kGroupTiles));
}

}  // namespace

absl::Status ModelGpu::Launch(daemon::Lane lane, const daemon::LaunchRequest& request) {
  if (on_launch_) on_launch_(lane, request);
  const bool group = request.work_list != nullptr;
  const auto ops = static_cast<double>(request.ops.size());
  clock_.now_us += costs_.launch + costs_.launch_op * ops +
                   (group ? costs_.group_call : costs_.library_call * ops);
  ++launches_[static_cast<int>(request.ops.size())];
  const double called_us = clock_.now_us + costs_.to_start;
  uint64_t repack_bytes = 0;
  for (const kernels::Op* op : request.ops) repack_bytes += op->work.repack_bytes;
  if (group && request.work_list->kind == kernels::GroupBlocks::kWide && repack_bytes == 0) {
    RunBlocks(request, called_us);
  } else {
    // Library kernels take rows as they are.
    RunWhole(request, called_us, group ? kernels::GroupRepackUs(repack_bytes) : 0);
  }
  return absl::OkStatus();
}

void ModelGpu::RunWhole(const daemon::LaunchRequest& request, double called_us, double repack_us) {
  const double start_us = std::max(called_us, free_at_us_);
  CountIdleUntil(start_us);
  double run_us = repack_us;
  if (request.work_list != nullptr) {
    for (size_t i = 0; i < request.ops.size(); ++i) {
      End(start_us + run_us + request.work_list->ends_us[i], request.writes[i]);
    }
    run_us += request.work_list->predicted_us;
  } else {
    for (size_t i = 0; i < request.ops.size(); ++i) {
      run_us += policies::CostOf(info().model, request.ops[i]->work).solo_us;
      End(start_us + run_us, request.writes[i]);
    }
    library_ops_ += static_cast<int>(request.ops.size());
  }
  all_started_at_us_ = free_at_us_ = start_us + run_us;
  std::fill(sm_free_at_us_.begin(), sm_free_at_us_.end(), free_at_us_);
}

// Blocks go to the SM that is free first, in their order, once all of the launch before have
// started. What HBM holds back takes longer everywhere alike.
void ModelGpu::RunBlocks(const daemon::LaunchRequest& request, double called_us) {
  const kernels::GroupWorkList& work_list = *request.work_list;
  std::vector<std::vector<BlockItem>> blocks;
  double work_us = 0, bytes = 0;
  for (int block = 0; block < work_list.blocks; ++block) {
    blocks.push_back(ItemsOf(request, block));
    for (const BlockItem& item : blocks.back()) work_us += item.us;
  }
  for (const kernels::Op* op : request.ops)
    bytes += kernels::HbmBytes(policies::Problem::Of(op->work));
  const double stretch = std::max(1.0, bytes / kBytesPerUs / (work_us / info().model.sm_count));

  const double start_us = std::max(called_us, all_started_at_us_);
  CountIdleUntil(start_us);
  std::vector<double> ends_us(request.ops.size(), 0);
  for (const std::vector<BlockItem>& items : blocks) {
    double& sm_free_at_us = *std::min_element(sm_free_at_us_.begin(), sm_free_at_us_.end());
    double at_us = std::max(sm_free_at_us, start_us);
    all_started_at_us_ = std::max(all_started_at_us_, at_us);
    at_us += group_costs_.launch_us();
    for (const BlockItem& item : items) {
      at_us += item.us * stretch;
      ends_us[item.problem] = std::max(ends_us[item.problem], at_us);
    }
    sm_free_at_us = at_us;
    free_at_us_ = std::max(free_at_us_, at_us);
  }
  for (size_t i = 0; i < ends_us.size(); ++i) End(ends_us[i], request.writes[i]);
}

std::vector<ModelGpu::BlockItem> ModelGpu::ItemsOf(const daemon::LaunchRequest& request,
                                                   int block) const {
  const kernels::GroupWorkList& work_list = *request.work_list;
  std::vector<BlockItem> items;
  int last_tile = -1;
  for (uint32_t i = block; i < work_list.item_count; i += work_list.blocks) {
    const kernels::GroupItem& item = work_list.items[i];
    if (item.problem == kernels::GroupItem::kEnd) break;
    const int tile = TileOf(item);
    const bool changes = last_tile >= 0 && tile != last_tile;
    const kernels::GroupRows rows =
        kernels::RowsOf(policies::Problem::Of(request.ops[item.problem]->work));
    items.push_back(
        {item.problem, group_costs_.ItemUs(tile, rows, item.k_end - item.k_begin, item.splits > 1) +
                           (changes ? group_costs_.tile_change_us() : 0)});
    last_tile = tile;
  }
  return items;
}

void ModelGpu::CountIdleUntil(double us) { idle_us_ += std::max(0.0, us - free_at_us_); }

int ModelGpu::Show() {
  const auto shown = std::partition(endings_.begin(), endings_.end(), [this](const Ending& ending) {
    return ending.visible_at_us > clock_.now_us;
  });
  for (auto ending = shown; ending != endings_.end(); ++ending) {
    NullDevice::Signal(0, {&ending->write, 1}).IgnoreError();  // it cannot fail
    visible_at_us_[ending->write.address] = ending->visible_at_us;
  }
  const auto count = static_cast<int>(endings_.end() - shown);
  endings_.erase(shown, endings_.end());
  return count;
}

double ModelGpu::VisibleAtUs(const uint64_t& timeline) const {
  const auto found = visible_at_us_.find(reinterpret_cast<daemon::Address>(&timeline));
  return found == visible_at_us_.end() ? 0 : found->second;
}

void ModelGpu::Forget() {
  idle_us_ = 0;
  library_ops_ = 0;
  launches_.clear();
}

}  // namespace concert::bench
