#include "daemon/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "daemon/config/limits.h"
#include "daemon/quota/budget.h"

namespace concert::daemon {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string OriginOf(const LoadedConfig& loaded, std::string_view key) {
  for (size_t i = 0; i < AllSettings().size(); ++i) {
    if (AllSettings()[i].key == key) return loaded.origins[i];
  }
  return "no such key";
}

std::string ErrorOf(std::string_view toml) {
  LoadedConfig loaded;
  return std::string(ApplyToml(toml, "c.toml", loaded).message());
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class TempFile {
 public:
  explicit TempFile(const std::string& text)
      : path_(testing::TempDir() + "concert_config_test.toml") {
    std::ofstream(path_) << text;
  }
  ~TempFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

absl::StatusOr<CommandLine> Parse(std::vector<const char*> args) {
  args.insert(args.begin(), "concertd");
  return ParseCommandLine(static_cast<int>(args.size()), args.data(), "concertd test");
}

TEST(ConfigTest, WhatIsSetIsListedWithItsOriginForTheLog) {
  LoadedConfig loaded;
  EXPECT_TRUE(ChangedSettings(loaded).empty());
  ASSERT_TRUE(ApplyToml("depth = 3\nlog_level = \"debug\"\n", "c.toml", loaded).ok());
  EXPECT_THAT(ChangedSettings(loaded),
              testing::ElementsAre("depth = 3 (c.toml:1)", "log_level = \"debug\" (c.toml:2)"));
}

TEST(ConfigTest, FileSetsValuesOfEveryTypeWithTheirLines) {
  LoadedConfig loaded;
  ASSERT_TRUE(
      ApplyToml("device = \"sim\"\n\nsim_gpus = 4\nsim_pacing = false\n", "c.toml", loaded).ok());
  EXPECT_EQ(loaded.config.device, "sim");
  EXPECT_EQ(loaded.config.sim_gpus, 4);
  EXPECT_FALSE(loaded.config.sim_pacing);
  EXPECT_EQ(OriginOf(loaded, "sim_gpus"), "c.toml:3");
  EXPECT_EQ(OriginOf(loaded, "depth"), "default");
}

TEST(ConfigTest, UnknownKeyNamesLineAndNearestKey) {
  EXPECT_EQ(ErrorOf("device = \"sim\"\nspin_uss = 3\n"),
            "c.toml:2: unknown key 'spin_uss'; did you mean 'spin_us'?");
  EXPECT_EQ(ErrorOf("[polcy]\nname = 1\n"),
            "c.toml:1: unknown key 'polcy'; did you mean 'policy'?");
}

TEST(ConfigTest, AKeyThatNoneIsLikeIsAnsweredWithWhereToLook) {
  EXPECT_EQ(ErrorOf("frobnicate = 3\n"),
            "c.toml:1: unknown key 'frobnicate'; concertd --print-config lists all keys");
}

TEST(ConfigTest, EveryErrorOfAFileIsReportedInItsOrder) {
  LoadedConfig loaded;
  EXPECT_EQ(
      ApplyToml("spin_us = \"3\"\npolicy = \"atuo\"\nbacklog_us = 7\ndepht = 3\n", "c.toml", loaded)
          .message(),
      "c.toml:1: spin_us must be an integer from 0 to 1000000, but is the string \"3\"\n" +
          ErrorOf("\npolicy = \"atuo\"") +
          "\n"
          "c.toml:4: unknown key 'depht'; did you mean 'depth'?");
  EXPECT_THAT(ErrorOf("policy = \"atuo\""), HasSubstr("'atuo'; did you mean 'auto'?"));
  EXPECT_EQ(loaded.config.backlog_us, 7);
}

TEST(ConfigTest, OutOfRangeNamesKeyValueRangeAndLine) {
  EXPECT_EQ(ErrorOf("depth = 65\n"), "c.toml:1: depth must be an integer from 1 to 64, but is 65");
  EXPECT_EQ(ErrorOf("\ndepth = 0\n"), "c.toml:2: depth must be an integer from 1 to 64, but is 0");
  EXPECT_EQ(ErrorOf("device = \"tpu\"\n"),
            "c.toml:1: device must be auto, cuda or sim, but is 'tpu'");
  EXPECT_EQ(ErrorOf("socket = \"x.sock\"\n"),
            "c.toml:1: socket must be an absolute path, but is 'x.sock'");
  EXPECT_THAT(ErrorOf("ring_capacity = 1000\n"),
              HasSubstr("ring_capacity must be a power of two, but is 1000"));
}

TEST(ConfigTest, PolicyMustBeARegisteredOne) {
  LoadedConfig loaded;
  EXPECT_TRUE(ApplyToml("policy = \"serial\"", "c.toml", loaded).ok());
  EXPECT_THAT(ErrorOf("policy = \"fastest\""), HasSubstr("policy must be "));
  EXPECT_THAT(ErrorOf("policy = \"fastest\""), HasSubstr("serial"));
}

TEST(ConfigTest, WrongTypesAreRefusedNotConverted) {
  EXPECT_EQ(ErrorOf("depth = 2.0"),
            "c.toml:1: depth must be an integer from 1 to 64, but is the number 2.0");
  EXPECT_EQ(ErrorOf("spin_us = \"3\""),
            "c.toml:1: spin_us must be an integer from 0 to 1000000, but is the string \"3\"");
  EXPECT_THAT(ErrorOf("sim_pacing = 1"), HasSubstr("sim_pacing must be true or false, but is 1"));
  EXPECT_THAT(ErrorOf("depth = [1, 2]"), HasSubstr("but is the list [ 1, 2 ]"));
}

TEST(ConfigTest, SyntaxErrorsNameTheLine) {
  EXPECT_THAT(ErrorOf("depth = 2\ndevice = \n"), testing::StartsWith("c.toml:2: "));
  EXPECT_THAT(ErrorOf("depth = 2\ndepth = 3\n"), testing::StartsWith("c.toml:2: "));
}

TEST(ConfigTest, EnvironmentUsesUpperCaseNames) {
  const std::map<std::string, const char*> env = {{"CONCERT_SPIN_US", "0"},
                                                  {"CONCERT_PIN_DISPATCHERS", "false"}};
  const auto getenv = [&env](const char* name) {
    const auto it = env.find(name);
    return it == env.end() ? nullptr : it->second;
  };
  LoadedConfig loaded;
  ASSERT_TRUE(ApplyEnvironment(getenv, loaded).ok());
  EXPECT_EQ(loaded.config.spin_us, 0);
  EXPECT_FALSE(loaded.config.pin_dispatchers);
  EXPECT_EQ(OriginOf(loaded, "spin_us"), "CONCERT_SPIN_US");
}

TEST(ConfigTest, BadEnvironmentNamesTheVariable) {
  LoadedConfig loaded;
  const auto getenv = [](const char* name) {
    return std::string(name) == "CONCERT_DEPTH" ? "many" : nullptr;
  };
  EXPECT_EQ(ApplyEnvironment(getenv, loaded).message(),
            "CONCERT_DEPTH: depth must be an integer from 1 to 64, but is 'many'");
}

TEST(CommandLineTest, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  const TempFile file("depth = 3\nspin_us = 30\nbacklog_us = 300\n");
  setenv("CONCERT_DEPTH", "4", 1);
  setenv("CONCERT_SPIN_US", "40", 1);
  const auto line = Parse({"--config", file.path().c_str(), "--depth", "5"});
  unsetenv("CONCERT_DEPTH");
  unsetenv("CONCERT_SPIN_US");
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_FALSE(line->print.has_value());
  EXPECT_EQ(line->loaded.config.depth, 5);
  EXPECT_EQ(line->loaded.config.spin_us, 40);
  EXPECT_EQ(line->loaded.config.backlog_us, 300);
  EXPECT_EQ(line->loaded.config.sim_gpus, Config{}.sim_gpus);
  EXPECT_EQ(OriginOf(line->loaded, "depth"), "--depth");
  EXPECT_EQ(OriginOf(line->loaded, "spin_us"), "CONCERT_SPIN_US");
  EXPECT_EQ(OriginOf(line->loaded, "backlog_us"), file.path() + ":3");
}

TEST(CommandLineTest, ErrorsOfFileEnvironmentAndFlagsComeTogether) {
  const TempFile file("depht = 3\n");
  setenv("CONCERT_DEPHT", "4", 1);
  setenv("CONCERT_SPIN_US", "soon", 1);
  setenv("CONCERT_OF_ANOTHER_PROGRAM", "x", 1);
  const auto line = Parse({"--config", file.path().c_str(), "--depth", "0"});
  unsetenv("CONCERT_DEPHT");
  unsetenv("CONCERT_SPIN_US");
  unsetenv("CONCERT_OF_ANOTHER_PROGRAM");
  EXPECT_EQ(line.status().message(),
            file.path() +
                ":1: unknown key 'depht'; did you mean 'depth'?\n"
                "unknown environment variable 'CONCERT_DEPHT'; did you mean 'CONCERT_DEPTH'?\n"
                "CONCERT_SPIN_US: spin_us must be an integer from 0 to 1000000, but is 'soon'\n"
                "--depth: depth must be an integer from 1 to 64, but is 0");
}

TEST(CommandLineTest, NamedFileMustExist) {
  EXPECT_EQ(Parse({"--config", "/nonexistent/concert.toml"}).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(CommandLineTest, BadFlagsAreErrorsWithTheirName) {
  EXPECT_EQ(Parse({"--depth", "99"}).status().message(),
            "--depth: depth must be an integer from 1 to 64, but is 99");
  EXPECT_EQ(Parse({"--no-such-flag"}).status().message(),
            "unknown flag '--no-such-flag'; see concertd --help");
  EXPECT_EQ(Parse({"--dept", "3", "--polcy=serial"}).status().message(),
            "unknown flag '--dept'; did you mean '--depth'?\n"
            "unknown flag '--polcy'; did you mean '--policy'?");
  EXPECT_EQ(Parse({"start"}).status().message(),
            "unexpected argument 'start'; see concertd --help");
}

TEST(CommandLineTest, CheckConfigReportsAndStillRefuses) {
  const TempFile good("depth = 3\n");
  const auto line = Parse({"--config", good.path().c_str(), "--check-config"});
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(*line->print, "configuration " + good.path() + " is valid\n");
  const TempFile bad("depht = 3\n");
  EXPECT_THAT(
      std::string(Parse({"--config", bad.path().c_str(), "--check-config"}).status().message()),
      HasSubstr("did you mean 'depth'?"));
}

TEST(CommandLineTest, OneSocketForClientsAndOperatorsIsRefused) {
  const std::string folder = testing::TempDir() + "/same-socket";
  std::filesystem::create_directories(folder);
  std::filesystem::remove(folder + "/link");
  std::filesystem::create_directory_symlink(folder, folder + "/link");
  const std::string socket = folder + "/c.sock";
  for (const std::string& other :
       {socket, folder + "/./c.sock", folder + "/../same-socket/c.sock", folder + "/link/c.sock"}) {
    const auto line =
        Parse({"--check-config", "--socket", socket.c_str(), "--admin-socket", other.c_str()});
    EXPECT_THAT(std::string(line.status().message()), HasSubstr("give each a path of its own"))
        << other;
  }
  EXPECT_TRUE(Parse({"--socket", socket.c_str(), "--admin-socket", "/tmp/a.sock"}).ok());
}

TEST(CommandLineTest, HelpNamesEverySetting) {
  const auto line = Parse({"--help"});
  ASSERT_TRUE(line.ok());
  for (const Setting& setting : AllSettings())
    EXPECT_THAT(*line->print, HasSubstr(setting.FlagName()));
}

TEST(CommandLineTest, PrintedConfigReadsBackAsTheSameConfig) {
  const auto line =
      Parse({"--print-config", "--depth", "7", "--device", "sim", "--socket", "/tmp/a \"b\".sock"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_THAT(*line->print, HasSubstr("depth = 7  # --depth"));
  LoadedConfig again;
  ASSERT_TRUE(ApplyToml(*line->print, "printed", again).ok());
  EXPECT_EQ(again.config, line->loaded.config);
}

TEST(SettingsTest, DefaultsAreValid) {
  LoadedConfig again;
  ASSERT_TRUE(ApplyToml(RenderToml(LoadedConfig()), "defaults", again).ok());
  EXPECT_EQ(again.config, Config{});
}

TEST(SettingsTest, ExampleFileIsThePrintedDefaults) {
  EXPECT_EQ(ReadFile(CONCERT_SOURCE_DIR "/deploy/concert.toml"), RenderToml(LoadedConfig()))
      << "refresh it: env -i concertd --print-config > deploy/concert.toml";
}

TEST(SettingsTest, OperationsGuideHasTheTable) {
  EXPECT_THAT(ReadFile(CONCERT_SOURCE_DIR "/docs/operations.md"), HasSubstr(RenderMarkdown()));
}

TEST(LimitsTest, DefaultsOfSettingsAndTableAgree) {
  const Limits limits = LimitsOf(Config{});
  for (const ResourceInfo& info : AllResources()) {
    EXPECT_EQ(limits[info.resource].per_user, info.limit.per_user) << info.name;
    EXPECT_EQ(limits[info.resource].in_all, info.limit.in_all) << info.name;
  }
}

TEST(LimitsTest, SettingsThatTheTableNamesAreUsed) {
  Config config;
  config.max_sessions = 7;
  config.max_sessions_per_uid = 3;
  config.max_buffers_per_uid = 100'000;
  config.max_buffer_bytes_per_uid = 1 << 21;
  const Limits limits = LimitsOf(config);
  EXPECT_EQ(limits[Resource::kSessions].in_all, 7u);
  EXPECT_EQ(limits[Resource::kSessions].per_user, 3u);
  EXPECT_EQ(limits[Resource::kBuffers].per_user, 100'000u);
  EXPECT_EQ(limits[Resource::kBufferHandles].per_user, 100'000u);
  EXPECT_EQ(limits[Resource::kBufferBytes].per_user, uint64_t{1} << 21);
}

TEST(LimitsTest, OperationsGuideHasTheTables) {
  const std::string guide = ReadFile(CONCERT_SOURCE_DIR "/docs/operations.md");
  EXPECT_THAT(guide, HasSubstr(RenderQuotas()));
  EXPECT_THAT(guide, HasSubstr(RenderBudgets()));
}

}  // namespace
}  // namespace concert::daemon
