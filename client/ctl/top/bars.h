// Bars and plots in characters. `unicode` says whether the terminal shows more than ASCII.
#ifndef CONCERT_CLIENT_CTL_TOP_BARS_H_
#define CONCERT_CLIENT_CTL_TOP_BARS_H_

#include <optional>
#include <string>
#include <vector>

namespace concert::ctl {

// `share`, from 0 to 1, of `columns`: "|||||   ". Nothing is an empty bar; any share above 0 shows.
std::string Bar(std::optional<double> share, int columns);

// `shares`, oldest first, as columns that stand on the bottom line, the newest at the right end:
// `rows` lines, from the top, of `columns` characters each.
std::vector<std::string> Plot(const std::vector<std::optional<double>>& shares, int rows,
                              int columns, bool unicode);

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_TOP_BARS_H_
