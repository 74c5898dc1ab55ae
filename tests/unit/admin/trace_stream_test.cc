#include "daemon/admin/trace_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "client/ctl/perfetto.pb.h"
#include "tests/unit/admin/admin_fixture.h"
#include "tests/unit/telemetry/records_for_test.h"

namespace concert::daemon {
namespace {

using testing::HasSubstr;

class TraceStreamTest : public AdminTest {
 protected:
  struct Reader {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::TraceResponse>> stream;
    v1::TraceResponse message;

    bool Read() { return stream->Read(&message); }
  };

  std::unique_ptr<Reader> Open(uint32_t seconds) {
    auto reader = std::make_unique<Reader>();
    reader->context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    v1::TraceRequest request;
    request.set_seconds(seconds);
    reader->stream = stub_->Trace(&reader->context, request);
    return reader;
  }
  uint64_t OpenStreams() { return control_.accounts().node().of(Resource::kWatches); }
};

TEST_F(TraceStreamTest, SendsWhatEndsUntilItsTimeIsOver) {
  ring_->Push(GoodOp(1));  // too early
  const auto reader = Open(1);
  ASSERT_TRUE(reader->Read());  // it has begun
  EXPECT_EQ(reader->message.ops_size(), 0);
  EXPECT_TRUE(reader->message.simulated());
  ring_->Push(GoodOp(3));
  ring_->Push(PlanOf(1, {3}));
  ring_->Push(FailedOp(4, CONCERT_ABI_CANCELLED));
  v1::TraceResponse all;
  while (reader->Read()) all.MergeFrom(reader->message);
  EXPECT_TRUE(reader->stream->Finish().ok());
  ASSERT_EQ(all.ops_size(), 2);
  const v1::TracedOp& op = all.ops(0);
  EXPECT_EQ(op.session_id(), 3u);
  EXPECT_EQ(op.kind(), "gemm");
  EXPECT_EQ(op.status(), "OK");
  EXPECT_EQ(op.plan_id(), 1u);
  EXPECT_EQ(op.lane(), 0u);
  EXPECT_EQ(op.admitted_at_ns(), 900'000u);
  EXPECT_EQ(op.finished_at_ns() - op.started_at_ns(), 40'000u);
  EXPECT_EQ(all.ops(1).status(), "CANCELLED");
  ASSERT_EQ(all.plans_size(), 1);
  EXPECT_FALSE(all.plans(0).reason().empty());
  EXPECT_EQ(op.reason(), all.plans(0).reason());
  EXPECT_EQ(all.ops(1).reason(), "");  // it failed before any plan
}

TEST_F(TraceStreamTest, OneAtATimeAndWithinItsRange) {
  auto first = Open(60);
  ASSERT_TRUE(first->Read());
  const auto second = Open(1);
  EXPECT_FALSE(second->Read());
  EXPECT_EQ(second->stream->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const auto long_one = Open(61);
  EXPECT_FALSE(long_one->Read());
  const grpc::Status status = long_one->stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "seconds is 61; it must be at most 60");
  EXPECT_EQ(OpenStreams(), 1u);
  first->context.TryCancel();  // then there is room for another
  first->stream->Finish();
  while (OpenStreams() > 0) std::this_thread::yield();
  const auto third = Open(60);
  EXPECT_TRUE(third->Read());
  third->context.TryCancel();
  third->stream->Finish();
}

// Ops until the trace has room for no more.
size_t Fill(RecordRing& ring, Telemetry& telemetry) {
  size_t pushed = 0;
  for (; !telemetry.TraceIsFull(); ++pushed) {
    while (!ring.Push(GoodOp(3))) telemetry.Snapshot(0);
  }
  return pushed;
}

TEST_F(TraceStreamTest, AFullTraceEndsBeforeItsTime) {
  const auto reader = Open(60);
  ASSERT_TRUE(reader->Read());
  const size_t pushed = Fill(*ring_, telemetry_);
  size_t ops = 0;
  while (reader->Read()) ops += reader->message.ops_size();
  EXPECT_TRUE(reader->stream->Finish().ok());
  EXPECT_GT(ops, 500'000u);  // as many as concertctl takes
  EXPECT_LE(ops, pushed);
}

TEST_F(TraceStreamTest, AReaderThatDoesNotReadHoldsUpNobody) {
  const auto reader = Open(60);
  ASSERT_TRUE(reader->Read());
  const size_t pushed = Fill(*ring_, telemetry_);  // far more than gRPC takes
  EXPECT_EQ(telemetry_.Snapshot(0)->stats.total.op_count, pushed);
  Call<v1::GetStatusResponse>(&Stub::GetStatus, v1::GetStatusRequest());
  server_->Stop();
  EXPECT_EQ(OpenStreams(), 0u);
}

TEST_F(TraceStreamTest, StoppingEndsIt) {
  const auto reader = Open(60);
  ASSERT_TRUE(reader->Read());
  std::thread stop([this] { server_->Stop(); });
  while (reader->Read()) {
  }
  EXPECT_EQ(reader->stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  stop.join();
}

TEST_F(TraceStreamTest, ConcertctlWritesAFile) {
  const std::string file = path_ + ".pftrace";
  std::atomic<bool> done = false;
  std::thread producer([&] {
    while (!done) {
      ring_->Push(GoodOp(3));
      ring_->Push(PlanOf(1, {3}));
      std::this_thread::yield();
    }
  });
  const CtlResult result = Ctl({"trace", "--seconds", "1", "--out", file.c_str()});
  done = true;
  producer.join();
  EXPECT_EQ(result.exit_code, ctl::kExitOk) << result.err;
  EXPECT_THAT(result.out, HasSubstr("SIMULATED; open it in ui.perfetto.dev"));
  perfetto::Trace trace;
  std::ifstream in(file, std::ios::binary);
  ASSERT_TRUE(trace.ParseFromIstream(&in));
  EXPECT_TRUE(std::any_of(trace.packet().begin(), trace.packet().end(), [](const auto& packet) {
    const std::string& name = packet.track_descriptor().name();
    return name.starts_with("GPU 0: ") && name.ends_with(" (simulated)");
  }));
  const CtlResult page = Ctl({"trace", "html", file.c_str()});
  EXPECT_EQ(page.exit_code, ctl::kExitOk) << page.err;
  EXPECT_TRUE(page.out.starts_with(path_ + ".html: ")) << page.out;
  EXPECT_THAT(page.out, HasSubstr(" ops; open it in a browser"));
  EXPECT_TRUE(std::filesystem::remove(path_ + ".html"));
  std::filesystem::remove(file);
}

TEST_F(TraceStreamTest, ConcertctlWritesAPageAtOnce) {
  const std::string file = path_ + ".html";
  const CtlResult result = Ctl({"trace", "html", "--seconds", "1", "--out", file.c_str()});
  EXPECT_EQ(result.exit_code, ctl::kExitOk) << result.err;
  EXPECT_EQ(result.out, file + ": 0 ops, 0 plans, SIMULATED; open it in a browser\n");
  std::ifstream in(file);
  std::string line;
  EXPECT_TRUE(std::getline(in, line));
  EXPECT_EQ(line, "<!DOCTYPE html>");
  const CtlResult itself = Ctl({"trace", "html", file.c_str()});
  EXPECT_EQ(itself.exit_code, ctl::kExitFailed);
  EXPECT_THAT(itself.err, HasSubstr("is what the page is made of; name another with --out"));
  std::filesystem::remove(file);
}

TEST_F(TraceStreamTest, ConcertctlSaysWhatItCannotDo) {
  const CtlResult nowhere = Ctl({"trace", "--seconds", "1", "--out", "/nonexistent/t"});
  EXPECT_EQ(nowhere.exit_code, ctl::kExitFailed);
  EXPECT_THAT(nowhere.err, HasSubstr("cannot write /nonexistent/t: No such file or directory"));
  EXPECT_EQ(Ctl({"trace", "--seconds", "61"}).exit_code, ctl::kExitUsage);
  EXPECT_EQ(Ctl({"trace", "html", "t", "--seconds", "2"}).exit_code, ctl::kExitUsage);
  const CtlResult missing = Ctl({"trace", "html", "/nonexistent/t"});
  EXPECT_EQ(missing.exit_code, ctl::kExitFailed);
  EXPECT_THAT(missing.err, HasSubstr("cannot read /nonexistent/t: No such file or directory"));
  const std::string file = path_ + ".json.pftrace";
  const auto json =
      nlohmann::json::parse(Ctl({"--json", "trace", "--seconds", "1", "--out", file.c_str()}).out);
  EXPECT_EQ(json["op_count"], 0);
  EXPECT_EQ(json["file"], file);
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace concert::daemon
