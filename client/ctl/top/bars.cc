#include "client/ctl/top/bars.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace concert::ctl {
namespace {

// How full a cell is, in eighths.
constexpr std::array<const char*, 9> kBlocks = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::array<const char*, 9> kAsciiBlocks = {" ", ".", ".", ":", ":", "|", "|", "#", "#"};

// Steps out of `all`, where a share above 0 is at least one.
int Steps(std::optional<double> share, int all) {
  if (!share.has_value() || *share <= 0 || all <= 0) return 0;
  return std::clamp(static_cast<int>(std::lround(*share * all)), 1, all);
}

}  // namespace

std::string Bar(std::optional<double> share, int columns) {
  std::string bar(static_cast<size_t>(std::max(0, columns)), ' ');
  std::fill_n(bar.begin(), Steps(share, columns), '|');
  return bar;
}

std::vector<std::string> Plot(const std::vector<std::optional<double>>& shares, int rows,
                              int columns, bool unicode) {
  constexpr int kSteps = 8;  // of a cell
  const auto& blocks = unicode ? kBlocks : kAsciiBlocks;
  const int count = std::min(columns, static_cast<int>(shares.size()));
  std::vector<std::string> lines;
  for (int row = rows - 1; row >= 0; --row) {
    std::string line(static_cast<size_t>(std::max(0, columns - count)), ' ');
    for (auto share = shares.end() - count; share != shares.end(); ++share) {
      const int steps = Steps(*share, rows * kSteps) - row * kSteps;
      line += blocks[static_cast<size_t>(std::clamp(steps, 0, kSteps))];
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace concert::ctl
