// What the bars and plots of a GPU show, and its past. docs/operations.md defines each figure.
#ifndef CONCERT_CLIENT_CTL_TOP_FIGURES_H_
#define CONCERT_CLIENT_CTL_TOP_FIGURES_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "client/ctl/top/sample.h"

namespace concert::ctl {

enum class Figure : uint8_t { kTime, kSms, kBandwidth, kQueue, kMemory, kPower };
inline constexpr int kFigureCount = static_cast<int>(Figure::kPower) + 1;

// "GPU time", "SMs planned", ...
const char* NameOf(Figure figure);

// Of one GPU in one interval. Shares are from 0 to 1; absent: nothing ended in the interval, or the
// daemon does not know.
struct GpuFigures {
  std::array<std::optional<double>, kFigureCount> shares;  // kQueue's is History's to say
  double bytes_per_second = 0;
  uint32_t queue_depth = 0;

  std::optional<double>& operator[](Figure figure) { return shares[static_cast<size_t>(figure)]; }
  std::optional<double> operator[](Figure figure) const {
    return shares[static_cast<size_t>(figure)];
  }
};

GpuFigures FiguresOf(const v1::Device& device, const TopSample& sample);

// The last kLength intervals of every GPU.
class History {
 public:
  static constexpr size_t kLength = 512;

  void Add(const TopSample& sample);
  // Oldest first; empty for a GPU that no sample has named.
  const std::deque<GpuFigures>& Of(uint32_t gpu) const;
  // The deepest queue among them; at least 1.
  uint32_t DeepestQueue(uint32_t gpu) const;
  // What a bar of the figure shows. Of the queue: its part of the deepest.
  std::optional<double> Share(uint32_t gpu, const GpuFigures& figures, Figure figure) const;

 private:
  std::map<uint32_t, std::deque<GpuFigures>> gpus_;
};

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_TOP_FIGURES_H_
