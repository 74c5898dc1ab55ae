#include "client/ctl/top/columns.h"

#include <algorithm>

namespace concert::ctl {
namespace {

int TotalWidth(const std::vector<PlacedColumn>& placed) {
  int total = static_cast<int>(placed.size()) - 1;
  for (const PlacedColumn& column : placed) total += column.width;
  return total;
}

}  // namespace

std::vector<PlacedColumn> Place(const std::vector<ColumnSpec>& columns,
                                const std::vector<std::vector<std::string>>& rows, int width) {
  std::vector<PlacedColumn> placed;
  std::vector<int> widest;
  for (size_t i = 0; i < columns.size(); ++i) {
    int wide = Columns(columns[i].title);
    for (const auto& row : rows) wide = std::max(wide, Columns(row[i]));
    widest.push_back(wide);
    const int least = columns[i].least;
    placed.push_back({i, least > 0 ? std::min(wide, least) : wide});
  }
  while (TotalWidth(placed) > width) {
    const auto lowest = std::min_element(placed.begin(), placed.end(),
                                         [&](const PlacedColumn& a, const PlacedColumn& b) {
                                           return columns[a.index].rank < columns[b.index].rank;
                                         });
    if (lowest == placed.end() || columns[lowest->index].rank >= ColumnSpec::kStays) break;
    placed.erase(lowest);
  }
  for (PlacedColumn& column : placed) {
    const int room = std::max(0, width - TotalWidth(placed));
    column.width = std::min(widest[column.index], column.width + room);
  }
  return placed;
}

}  // namespace concert::ctl
