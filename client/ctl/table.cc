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

constexpr double kByteStep = 1024;
const std::vector<const char*> kByteUnits = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};

// The unit that leaves less than `step` before the point.
size_t UnitOf(double value, double step, size_t unit_count) {
  size_t unit = 0;
  for (; unit + 1 < unit_count && value >= step * 0.9995; ++unit) value /= step;
  return unit;
}

// `value`, of the first unit, in the one of index `unit`: three significant digits.
std::string Digits(double value, double step, size_t unit) {
  for (size_t i = 0; i < unit; ++i) value /= step;
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return Format("%.*f", unit == 0 ? 0 : decimals, value);
}

std::string Scaled(double value, double step, const std::vector<const char*>& units) {
  const size_t unit = UnitOf(value, step, units.size());
  return Digits(value, step, unit) + units[unit];
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
  return Scaled(static_cast<double>(bytes), kByteStep, kByteUnits);
}

std::string BytesOf(std::optional<uint64_t> part, uint64_t whole) {
  const auto all = static_cast<double>(whole);
  const size_t unit = UnitOf(all, kByteStep, kByteUnits.size());
  const std::string used =
      part.has_value() ? Digits(static_cast<double>(*part), kByteStep, unit) : "-";
  return used + " of " + Digits(all, kByteStep, unit) + kByteUnits[unit];
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
