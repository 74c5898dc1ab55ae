#include "daemon/service/log.h"

#include <gtest/gtest.h>

namespace concert::daemon {
namespace {

TEST(LogTest, JournaldGetsAPriorityAndPeopleAWord) {
  EXPECT_EQ(FormatLogLine(LogLevel::kWarning, "low memory", true), "<4>low memory\n");
  EXPECT_EQ(FormatLogLine(LogLevel::kWarning, "low memory", false),
            "concertd warning: low memory\n");
}

TEST(LogTest, AClientCannotForgeLines) {
  EXPECT_EQ(FormatLogLine(LogLevel::kInfo, "client 'a\n<0>b\x1b[31m'", true),
            "<6>client 'a\\x0a<0>b\\x1b[31m'\n");
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
