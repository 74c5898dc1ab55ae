#include "tests/bench/result_file.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace concert::bench {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json GemmResult() {
  json result = NewResult("gemm");
  result["header"] = {{"device", "sim"}, {"gpu", "simulated"}, {"gpus", 1},   {"commit", "abc"},
                      {"date", "today"}, {"policy", "auto"},   {"rounds", 20}};
  result["scenarios"] = {
      {{"name", "a"}, {"times_us", {{"concert", {{"p50", 10.0}}}, {"serial", {{"p50", 20.0}}}}}}};
  return result;
}

TEST(ResultFileTest, SpreadIsInNanosecondSteps) {
  EXPECT_EQ(Spread(std::vector<double>{1.00049, 1.00049, 1.00049}),
            (json{{"p50", 1.0}, {"p10", 1.0}, {"p90", 1.0}}));
}

TEST(ResultFileTest, ValidationNamesWhatIsWrong) {
  EXPECT_TRUE(ValidateResult(GemmResult()).ok());

  json result = GemmResult();
  result["schema"] = 2;
  EXPECT_THAT(ValidateResult(result).message(), HasSubstr("schema"));
  result = GemmResult();
  result["header"].erase("commit");
  EXPECT_THAT(ValidateResult(result).message(), HasSubstr("header.commit"));
  result = GemmResult();
  result["scenarios"][0]["times_us"]["serial"]["p50"] = 0;
  EXPECT_THAT(ValidateResult(result).message(), HasSubstr("a.times_us.serial.p50 is 0"));
  result = GemmResult();
  result["scenarios"][0]["times_us"]["serial"] = json::object();
  EXPECT_THAT(ValidateResult(result).message(), HasSubstr("a.times_us.serial has no p50"));
  EXPECT_THAT(ValidateResult(json::array()).message(), HasSubstr("schema"));
}

TEST(ResultFileTest, OverheadHasThreeTriplesOfPercentiles) {
  json result = GemmResult();
  const json triple = {{"p50", 1.0}, {"p90", 2.0}, {"p99", 3.0}};
  result["suite"] = "overhead";
  result["scenarios"] = {
      {{"name", "idle"}, {"local_us", triple}, {"ring_us", triple}, {"added_us", triple}}};
  EXPECT_TRUE(ValidateResult(result).ok()) << ValidateResult(result);
  result["scenarios"][0]["added_us"].erase("p99");
  EXPECT_THAT(ValidateResult(result).message(), HasSubstr("idle.added_us.p99"));
}

TEST(ResultFileTest, TenantsHaveThroughputAndTheLatenciesOfEveryClient) {
  json result = GemmResult();
  const json latency = {{"p50", 1.0}, {"p99", 2.0}};
  result["suite"] = "tenants";
  result["scenarios"] = {{{"name", "pair"},
                          {"clients", 2u},
                          {"times_us", {{"concert", {{"p50", 10.0}}}}},
                          {"throughput_per_s", {{"concert", 100000.0}}},
                          {"latency_us", {{"concert", {latency, latency}}}}}};
  EXPECT_TRUE(ValidateResult(result).ok()) << ValidateResult(result);
  result["scenarios"][0]["latency_us"]["concert"].erase(1);
  EXPECT_THAT(ValidateResult(result).message(), HasSubstr("pair.latency_us.concert"));
  result["scenarios"][0].erase("throughput_per_s");
  EXPECT_THAT(ValidateResult(result).message(), HasSubstr("pair.throughput_per_s.concert"));
}

TEST(ResultFileTest, WritesWholeFilesOnly) {
  const std::string path = testing::TempDir() + "/concert_result_file_test.json";
  std::filesystem::remove(path);
  json bad = GemmResult();
  bad.erase("header");
  EXPECT_FALSE(WriteResult(bad, path).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE(WriteResult(GemmResult(), path).ok());
  std::ifstream file(path);
  EXPECT_EQ(json::parse(file), GemmResult());
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  EXPECT_THAT(WriteResult(GemmResult(), "/no/such/folder/x.json").message(),
              HasSubstr("/no/such/folder"));
}

TEST(ResultFileTest, WhetherAFileCanBeWrittenIsKnownBeforeAnythingIsMeasured) {
  const std::string path = testing::TempDir() + "/concert_result_check_test.json";
  ASSERT_TRUE(WriteResult(GemmResult(), path).ok());
  EXPECT_TRUE(CheckWritable(path).ok());
  EXPECT_TRUE(ReadResult(path).ok()) << "it stays as it is";
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  EXPECT_EQ(CheckWritable("/no/such/folder/x.json").message(),
            "cannot write --out /no/such/folder/x.json: No such file or directory; its folder must"
            " be there");
  EXPECT_THAT(CheckWritable(testing::TempDir()).message(), HasSubstr("Is a directory"));
}

TEST(ResultFileTest, AScenarioIsALineSoThatGitShowsWhatWasMeasuredAnew) {
  json result = GemmResult();
  result["scenarios"].push_back(result["scenarios"][0]);
  result["scenarios"][1]["name"] = "b";
  EXPECT_EQ(DumpResult(result), R"({
 "header": {"commit":"abc","date":"today","device":"sim","gpu":"simulated","gpus":1,"policy":"auto","rounds":20},
 "scenarios": [
  {"name":"a","times_us":{"concert":{"p50":10.0},"serial":{"p50":20.0}}},
  {"name":"b","times_us":{"concert":{"p50":10.0},"serial":{"p50":20.0}}}
 ],
 "schema": 1,
 "suite": "gemm",
 "summary": {}
}
)");
}

TEST(ResultFileTest, ReadsEveryLayoutAndNamesTheFileThatIsWrong) {
  const std::string path = testing::TempDir() + "/concert_result_layout_test.json";
  for (const std::string& text :
       {DumpResult(GemmResult()), GemmResult().dump(), GemmResult().dump(1)}) {
    std::ofstream(path) << text;
    const auto result = ReadResult(path);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(*result, GemmResult());
  }
  for (const char* text : {"{", "[]", R"({"schema": 1})"}) {
    std::ofstream(path) << text;
    EXPECT_THAT(ReadResult(path).status().message(), HasSubstr(path + ": result file: ")) << text;
  }
  EXPECT_THAT(ReadResult("/no/such.json").status().message(), HasSubstr("/no/such.json"));
}

}  // namespace
}  // namespace concert::bench
