#include "client/ctl/top/draw_gpus.h"

#include <algorithm>
#include <string>

#include "client/ctl/table.h"
#include "client/ctl/top/bars.h"
#include "client/ctl/top/columns.h"

namespace concert::ctl {
namespace {

constexpr int kBlockRows = 3;  // a title and two lines of bars
constexpr int kMaxPlotRows = 4;
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

// "GPU 0  NVIDIA H200  ok     12.1 of 141 GiB  412 W  1.98 GHz  54 C"
Line BlockTitle(const Gpu& gpu, const ScreenTraits& screen) {
  const v1::Device& device = gpu.device;
  Line line(screen.size.columns);
  line.Add("GPU " + std::to_string(device.gpu()) + "  ", Style::kBold);
  line.Add(screen.unicode ? device.name() : ToAscii(device.name()), Style::kBold);
  if (!device.healthy()) {
    const std::string why = device.health_message();
    line.Add("  FAILED: " + (screen.unicode ? why : ToAscii(why)), Style::kBad);
    return line;
  }
  const std::string memory = Bytes(device.memory_bytes());
  line.AdvanceTo(line.width() - Columns(memory));
  line.Add(memory);
  return line;
}

Line BarLine(const Gpu& gpu, Figure left, Figure right, int width) {
  constexpr int kGap = 2;
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
// Bars of the list; GPU stands before them and MEMORY behind.
constexpr ListColumn kListBars[] = {{"GPU TIME", 5, Figure::kTime},
                                    {"SMS PLANNED", 3, Figure::kSms},
                                    {"BANDWIDTH", 2, Figure::kBandwidth},
                                    {"QUEUE DEPTH", 4, Figure::kQueue}};
constexpr int kListBarWidth = 13;

std::vector<ColumnSpec> ListColumns() {
  std::vector<ColumnSpec> columns = {{.title = "GPU"}};
  for (const ListColumn& bar : kListBars)
    columns.push_back({.title = bar.title, .align = Align::kLeft, .rank = bar.rank});
  columns.push_back({.title = "MEMORY", .rank = 1});
  return columns;
}

std::vector<std::string> ListTexts(const Gpu& gpu) {
  std::vector<std::string> texts = {std::to_string(gpu.device.gpu())};
  // As wide as the bar will be.
  for (size_t i = 0; i < std::size(kListBars); ++i) texts.emplace_back(kListBarWidth, ' ');
  texts.push_back(gpu.device.healthy() ? Bytes(gpu.device.memory_bytes()) : "FAILED");
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
