// The admin API over a real Unix socket, against a fake daemon, with gRPC's own client and with
// concertctl.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "daemon/admin/caller.h"
#include "daemon/admin/stats_watch.h"
#include "daemon/quota/budget.h"
#include "proto/concert/v1/admin.grpc.pb.h"
#include "proto/unique_fd.h"
#include "tests/unit/admin/admin_fixture.h"
#include "tests/unit/telemetry/records_for_test.h"

namespace concert::daemon {
namespace {

using admin::StatsWatches;
using grpc::StatusCode;
using testing::HasSubstr;

TEST_F(AdminTest, SocketIsForOwnerAndGroupOnly) {
  struct stat info;
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0660u);
}

TEST_F(AdminTest, SecondDaemonIsRefusedAndStaleSocketReplaced) {
  EXPECT_EQ(AdminServer::Start(path_, control_, telemetry_).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(AdminServer::Start("relative.sock", control_, telemetry_).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AdminServer::Start("/nonexistent/a.sock", control_, telemetry_).status().code(),
            absl::StatusCode::kUnavailable);
  server_->Stop();
  EXPECT_NE(access(path_.c_str(), F_OK), 0);
  EXPECT_TRUE(AdminServer::Start(path_, control_, telemetry_).ok());
}

TEST_F(AdminTest, StatusDevicesAndSessionsComeFromTheDaemon) {
  ring_->Push(FailedOp(3, CONCERT_ABI_CANCELLED));
  const auto status = Call<v1::GetStatusResponse>(&Stub::GetStatus, v1::GetStatusRequest());
  EXPECT_EQ(status.version(), "1.2.3");
  EXPECT_EQ(status.state(), v1::DAEMON_STATE_RUNNING);
  EXPECT_NEAR(status.uptime_seconds(), 90.5, 0.4);
  EXPECT_EQ(status.device_count(), 2u);
  EXPECT_EQ(status.healthy_device_count(), 1u);
  EXPECT_EQ(status.failed_op_count(), 1u);
  const auto devices = Call<v1::ListDevicesResponse>(&Stub::ListDevices, v1::ListDevicesRequest());
  ASSERT_EQ(devices.devices_size(), 2);
  EXPECT_EQ(devices.devices(0).uuid(), "GPU-ab000000-0000-0000-0000-000000000000");
  EXPECT_TRUE(devices.devices(0).healthy());
  EXPECT_EQ(devices.devices(1).health_message(), "GPU 1 faulted");
  EXPECT_EQ(devices.devices(0).memory_used_bytes(), uint64_t{1} << 28);
  EXPECT_EQ(devices.devices(0).power_watts(), 412.5);
  EXPECT_EQ(devices.devices(0).power_limit_watts(), 700);
  EXPECT_EQ(devices.devices(0).sm_clock_mhz(), 1980u);
  EXPECT_EQ(devices.devices(0).memory_clock_mhz(), 3201u);
  EXPECT_EQ(devices.devices(0).temperature_celsius(), 54u);
  EXPECT_EQ(devices.devices(0).sealed_bytes(), 3u << 20);
  EXPECT_EQ(devices.devices(0).sealed_saved_bytes(), 5u << 20);
  EXPECT_FALSE(devices.devices(1).has_power_watts());  // it has no sensors
  const auto sessions =
      Call<v1::ListSessionsResponse>(&Stub::ListSessions, v1::ListSessionsRequest());
  ASSERT_EQ(sessions.sessions_size(), 1);
  EXPECT_EQ(sessions.sessions(0).client_name(),
            "evil\\x1b[2J\\xff");  // fit for protobuf and terminals
  EXPECT_NEAR(sessions.sessions(0).connected_seconds(), 60, 0.4);
  ASSERT_EQ(sessions.sessions(0).programs_size(), 2);
  EXPECT_EQ(sessions.sessions(0).programs(0).program(), 17u);
  EXPECT_EQ(sessions.sessions(0).programs(0).ops(0).kind(), "attention_prefill");
  EXPECT_EQ(sessions.sessions(0).registered_bytes(), 1u << 20);
  EXPECT_EQ(sessions.sessions(0).sealed_bytes(), 1u << 19);
  EXPECT_EQ(sessions.sessions(0).shared_bytes(), 1u << 18);
  EXPECT_EQ(sessions.sessions(0).programs(0).why_no_step(),
            "op 0, attention_prefill: the step kernel has no code for it");
  EXPECT_EQ(sessions.sessions(0).programs(1).why_no_step(), "");
  EXPECT_EQ(sessions.sessions(0).programs(1).engines_size(), 0);
  ASSERT_EQ(sessions.sessions(0).programs(0).engines_size(), 1);
  EXPECT_EQ(sessions.sessions(0).programs(0).engines(0).parts_size(), 0) << "nobody has asked";
  v1::ListSessionsRequest with_parts;
  with_parts.set_with_program_parts(true);
  const auto again = Call<v1::ListSessionsResponse>(&Stub::ListSessions, with_parts);
  const v1::ProgramEngine& graph = again.sessions(0).programs(0).engines(0);
  EXPECT_EQ(graph.engine(), "graph");
  EXPECT_EQ(graph.predicted_us(), 40);
  ASSERT_EQ(graph.parts_size(), 1);
  EXPECT_EQ(graph.parts(0).what(), "attention_prefill");
  EXPECT_EQ(graph.parts(0).count(), 2u);
  EXPECT_EQ(graph.parts(0).predicted_us(), 20);
}

TEST_F(AdminTest, StatsTellPriorityClassesApart) {
  telemetry_.BeginSession(3, 1000);
  OpRecord low = GoodOp(3);
  low.priority = policies::Priority::kLow;
  ring_->Push(low);
  OpRecord high = GoodOp(3);
  high.priority = policies::Priority::kHigh;
  ring_->Push(high);
  ring_->Push(high);
  ring_->Push(PlanOf(1, {3}));
  const v1::Stats stats =
      Call<v1::GetStatsResponse>(&Stub::GetStats, v1::GetStatsRequest()).stats();
  EXPECT_GT(stats.devices(0).planned_sm_seconds(), 0);
  ASSERT_EQ(stats.classes_size(), 2);  // no op was normal
  EXPECT_EQ(stats.classes(0).priority(), "high");
  EXPECT_EQ(stats.classes(0).ops().queue_wait().count(), 2u);
  EXPECT_EQ(stats.classes(1).priority(), "low");
  ASSERT_EQ(stats.sessions_size(), 1);
  EXPECT_THAT(stats.sessions(0).gpus(), testing::ElementsAre(0));
  ASSERT_EQ(stats.sessions(0).classes_size(), 2);
  EXPECT_EQ(stats.sessions(0).classes(0).ops().op_count(), 2u);
  EXPECT_EQ(stats.sessions(0).classes(0).ops().flop_count(), 2u * high.flops);
}

TEST_F(AdminTest, CollectivesSayWhoWaitsForWhomAndWhatRuns) {
  const auto response =
      Call<v1::GetCollectivesResponse>(&Stub::GetCollectives, v1::GetCollectivesRequest());
  EXPECT_EQ(response.communicator_count(), 3u);
  EXPECT_FALSE(response.cut());
  EXPECT_TRUE(response.simulated());
  ASSERT_EQ(response.collectives_size(), 2);
  const v1::Collective& waits = response.collectives(0);
  EXPECT_EQ(waits.communicator(), 7u);
  EXPECT_EQ(waits.sequence(), 12u);
  EXPECT_EQ(waits.kind(), "all_reduce");
  EXPECT_EQ(waits.seconds(), 2);
  EXPECT_FALSE(waits.running());
  ASSERT_EQ(waits.ranks_size(), 3);
  EXPECT_EQ(waits.ranks(1).state(), "missing");
  EXPECT_EQ(waits.ranks(1).gpu(), 1u);
  EXPECT_EQ(waits.ranks(1).session_id(), 5u);
  EXPECT_EQ(waits.ranks(2).state(), "not joined");
  EXPECT_FALSE(waits.ranks(2).has_gpu());
  const v1::Collective& runs = response.collectives(1);
  EXPECT_TRUE(runs.running());
  EXPECT_EQ(runs.transport(), "p2p");
  EXPECT_EQ(runs.sm_count(), 8u);
  EXPECT_NEAR(runs.predicted_us(), 412, 1e-9);
  ASSERT_EQ(runs.ranks_size(), 1);
}

TEST_F(AdminTest, PoliciesCanBeListedAndSet) {
  v1::SetPolicyRequest request;
  request.set_policy("serial");
  const auto answer = Call<v1::SetPolicyResponse>(&Stub::SetPolicy, request);
  EXPECT_EQ(answer.previous_policy(), "auto");
  EXPECT_EQ(Call<v1::GetPolicyResponse>(&Stub::GetPolicy, v1::GetPolicyRequest()).policy(),
            "serial");
  const auto list = Call<v1::ListPoliciesResponse>(&Stub::ListPolicies, v1::ListPoliciesRequest());
  EXPECT_EQ(list.policies_size(), 2);
  EXPECT_EQ(list.current_policy(), "serial");
  request.set_policy("fastest");
  Call<v1::SetPolicyResponse>(&Stub::SetPolicy, request, StatusCode::NOT_FOUND);
  EXPECT_THAT(status_.error_message(), HasSubstr("auto, serial"));
  Call<v1::SetPolicyResponse>(&Stub::SetPolicy, v1::SetPolicyRequest(),
                              StatusCode::INVALID_ARGUMENT);
}

TEST_F(AdminTest, DrainOnceAndWithinItsRange) {
  v1::DrainRequest request;
  request.set_timeout_seconds(3601);
  Call<v1::DrainResponse>(&Stub::Drain, request, StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status_.error_message(), HasSubstr("timeout_seconds is 3601"));
  request.set_timeout_seconds(7);
  Call<v1::DrainResponse>(&Stub::Drain, request);
  EXPECT_EQ(control_.drain_seconds(), 7u);
  Call<v1::DrainResponse>(&Stub::Drain, request, StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(Call<v1::GetStatusResponse>(&Stub::GetStatus, v1::GetStatusRequest()).state(),
            v1::DAEMON_STATE_DRAINING);
}

TEST_F(AdminTest, PlansNewestFirstAndAtMostAsManyAsAsked) {
  for (uint64_t i = 1; i <= 30; ++i) ring_->Push(PlanOf(i, {3, 7}));
  EXPECT_EQ(Call<v1::ListPlansResponse>(&Stub::ListPlans, v1::ListPlansRequest()).plans_size(), 20);
  v1::ListPlansRequest request;
  request.set_max_plan_count(2);
  const auto plans = Call<v1::ListPlansResponse>(&Stub::ListPlans, request);
  ASSERT_EQ(plans.plans_size(), 2);
  const v1::Plan& plan = plans.plans(0);
  EXPECT_EQ(plan.plan_id(), 30u);
  EXPECT_EQ(plan.form(), v1::PLAN_FORM_STREAMS);
  EXPECT_EQ(plan.streams_op_count(), 2u);
  EXPECT_EQ(plan.group_op_count(), 0u);
  EXPECT_NEAR(plan.actual_us(), 43, 1e-6);
  ASSERT_EQ(plan.ops_size(), 2);
  EXPECT_EQ(plan.ops(1).session_id(), 7u);
  EXPECT_EQ(plan.ops(1).kind(), "gemm");
  EXPECT_EQ(plan.ops(1).n(), 4096u);
  EXPECT_FALSE(plan.reason().empty());
  EXPECT_THAT(plan.text(), HasSubstr("2 GEMMs (sessions 3, 7)"));
  request.set_max_plan_count(257);
  Call<v1::ListPlansResponse>(&Stub::ListPlans, request, StatusCode::INVALID_ARGUMENT);
}

// One call with raw protobuf bytes, for services whose .proto is not packaged.
std::string RawCall(const std::string& path, const std::string& method,
                    const std::string& request) {
  const auto channel = grpc::CreateChannel("unix:" + path, grpc::InsecureChannelCredentials());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  const grpc::Slice slice(request);
  const grpc::ByteBuffer bytes(&slice, 1);
  grpc::CompletionQueue queue;
  const auto call = grpc::GenericStub(channel).PrepareUnaryCall(&context, method, bytes, &queue);
  call->StartCall();
  grpc::ByteBuffer answer;
  grpc::Status status;
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  EXPECT_TRUE(status.ok()) << status.error_message();
  grpc::Slice text;
  EXPECT_TRUE(answer.DumpToSingleSlice(&text).ok());
  return std::string(reinterpret_cast<const char*>(text.begin()), text.size());
}

TEST_F(AdminTest, HealthAndReflectionAreServed) {
  // HealthCheckRequest{service = 1} -> HealthCheckResponse{status = SERVING}
  EXPECT_EQ(RawCall(path_, "/grpc.health.v1.Health/Check",
                    "\x0a\x17"
                    "concert.v1.AdminService"),
            "\x08\x01");
  // ServerReflectionRequest{list_services = ""}
  EXPECT_THAT(RawCall(path_, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                      std::string("\x3a\x00", 2)),
              HasSubstr("concert.v1.AdminService"));
}

class WatchTest : public AdminTest {
 protected:
  struct Stream {
    grpc::ClientContext context;
    std::unique_ptr<v1::AdminService::Stub> stub;
    std::unique_ptr<grpc::ClientReader<v1::WatchStatsResponse>> reader;

    v1::WatchStatsResponse Next() {
      v1::WatchStatsResponse message;
      EXPECT_TRUE(reader->Read(&message));
      return message;
    }
    // The end of a stream that must not bring anything more.
    grpc::Status End() {
      v1::WatchStatsResponse message;
      while (reader->Read(&message)) {
      }
      return reader->Finish();
    }
  };

  std::unique_ptr<Stream> Open(uint32_t interval_ms) {
    auto stream = std::make_unique<Stream>();
    stream->stub = NewStub();
    stream->context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    v1::WatchStatsRequest request;
    request.set_interval_ms(interval_ms);
    stream->reader = stream->stub->WatchStats(&stream->context, request);
    return stream;
  }
};

TEST_F(WatchTest, TotalsComeAtOnceThenDeltasThatSumToTotals) {
  telemetry_.BeginSession(3, 1000);
  for (int i = 0; i < 5; ++i) ring_->Push(GoodOp(3));
  // An hour's interval: the first message doesn't wait for it.
  EXPECT_EQ(Open(StatsWatches::kMaxIntervalMs)->Next().stats().total().op_count(), 5u);

  auto stream = Open(50);
  v1::WatchStatsResponse message = stream->Next();
  EXPECT_EQ(message.sequence_number(), 1u);
  EXPECT_EQ(message.interval_seconds(), 0);
  uint64_t ops = message.stats().total().op_count(),
           session_ops = message.stats().sessions(0).ops().op_count();
  EXPECT_EQ(ops, 5u);
  for (int i = 0; i < 10; ++i) ring_->Push(GoodOp(3));
  while (ops < 15) {
    const uint64_t sequence = message.sequence_number();
    message = stream->Next();
    EXPECT_EQ(message.sequence_number(), sequence + 1);
    EXPECT_GT(message.interval_seconds(), 0);
    ops += message.stats().total().op_count();
    for (const auto& session : message.stats().sessions()) session_ops += session.ops().op_count();
  }
  EXPECT_EQ(ops, 15u);
  EXPECT_EQ(session_ops, 15u);
  EXPECT_TRUE(stream->Next().stats().sessions().empty());  // nothing new: left out
}

TEST_F(WatchTest, SlowReaderGetsTheLatestAndTheCountOfWhatItMissed) {
  // Enough sessions to fill all buffers between server and client with one message.
  for (uint32_t session = 1; session <= Stats::kMaxSessions; ++session) {
    telemetry_.BeginSession(session, 1000);
    ring_->Push(GoodOp(session));
  }
  auto slow = Open(50);
  auto fast = Open(50);
  uint64_t pushed = Stats::kMaxSessions;
  for (int i = 0; i < 6; ++i) {
    fast->Next();
    for (uint32_t session = 1; session <= 1000; ++session) ring_->Push(GoodOp(session));
    pushed += 1000;
  }
  uint64_t received = 0, dropped = 0, last_sequence = 0;
  while (received < pushed) {
    const v1::WatchStatsResponse message = slow->Next();
    ASSERT_EQ(message.sequence_number(), ++last_sequence);
    received += message.stats().total().op_count();
    dropped = message.dropped_count();
  }
  EXPECT_EQ(received, pushed);
  EXPECT_GT(dropped, 0u);
}

TEST_F(WatchTest, IntervalIsChecked) {
  const grpc::Status status = Open(49)->End();
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("interval_ms is 49"));
}

TEST_F(WatchTest, WatchesAreLimitedAndFreedWhenCancelled) {
  std::vector<std::unique_ptr<Stream>> streams;
  for (size_t i = 0; i < InfoOf(Resource::kWatches).limit.in_all; ++i) {
    streams.push_back(Open(1000));
    streams.back()->Next();
  }
  EXPECT_EQ(control_.accounts().node().of(Resource::kWatches), streams.size());
  EXPECT_EQ(Open(1000)->End().error_code(), StatusCode::RESOURCE_EXHAUSTED);
  streams[0]->context.TryCancel();
  EXPECT_EQ(streams[0]->End().error_code(), StatusCode::CANCELLED);
  // The server learns of it a little later; the deadline of the test bounds the wait.
  v1::WatchStatsResponse message;
  while (!Open(1000)->reader->Read(&message)) {
  }
  EXPECT_EQ(message.sequence_number(), 1u);
  for (auto& stream : streams) stream->context.TryCancel();
  server_->Stop();
  EXPECT_EQ(control_.accounts().node().of(Resource::kWatches), 0u);
}

TEST_F(WatchTest, StoppingEndsEveryWatchEvenOneThatIsNotRead) {
  for (uint32_t session = 1; session <= Stats::kMaxSessions; ++session) {
    telemetry_.BeginSession(session, 1000);
    ring_->Push(GoodOp(session));
  }
  auto quiet = Open(StatsWatches::kMaxIntervalMs);
  quiet->Next();
  auto unread = Open(50);
  server_->Stop();
  const grpc::Status status = quiet->End();
  EXPECT_EQ(status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "the daemon is shutting down");
  EXPECT_FALSE(unread->End().ok());
}

TEST_F(AdminTest, ADegradedDaemonIsSeenByConcertctlAndByHealthChecks) {
  // One of its GPUs has failed.
  const CtlResult failed = Ctl({"status"});
  EXPECT_EQ(failed.exit_code, ctl::kExitDegraded);
  EXPECT_THAT(failed.out, HasSubstr("DEGRADED  GPU 1 has failed: GPU 1 faulted\n"));
  EXPECT_EQ(Ctl({"devices"}).exit_code, ctl::kExitOk);

  server_->Stop();
  control_.degraded = "this machine has an NVIDIA GPU (...) that cannot be used: no driver";
  auto server = AdminServer::Start(path_, control_, telemetry_);
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = std::move(*server);
  const CtlResult json = Ctl({"--json", "status"});
  EXPECT_EQ(json.exit_code, ctl::kExitDegraded);
  EXPECT_EQ(nlohmann::json::parse(json.out)["degraded"], control_.degraded);
  // HealthCheckResponse{status = NOT_SERVING}, of our service and of the server.
  EXPECT_EQ(RawCall(path_, "/grpc.health.v1.Health/Check",
                    "\x0a\x17"
                    "concert.v1.AdminService"),
            "\x08\x02");
  EXPECT_EQ(RawCall(path_, "/grpc.health.v1.Health/Check", ""), "\x08\x02");
}

TEST_F(AdminTest, ChangesAreLoggedWithWhoAskedForThem) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(Ctl({"policy", "set", "serial"}).exit_code, ctl::kExitOk);
  EXPECT_EQ(Ctl({"drain"}).exit_code, ctl::kExitOk);
  const std::string log = testing::internal::GetCapturedStderr();
  const std::string me =
      " uid/" + std::to_string(getuid()) + " pid/" + std::to_string(getpid()) + " asks for ";
  EXPECT_THAT(log, HasSubstr(me + "policy serial\n"));
  EXPECT_THAT(log, HasSubstr(me + "a drain\n"));
  EXPECT_EQ(admin::CallerOf("grpc-go/1.5"), "somebody who gives no name");
}

TEST_F(AdminTest, ADrainIsWaitedForAsLongAsIsSaid) {
  const CtlResult drains = Ctl({"drain", "--wait-s", "1"});  // the fake one never ends
  EXPECT_EQ(drains.exit_code, ctl::kExitFailed);
  EXPECT_EQ(drains.out, "draining\n");
  EXPECT_EQ(drains.err, "concertctl: the daemon still drains after 1 s (--wait-s)\n");
}

TEST_F(AdminTest, TheSocketOfClientsIsToldFromThatOfTheAdmin) {
  const std::string path = path_ + ".clients";
  const UniqueFd clients(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(clients.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(clients.get(), 1), 0);
  const CtlResult status = CtlAt(path, {"status"});
  EXPECT_EQ(status.exit_code, ctl::kExitNoDaemon);
  EXPECT_THAT(status.err, HasSubstr("that is the socket of clients, give the daemon's admin_socket"
                                    " (--socket, CONCERT_ADMIN_SOCKET)\n"));
  unlink(path.c_str());
}

TEST_F(AdminTest, WhatIsSimulatedIsLabelledInJson) {
  ring_->Push(GoodOp(3));
  EXPECT_TRUE(nlohmann::json::parse(Ctl({"--json", "status"}).out)["simulated"]);
  EXPECT_TRUE(nlohmann::json::parse(Ctl({"--json", "stats"}).out)["stats"]["simulated"]);
  EXPECT_TRUE(nlohmann::json::parse(Ctl({"--json", "plans"}).out)["simulated"]);
  const std::string top = Ctl({"--json", "top", "-n", "1", "-i", "50"}).out;
  EXPECT_TRUE(nlohmann::json::parse(top)["delta"]["stats"]["simulated"]) << top;
  EXPECT_THAT(Ctl({"watch", "-n", "1", "-i", "50"}).out, HasSubstr("SIMULATED: "));
}

TEST_F(AdminTest, ConcertctlShowsAndSets) {
  ring_->Push(GoodOp(3));
  ring_->Push(PlanOf(1, {3}));
  EXPECT_THAT(Ctl({"status"}).out, HasSubstr("concertd 1.2.3, pid 77, up 1 min 30 s, running"));
  EXPECT_THAT(Ctl({"devices"}).out, HasSubstr("failed: GPU 1 faulted"));
  EXPECT_THAT(Ctl({"sessions"}).out, HasSubstr("1.00 MiB"));
  EXPECT_THAT(Ctl({"stats"}).out, HasSubstr("gemm"));
  EXPECT_THAT(Ctl({"plans", "--last", "1"}).out, HasSubstr("GPU 0: 1 GEMM (session 3)"));
  EXPECT_EQ(Ctl({"policy", "set", "serial"}).out, "policy serial (was auto)\n");
  EXPECT_EQ(Ctl({"policy", "get"}).out, "serial\n");
  EXPECT_EQ(Ctl({"drain", "--drain-s", "9"}).exit_code, ctl::kExitOk);
  EXPECT_EQ(control_.drain_seconds(), 9u);
}

TEST_F(AdminTest, QuotasShowTheTableWhatIsHeldAndByWhom) {
  for (const uint32_t uid : {1000, 1001, 1002, 1003}) {
    ASSERT_TRUE(control_.accounts().Of(uid).TryCharge(Resource::kBuffers, uid));
  }
  const auto quotas = Call<v1::GetQuotasResponse>(&Stub::GetQuotas, v1::GetQuotasRequest());
  ASSERT_EQ(static_cast<size_t>(quotas.quotas_size()), kResourceCount);
  const v1::Quota& buffers = quotas.quotas(static_cast<int>(Resource::kBuffers));
  EXPECT_EQ(buffers.resource(), "buffers");
  EXPECT_EQ(buffers.user_limit(), 16'384u);
  EXPECT_EQ(buffers.node_limit(), 0u);
  EXPECT_EQ(buffers.user_setting(), "max_buffers_per_uid");
  EXPECT_EQ(buffers.used(), 1000u + 1001 + 1002 + 1003);
  ASSERT_EQ(buffers.heaviest_users_size(), 3);
  EXPECT_EQ(buffers.heaviest_users(0).uid(), 1003u);
  EXPECT_EQ(buffers.heaviest_users(0).used(), 1003u);
  EXPECT_TRUE(quotas.quotas(0).heaviest_users().empty());
  ASSERT_EQ(static_cast<size_t>(quotas.budgets_size()), kBudgets.size());
  for (size_t i = 0; i < kBudgets.size(); ++i) {
    const v1::Budget& budget = quotas.budgets(static_cast<int>(i));
    EXPECT_EQ(budget.work(), kBudgets[i].name);
    EXPECT_EQ(budget.per_turn_count(), kBudgets[i].per_turn) << budget.work();
  }
  EXPECT_THAT(Ctl({"quotas"}).out, HasSubstr("1003 (1003), 1002 (1002), 1001 (1001)"));
  EXPECT_EQ(nlohmann::json::parse(Ctl({"quotas", "--json"}).out)["quotas"][0]["resource"],
            "connections");
}

TEST_F(AdminTest, ConcertctlJsonHasRawNumbers) {
  ring_->Push(GoodOp(3));
  const auto json = nlohmann::json::parse(Ctl({"stats", "--json"}).out);
  EXPECT_EQ(json["stats"]["total"]["flop_count"], 1'000'000);
  EXPECT_EQ(json["stats"]["kinds"][0]["kind"], "gemm");
}

TEST_F(AdminTest, ConcertctlLiveCommandsPrintRatesAfterOneInterval) {
  const CtlResult watch = Ctl({"watch", "-n", "2", "--interval-ms", "50"});
  EXPECT_EQ(watch.exit_code, ctl::kExitOk) << watch.err;
  // What it is, its titles and two lines of rates.
  EXPECT_EQ(std::count(watch.out.begin(), watch.out.end(), '\n'), 4) << watch.out;
  const CtlResult top = Ctl({"top", "-n", "1", "--interval-ms", "50"});
  EXPECT_EQ(top.exit_code, ctl::kExitOk) << top.err;
  EXPECT_THAT(top.out, HasSubstr("evil"));
  EXPECT_EQ(top.out.find('\x1b'), std::string::npos);  // not a terminal: plain text
  std::istringstream lines(Ctl({"watch", "--json", "-n", "1", "--interval-ms", "50"}).out);
  std::string first, second;
  std::getline(lines, first);
  std::getline(lines, second);
  EXPECT_EQ(nlohmann::json::parse(first)["interval_seconds"], 0);
  EXPECT_EQ(nlohmann::json::parse(second)["sequence_number"], 2);
}

TEST_F(AdminTest, ConcertctlExitCodes) {
  const CtlResult refused = Ctl({"policy", "set", "fastest"});
  EXPECT_EQ(refused.exit_code, ctl::kExitFailed);
  EXPECT_EQ(refused.err, "concertctl: no policy 'fastest'; there are auto, serial\n");
  EXPECT_EQ(Ctl({"nonsense"}).exit_code, ctl::kExitUsage);
  EXPECT_EQ(Ctl({"plans", "--last", "0"}).exit_code, ctl::kExitUsage);
  EXPECT_EQ(Ctl({"--help"}).exit_code, ctl::kExitOk);
  server_->Stop();
  for (const char* command : {"status", "top"}) {
    const CtlResult absent = Ctl({command});
    EXPECT_EQ(absent.exit_code, ctl::kExitNoDaemon) << absent.err;
    EXPECT_EQ(absent.err,
              "concertctl: no concertd answers on " + path_ + ": No such file or directory\n");
  }
}

}  // namespace
}  // namespace concert::daemon
