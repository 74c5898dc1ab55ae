#include "daemon/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <string>

#include "tests/unit/admin/fake_daemon_control.h"
#include "tests/unit/telemetry/records_for_test.h"

namespace concert::daemon {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr Time kMinute = 60'000'000'000;

class MetricsTest : public testing::Test {
 protected:
  std::string Text() { return prometheus::TextSerializer().Serialize(metrics_.Collect()); }

  Time now_ = kMinute;
  FakeDaemonControl control_;
  Telemetry telemetry_{[this] { return now_; }};
  RecordRing* const gpu0_ = telemetry_.AddRing(0);
  RecordRing* const gpu1_ = telemetry_.AddRing(1);
  Metrics metrics_{control_, telemetry_};
};

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// All that there is, as Prometheus reads it. CONCERT_UPDATE_GOLDEN=1 writes the file anew.
TEST_F(MetricsTest, TextIsAsExpected) {
  telemetry_.BeginSession(3, 1000);
  gpu0_->Push(GoodOp(3));
  gpu0_->Push(GoodOp(3, CONCERT_OP_GEMM, 200, 5000, 1));
  gpu1_->Push(GoodOp(3, CONCERT_OP_ALL_REDUCE));
  gpu1_->Push(FailedOp(3, CONCERT_ABI_CANCELLED));
  gpu0_->Push(PlanOf(1, {3, 3}));
  gpu0_->Push(PlanOf(2, {3}));
  const std::string text =
      std::regex_replace(Text(), std::regex("(start_time_seconds) [0-9.e+]+"), "$1 1700000000");
  if (std::getenv("CONCERT_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(CONCERT_METRICS_GOLDEN) << text;
  }
  EXPECT_EQ(text, ReadFile(CONCERT_METRICS_GOLDEN));
}

TEST_F(MetricsTest, EndedSessionsLeaveAndStayInTheirUsersFigures) {
  telemetry_.BeginSession(7, 1001);  // not among those that the fake daemon lists
  gpu0_->Push(GoodOp(7));
  const std::string ended = Text();
  EXPECT_THAT(ended, Not(HasSubstr("session=\"7\"")));
  EXPECT_THAT(ended, HasSubstr("concert_user_ops_total{uid=\"1001\",gpu=\"0\"} 1\n"));
  telemetry_.EndSession(7);
  now_ += 2 * kMinute;  // long enough for its statistics to be folded
  Text();
  now_ += kMinute;  // or it would be the same snapshot
  gpu0_->Push(GoodOp(7));
  const std::string folded = Text();
  EXPECT_THAT(folded, HasSubstr("concert_user_ops_total{uid=\"1001\",gpu=\"0\"} 1\n"));
  EXPECT_THAT(folded, HasSubstr("concert_user_ops_total{uid=\"other\",gpu=\"0\"} 1\n"));
}

TEST_F(MetricsTest, NamesOfClientsCannotBreakTheText) {
  telemetry_.BeginSession(3, 1000);
  gpu0_->Push(GoodOp(3));
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("client=\"evil\\\\x1b[2J\\\\xff\""));
  for (const char c : text) EXPECT_TRUE(c == '\n' || (c >= ' ' && c < 0x7f)) << int{c};
}

// A daemon that more sessions are connected to than may have samples of their own.
TEST_F(MetricsTest, SessionsAreBoundedAndTheFirstStay) {
  class Crowd final : public DaemonControl {
   public:
    explicit Crowd(DaemonControl& base) : base_(base) {}
    DaemonInfo Info() const override { return base_.Info(); }
    bool draining() const override { return false; }
    policies::Time Now() const override { return base_.Now(); }
    std::vector<DeviceStatus> Devices() const override { return {}; }
    Sensors ReadSensors(int) const override { return {}; }
    std::vector<SessionInfo> Sessions() const override {
      std::vector<SessionInfo> sessions(Metrics::kMaxSessions + 10);
      for (uint32_t i = 0; i < sessions.size(); ++i)
        sessions[i] = {.id = i + 1, .uid = 1000, .connected_at = 5000 - i};
      return sessions;
    }
    absl::StatusOr<std::shared_ptr<const CollectiveReport>> Collectives() override {
      return base_.Collectives();
    }
    Accounts& accounts() override { return base_.accounts(); }
    std::vector<PolicyDescription> Policies() const override { return {}; }
    std::string PolicyName() const override { return "auto"; }
    absl::Status SetPolicy(std::string_view) override { return absl::OkStatus(); }
    absl::Status Drain(uint32_t) override { return absl::OkStatus(); }

   private:
    DaemonControl& base_;
  };
  Crowd crowd(control_);
  std::map<std::string, size_t> samples;
  std::string last;
  for (const auto& family : Metrics(crowd, telemetry_).Collect()) {
    samples[family.name] = family.metric.size();
    if (family.name == "concert_session_buffer_bytes") last = family.metric.back().label[0].value;
    if (family.name == "concert_sessions") {
      EXPECT_EQ(family.metric[0].gauge.value, Metrics::kMaxSessions + 10.0);
    }
  }
  EXPECT_EQ(samples["concert_session_buffer_bytes"], Metrics::kMaxSessions);
  EXPECT_EQ(last, "11");  // 1 to 10 connected last
}

}  // namespace
}  // namespace concert::daemon
