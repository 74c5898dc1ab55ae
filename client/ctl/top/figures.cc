#include "client/ctl/top/figures.h"

#include <algorithm>

namespace concert::ctl {
namespace {

// An op counts in the interval in which it ends, with all it did before, too, so that the part may
// be more than the whole.
std::optional<double> ShareOf(double part, double whole) {
  if (part <= 0 || whole <= 0) return std::nullopt;
  return std::min(part / whole, 1.0);
}

const v1::DeviceStats* StatsOf(uint32_t gpu, const TopSample& sample) {
  for (const v1::DeviceStats& stats : sample.delta.stats().devices()) {
    if (stats.gpu() == gpu) return &stats;
  }
  return nullptr;
}

}  // namespace

const char* NameOf(Figure figure) {
  switch (figure) {
    case Figure::kTime:
      return "GPU time";
    case Figure::kSms:
      return "SMs planned";
    case Figure::kBandwidth:
      return "bandwidth";
    case Figure::kQueue:
      return "queue depth";
    case Figure::kMemory:
      return "memory";
    case Figure::kPower:
      return "power";
  }
  return "";
}

GpuFigures FiguresOf(const v1::Device& device, const TopSample& sample) {
  GpuFigures figures;
  if (device.has_memory_used_bytes()) {
    figures[Figure::kMemory] = ShareOf(static_cast<double>(device.memory_used_bytes()),
                                       static_cast<double>(device.memory_bytes()));
  }
  if (device.has_power_watts())
    figures[Figure::kPower] = ShareOf(device.power_watts(), device.power_limit_watts());
  figures.queue_depth = device.ready_op_count() + device.queued_op_count();
  const v1::DeviceStats* stats = StatsOf(device.gpu(), sample);
  const double seconds = sample.delta.interval_seconds();
  if (stats == nullptr || seconds <= 0) return figures;
  figures.bytes_per_second = static_cast<double>(stats->ops().moved_bytes()) / seconds;
  figures[Figure::kTime] = ShareOf(stats->ops().gpu_seconds(), seconds);
  figures[Figure::kSms] = ShareOf(stats->planned_sm_seconds(), seconds * device.sm_count());
  figures[Figure::kBandwidth] = ShareOf(figures.bytes_per_second, device.memory_bytes_per_second());
  return figures;
}

void History::Add(const TopSample& sample) {
  for (const v1::Device& device : sample.devices.devices()) {
    std::deque<GpuFigures>& past = gpus_[device.gpu()];
    if (past.size() == kLength) past.pop_front();
    past.push_back(FiguresOf(device, sample));
  }
}

const std::deque<GpuFigures>& History::Of(uint32_t gpu) const {
  static const std::deque<GpuFigures> kNone;
  const auto it = gpus_.find(gpu);
  return it == gpus_.end() ? kNone : it->second;
}

uint32_t History::DeepestQueue(uint32_t gpu) const {
  uint32_t deepest = 1;
  for (const GpuFigures& figures : Of(gpu)) deepest = std::max(deepest, figures.queue_depth);
  return deepest;
}

std::optional<double> History::Share(uint32_t gpu, const GpuFigures& figures, Figure figure) const {
  if (figure == Figure::kQueue) return ShareOf(figures.queue_depth, DeepestQueue(gpu));
  return figures[figure];
}

}  // namespace concert::ctl
