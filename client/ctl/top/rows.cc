#include "client/ctl/top/rows.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>

#include "client/ctl/table.h"

namespace concert::ctl {
namespace {

struct ColumnInfo {
  const char* title;
  int rank;  // ColumnSpec::rank
};
// In the order of SessionColumn.
constexpr std::array<ColumnInfo, kSessionColumnCount> kColumns = {{
    {"SESSION", ColumnSpec::kStays},
    {"UID", 7},
    {"PID", 0},
    {"CLIENT", ColumnSpec::kStays},
    {"CLASS", 6},
    {"OPS/S", 9},
    {"FLOP/S", 5},
    {"B/S", 3},
    {"GPU", ColumnSpec::kStays},
    {"COMPANY", 1},
    {"WAIT50", 4},
    {"WAIT99", 10},
    {"RUN50", 2},
    {"RUN99", 8},
}};
constexpr int kLeastNameWidth = 10;

bool IsText(SessionColumn column) {
  return column == SessionColumn::kClient || column == SessionColumn::kClass;
}

int RankOfPriority(const std::string& priority) {
  if (priority == "high") return 3;
  if (priority == "mixed") return 2;
  return priority == "normal" ? 1 : 0;
}

std::optional<double> Positive(double value) {
  return value > 0 ? std::optional(value) : std::nullopt;
}

uint64_t GoodOps(const v1::OpStats& ops) {
  return ops.op_count() - std::min(ops.op_count(), ops.failed_op_count());
}

// What a column of numbers shows, per interval where it is a rate.
std::optional<double> FigureOf(const SessionRow& row, SessionColumn column) {
  switch (column) {
    case SessionColumn::kSession:
    case SessionColumn::kClient:
      return row.session->session_id();
    case SessionColumn::kUid:
      return row.session->uid();
    case SessionColumn::kPid:
      return row.session->pid();
    default:
      break;
  }
  if (row.ops == nullptr) return std::nullopt;
  const v1::OpStats& times = row.times == nullptr ? v1::OpStats::default_instance() : *row.times;
  switch (column) {
    case SessionColumn::kClass:
      return row.priority.empty() ? std::nullopt
                                  : std::optional<double>(RankOfPriority(row.priority));
    case SessionColumn::kOps:
      return row.ops->op_count();
    case SessionColumn::kFlops:
      return Positive(row.ops->flop_count());
    case SessionColumn::kBytes:
      return Positive(row.ops->moved_bytes());
    case SessionColumn::kGpu:
      return Positive(row.ops->gpu_seconds() / row.gpu_count);
    case SessionColumn::kCompany:
      return GoodOps(*row.ops) == 0
                 ? std::nullopt
                 : std::optional(static_cast<double>(row.ops->company_op_count()) /
                                 static_cast<double>(GoodOps(*row.ops)));
    case SessionColumn::kWaitP50:
      return Positive(times.queue_wait().p50_us());
    case SessionColumn::kWaitP99:
      return Positive(times.queue_wait().p99_us());
    case SessionColumn::kRunP50:
      return Positive(times.run_time().p50_us());
    case SessionColumn::kRunP99:
      return Positive(times.run_time().p99_us());
    default:
      return std::nullopt;
  }
}

// Numbers begin with the highest, names and numbers of things with the lowest.
bool HighestFirst(SessionColumn column) { return column >= SessionColumn::kClass; }

bool Contains(const std::string& text, const std::string& part) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) ==
           std::tolower(static_cast<unsigned char>(b));
  };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

bool Passes(const SessionRow& row, const TopState& state) {
  const v1::Session& session = *row.session;
  if (state.uid.has_value() && session.uid() != *state.uid) return false;
  if (!state.priority.empty() && row.ops == nullptr) return false;
  return state.session.empty() || std::to_string(session.session_id()) == state.session ||
         Contains(session.client_name(), state.session);
}

SessionRow RowOf(const v1::Session& session, const v1::SessionStats* stats, const TopState& state) {
  SessionRow row{.session = &session};
  if (stats == nullptr || stats->ops().op_count() == 0) return row;
  row.gpu_count = std::max(1, stats->gpus_size());
  if (stats->classes_size() > 0)
    row.priority = stats->classes_size() == 1 ? stats->classes(0).priority() : "mixed";
  if (state.priority.empty()) {
    row.ops = row.times = &stats->ops();
    return row;
  }
  for (const v1::ClassStats& of_class : stats->classes()) {
    if (of_class.priority() != state.priority) continue;
    row.priority = state.priority;
    row.ops = &of_class.ops();
    // Distributions are kept per session: they are the class's where it is the session's only one.
    if (stats->classes_size() == 1) row.times = &stats->ops();
  }
  return row;
}

bool Before(const SessionRow& a, const SessionRow& b, const TopState& state) {
  const bool descending = HighestFirst(state.sort) != state.reversed;
  if (state.sort == SessionColumn::kClient) {
    const int order = a.session->client_name().compare(b.session->client_name());
    if (order != 0) return (order > 0) == descending;
  }
  const std::optional<double> x = FigureOf(a, state.sort), y = FigureOf(b, state.sort);
  if (x.has_value() != y.has_value()) return x.has_value();
  if (x.has_value() && *x != *y) return (*x > *y) == descending;
  return a.session->session_id() < b.session->session_id();
}

// "1.23k", "8.2us": a number as the other commands write it, without the space.
std::string Tight(std::string text) {
  std::erase(text, ' ');
  return text;
}

}  // namespace

std::vector<SessionRow> RowsOf(const TopSample& sample, const TopState& state) {
  std::map<uint32_t, const v1::SessionStats*> stats_by_session;
  for (const v1::SessionStats& stats : sample.delta.stats().sessions())
    stats_by_session[stats.session_id()] = &stats;
  std::vector<SessionRow> rows;
  for (const v1::Session& session : sample.sessions.sessions()) {
    const auto it = stats_by_session.find(session.session_id());
    SessionRow row = RowOf(session, it == stats_by_session.end() ? nullptr : it->second, state);
    if (Passes(row, state)) rows.push_back(std::move(row));
  }
  std::sort(rows.begin(), rows.end(),
            [&](const SessionRow& a, const SessionRow& b) { return Before(a, b, state); });
  return rows;
}

const char* TitleOf(SessionColumn column) { return kColumns[static_cast<size_t>(column)].title; }

std::vector<ColumnSpec> SessionColumns(const TopState& state) {
  std::vector<ColumnSpec> specs;
  for (int i = 0; i < kSessionColumnCount; ++i) {
    const auto column = static_cast<SessionColumn>(i);
    specs.push_back(
        {.title = TitleOf(column),
         .align = IsText(column) ? Align::kLeft : Align::kRight,
         .rank = column == state.sort ? ColumnSpec::kStays : kColumns[static_cast<size_t>(i)].rank,
         .least = column == SessionColumn::kClient ? kLeastNameWidth : 0});
  }
  return specs;
}

std::vector<std::string> TextsOf(const SessionRow& row, double interval_seconds) {
  std::vector<std::string> texts;
  for (int i = 0; i < kSessionColumnCount; ++i) {
    const auto column = static_cast<SessionColumn>(i);
    const std::optional<double> figure = FigureOf(row, column);
    if (!figure.has_value()) {
      texts.push_back("-");
      continue;
    }
    switch (column) {
      case SessionColumn::kClient:
        texts.push_back(row.session->client_name());
        break;
      case SessionColumn::kClass:
        texts.push_back(row.priority);
        break;
      case SessionColumn::kOps:
      case SessionColumn::kFlops:
      case SessionColumn::kBytes:
        texts.push_back(Tight(Count(*figure / interval_seconds)));
        break;
      case SessionColumn::kGpu:
        texts.push_back(Tight(Percent(*figure, interval_seconds)));
        break;
      case SessionColumn::kCompany:
        texts.push_back(Tight(Percent(*figure, 1)));
        break;
      case SessionColumn::kWaitP50:
      case SessionColumn::kWaitP99:
      case SessionColumn::kRunP50:
      case SessionColumn::kRunP99:
        texts.push_back(Tight(Micros(*figure)));
        break;
      default:  // numbers of things
        texts.push_back(std::to_string(static_cast<uint64_t>(*figure)));
        break;
    }
  }
  return texts;
}

}  // namespace concert::ctl
