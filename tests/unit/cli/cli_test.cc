// What mistyped commands, flags and variables are answered with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "client/ctl/concertctl.h"
#include "proto/command/words.h"

namespace concert {
namespace {

using testing::HasSubstr;

TEST(WordsTest, DistanceCountsSlips) {
  EXPECT_EQ(command::EditDistance("status", "status"), 0u);
  EXPECT_EQ(command::EditDistance("stauts", "status"), 1u);  // swapped
  EXPECT_EQ(command::EditDistance("dept", "depth"), 1u);
  EXPECT_EQ(command::EditDistance("kk", "k"), 1u);
  EXPECT_EQ(command::EditDistance("", "abc"), 3u);
  EXPECT_EQ(command::EditDistance("drain", "stats"), command::EditDistance("stats", "drain"));
}

TEST(WordsTest, OnlyWhatIsNearIsSuggested) {
  const std::vector<std::string> words = {"status", "stats", "drain", "k"};
  EXPECT_EQ(command::DidYouMean("stauts", words), "; did you mean 'status'?");
  EXPECT_EQ(command::DidYouMean("kk", words), "; did you mean 'k'?");
  EXPECT_EQ(command::DidYouMean("x", words), "");
  EXPECT_EQ(command::DidYouMean("frobnicate", words), "");
  EXPECT_EQ(command::DidYouMean("", words), "");
  EXPECT_EQ(command::DidYouMean(std::string(1 << 20, 's'), words), "");
  EXPECT_EQ(command::DidYouMean("status", {}), "");
}

TEST(WordsTest, VariablesOfOthersAreLeftAlone) {
  const char* const environment[] = {
      "PATH=/bin", "CONCERT_SOCKET=/s", "CONCERT_SOKCET=/s", "CONCERT_SEED=7",
      "CONCERT_",  "CONCERTO_SOCKE=1",  "CONCERT_FALBACK",   nullptr};
  EXPECT_THAT(
      command::MisspeltVariables(environment, command::ClientVariables()),
      testing::ElementsAre(
          "unknown environment variable 'CONCERT_SOKCET'; did you mean 'CONCERT_SOCKET'?",
          "unknown environment variable 'CONCERT_FALBACK'; did you mean 'CONCERT_FALLBACK'?"));
  EXPECT_TRUE(command::MisspeltVariables(nullptr, command::ClientVariables()).empty());
}

TEST(WordsTest, OthersMayHaveVariablesThatAreNotFarFromConcerts) {
  const char* const environment[] = {"CONCERT_CI_BUDGET_S=1000", "CONCERT_ROOT=/", "CONCERT_POOL=1",
                                     nullptr};
  EXPECT_TRUE(command::MisspeltVariables(
                  environment, {"CONCERT_TUNE_BUDGET_S", "CONCERT_POLICY", "CONCERT_POOL_MB"})
                  .empty());
}

// What concertctl says to these arguments; it must refuse them before it looks for a daemon.
std::string ErrorOf(std::vector<const char*> args) {
  args.insert(args.begin(), "concertctl");
  std::ostringstream out, err;
  EXPECT_EQ(ctl::RunConcertctl(static_cast<int>(args.size()), args.data(), "0", out, err, false),
            ctl::kExitUsage);
  EXPECT_EQ(out.str(), "");
  return err.str();
}

TEST(ConcertctlTest, NamesTheCommandThatWasMeant) {
  EXPECT_EQ(ErrorOf({"stauts"}), "concertctl: unknown command 'stauts'; did you mean 'status'?\n");
  EXPECT_EQ(ErrorOf({"policy", "lsit"}),
            "concertctl: unknown command 'lsit'; did you mean 'list'?\n");
  EXPECT_EQ(ErrorOf({"--json", "tune", "exprot", "x"}),
            "concertctl: unknown command 'exprot'; did you mean 'export'?\n");
  EXPECT_EQ(ErrorOf({"frobnicate"}),
            "concertctl: unknown command 'frobnicate'; see concertctl --help\n");
  EXPECT_EQ(ErrorOf({"policy"}),
            "concertctl: a command is missing: get, list or set; see concertctl policy --help\n");
  EXPECT_THAT(ErrorOf({}), HasSubstr("a command is missing: status, devices, "));
}

TEST(ConcertctlTest, NamesTheFlagThatWasMeant) {
  EXPECT_EQ(ErrorOf({"--sokcet", "/tmp/a", "status"}),
            "concertctl: unknown flag '--sokcet'; did you mean '--socket'?\n");
  EXPECT_EQ(ErrorOf({"plans", "--lsat=3", "--jsn"}),
            "concertctl: unknown flag '--lsat'; did you mean '--last'?\n"
            "concertctl: unknown flag '--jsn'; did you mean '--json'?\n");
  EXPECT_EQ(ErrorOf({"tune", "run", "--shape", "x"}),
            "concertctl: unknown flag '--shape'; did you mean '--shapes'?\n");
  EXPECT_EQ(ErrorOf({"status", "now"}),
            "concertctl: unexpected argument 'now'; see concertctl status --help\n");
}

TEST(ConcertctlTest, RefusesAMisspeltVariable) {
  setenv("CONCERT_ADMIN_SOKCET", "/tmp/a", 1);
  EXPECT_EQ(ErrorOf({"status"}),
            "concertctl: unknown environment variable 'CONCERT_ADMIN_SOKCET'; did you mean "
            "'CONCERT_ADMIN_SOCKET'?\n");
  unsetenv("CONCERT_ADMIN_SOKCET");
}

TEST(ConcertctlTest, LeavesAFileAloneThatItHasNothingFor) {
  const std::string file = testing::TempDir() + "concertctl-test-kept";
  std::ofstream(file) << "rows of last week";
  for (const std::vector<const char*>& command :
       {std::vector<const char*>{"tune", "export", file.c_str()},
        {"trace", "--out", file.c_str()}}) {
    std::vector<const char*> args = {"concertctl", "--socket", "/nonexistent/admin.sock"};
    args.insert(args.end(), command.begin(), command.end());
    std::ostringstream out, err;
    EXPECT_EQ(ctl::RunConcertctl(static_cast<int>(args.size()), args.data(), "0", out, err, false),
              ctl::kExitNoDaemon)
        << err.str();
    std::stringstream kept;
    kept << std::ifstream(file).rdbuf();
    EXPECT_EQ(kept.str(), "rows of last week") << command[0];
  }
  std::filesystem::remove(file);
}

TEST(ConcertctlTest, TellsProgramsWhatDiffers) {
  const std::string file = testing::TempDir() + "concertctl-test-rows";
  std::ofstream(file) << R"({"m": 1, "n": 2, "k": 3, "dtype": "bf16", "degree": "solo"})";
  const std::vector<const char*> args = {"concertctl", "--json",     "tune",
                                         "diff",       file.c_str(), "/dev/null"};
  std::ostringstream out, err;
  EXPECT_EQ(ctl::RunConcertctl(static_cast<int>(args.size()), args.data(), "0", out, err, false),
            ctl::kExitOk)
      << err.str();
  const auto json = nlohmann::json::parse(out.str());
  EXPECT_EQ(json["only_first_row_count"], 1);
  EXPECT_EQ(json["same_row_count"], 0);
  EXPECT_EQ(json["differences"][0]["first"]["k"], 3);
  std::filesystem::remove(file);
}

TEST(ConcertctlTest, OutputThatIsLostIsAFailure) {
  for (const std::vector<const char*>& args :
       {std::vector<const char*>{"concertctl", "--version"},
        {"concertctl", "tune", "diff", "/dev/null", "/dev/null"}}) {
    std::ofstream out("/dev/full");
    std::ostringstream err;
    EXPECT_EQ(ctl::RunConcertctl(static_cast<int>(args.size()), args.data(), "0", out, err, false),
              ctl::kExitFailed);
    EXPECT_THAT(err.str(), HasSubstr("concertctl: cannot write standard output"));
  }
}

}  // namespace
}  // namespace concert
