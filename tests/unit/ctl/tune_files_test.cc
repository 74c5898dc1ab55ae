#include "client/ctl/tune_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace concert::ctl {
namespace {

using testing::HasSubstr;

std::string FileWith(const std::string& text) {
  const std::string path = testing::TempDir() + "concert_tune_files_test";
  std::ofstream(path) << text;
  return path;
}

TEST(TuneFilesTest, ScenariosGiveEveryGemmAndTheirDtype) {
  const auto read = ReadScenarios(FileWith(R"({"suite": "gemm", "scenarios": [
      {"name": "a", "class": "equal", "gemms": [{"m": 16, "n": 2048, "k": 1024, "count": 2}]},
      {"name": "b", "dtype": "fp16", "gemms": [{"m": 1, "n": 2, "k": 3}, {"m": 4, "n": 5, "k": 6}]}
      ]})"));
  EXPECT_EQ(read.error, "");
  ASSERT_EQ(read.entries.size(), 3u);
  EXPECT_EQ(read.entries[0].count(), 2u);
  EXPECT_EQ(read.entries[0].dtype(), "bf16");
  EXPECT_EQ(read.entries[2].k(), 6u);
  EXPECT_EQ(read.entries[2].dtype(), "fp16");
}

TEST(TuneFilesTest, ShapesAndTracesAreLists) {
  EXPECT_EQ(ReadShapes(FileWith(R"([{"m": 1, "n": 2, "k": 3}])")).entries.size(), 1u);
  EXPECT_EQ(ReadShapes(FileWith(R"({"gemms": [{"m": 1, "n": 2, "k": 3}]})")).entries.size(), 1u);
  const auto trace =
      ReadShapeLines(FileWith("{\"m\": 1, \"n\": 2, \"k\": 3, \"batch\": 4}\n\n"
                              "{\"m\": 5, \"n\": 6, \"k\": 7, \"count\": 8}"));
  ASSERT_EQ(trace.entries.size(), 2u);
  EXPECT_EQ(trace.entries[0].batch(), 4u);
  EXPECT_EQ(trace.entries[1].count(), 8u);
}

TEST(TuneFilesTest, ErrorsNameFileAndPlace) {
  EXPECT_THAT(ReadShapeLines(FileWith("{\"m\": 1}\n{\"m\": -1}\n")).error, HasSubstr("test:2: "));
  EXPECT_THAT(ReadShapes(FileWith("{\"m\": 1}")).error, HasSubstr("expected a list"));
  EXPECT_THAT(ReadScenarios(FileWith("[]")).error, HasSubstr("scenarios"));
  EXPECT_THAT(ReadScenarios(FileWith("{\"scenarios\": [{\"name\": \"x\"}]}")).error,
              HasSubstr("scenario x"));
  EXPECT_THAT(ReadShapes("/nonexistent/file").error, HasSubstr("cannot read /nonexistent/file"));
}

TEST(TuneFilesTest, AnUnknownKeyIsNamedWithFileRowAndTheNearestKey) {
  const std::string shapes = FileWith(R"([{"m": 1, "n": 2, "k": 3}, {"m": 1, "n": 2, "kk": 3}])");
  EXPECT_EQ(ReadShapes(shapes).error, shapes + ", GEMM 2: unknown key 'kk'; did you mean 'k'?");
  const std::string trace = FileWith("{\"m\": 1}\n\n{\"m\": 1, \"weight\": 2}\n");
  EXPECT_THAT(ReadShapeLines(trace).error,
              HasSubstr(trace + ":3: unknown key 'weight'; known are m, "));
  EXPECT_THAT(ReadShapeLines(FileWith("no json\n")).error, HasSubstr("test:1: "));
}

v1::TunedRow Row(uint32_t m, double median_us, uint32_t tile_m = 128) {
  v1::TunedRow row;
  row.set_m(m), row.set_n(64), row.set_k(64), row.set_batch(1), row.set_dtype("bf16");
  row.set_degree("eight"), row.set_form("streams");
  row.set_median_us(median_us), row.set_spread_us(0.5), row.set_samples(16);
  row.mutable_variant()->set_source("cublaslt");
  row.mutable_variant()->set_tile_m(tile_m);
  row.mutable_runner_up()->set_source("none");
  return row;
}

TEST(TuneFilesTest, RowsComeBackAsTheyWereWritten) {
  std::ostringstream lines;
  WriteRow(Row(1, 12.5), lines);
  WriteRow(Row(2, 13.5), lines);
  const auto read = ReadRows(FileWith(lines.str()));
  ASSERT_EQ(read.entries.size(), 2u);
  EXPECT_EQ(read.entries[1].SerializeAsString(), Row(2, 13.5).SerializeAsString());
}

TEST(TuneFilesTest, DiffTellsMissingRowsVariantsAndTimesApart) {
  const RowsDiff diff = DiffRows({Row(1, 10), Row(2, 10), Row(3, 10), Row(4, 10)},
                                 {Row(2, 10.6), Row(3, 11), Row(4, 10, 64), Row(5, 10)});
  EXPECT_EQ(diff.only_first, 1u);
  EXPECT_EQ(diff.only_second, 1u);
  EXPECT_EQ(diff.same, 1u);
  EXPECT_EQ(diff.other_time, 1u);
  EXPECT_EQ(diff.other_variant, 1u);
  EXPECT_THAT(diff.text, HasSubstr("another time: 3x64x64 bf16, streams, degree eight: 10.00 us"));
  std::vector<std::string> kinds;
  for (const auto& one : diff.differences) kinds.push_back(one["kind"]);
  EXPECT_THAT(kinds,
              testing::ElementsAre("only_first", "other_time", "other_variant", "only_second"));
  EXPECT_FALSE(diff.differences[0].contains("second"));
  EXPECT_EQ(diff.differences[1]["second"]["median_us"], 11);
}

}  // namespace
}  // namespace concert::ctl
