// Which columns of a table have room on the screen, and how wide each is.
#ifndef CONCERT_CLIENT_CTL_TOP_COLUMNS_H_
#define CONCERT_CLIENT_CTL_TOP_COLUMNS_H_

#include <string>
#include <vector>

#include "client/ctl/text.h"

namespace concert::ctl {

struct ColumnSpec {
  static constexpr int kStays = 1000;

  std::string title;
  Align align = Align::kRight;
  // Where there is no room for all, the column of the lowest rank goes first.
  int rank = kStays;
  // More than 0: its texts may be cut down to this width; other columns are as wide as their
  // widest.
  int least = 0;
};

struct PlacedColumn {
  size_t index;
  int width;
};

// `rows` hold a text for each column. One column of spaces stands between two. What is still too
// wide when only columns that stay are left is for the line to cut.
std::vector<PlacedColumn> Place(const std::vector<ColumnSpec>& columns,
                                const std::vector<std::vector<std::string>>& rows, int width);

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_TOP_COLUMNS_H_
