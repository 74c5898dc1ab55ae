#include "daemon/service/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace concert::daemon {
namespace {

TEST(LogTest, JournaldGetsAPriorityAndPeopleAWord) {
  EXPECT_EQ(FormatLogLine(LogLevel::kWarning, "low memory", true), "<4>low memory\n");
  const absl::Time time = absl::FromUnixMillis(1'795'381'507'042);
  EXPECT_EQ(FormatLogLine(LogLevel::kWarning, "low memory", false, time),
            "2026-11-22T21:05:07.042Z concertd warning: low memory\n");
}

TEST(LogTest, AClientCannotForgeLines) {
  EXPECT_EQ(FormatLogLine(LogLevel::kInfo, "client 'a\n<0>b\x1b[31m'", true),
            "<6>client 'a\\x0a<0>b\\x1b[31m'\n");
}

TEST(LogTest, JournaldGetsFieldsThatAClientCannotForge) {
  EXPECT_THAT(
      JournalFields(LogLevel::kInfo, "session 3 opened",
                    {{"CONCERT_UID", "1000"}, {"CONCERT_CLIENT", "a\nCONCERT_UID=0"}}),
      testing::ElementsAre("MESSAGE=session 3 opened", "PRIORITY=6", "SYSLOG_IDENTIFIER=concertd",
                           "CONCERT_UID=1000", "CONCERT_CLIENT=a\\x0aCONCERT_UID=0"));
}

TEST(LogTest, LevelsHaveNames) {
  EXPECT_EQ(ParseLogLevel("debug"), LogLevel::kDebug);
  EXPECT_EQ(ParseLogLevel("loud"), std::nullopt);
}

TEST(LogLimiterTest, LetsABurstThroughThenTheRateAndCountsTheRest) {
  constexpr int64_t kSecond = 1'000'000'000;
  LogLimiter limiter(1, 2);
  uint64_t suppressed = 99;
  EXPECT_TRUE(limiter.Allow(kSecond, &suppressed));
  EXPECT_EQ(suppressed, 0u);
  EXPECT_TRUE(limiter.Allow(kSecond, &suppressed));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(limiter.Allow(kSecond, &suppressed));
  EXPECT_TRUE(limiter.Allow(2 * kSecond, &suppressed));
  EXPECT_EQ(suppressed, 10u);
  EXPECT_FALSE(limiter.Allow(2 * kSecond, &suppressed));
  // However long it was quiet, no more than the burst.
  EXPECT_TRUE(limiter.Allow(100 * kSecond, &suppressed));
  EXPECT_TRUE(limiter.Allow(100 * kSecond, &suppressed));
  EXPECT_FALSE(limiter.Allow(100 * kSecond, &suppressed));
}

}  // namespace
}  // namespace concert::daemon
