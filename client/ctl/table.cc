#include "client/ctl/table.h"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>

namespace concert::ctl {
namespace {

__attribute__((format(printf, 1, 2))) std::string Format(const char* format, ...) {
  char text[64];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  return text;
}

// Three significant digits and the unit that leaves less than `step` before the point.
std::string Scaled(double value, double step, const std::vector<const char*>& units) {
  size_t unit = 0;
  while (unit + 1 < units.size() && value >= step * 0.9995) {
    value /= step;
    ++unit;
  }
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return Format("%.*f%s", unit == 0 ? 0 : decimals, value, units[unit]);
}

}  // namespace

std::string Table::Render() const {
  std::vector<int> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    int width = Columns(columns_[i].title);
    for (const auto& row : rows_) width = std::max(width, Columns(row[i]));
    widths.push_back(width);
  }
  std::string out;
  const auto add_line = [&](const auto& cell_of) {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (i > 0) line += "  ";
      line += Pad(cell_of(i), widths[i], columns_[i].align);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  add_line([&](size_t i) -> const std::string& { return columns_[i].title; });
  for (const auto& row : rows_) add_line([&](size_t i) -> const std::string& { return row[i]; });
  return out;
}

std::string Bytes(uint64_t bytes) {
  return Scaled(static_cast<double>(bytes), 1024, {" B", " KiB", " MiB", " GiB", " TiB", " PiB"});
}

std::string Count(double count) { return Scaled(count, 1000, {"", " k", " M", " G", " T", " P"}); }

std::string Micros(double us) {
  if (us <= 0) return "-";
  if (us < 999.5) return Format("%.1f us", us);
  return us < 999.5e3 ? Format("%.2f ms", us / 1e3) : Format("%.2f s", us / 1e6);
}

std::string Seconds(double seconds) {
  const auto s = static_cast<long long>(std::max(0.0, seconds));
  if (s < 60) return Format("%lld s", s);
  if (s < 3600) return Format("%lld min %lld s", s / 60, s % 60);
  if (s < 86400) return Format("%lld h %lld min", s / 3600, s % 3600 / 60);
  return Format("%lld d %lld h", s / 86400, s % 86400 / 3600);
}

std::string Percent(double part, double whole) {
  if (whole <= 0) return "-";
  const double percent = std::clamp(100 * part / whole, 0.0, 100.0);
  return percent > 0 && percent < 0.5 ? "<1 %" : Format("%.0f %%", percent);
}

}  // namespace concert::ctl
