#include "client/ctl/top/draw.h"

#include <algorithm>
#include <string>
#include <vector>

#include "client/ctl/table.h"
#include "client/ctl/top/columns.h"
#include "client/ctl/top/draw_gpus.h"
#include "client/ctl/top/rows.h"

namespace concert::ctl {
namespace {

// The list of sessions has room for so many before GPUs take what is left.
constexpr int kSessionsFirst = 8;
constexpr int kListHead = 2;  // what is listed, and the titles

struct Hint {
  const char* key;
  const char* what;
};

// The keys of the footer, what matters most first: where there is no room, the last go.
constexpr Hint kHints[] = {{"q", "quit"},    {"?", "help"},    {"s", "sort"},  {"r", "reverse"},
                           {"f", "session"}, {"u", "user"},    {"c", "class"}, {"h", "history"},
                           {"Esc", "all"},   {"j/k", "scroll"}};

constexpr Hint kHelp[] = {
    {"s S", "sort by the next, the previous column"},
    {"r", "the other way round"},
    {"f", "only sessions of this number, or with this in the client's name"},
    {"u", "only sessions of this user (uid or name)"},
    {"c", "only ops of a priority class: high, normal, low, all"},
    {"Esc", "all sessions and classes again"},
    {"h", "history of the next figure"},
    {"j k", "scroll the list; also arrows, Page Up and Down, Home, End"},
    {"?", "this; any key goes back"},
    {"q", "quit"},
};

std::string Shown(const std::string& text, const ScreenTraits& screen) {
  return screen.unicode ? text : ToAscii(text);
}

// What must be seen on a narrow screen, too, comes first.
Line Header(const TopSample& sample, const ScreenTraits& screen) {
  const v1::GetStatusResponse& status = sample.status;
  Line line(screen.size.columns);
  line.Add("concertd " + status.version(), Style::kBold);
  if (status.simulated()) line.Add(" SIMULATED", Style::kWarning);
  if (!status.degraded().empty()) line.Add(" DEGRADED", Style::kBad);
  if (status.state() == v1::DAEMON_STATE_DRAINING) line.Add(" DRAINING", Style::kWarning);
  line.Add("  policy " + status.policy() + "  up " + Seconds(status.uptime_seconds()) + "  " +
           Count(static_cast<double>(status.op_count())) + " ops");
  if (status.failed_op_count() > 0) {
    line.Add("  " + Count(static_cast<double>(status.failed_op_count())) + " failed", Style::kBad);
  }
  return line;
}

// "SESSIONS 12 of 40: 3 to 9  user 1000  class high": how many pass the filters, and which are
// seen.
Line ListTitle(const TopSample& sample, const TopState& state, int first, int shown, int count,
               const ScreenTraits& screen) {
  const int all = sample.sessions.sessions_size();
  Line line(screen.size.columns);
  line.Add("SESSIONS " + std::to_string(count), Style::kBold);
  if (state.filtered()) line.Add(" of " + std::to_string(all));
  if (shown > 0 && shown < count)
    line.Add(": " + std::to_string(first + 1) + " to " + std::to_string(first + shown));
  if (!state.session.empty()) line.Add("  " + Shown(state.session, screen), Style::kWarning);
  if (state.uid.has_value()) line.Add("  user " + std::to_string(*state.uid), Style::kWarning);
  if (!state.priority.empty()) line.Add("  class " + state.priority, Style::kWarning);
  if (sample.delta.interval_seconds() <= 0)
    line.Add("  first rates in one interval", Style::kFaint);
  return line;
}

void AddSessions(const TopSample& sample, const std::vector<SessionRow>& rows,
                 const TopState& state, const ScreenTraits& screen, Frame* frame) {
  const int room = screen.size.rows - static_cast<int>(frame->lines.size()) - kListHead - 1;
  frame->row_count = static_cast<int>(rows.size());
  frame->shown_count = std::clamp(room, 0, frame->row_count);
  const int first = std::clamp(state.scroll, 0, frame->row_count - frame->shown_count);
  const std::vector<ColumnSpec> specs = SessionColumns(state);
  std::vector<std::vector<std::string>> texts;
  for (const SessionRow& row : rows) {
    texts.push_back(TextsOf(row, sample.delta.interval_seconds()));
    std::string& name = texts.back()[static_cast<size_t>(SessionColumn::kClient)];
    name = Shown(name, screen);
  }
  const std::vector<PlacedColumn> placed = Place(specs, texts, screen.size.columns);
  frame->lines.push_back(
      ListTitle(sample, state, first, frame->shown_count, frame->row_count, screen));
  Line& titles = frame->lines.emplace_back(screen.size.columns);
  for (const PlacedColumn& column : placed) {
    const ColumnSpec& spec = specs[column.index];
    if (titles.columns() > 0) titles.Add(" ", Style::kReverse);
    const bool sorted = column.index == static_cast<size_t>(state.sort);
    titles.Add(Pad(spec.title, column.width, spec.align), sorted ? Style::kBold : Style::kReverse);
  }
  titles.AdvanceTo(screen.size.columns, Style::kReverse);
  for (int i = first; i < first + frame->shown_count; ++i) {
    Line& line = frame->lines.emplace_back(screen.size.columns);
    for (const PlacedColumn& column : placed) {
      if (line.columns() > 0) line.Add(" ");
      const std::string text = Fit(texts[static_cast<size_t>(i)][column.index], column.width);
      line.Add(Pad(text, column.width, specs[column.index].align),
               rows[static_cast<size_t>(i)].ops == nullptr ? Style::kFaint : Style::kPlain);
    }
  }
}

void AddHint(const Hint& hint, const std::string& value, Line* line) {
  const std::string what = hint.what + (value.empty() ? "" : ":" + value);
  const int needed = Columns(hint.key) + 1 + Columns(what) + (line->columns() > 0 ? 2 : 0);
  if (needed > line->left()) return;
  if (line->columns() > 0) line->Add("  ");
  line->Add(hint.key, Style::kReverse);
  line->Add(" " + what);
}

Line Footer(const TopState& state, const ScreenTraits& screen) {
  Line line(screen.size.columns);
  if (!state.message.empty()) {
    line.Add(Shown(state.message, screen), Style::kBad);
  } else if (state.prompt == TopState::Prompt::kSession) {
    line.Add("session or part of its client's name: ", Style::kBold);
    line.Add(Shown(state.typed, screen) + "_");
  } else if (state.prompt == TopState::Prompt::kUser) {
    line.Add("user: ", Style::kBold);
    line.Add(Shown(state.typed, screen) + "_");
  } else {
    for (const Hint& hint : kHints) {
      AddHint(hint, hint.key[0] == 's' ? TitleOf(state.sort) : "", &line);
    }
  }
  return line;
}

void AddHelp(const ScreenTraits& screen, Frame* frame) {
  constexpr int kKeyWidth = 6;
  for (const Hint& hint : kHelp) {
    if (static_cast<int>(frame->lines.size()) + 1 >= screen.size.rows) return;
    Line& line = frame->lines.emplace_back(screen.size.columns);
    line.Add(Pad(hint.key, kKeyWidth, Align::kLeft), Style::kBold);
    line.Add(hint.what);
  }
}

}  // namespace

Frame DrawTop(const TopSample& sample, const History& history, const TopState& state,
              const ScreenTraits& screen) {
  Frame frame;
  const int rows = screen.size.rows;
  if (rows <= 0 || screen.size.columns <= 0) return frame;
  frame.lines.push_back(Header(sample, screen));
  if (state.help) {
    AddHelp(screen, &frame);
  } else {
    const std::vector<SessionRow> sessions = RowsOf(sample, state);
    const int wanted = std::clamp(static_cast<int>(sessions.size()), 1, kSessionsFirst);
    const int for_gpus = rows - 2 - kListHead - wanted;
    for (Line& line : DrawGpus(sample, history, state, screen, for_gpus))
      frame.lines.push_back(std::move(line));
    AddSessions(sample, sessions, state, screen, &frame);
  }
  // The footer stands in the last row, whatever had no room.
  const auto above_footer = static_cast<size_t>(std::max(1, rows - 1));
  frame.lines.resize(above_footer, Line(screen.size.columns));
  if (rows > 1) frame.lines.push_back(Footer(state, screen));
  return frame;
}

}  // namespace concert::ctl
