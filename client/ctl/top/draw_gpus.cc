#include "client/ctl/top/draw_gpus.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "client/ctl/table.h"
#include "client/ctl/top/bars.h"
#include "client/ctl/top/columns.h"

namespace concert::ctl {
namespace {

constexpr int kBlockRows = 3;  // a title and two lines of bars
constexpr int kMaxPlotRows = 4;
constexpr int kGap = 2;          // columns between what stands side by side
constexpr int kLabelWidth = 12;  // "SMs planned "
// Below this two bars with their labels do not stand side by side.
constexpr int kLeastBlockWidth = 60;

Style StyleOf(Figure figure) {
  switch (figure) {
    case Figure::kTime:
      return Style::kTime;
    case Figure::kSms:
      return Style::kSms;
    case Figure::kBandwidth:
      return Style::kBandwidth;
    case Figure::kQueue:
      return Style::kQueue;
    case Figure::kMemory:
      return Style::kMemory;
    case Figure::kPower:
      return Style::kPower;
  }
  return Style::kPlain;
}

struct Gpu {
  const v1::Device& device;
  const GpuFigures& now;
  const History& history;

  std::optional<double> Share(Figure figure) const {
    return history.Share(device.gpu(), now, figure);
  }
  // What stands at the end of the figure's bar.
  std::string Words(Figure figure) const {
    if (figure == Figure::kQueue) {
      const uint32_t most = history.DeepestQueue(device.gpu());
      return now.queue_depth == 0 ? "-"
                                  : std::to_string(now.queue_depth) + " of " + std::to_string(most);
    }
    const std::optional<double> share = Share(figure);
    if (!share.has_value()) return "-";
    const std::string percent = Percent(*share, 1);
    if (figure != Figure::kBandwidth) return percent;
    return Count(now.bytes_per_second) + "B/s " + percent;
  }
};

// "[||||||      43 %]" of `width` columns.
void AddBar(const Gpu& gpu, Figure figure, const std::string& words, int width, Line* line) {
  const std::string end = Fit(words, width - 2);
  line->Add("[", Style::kFaint);
  line->Add(Bar(gpu.Share(figure), width - 3 - Columns(end)), StyleOf(figure));
  line->Add(" " + end);
  line->Add("]", Style::kFaint);
}

void AddLabelledBar(const Gpu& gpu, Figure figure, int width, Line* line) {
  line->Add(Pad(NameOf(figure), kLabelWidth, Align::kLeft));
  AddBar(gpu, figure, gpu.Words(figure), width - kLabelWidth, line);
}

std::string MemoryText(const v1::Device& device) {
  const auto used =
      device.has_memory_used_bytes() ? std::optional(device.memory_used_bytes()) : std::nullopt;
  return BytesOf(used, device.memory_bytes());
}

std::string WattsText(const v1::Device& device) {
  return device.has_power_watts() ? std::to_string(std::lround(device.power_watts())) : "-";
}

// Of the SMs.
std::string ClockText(const v1::Device& device) {
  return device.has_sm_clock_mhz() ? Count(device.sm_clock_mhz() * 1e6) + "Hz" : "- GHz";
}

// "12.1 of 141 GiB  412 of 700 W  1.98 GHz  54 C", as many of them as `columns` hold; the first in
// any case.
std::string SensorsText(const v1::Device& device, int columns) {
  std::string limit;
  if (device.has_power_watts() && device.has_power_limit_watts())
    limit = " of " + std::to_string(std::lround(device.power_limit_watts()));
  const std::string celsius =
      device.has_temperature_celsius() ? std::to_string(device.temperature_celsius()) : "-";
  std::string text = MemoryText(device);
  for (const std::string& next :
       {WattsText(device) + limit + " W", ClockText(device), celsius + " C"}) {
    if (Columns(text) + 2 + Columns(next) > columns) break;
    text += "  " + next;
  }
  return text;
}

// "GPU 0  NVIDIA H200                 12.1 of 141 GiB  412 of 700 W  1.98 GHz  54 C"
Line BlockTitle(const Gpu& gpu, const ScreenTraits& screen) {
  const v1::Device& device = gpu.device;
  Line line(screen.size.columns);
  const std::string name = "GPU " + std::to_string(device.gpu()) + "  " +
                           (screen.unicode ? device.name() : ToAscii(device.name()));
  if (!device.healthy()) {
    line.Add(name, Style::kBold);
    const std::string why = device.health_message();
    line.Add("  FAILED: " + (screen.unicode ? why : ToAscii(why)), Style::kBad);
    return line;
  }
  const std::string sensors = SensorsText(device, line.width() - Columns(name) - kGap);
  const int at = std::max(0, line.width() - Columns(sensors));
  line.Add(Fit(name, std::max(0, at - kGap)), Style::kBold);
  line.AdvanceTo(at);
  line.Add(sensors);
  return line;
}

Line BarLine(const Gpu& gpu, Figure left, Figure right, int width) {
  const int half = (width - kGap) / 2;
  Line line(width);
  AddLabelledBar(gpu, left, half, &line);
  line.AdvanceTo(width - half);
  AddLabelledBar(gpu, right, half, &line);
  return line;
}

void AddPlot(const Gpu& gpu, Figure figure, const ScreenTraits& screen, int rows,
             std::vector<Line>* lines) {
  const int width = screen.size.columns - kLabelWidth;
  std::vector<std::optional<double>> shares;
  for (const GpuFigures& then : gpu.history.Of(gpu.device.gpu()))
    shares.push_back(gpu.history.Share(gpu.device.gpu(), then, figure));
  const std::vector<std::string> plot = Plot(shares, rows, width, screen.unicode);
  for (int row = 0; row < rows; ++row) {
    Line& line = lines->emplace_back(screen.size.columns);
    if (row == 0) line.Add(NameOf(figure), Style::kFaint);
    // Other figures stand in their bars.
    if (row == 1 && (figure == Figure::kMemory || figure == Figure::kPower))
      line.Add(gpu.Words(figure));
    line.AdvanceTo(kLabelWidth);
    line.Add(plot[static_cast<size_t>(row)], StyleOf(figure));
  }
}

std::vector<Line> Blocks(const std::vector<Gpu>& gpus, const TopState& state,
                         const ScreenTraits& screen, int plot_rows) {
  std::vector<Line> lines;
  for (const Gpu& gpu : gpus) {
    lines.push_back(BlockTitle(gpu, screen));
    lines.push_back(BarLine(gpu, Figure::kTime, Figure::kSms, screen.size.columns));
    lines.push_back(BarLine(gpu, Figure::kBandwidth, Figure::kQueue, screen.size.columns));
    AddPlot(gpu, state.plot, screen, plot_rows, &lines);
  }
  return lines;
}

struct ListColumn {
  const char* title;
  int rank;
  Figure bar;
};
// Bars of the list; GPU stands before them, and what sensors say behind.
constexpr ListColumn kListBars[] = {{"GPU TIME", 6, Figure::kTime},
                                    {"SMS PLANNED", 4, Figure::kSms},
                                    {"BANDWIDTH", 3, Figure::kBandwidth},
                                    {"QUEUE DEPTH", 5, Figure::kQueue}};
constexpr int kListBarWidth = 12;

std::vector<ColumnSpec> ListColumns() {
  std::vector<ColumnSpec> columns = {{.title = "GPU"}};
  for (const ListColumn& bar : kListBars)
    columns.push_back({.title = bar.title, .align = Align::kLeft, .rank = bar.rank});
  columns.push_back({.title = "MEMORY", .rank = 2});
  columns.push_back({.title = "POWER", .rank = 1});
  columns.push_back({.title = "CLOCK", .rank = 0});
  return columns;
}

std::vector<std::string> ListTexts(const Gpu& gpu) {
  std::vector<std::string> texts = {std::to_string(gpu.device.gpu())};
  // As wide as the bar will be.
  for (size_t i = 0; i < std::size(kListBars); ++i) texts.emplace_back(kListBarWidth, ' ');
  texts.push_back(gpu.device.healthy() ? MemoryText(gpu.device) : "FAILED");
  texts.push_back(WattsText(gpu.device) + " W");
  texts.push_back(ClockText(gpu.device));
  return texts;
}

void AddListCell(const Gpu& gpu, const PlacedColumn& column, const std::string& text, Line* line) {
  const bool is_bar = column.index > 0 && column.index <= std::size(kListBars);
  if (!is_bar) {
    line->Add(Pad(text, column.width, Align::kRight),
              gpu.device.healthy() ? Style::kPlain : Style::kBad);
    return;
  }
  const Figure figure = kListBars[column.index - 1].bar;
  const std::optional<double> share = gpu.Share(figure);
  const std::string words = figure == Figure::kQueue && share.has_value()
                                ? Count(gpu.now.queue_depth)
                            : share.has_value() ? Percent(*share, 1)
                                                : "-";
  AddBar(gpu, figure, words, column.width, line);
}

// A title and a line per GPU; where there is no room for all, the last line says how many are left.
std::vector<Line> List(const std::vector<Gpu>& gpus, const ScreenTraits& screen, int rows) {
  const std::vector<ColumnSpec> specs = ListColumns();
  std::vector<std::vector<std::string>> texts;
  texts.reserve(gpus.size());
  for (const Gpu& gpu : gpus) texts.push_back(ListTexts(gpu));
  const std::vector<PlacedColumn> placed = Place(specs, texts, screen.size.columns);
  std::vector<Line> lines;
  Line& title = lines.emplace_back(screen.size.columns);
  for (const PlacedColumn& column : placed) {
    if (title.columns() > 0) title.Add(" ");
    title.Add(Pad(specs[column.index].title, column.width, specs[column.index].align),
              Style::kBold);
  }
  const int count = static_cast<int>(gpus.size());
  const int shown = count < rows ? count : std::max(0, rows - 2);
  for (int i = 0; i < shown; ++i) {
    const auto gpu = static_cast<size_t>(i);
    Line& line = lines.emplace_back(screen.size.columns);
    for (const PlacedColumn& column : placed) {
      if (line.columns() > 0) line.Add(" ");
      AddListCell(gpus[gpu], column, texts[gpu][column.index], &line);
    }
  }
  if (shown < count) {
    lines.emplace_back(screen.size.columns)
        .Add(std::to_string(count - shown) + " more GPUs: the window is too low", Style::kFaint);
  }
  return lines;
}

}  // namespace

std::vector<Line> DrawGpus(const TopSample& sample, const History& history, const TopState& state,
                           const ScreenTraits& screen, int rows) {
  std::vector<GpuFigures> figures;
  for (const v1::Device& device : sample.devices.devices())
    figures.push_back(FiguresOf(device, sample));
  std::vector<Gpu> gpus;
  gpus.reserve(figures.size());
  for (int i = 0; i < sample.devices.devices_size(); ++i)
    gpus.push_back({sample.devices.devices(i), figures[static_cast<size_t>(i)], history});
  const int count = static_cast<int>(gpus.size());
  if (count == 0) return {};
  if (rows >= count * kBlockRows && screen.size.columns >= kLeastBlockWidth) {
    return Blocks(gpus, state, screen, std::min(rows / count - kBlockRows, kMaxPlotRows));
  }
  return rows >= 2 ? List(gpus, screen, rows) : std::vector<Line>();
}

}  // namespace concert::ctl
