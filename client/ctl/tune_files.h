// Files that `concertctl tune` reads and writes: problems to tune, and tuned rows as JSON Lines.
// Every error is a sentence that names the file, the line or entry, and what is expected.
#ifndef CONCERT_CLIENT_CTL_TUNE_FILES_H_
#define CONCERT_CLIENT_CTL_TUNE_FILES_H_

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "proto/concert/v1/tuning.pb.h"

namespace concert::ctl {

// What was read, or why not.
template <typename T>
struct FileContents {
  std::vector<T> entries;
  std::string error;  // empty: it was read
};

// {"scenarios": [{"gemms": [{"m": 16, "n": 2048, "k": 1024, "count": 2}, ...]}, ...]}; a scenario
// may name a dtype for its GEMMs, and so may a GEMM.
FileContents<v1::TuningProblem> ReadScenarios(const std::string& path);
// [{"m": 16, "n": 2048, "k": 1024}, ...] or {"gemms": [...]}; batch, dtype and count are optional.
FileContents<v1::TuningProblem> ReadShapes(const std::string& path);
// JSON Lines of {"m": 16, "n": 2048, "k": 1024, "batch": 1, "dtype": "bf16", "count": 12}.
FileContents<v1::TuningProblem> ReadShapeLines(const std::string& path);

// JSON Lines, one row or curve each: what has a `transport` is a curve. Unknown keys are ignored.
FileContents<v1::TunedRow> ReadRows(const std::string& path);
FileContents<v1::TransportCurve> ReadCurves(const std::string& path);
void WriteRow(const v1::TunedRow& row, std::ostream& out);
void WriteCurve(const v1::TransportCurve& curve, std::ostream& out);

// What differs between two sets of rows: how many, lines for people, and the same for programs.
struct RowsDiff {
  size_t only_first = 0, only_second = 0, other_variant = 0, other_time = 0, same = 0;
  std::string text;
  // {"kind": "other_time", "first": row, "second": row}; a row that is missing is left out.
  nlohmann::ordered_json differences = nlohmann::ordered_json::array();
};
// Times differ if they are further apart than both spreads together.
RowsDiff DiffRows(const std::vector<v1::TunedRow>& first, const std::vector<v1::TunedRow>& second);

// "16x2048x1024 bf16, degree eight, streams".
std::string DescribeKey(const v1::TunedRow& row);

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_TUNE_FILES_H_
