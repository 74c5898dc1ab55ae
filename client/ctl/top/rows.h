// The list of sessions: which are shown, in which order, and what stands in each column.
#ifndef CONCERT_CLIENT_CTL_TOP_ROWS_H_
#define CONCERT_CLIENT_CTL_TOP_ROWS_H_

#include <string>
#include <vector>

#include "client/ctl/top/columns.h"
#include "client/ctl/top/sample.h"
#include "client/ctl/top/state.h"

namespace concert::ctl {

// Points into its sample.
struct SessionRow {
  const v1::Session* session;
  const v1::OpStats* ops = nullptr;    // of the class that is asked for; null: none ended
  const v1::OpStats* times = nullptr;  // whose distributions are those of `ops`; null: none are
  int gpu_count = 1;                   // on which the session's ops ended
  std::string priority;                // "high", "normal", "low", "mixed"; empty: no op ended
};

// Those that the filters let through, sorted. Rows without a figure in the column that is sorted by
// come last, rows of equal figures by session.
std::vector<SessionRow> RowsOf(const TopSample& sample, const TopState& state);

const char* TitleOf(SessionColumn column);
// One for each SessionColumn. The column that is sorted by stays.
std::vector<ColumnSpec> SessionColumns(const TopState& state);
// The text of each column; "-" where there is nothing.
std::vector<std::string> TextsOf(const SessionRow& row, double interval_seconds);

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_TOP_ROWS_H_
