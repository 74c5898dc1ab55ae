// Aligned text tables and numbers with units for people.
#ifndef CONCERT_CLIENT_CTL_TABLE_H_
#define CONCERT_CLIENT_CTL_TABLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/ctl/text.h"

namespace concert::ctl {

class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::kRight;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // REQUIRES: one cell per column.
  void AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }

  // Title line and rows, each ended by a newline, without trailing spaces.
  std::string Render() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

std::string Bytes(uint64_t bytes);  // "1.50 GiB"
// "12.1 of 141 GiB"; "- of 141 GiB": nobody knows.
std::string BytesOf(std::optional<uint64_t> part, uint64_t whole);
std::string Count(double count);      // "950", "12.3 k", "4.56 M"
std::string Micros(double us);        // "8.2 us", "1.53 ms", "2.40 s"; "-": 0, no time
std::string Seconds(double seconds);  // "42 s", "3 min 5 s", "2 h 10 min", "4 d 1 h"
// "37 %"; "<1 %" for what is more than nothing; "-" when whole is 0. REQUIRES: 0 <= part; what is
// more than the whole is shown as 100 %.
std::string Percent(double part, double whole);

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_TABLE_H_
