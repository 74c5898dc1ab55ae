// Golden outputs of concertctl for fixed data.
#include "client/ctl/render.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "absl/strings/ascii.h"
#include "client/ctl/json.h"
#include "client/ctl/table.h"

namespace concert::ctl {
namespace {

std::string OneSpace(const std::string& line) {
  std::istringstream words(line);
  std::string all;
  for (std::string word; words >> word;) all += word + " ";
  return all;
}

// That operations.md shows every line of titles that this text has.
void ExpectShown(const std::string& rendered) {
  std::ifstream file(CONCERT_OPERATIONS);
  std::set<std::string> shown;
  for (std::string line; std::getline(file, line);) shown.insert(OneSpace(line));
  std::istringstream lines(rendered);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find_first_not_of(' ');
    const bool titles = std::ranges::none_of(line, absl::ascii_islower) &&
                        first != std::string::npos && absl::ascii_isupper(line[first]);
    EXPECT_TRUE(!titles || shown.contains(OneSpace(line))) << "it has other columns: " << line;
  }
}

void FillOps(v1::OpStats* ops, uint64_t count, double gpu_seconds) {
  ops->set_op_count(count);
  ops->set_moved_bytes(count << 20);
  ops->set_flop_count(count * 1'000'000'000);
  ops->set_gpu_seconds(gpu_seconds);
  ops->set_co_run_op_count(count / 2);
  ops->set_single_op_count(count / 2);
  ops->set_streams_op_count(count / 5);
  ops->set_group_op_count(count * 3 / 10);
  ops->set_gained_seconds(0.2);
  ops->mutable_queue_wait()->set_p50_us(8.2);
  ops->mutable_queue_wait()->set_p99_us(1530);
  ops->mutable_run_time()->set_p50_us(41);
  ops->mutable_run_time()->set_p99_us(2.4e6);
}

v1::GetStatusResponse Status() {
  v1::GetStatusResponse status;
  status.set_version("0.1.0");
  status.set_pid(4242);
  status.set_state(v1::DAEMON_STATE_RUNNING);
  status.set_uptime_seconds(7805);
  status.set_backend("cuda");
  status.set_backend_reason("2 usable GPUs");
  status.set_policy("auto");
  status.set_device_count(2);
  status.set_healthy_device_count(2);
  status.set_session_count(2);
  status.set_op_count(1'234'567);
  status.set_failed_op_count(3);
  status.set_client_socket("/run/concert/concert.sock");
  return status;
}

v1::ListSessionsResponse Sessions() {
  v1::ListSessionsResponse sessions;
  for (const uint32_t id : {3u, 12u}) {
    v1::Session* session = sessions.add_sessions();
    session->set_session_id(id);
    session->set_uid(1000);
    session->set_pid(5000 + id);
    session->set_client_name(id == 3 ? "server-a" : "b");
    session->set_connected_seconds(id * 30);
    session->set_queue_count(2);
    session->set_buffer_count(id);
    session->set_registered_bytes(uint64_t{id} << 29);
    if (id == 12) session->set_sealed_bytes(uint64_t{5} << 30);
    if (id == 12) session->set_shared_bytes(uint64_t{4} << 30);
    session->add_gpus(0);
    if (id == 3) session->add_gpus(1);
  }
  return sessions;
}

v1::Stats Totals() {
  v1::Stats stats;
  FillOps(stats.mutable_total(), 1000, 0.5);
  v1::DeviceStats* device = stats.add_devices();
  FillOps(device->mutable_ops(), 1000, 0.5);
  device->set_plan_count(400);
  device->set_co_run_plan_count(100);
  device->set_predicted_seconds(0.48);
  device->set_actual_seconds(0.5);
  device->set_serial_seconds(0.9);
  for (const uint32_t most : {1u, 2u, 4u, 8u, 0u}) {
    v1::DegreeStats* size = device->add_degrees();
    size->set_max_op_count(most);
    size->set_plan_count(most == 1 ? 300 : 10 * most);
  }
  device->set_dropped_record_count(12);
  v1::KindStats* kind = stats.add_kinds();
  kind->set_kind("gemm");
  FillOps(kind->mutable_ops(), 1000, 0.5);
  v1::SessionStats* quiet = stats.add_sessions();
  quiet->set_session_id(2);
  quiet->set_ended(true);
  FillOps(quiet->mutable_ops(), 200, 0.1);
  v1::SessionStats* session = stats.add_sessions();
  session->set_session_id(3);
  FillOps(session->mutable_ops(), 800, 0.4);
  for (const uint32_t other : {2u, 7u, 0u, 9u}) {
    v1::CoRunner* co_runner = session->add_co_runners();
    co_runner->set_session_id(other);
    co_runner->set_plan_count(120 - other);
  }
  return stats;
}

v1::WatchStatsResponse Delta() {
  v1::WatchStatsResponse delta;
  delta.set_sequence_number(2);
  delta.set_dropped_count(1);
  delta.set_interval_seconds(2);
  *delta.mutable_stats() = Totals();
  return delta;
}

TEST(RenderTest, AnIntervalIsNeverBusyForMoreThanItLasts) {
  v1::WatchStatsResponse delta;
  delta.set_interval_seconds(1);
  FillOps(delta.mutable_stats()->mutable_total(), 10, 2.03);
  for (uint32_t gpu = 0; gpu < 2; ++gpu) {
    v1::DeviceStats* device = delta.mutable_stats()->add_devices();
    device->set_gpu(gpu);
    FillOps(device->mutable_ops(), 5, 1.015);
  }
  EXPECT_NE(RenderWatchLine(delta).find(" 100 % "), std::string::npos) << RenderWatchLine(delta);
  const std::string top = RenderTop({}, {}, delta);
  EXPECT_NE(top.find(" 100 % "), std::string::npos) << top;
  EXPECT_EQ(top.find("102 %"), std::string::npos) << top;
}

TEST(RenderTest, Status) {
  EXPECT_EQ(RenderStatus(Status()), R"(concertd 0.1.0, pid 4242, up 2 h 10 min, running
device    cuda (2 usable GPUs)
GPUs      2 of 2 healthy
policy    auto
sessions  2 on /run/concert/concert.sock
ops       1.23 M, 3 failed
)");
}

TEST(RenderTest, WhatIsSimulatedSaysSoWhereverTimesAreShown) {
  const std::string note = "SIMULATED: times are a model's, results are computed on this CPU\n";
  v1::GetStatusResponse status = Status();
  status.set_simulated(true);
  EXPECT_NE(RenderStatus(status).find(note), std::string::npos);
  v1::Stats stats = Totals();
  stats.set_simulated(true);
  EXPECT_EQ(RenderStats(stats), note + RenderStats(Totals()));
  v1::ListPlansResponse plans;
  plans.add_plans()->set_text("GPU 0: a plan");
  EXPECT_EQ(RenderPlans(plans), "GPU 0: a plan\n");
  plans.set_simulated(true);
  EXPECT_EQ(RenderPlans(plans), note + "GPU 0: a plan\n");
  EXPECT_NE(RenderTop(status, {}, Delta()).find("2 sessions, SIMULATED\n"), std::string::npos);
  EXPECT_NE(ToJson(status).dump().find(R"("simulated":true)"), std::string::npos);
}

TEST(RenderTest, ADegradedDaemonSaysWhy) {
  v1::GetStatusResponse status = Status();
  status.set_degraded("this machine has an NVIDIA GPU (...) that cannot be used: no driver");
  EXPECT_NE(RenderStatus(status).find("\nDEGRADED  this machine has an NVIDIA GPU"),
            std::string::npos);
  EXPECT_NE(RenderTop(status, {}, Delta()).find(", DEGRADED (concertctl status)\n"),
            std::string::npos);
}

TEST(RenderTest, Devices) {
  v1::ListDevicesResponse devices;
  v1::Device* device = devices.add_devices();
  device->set_backend("cuda");
  device->set_name("NVIDIA H200");
  device->set_uuid("GPU-1");
  device->set_memory_bytes(uint64_t{141} << 30);
  device->set_sm_count(132);
  device->set_peer_access(true);
  device->set_healthy(true);
  device->set_policy("auto");
  device->set_plans_in_flight_count(2);
  device->set_ready_op_count(5);
  v1::Device* broken = devices.add_devices();
  *broken = *device;
  broken->set_gpu(1);
  broken->set_healthy(false);
  broken->set_health_message("device error 700");
  EXPECT_EQ(
      RenderDevices(devices),
      R"(GPU  DEVICE  NAME          MEMORY  SMS  PEERS  POLICY  PLANS  READY  QUEUED  HEALTH                    UUID
  0  cuda    NVIDIA H200  141 GiB  132  yes    auto        2      5       0  ok                        GPU-1
  1  cuda    NVIDIA H200  141 GiB  132  yes    auto        2      5       0  failed: device error 700  GPU-1
)");
}

TEST(RenderTest, Sessions) {
  EXPECT_EQ(
      RenderSessions(Sessions()),
      R"(SESSION   UID   PID  CLIENT     CONNECTED  QUEUES  BUFFERS  REGISTERED    SEALED    SHARED  GPUS
      3  1000  5003  server-a  1 min 30 s       2        3    1.50 GiB       0 B       0 B  0,1
     12  1000  5012  b          6 min 0 s       2       12    6.00 GiB  5.00 GiB  4.00 GiB  0
)");
  EXPECT_EQ(RenderSessions(v1::ListSessionsResponse()), "no sessions\n");
  ExpectShown(RenderSessions(Sessions()));
}

TEST(RenderTest, NamesInAnyScriptKeepColumnsAligned) {
  v1::ListSessionsResponse sessions = Sessions();
  sessions.mutable_sessions(0)->set_client_name("\u8a13\u7df4");
  EXPECT_EQ(
      RenderSessions(sessions),
      R"(SESSION   UID   PID  CLIENT   CONNECTED  QUEUES  BUFFERS  REGISTERED    SEALED    SHARED  GPUS
      3  1000  5003  訓練    1 min 30 s       2        3    1.50 GiB       0 B       0 B  0,1
     12  1000  5012  b        6 min 0 s       2       12    6.00 GiB  5.00 GiB  4.00 GiB  0
)");
}

TEST(RenderTest, Quotas) {
  v1::GetQuotasResponse quotas;
  v1::Quota* queues = quotas.add_quotas();
  queues->set_resource("queues");
  queues->set_used(12);
  queues->set_user_limit(100);
  queues->set_node_limit(1000);
  queues->set_beyond("refused");
  for (const uint32_t uid : {1000u, 1001u}) {
    v1::QuotaUser* user = queues->add_heaviest_users();
    user->set_uid(uid);
    user->set_used(uid == 1000 ? 10 : 2);
  }
  v1::Quota* bytes = quotas.add_quotas();
  bytes->set_resource("buffer_bytes");
  bytes->set_user_limit(uint64_t{1} << 40);
  bytes->set_beyond("refused");
  v1::Budget* budget = quotas.add_budgets();
  budget->set_thread("control");
  budget->set_work("requests of a session");
  budget->set_per_turn_count(16);
  EXPECT_EQ(RenderQuotas(quotas),
            R"(RESOURCE      USED  IN ALL  PER USER  HEAVIEST USERS       BEYOND
queues          12    1000       100  1000 (10), 1001 (2)  refused
buffer_bytes   0 B       -  1.00 TiB                       refused

THREAD   OF                     PER TURN
control  requests of a session        16
)");
  ExpectShown(RenderQuotas(quotas));
}

TEST(RenderTest, Programs) {
  v1::ListSessionsResponse response;
  v1::Session* session = response.add_sessions();
  EXPECT_EQ(RenderPrograms(response), "no programs\n");
  session->set_session_id(3);
  session->set_client_name("server-a");
  v1::Program* program = session->add_programs();
  program->set_program(17);
  program->set_op_count(5);
  program->set_binding_count(2);
  program->set_arena_bytes(3 << 10);
  program->set_slot_bytes(8 << 10);
  program->set_workspace_bytes(2 << 20);
  for (const auto& [engine, us] : {std::pair("step", 41), std::pair("graph", 90)}) {
    v1::ProgramEngine* its = program->add_engines();
    its->set_engine(engine);
    its->set_predicted_us(us);
  }
  program->set_replicas(8);
  for (const auto& [kind, count] : {std::pair("gemm", 4), std::pair("rms_norm", 1)}) {
    v1::KindCount* ops = program->add_ops();
    ops->set_kind(kind);
    ops->set_count(static_cast<uint32_t>(count));
  }
  EXPECT_EQ(
      RenderPrograms(response),
      R"(SESSION  CLIENT    PROGRAM  GPU  OPS  BINDINGS     ARENA  UNSHARED  WORKSPACE     STEP    GRAPH  REPLICAS  OF
      3  server-a       17    0    5         2  3.00 KiB  8.00 KiB   2.00 MiB  41.0 us  90.0 us         8  4 gemm, 1 rms_norm
)");
}

TEST(RenderTest, WhatFollowsOneAnotherInAProgram) {
  v1::ListSessionsResponse response;
  v1::Session* session = response.add_sessions();
  session->set_session_id(3);
  v1::Program* program = session->add_programs();
  program->set_program(17);
  v1::ProgramEngine* step = program->add_engines();
  step->set_engine("step");
  v1::ProgramPart* part = step->add_parts();
  part->set_what("gemm <- rms_norm, rope_append");
  part->set_count(12);
  part->set_predicted_us(4.5);
  const std::string text = RenderPrograms(response);
  ExpectShown(text);
  EXPECT_EQ(text.substr(text.find("\n\n") + 1), R"(
SESSION  PROGRAM  ENGINE  TIMES    EACH   IN ALL  STAGE OR KERNEL
      3       17  step       12  4.5 us  54.0 us  gemm <- rms_norm, rope_append
)");
}

TEST(RenderTest, BatchesThatBecamePrograms) {
  v1::ListSessionsResponse response;
  v1::Program* program = response.add_sessions()->add_programs();
  program->set_program(17);
  program->set_op_count(5);
  program->set_of_batch(true);
  EXPECT_EQ(
      RenderPrograms(response),
      R"(SESSION  CLIENT  PROGRAM  GPU  OPS  BINDINGS  ARENA  UNSHARED  WORKSPACE  STEP  GRAPH  REPLICAS  OF
      0               17    0    5     batch    0 B       0 B        0 B     -      -         -
)");
}

TEST(RenderTest, ProgramsThatNoStepKernelRuns) {
  v1::ListSessionsResponse response;
  v1::Session* session = response.add_sessions();
  session->set_session_id(3);
  session->add_programs()->set_program(17);
  v1::Program* graph = session->add_programs();
  graph->set_program(18);
  graph->set_why_no_step("op 2, gemm: only bf16 is supported");
  const std::string text = RenderPrograms(response);
  ExpectShown(text);
  EXPECT_EQ(text.substr(text.find("\n\n") + 1), R"(
SESSION  PROGRAM  WHY NO STEP KERNEL RUNS IT
      3       18  op 2, gemm: only bf16 is supported
)");
}

TEST(RenderTest, Collectives) {
  v1::GetCollectivesResponse response;
  response.set_communicator_count(2);
  EXPECT_EQ(RenderCollectives(response), "2 communicators\n");
  v1::Collective* waits = response.add_collectives();
  waits->set_communicator(7);
  waits->set_sequence(12);
  waits->set_kind("all_reduce");
  waits->set_bytes(1 << 20);
  waits->set_uid(1000);
  waits->set_rank_count(3);
  waits->set_ranks_there_count(1);
  waits->set_seconds(2);
  for (uint32_t i = 0; i < 3; ++i) {
    v1::CollectiveRank* rank = waits->add_ranks();
    rank->set_rank(i);
    rank->set_state(i == 0 ? "there" : i == 1 ? "missing" : "not joined");
    if (i == 2) continue;
    rank->set_gpu(i);
    rank->set_session_id(3 + i);
  }
  v1::Collective* runs = response.add_collectives();
  runs->set_communicator(8);
  runs->set_kind("all_gather");
  runs->set_bytes(512);
  runs->set_uid(1000);
  runs->set_running(true);
  runs->set_seconds(1e-4);
  runs->set_transport("p2p");
  runs->set_sm_count(8);
  runs->set_predicted_us(412);
  v1::CollectiveRank* rank = runs->add_ranks();
  rank->set_state("there");
  rank->set_gpu(1);
  response.set_cut(true);
  EXPECT_EQ(RenderCollectives(response),
            R"(2 communicators

COMMUNICATOR  OP  KIND           BYTES   UID   WAITS   THERE  WAITS FOR                             WHO WAITS
           7  12  all_reduce  1.00 MiB  1000  2.00 s  1 of 3  1 (GPU 1, session 4), 2 (not joined)  0 (GPU 0, session 3)

COMMUNICATOR  OP  KIND        BYTES   UID      RUNS  HOW                             RANKS
           8   0  all_gather  512 B  1000  100.0 us  p2p, 8 SMs, 412.0 us predicted  0 (GPU 1)

there are more than are listed
)");
  ExpectShown(RenderCollectives(response));
}

TEST(RenderTest, Stats) {
  EXPECT_EQ(
      RenderStats(Totals()),
      R"(GPU 0: 400 plans, 25 % with several ops; took 0.500 s, predicted 0.480 s, one after the other 0.900 s; 12 records lost
       ops: 500 single, 200 streams, 300 group; plans of 1: 300, up to 2: 20, up to 4: 40, up to 8: 80, more: 0

GPU     OPS  FAILED    FLOP     BYTES  GPU S  CO-RUN  GAINED S  WAIT P50      P99  RUN P50     P99
0    1.00 k       0  1.00 T  1000 MiB  0.500    50 %     0.200    8.2 us  1.53 ms  41.0 us  2.40 s

KIND     OPS  FAILED    FLOP     BYTES  GPU S  CO-RUN  GAINED S  WAIT P50      P99  RUN P50     P99
gemm  1.00 k       0  1.00 T  1000 MiB  0.500    50 %     0.200    8.2 us  1.53 ms  41.0 us  2.40 s

SESSION    OPS  FAILED   FLOP    BYTES  GPU S  CO-RUN  GAINED S  WAIT P50      P99  RUN P50     P99
2 (ended)  200       0  200 G  200 MiB  0.100    50 %     0.200    8.2 us  1.53 ms  41.0 us  2.40 s
3          800       0  800 G  800 MiB  0.400    50 %     0.200    8.2 us  1.53 ms  41.0 us  2.40 s

SESSION  SHARED PLANS WITH SESSIONS (PLANS)
      3  2 (118), 7 (113), others (120), ...
)");
}

TEST(RenderTest, FailuresAreListedByStatus) {
  v1::Stats stats;
  stats.mutable_total()->set_op_count(5);
  stats.mutable_total()->set_failed_op_count(3);
  for (const char* name : {"CANCELLED", "INVALID_ARGUMENT"}) {
    v1::FailureCount* failure = stats.mutable_total()->add_failures();
    failure->set_status(name);
    failure->set_op_count(name[0] == 'C' ? 1 : 2);
  }
  EXPECT_NE(RenderStats(stats).find("failed: 3 (1 CANCELLED, 2 INVALID_ARGUMENT)\n"),
            std::string::npos);
}

TEST(RenderTest, Watch) {
  EXPECT_EQ(
      WatchTitle() + RenderWatchLine(Delta()),
      R"(     OPS/S     FLOP/S        B/S  GPU BUSY   CO-RUN    WAIT P50         P99     RUN P50         P99  DROPPED
       500      500 G      524 M      25 %     50 %      8.2 us     1.53 ms     41.0 us      2.40 s        1
)");
  ExpectShown(WatchTitle());
}

TEST(RenderTest, TopListsTheBusiestFirstAndQuietOnesToo) {
  v1::ListSessionsResponse sessions = Sessions();
  sessions.mutable_sessions()->SwapElements(0, 1);
  EXPECT_EQ(RenderTop(Status(), sessions, Delta()),
            R"(concertd 0.1.0, up 2 h 10 min, running, policy auto, 2 sessions

GPU  OPS/S  FLOP/S    B/S   GPU  CO-RUN  WAIT P50      P99  RUN P50     P99
  0    500   500 G  524 M  25 %    50 %    8.2 us  1.53 ms  41.0 us  2.40 s

SESSION   UID   PID  CLIENT    OPS/S  FLOP/S    B/S   GPU  CO-RUN  WAIT P50      P99  RUN P50     P99
      3  1000  5003  server-a    400   400 G  419 M  20 %    50 %    8.2 us  1.53 ms  41.0 us  2.40 s
     12  1000  5012  b             -       -      -     -       -         -        -        -       -
)");
}

TEST(RenderTest, Plans) {
  v1::ListPlansResponse plans;
  EXPECT_EQ(RenderPlans(plans), "no plan has ended yet\n");
  plans.add_plans()->set_text("second");
  plans.add_plans()->set_text("first");
  EXPECT_EQ(RenderPlans(plans), "second\nfirst\n");
}

TEST(RenderTest, Policies) {
  v1::ListPoliciesResponse policies;
  policies.set_current_policy("serial");
  for (const char* name : {"auto", "serial"}) {
    v1::Policy* policy = policies.add_policies();
    policy->set_name(name);
    policy->set_summary("Text.");
  }
  EXPECT_EQ(RenderPolicies(policies),
            "   POLICY  WHAT IT DOES\n   auto    Text.\n*  serial  Text.\n");
}

TEST(JsonTest, KeepsNamesNumbersAndEmptyFields) {
  EXPECT_EQ(
      ToJson(Status()).dump(),
      R"({"version":"0.1.0","pid":4242,"state":"DAEMON_STATE_RUNNING","uptime_seconds":7805.0,)"
      R"("backend":"cuda","backend_reason":"2 usable GPUs","policy":"auto","device_count":2,)"
      R"("healthy_device_count":2,"session_count":2,"op_count":1234567,"failed_op_count":3,)"
      R"("client_socket":"/run/concert/concert.sock","simulated":false,"degraded":""})");
  EXPECT_EQ(ToJson(Sessions())["sessions"][0]["gpus"].dump(), "[0,1]");
  v1::Device device;
  EXPECT_TRUE(ToJson(device)["power_watts"].is_null());  // it does not say
  device.set_power_watts(0);
  EXPECT_EQ(ToJson(device)["power_watts"], 0);
  EXPECT_EQ(ToJson(v1::GetStatsResponse())["stats"]["total"]["op_count"], 0);
}

TEST(UnitsTest, ThreeDigitsAndTheUnit) {
  EXPECT_EQ(Bytes(0), "0 B");
  EXPECT_EQ(Bytes(1023), "1023 B");
  EXPECT_EQ(Bytes(1536), "1.50 KiB");
  EXPECT_EQ(Bytes(uint64_t{141} << 30), "141 GiB");
  EXPECT_EQ(Count(999), "999");
  EXPECT_EQ(Count(12'345), "12.3 k");
  EXPECT_EQ(Count(999'999), "1.00 M");
  EXPECT_EQ(Micros(0.64), "0.6 us");
  EXPECT_EQ(Micros(1530), "1.53 ms");
  EXPECT_EQ(Micros(2.4e6), "2.40 s");
  EXPECT_EQ(Seconds(59.9), "59 s");
  EXPECT_EQ(Seconds(90), "1 min 30 s");
  EXPECT_EQ(Seconds(4 * 86400 + 3601), "4 d 1 h");
  EXPECT_EQ(Percent(1, 0), "-");
  EXPECT_EQ(Percent(1, 3), "33 %");
  EXPECT_EQ(Percent(0, 3), "0 %");
  EXPECT_EQ(Percent(1, 1000), "<1 %");
  EXPECT_EQ(Percent(1000, 3), "100 %");
  EXPECT_EQ(Micros(0), "-");
  EXPECT_EQ(BytesOf(uint64_t{12} << 30, uint64_t{141} << 30), "12.0 of 141 GiB");
  EXPECT_EQ(BytesOf(uint64_t{1} << 20, uint64_t{80} << 30), "0.00 of 80.0 GiB");
  EXPECT_EQ(BytesOf(3, 7), "3 of 7 B");
  EXPECT_EQ(BytesOf(std::nullopt, uint64_t{8} << 30), "- of 8.00 GiB");
}

}  // namespace
}  // namespace concert::ctl
