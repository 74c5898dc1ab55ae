// Text as a terminal shows it: what clients call themselves is UTF-8 in any script, and a character
// takes no, one or two columns. Widths are glibc's.
#ifndef CONCERT_CLIENT_CTL_TEXT_H_
#define CONCERT_CLIENT_CTL_TEXT_H_

#include <string>
#include <string_view>
#include <vector>

namespace concert::ctl {

enum class Align { kLeft, kRight };

// What stands in one place of the screen: a character and the marks on it.
struct Cell {
  std::string text;
  int columns = 1;  // 1 or 2
};

// Bytes that are no UTF-8, control characters and marks on nothing become "?"; of the marks on a
// character the first two are kept.
std::vector<Cell> CellsOf(std::string_view utf8);

int Columns(std::string_view utf8);
// Cut to at most `columns`; then the last of them is "~".
std::string Fit(std::string_view utf8, int columns);
// Filled up with spaces to `columns`, if it is shorter.
std::string Pad(std::string_view utf8, int columns, Align align);
// For a terminal that shows no other: each other character becomes "?".
std::string ToAscii(std::string_view utf8);

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_TEXT_H_
