#include "client/ctl/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/perfetto_check.h"

namespace concert::ctl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

// Submitted `at_us`, launched 10 us later, started after 2 us more, took 30.
v1::TracedOp Op(uint32_t session, uint32_t queue, uint64_t plan, uint64_t at_us) {
  v1::TracedOp op;
  op.set_session_id(session);
  op.set_queue(queue);
  op.set_kind("gemm");
  op.set_status("OK");
  op.set_plan_id(plan);
  op.set_reason("only one op is ready");
  op.set_lane(2);
  op.set_admitted_at_ns(at_us * 1000);
  op.set_ready_at_ns(at_us * 1000);
  op.set_launched_at_ns((at_us + 10) * 1000);
  op.set_started_at_ns((at_us + 12) * 1000);
  op.set_finished_at_ns((at_us + 42) * 1000);
  return op;
}

test::PerfettoCheck Written(Recording recording) {
  std::stringstream file;
  WriteTrace(recording, file);
  perfetto::Trace trace;
  EXPECT_TRUE(trace.ParseFromIstream(&file));
  return test::PerfettoCheck(trace);
}

TEST(TraceFileTest, AnOpIsOnItsQueueAndItsLaneAndItsFlowJoinsThem) {
  Recording recording;
  recording.simulated = true;
  recording.client_names = {{3, "server-a"}};
  recording.ops = {Op(3, 1, 7, 100)};
  v1::Plan& plan = recording.plans.emplace_back();
  plan.set_plan_id(7);
  plan.set_text("GPU 0: 1 GEMM");
  const test::PerfettoCheck trace = Written(recording);
  EXPECT_EQ(trace.problems(), "");
  ASSERT_EQ(trace.slices().size(), 2u);
  const auto& launch = trace.slices()[0];
  EXPECT_EQ(launch.track, "GPU 0 (simulated)/lane 2");
  EXPECT_EQ(launch.from_ns, 112'000u);
  EXPECT_EQ(launch.to_ns, 142'000u);
  EXPECT_EQ(launch.arguments.at("reason"), "only one op is ready");
  EXPECT_EQ(launch.arguments.at("plan in words"), "GPU 0: 1 GEMM");
  const auto& op = trace.slices()[1];
  EXPECT_EQ(op.track, "session 3: server-a/queue 1");
  EXPECT_EQ(op.name, "gemm");
  EXPECT_EQ(op.from_ns, 100'000u);
  EXPECT_EQ(op.to_ns, 142'000u);
  EXPECT_EQ(op.arguments.at("reason"), "only one op is ready");
  ASSERT_EQ(trace.flows().size(), 1u);
  EXPECT_THAT(
      trace.flows().begin()->second,
      ElementsAre(Pair(100'000, "submit gemm"), Pair(112'000, "gemm"), Pair(142'000, "end")));
}

TEST(TraceFileTest, AnOpWhosePlanEndsAfterTheTraceHasItsReason) {
  Recording recording;
  recording.ops = {Op(3, 1, 7, 100)};
  const test::PerfettoCheck trace = Written(recording);
  ASSERT_EQ(trace.slices().size(), 2u);
  for (const auto& slice : trace.slices()) {
    EXPECT_EQ(slice.arguments.at("reason"), "only one op is ready") << slice.track;
  }
}

TEST(TraceFileTest, SlicesOfATrackDoNotOverlap) {
  Recording recording;
  // Two of a batch in one launch, one that a later launch runs beside them, one on another GPU.
  recording.ops = {Op(3, 0, 7, 100), Op(3, 0, 7, 100), Op(3, 0, 8, 110), Op(3, 1, 1, 105)};
  recording.ops[1].set_finished_at_ns(146'000);
  recording.ops[3].set_gpu(1);
  const test::PerfettoCheck trace = Written(recording);
  EXPECT_EQ(trace.problems(), "");
  std::map<std::string, std::vector<std::pair<uint64_t, uint64_t>>> by_track;
  for (const auto& slice : trace.slices())
    by_track[slice.track].emplace_back(slice.from_ns / 1000, slice.to_ns / 1000);
  EXPECT_THAT(by_track["session 3/queue 0"],
              ElementsAre(Pair(100, 142), Pair(142, 146), Pair(146, 152)));
  EXPECT_THAT(by_track["GPU 0/lane 2"], ElementsAre(Pair(112, 122), Pair(122, 152)));
  EXPECT_THAT(by_track["GPU 1/lane 2"], ElementsAre(Pair(117, 147)));
  EXPECT_EQ(trace.slices()[0].name, "2 x gemm");
}

TEST(TraceFileTest, AnOpThatFailedBeforeItsLaunchHasNone) {
  Recording recording;
  v1::TracedOp& op = recording.ops.emplace_back(Op(3, 0, 0, 100));
  op.set_status("CANCELLED");
  op.clear_lane();
  for (auto clear : {&v1::TracedOp::clear_ready_at_ns, &v1::TracedOp::clear_launched_at_ns,
                     &v1::TracedOp::clear_started_at_ns})
    (op.*clear)();
  const test::PerfettoCheck trace = Written(recording);
  EXPECT_EQ(trace.problems(), "");
  ASSERT_EQ(trace.slices().size(), 1u);
  EXPECT_EQ(trace.slices()[0].name, "gemm CANCELLED");
  EXPECT_EQ(trace.flows().begin()->second.size(), 2u);
}

TEST(TraceFileTest, AFlowKeepsItsOrderWhereAllIsSeenAtOnce) {
  Recording recording;
  v1::TracedOp& op = recording.ops.emplace_back(Op(3, 0, 7, 100));
  op.set_launched_at_ns(op.admitted_at_ns());
  op.set_started_at_ns(op.admitted_at_ns());
  op.set_finished_at_ns(op.admitted_at_ns());
  const test::PerfettoCheck trace = Written(recording);
  EXPECT_EQ(trace.problems(), "");
  EXPECT_EQ(trace.flows().begin()->second.size(), 3u);
}

TEST(TraceFileTest, GpusHaveNamesAndWhatIsMissingIsSaid) {
  Recording recording;
  recording.gpu_names = {{0, "H200"}};
  recording.lost_count = 12;
  recording.ops = {Op(3, 0, 7, 100)};
  std::vector<std::string> names;
  MakeTrace(recording, [&](const perfetto::TracePacket& packet) {
    names.push_back(packet.has_track_descriptor() ? packet.track_descriptor().name()
                                                  : packet.track_event().name());
  });
  EXPECT_THAT(names, testing::Contains("GPU 0: H200"));
  EXPECT_EQ(names.back(), "12 ops and plans are missing");
}

// The packets that a file holds, and what ReadTrace says of it.
std::pair<std::vector<std::string>, std::string> Read(const std::string& contents) {
  const std::string path = testing::TempDir() + "/trace_file_test.pftrace";
  std::ofstream(path, std::ios::binary) << contents;
  std::pair<std::vector<std::string>, std::string> read;
  read.second = ReadTrace(path, [&](const perfetto::TracePacket& packet) {
    read.first.push_back(packet.SerializeAsString());
  });
  return read;
}

TEST(TraceFileTest, WhatIsReadIsWhatWasWritten) {
  Recording recording;
  recording.ops = {Op(3, 1, 7, 100), Op(3, 1, 8, 200)};
  std::vector<std::string> made;
  MakeTrace(recording, [&](const perfetto::TracePacket& packet) {
    made.push_back(packet.SerializeAsString());
  });
  std::ostringstream file;
  WriteTrace(recording, file);
  EXPECT_THAT(Read(file.str()), Pair(made, ""));
  EXPECT_THAT(Read(""), Pair(testing::IsEmpty(), ""));
}

TEST(TraceFileTest, AFileThatIsNoneIsRefused) {
  Recording recording;
  recording.ops = {Op(3, 1, 7, 100)};
  std::ostringstream file;
  WriteTrace(recording, file);
  const std::string whole = file.str();
  const auto refused = HasSubstr("trace_file_test.pftrace is no trace, or ends early");
  EXPECT_THAT(Read(whole.substr(0, whole.size() - 1)).second, refused);
  EXPECT_THAT(Read(whole + "x").second, refused);
  EXPECT_THAT(Read("\n\xff\xff\xff\xff\x0f").second, refused);  // a packet of 4 GB
  EXPECT_THAT(Read("{\"traceEvents\": []}").second, refused);
  EXPECT_EQ(ReadTrace("/nonexistent/t", [](const auto&) {}),
            "cannot read /nonexistent/t: No such file or directory");
}

TEST(TraceFileTest, NothingIsAnEmptyFile) { EXPECT_TRUE(Written({}).slices().empty()); }

}  // namespace
}  // namespace concert::ctl
