#include "daemon/service/activity_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "proto/ring/ring_abi.h"

namespace concert::daemon {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;

OpRecord Op(uint32_t session, uint16_t status = CONCERT_ABI_OK) {
  OpRecord record{};
  record.session = session;
  record.kind = CONCERT_OP_GEMM;
  record.status = status;
  record.admitted_at = record.ready_at = record.launched_at = record.started_at = 1;
  record.finished_at = 2'000;
  return record;
}

auto Line(LogLevel level, const std::string& text) {
  return testing::AllOf(Field(&LogLine::level, level), Field(&LogLine::text, HasSubstr(text)));
}

std::string Nobody(uint32_t /*session*/) { return ""; }

TEST(ActivityReportTest, FailedOpsAreToldOncePerSessionWithTheirStatuses) {
  ActivityReport report;
  Stats stats;
  for (const uint32_t session : {3, 4}) stats.BeginSession(session, 1000);
  stats.Add(0, Op(3, CONCERT_ABI_INVALID_ARGUMENT));
  stats.Add(0, Op(3, CONCERT_ABI_INVALID_ARGUMENT));
  stats.Add(0, Op(3, CONCERT_ABI_CANCELLED));
  stats.Add(0, Op(4));
  EXPECT_THAT(report.Lines(stats, {}, {}, Nobody),
              ElementsAre(Line(LogLevel::kInfo,
                               "session 3: 3 ops failed (1 CANCELLED, 2 INVALID_ARGUMENT)"),
                          Line(LogLevel::kDebug, "GPU 0: 4 ops in 0 plans")));
  EXPECT_THAT(report.Lines(stats, {}, {}, Nobody), IsEmpty()) << "nothing has happened since";
  stats.Add(1, Op(4, CONCERT_ABI_INTERNAL));
  EXPECT_THAT(report.Lines(stats, {}, {}, Nobody),
              ElementsAre(Line(LogLevel::kInfo, "session 4: 1 op failed (1 INTERNAL)"),
                          Line(LogLevel::kDebug, "GPU 1: 1 op in 0 plans")));
}

TEST(ActivityReportTest, FailuresSayWhoseTheyAre) {
  ActivityReport report;
  Stats stats;
  stats.BeginSession(3, 1000);
  stats.Add(0, Op(3, CONCERT_ABI_CANCELLED));
  const auto who = [](uint32_t session) {
    return session == 3 ? std::string("server-a, uid 1000, pid 42") : std::string();
  };
  EXPECT_THAT(report.Lines(stats, {}, {}, who),
              testing::Contains(
                  Line(LogLevel::kInfo, "session 3 (server-a, uid 1000, pid 42): 1 op failed")));
}

TEST(ActivityReportTest, ConnectionsThatWereTurnedAwayAreCountedNotListed) {
  ActivityReport report;
  EXPECT_THAT(report.Lines({}, {}, {.refused = 1, .silent = 2, .evicted = 300}, Nobody),
              ElementsAre(Line(LogLevel::kInfo, "connections: 300 said no Hello and gave way"),
                          Line(LogLevel::kInfo, "connections: 2 said no Hello in time"),
                          Line(LogLevel::kInfo, "connections: 1 were refused")));
  EXPECT_THAT(report.Lines({}, {}, {.refused = 1, .silent = 2, .evicted = 300}, Nobody), IsEmpty());
}

TEST(ActivityReportTest, AFloodOfFailingSessionsIsAFewLines) {
  ActivityReport report;
  Stats stats;
  for (uint32_t session = 1; session <= 100; ++session) {
    stats.BeginSession(session, 1000);
    stats.Add(0, Op(session, CONCERT_ABI_INVALID_ARGUMENT));
  }
  const std::vector<LogLine> lines = report.Lines(stats, {}, {}, Nobody);
  ASSERT_EQ(lines.size(), ActivityReport::kMaxSessions + 2);
  EXPECT_THAT(lines[ActivityReport::kMaxSessions].text,
              HasSubstr("ops of 92 more sessions failed"));
}

TEST(ActivityReportTest, AGpuThatFaultsIsAnErrorOnceAndRefusedLaunchesAreWarnings) {
  ActivityReport report;
  std::vector<ActivityReport::Gpu> gpus = {{.gpu = 0}, {.gpu = 1}};
  EXPECT_THAT(report.Lines({}, gpus, {}, Nobody), IsEmpty());
  gpus[1].launch_errors = 2;
  gpus[1].fault = "an illegal address";
  EXPECT_THAT(report.Lines({}, gpus, {}, Nobody),
              ElementsAre(Line(LogLevel::kError, "GPU 1 has faulted"),
                          Line(LogLevel::kWarning, "GPU 1 refused 2 launches")));
  EXPECT_THAT(report.Lines({}, gpus, {}, Nobody), IsEmpty());
}

}  // namespace
}  // namespace concert::daemon
