#include "daemon/admin/to_proto.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "daemon/admin/plan_text.h"
#include "daemon/device/uuid_text.h"
#include "daemon/quota/budget.h"
#include "daemon/service/printable.h"
#include "policies/seam/policy.h"
#include "proto/ring/messages.h"

namespace concert::daemon::admin {
namespace {

double ToSeconds(Time duration_ns) { return static_cast<double>(duration_ns) * 1e-9; }

void FillDistribution(const Histogram& histogram, v1::Distribution* out) {
  out->set_count(histogram.count());
  out->set_mean_us(histogram.MeanUs());
  out->set_p50_us(histogram.QuantileUs(0.5));
  out->set_p90_us(histogram.QuantileUs(0.9));
  out->set_p99_us(histogram.QuantileUs(0.99));
  out->set_max_us(histogram.MaxUs());
}

template <typename Counts, typename Message>
void FillForms(const Counts& ops_by_form, Message* out) {
  out->set_single_op_count(ops_by_form[static_cast<size_t>(policies::Form::kSingle)]);
  out->set_streams_op_count(ops_by_form[static_cast<size_t>(policies::Form::kStreams)]);
  out->set_group_op_count(ops_by_form[static_cast<size_t>(policies::Form::kGroup)]);
}

void FillTotals(const OpTotals& totals, v1::OpStats* out) {
  out->set_op_count(totals.op_count);
  out->set_failed_op_count(totals.failed_op_count);
  out->set_moved_bytes(totals.bytes);
  out->set_flop_count(totals.flops);
  out->set_gpu_seconds(totals.gpu_seconds);
  out->set_co_run_op_count(totals.co_run_op_count);
}

void FillOps(const OpStats& stats, v1::OpStats* out) {
  FillTotals(stats, out);
  for (int status = 0; status < OpStats::kStatusCount; ++status) {
    if (stats.failures[status] == 0) continue;
    v1::FailureCount* failure = out->add_failures();
    failure->set_status(std::string(StatusName(status)));
    failure->set_op_count(stats.failures[status]);
  }
  FillForms(stats.form_op_count, out);
  out->set_gained_seconds(stats.gained_seconds);
  FillDistribution(stats.queue_wait, out->mutable_queue_wait());
  FillDistribution(stats.run_time, out->mutable_run_time());
}

// Those with ops, highest first. `fill`: FillOps or FillTotals.
template <typename T, typename Fill, typename Message>
void FillClasses(const ByClass<T>& classes, Fill fill, Message* out) {
  for (size_t i = classes.size(); i-- > 0;) {
    if (classes[i].op_count == 0) continue;
    v1::ClassStats* stats = out->add_classes();
    stats->set_priority(policies::kPriorityNames[i]);
    fill(classes[i], stats->mutable_ops());
  }
}

void FillDeviceStats(int gpu, const DeviceStats& stats, v1::DeviceStats* out) {
  out->set_gpu(gpu);
  FillOps(stats.ops, out->mutable_ops());
  out->set_plan_count(stats.plan_count);
  out->set_co_run_plan_count(stats.co_run_plan_count);
  out->set_predicted_seconds(stats.predicted_seconds);
  out->set_actual_seconds(stats.actual_seconds);
  out->set_serial_seconds(stats.serial_seconds);
  out->set_planned_sm_seconds(stats.planned_sm_seconds);
  out->set_dropped_record_count(stats.dropped_record_count);
  for (int i = 0; i < policies::kDegreeCount; ++i) {
    const auto degree = static_cast<policies::Degree>(i);
    v1::DegreeStats* size = out->add_degrees();
    size->set_max_op_count(degree == policies::Degree::kMany ? 0 : policies::CountOf(degree));
    size->set_plan_count(stats.plans_by_degree[i]);
  }
}

void FillSessionStats(uint32_t id, const SessionStats& stats, v1::SessionStats* out) {
  out->set_session_id(id);
  out->set_ended(stats.ended_at != 0);
  FillOps(stats.ops, out->mutable_ops());
  FillClasses(stats.classes, FillTotals, out);
  for (const auto& [gpu, ops] : stats.gpus) {
    if (ops.op_count > 0) out->add_gpus(gpu);
  }
  const auto& by_session = stats.co_runners.plans_by_session();
  std::vector<std::pair<uint32_t, uint64_t>> co_runners(by_session.begin(), by_session.end());
  std::stable_sort(co_runners.begin(), co_runners.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  for (const auto& [session, plans] : co_runners) {
    v1::CoRunner* co_runner = out->add_co_runners();
    co_runner->set_session_id(session);
    co_runner->set_plan_count(plans);
  }
}

v1::PlanForm ToProto(policies::Form form) {
  switch (form) {
    case policies::Form::kSingle:
      return v1::PLAN_FORM_SINGLE;
    case policies::Form::kStreams:
      return v1::PLAN_FORM_STREAMS;
    case policies::Form::kGroup:
      return v1::PLAN_FORM_GROUP;
  }
  return v1::PLAN_FORM_UNSPECIFIED;
}

void FillPlannedOp(const PlanRecord& plan, int index, v1::PlannedOp* out) {
  const PlanRecord::Listed& op = plan.ops[index];
  out->set_session_id(op.session);
  out->set_kind(concert_op_kind_name(op.kind));
  out->set_m(op.problem.m);
  out->set_n(op.problem.n);
  out->set_k(op.problem.k);
  out->set_batch_count(op.problem.batch);
  out->set_dtype(concert_dtype_name(static_cast<uint64_t>(op.problem.dtype)));
}

}  // namespace

void FillStats(const Stats& stats, Time now, v1::Stats* out) {
  out->set_now_ns(now);
  FillOps(stats.total, out->mutable_total());
  for (const auto& [gpu, device] : stats.devices) FillDeviceStats(gpu, device, out->add_devices());
  for (const auto& [kind, ops] : stats.kinds) {
    v1::KindStats* kind_stats = out->add_kinds();
    kind_stats->set_kind(concert_op_kind_name(kind));
    FillOps(ops, kind_stats->mutable_ops());
  }
  for (const auto& [id, session] : stats.sessions) {
    if (session.ops.op_count > 0) FillSessionStats(id, session, out->add_sessions());
  }
  FillOps(stats.departed, out->mutable_departed());
  FillClasses(stats.classes, FillOps, out);
}

namespace {

const char* StateName(ReportedRank::State state) {
  switch (state) {
    case ReportedRank::State::kThere:
      return "there";
    case ReportedRank::State::kMissing:
      return "missing";
    case ReportedRank::State::kNotJoined:
      break;
  }
  return "not joined";
}

void FillRank(const ReportedRank& rank, v1::CollectiveRank* out) {
  out->set_rank(rank.rank);
  out->set_state(StateName(rank.state));
  if (rank.gpu >= 0) out->set_gpu(static_cast<uint32_t>(rank.gpu));
  if (rank.session != 0) out->set_session_id(rank.session);
}

}  // namespace

void FillCollectives(const CollectiveReport& report, v1::GetCollectivesResponse* out) {
  for (const ReportedCollective& collective : report.collectives) {
    v1::Collective* message = out->add_collectives();
    message->set_communicator(collective.communicator);
    message->set_sequence(collective.sequence);
    message->set_kind(concert_op_kind_name(collective.kind));
    message->set_bytes(collective.bytes);
    message->set_uid(collective.uid);
    message->set_rank_count(collective.ranks);
    message->set_running(collective.running);
    message->set_seconds(static_cast<double>(report.taken_at - collective.since) * 1e-9);
    message->set_ranks_there_count(collective.parts_there);
    const auto ranks =
        std::span(report.ranks).subspan(collective.first_rank, collective.rank_count);
    for (const ReportedRank& rank : ranks) FillRank(rank, message->add_ranks());
    if (!collective.running) continue;
    message->set_transport(
        std::string(policies::kTransportNames[static_cast<size_t>(collective.choice.transport)]));
    message->set_sm_count(collective.choice.sms);
    message->set_predicted_us(static_cast<double>(collective.run_ns) * 1e-3);
  }
  out->set_cut(report.cut);
  out->set_communicator_count(static_cast<uint32_t>(report.communicators));
}

void FillQuotas(const Accounts& accounts, v1::GetQuotasResponse* out) {
  constexpr size_t kHeaviest = 3;
  const auto or_zero = [](uint64_t limit) { return limit == kUnlimited ? 0 : limit; };
  const std::vector<Accounts::Row> rows = accounts.Rows();
  for (const ResourceInfo& info : AllResources()) {
    v1::Quota* quota = out->add_quotas();
    quota->set_resource(std::string(info.name));
    quota->set_owner(std::string(info.owner));
    quota->set_user_limit(or_zero(accounts.limits()[info.resource].per_user));
    quota->set_node_limit(or_zero(accounts.limits()[info.resource].in_all));
    quota->set_user_setting(std::string(info.setting));
    quota->set_node_setting(std::string(info.setting_all));
    quota->set_beyond(std::string(info.beyond));
    quota->set_used(accounts.node().of(info.resource));
    std::vector<std::pair<uint64_t, uint32_t>> holders;  // how much, uid
    for (const Accounts::Row& row : rows) {
      if (row.of(info.resource) > 0) holders.emplace_back(row.of(info.resource), row.uid);
    }
    std::sort(holders.begin(), holders.end(), std::greater<>());
    if (holders.size() > kHeaviest) holders.resize(kHeaviest);
    for (const auto& [used, uid] : holders) {
      v1::QuotaUser* user = quota->add_heaviest_users();
      user->set_uid(uid);
      user->set_used(used);
    }
  }
  for (const Budget& row : kBudgets) {
    v1::Budget* budget = out->add_budgets();
    budget->set_thread(std::string(row.thread));
    budget->set_work(std::string(row.name));
    budget->set_per_turn_count(row.per_turn);
  }
}

void FillTracedOp(uint8_t gpu, const OpRecord& record, v1::TracedOp* out) {
  out->set_session_id(record.session);
  out->set_queue(record.queue);
  out->set_gpu(gpu);
  out->set_kind(concert_op_kind_name(record.kind));
  out->set_dtype(concert_dtype_name(static_cast<uint64_t>(record.dtype)));
  out->set_status(std::string(StatusName(record.status)));
  out->set_plan_id(record.plan);
  out->set_form(ToProto(record.form));
  if (record.lane != policies::kNoLane) out->set_lane(record.lane);
  out->set_admitted_at_ns(record.admitted_at);
  out->set_ready_at_ns(record.ready_at);
  out->set_launched_at_ns(record.launched_at);
  out->set_started_at_ns(record.started_at);
  out->set_finished_at_ns(record.finished_at);
  out->set_flop_count(record.flops);
  out->set_moved_bytes(record.bytes);
  out->set_gpu_us(record.gpu_us);
  if (record.plan != 0) out->set_reason(std::string(policies::ReasonText(record.reason)));
}

void FillPlan(const RecentPlan& plan, v1::Plan* out) {
  const PlanRecord& record = plan.record;
  out->set_plan_id(record.plan);
  out->set_gpu(plan.gpu);
  out->set_decided_at_ns(record.decided_at);
  out->set_started_at_ns(record.started_at);
  out->set_finished_at_ns(record.finished_at);
  out->set_predicted_us(record.predicted_us);
  out->set_actual_us(static_cast<double>(record.finished_at - record.started_at) * 1e-3);
  out->set_serial_us(record.serial_us);
  out->set_op_count(record.op_count);
  out->set_launch_count(record.launch_count);
  out->set_session_count(record.session_count);
  out->set_form(ToProto(record.form));
  out->set_sm_count(record.sm_count);
  FillForms(record.ops_by_form, out);
  out->set_reason(std::string(policies::ReasonText(record.reason)));
  const int listed = std::min<int>(record.op_count, PlanRecord::kMaxListed);
  for (int i = 0; i < listed; ++i) FillPlannedOp(record, i, out->add_ops());
  out->set_transport(std::string(TransportOf(record)));
  out->set_text(PlanText(plan.gpu, record));
}

void FillDevice(const DeviceStatus& device, v1::Device* out) {
  const DeviceInfo& info = device.info;
  out->set_gpu(info.gpu);
  out->set_backend(info.backend);
  out->set_name(Printable(info.name));
  out->set_uuid(UuidText(info.uuid));
  out->set_memory_bytes(info.memory_bytes);
  out->set_sm_count(info.model.sm_count);
  out->set_compute_capability(info.compute_capability);
  out->set_peer_access(info.peer_access);
  out->set_healthy(device.health.ok());
  out->set_health_message(Printable(std::string(device.health.message())));
  out->set_plans_in_flight_count(device.plans_in_flight);
  out->set_ready_op_count(device.ready_ops);
  out->set_queued_op_count(device.queued_ops);
  out->set_memory_bytes_per_second(info.model.hbm_bytes_per_s);
  out->set_sealed_bytes(device.sealed_bytes);
  out->set_sealed_saved_bytes(device.sealed_saved_bytes);
}

void FillSensors(const Sensors& sensors, v1::Device* out) {
  if (const auto& value = sensors.memory_used_bytes) out->set_memory_used_bytes(*value);
  if (const auto& value = sensors.power_watts) out->set_power_watts(*value);
  if (const auto& value = sensors.power_limit_watts) out->set_power_limit_watts(*value);
  if (const auto& value = sensors.sm_clock_mhz) out->set_sm_clock_mhz(*value);
  if (const auto& value = sensors.memory_clock_mhz) out->set_memory_clock_mhz(*value);
  if (const auto& value = sensors.temperature_celsius) out->set_temperature_celsius(*value);
}

namespace {

void FillEngine(const kernels::EngineTimes& engine, bool with_parts, v1::ProgramEngine* out) {
  out->set_engine(kernels::NameOf(engine.engine));
  out->set_predicted_us(engine.predicted_us);
  if (!with_parts) return;
  for (const kernels::ProgramPart& part : engine.parts) {
    v1::ProgramPart* its = out->add_parts();
    its->set_what(part.what);
    its->set_count(part.count);
    its->set_predicted_us(part.predicted_us);
  }
}

void FillProgram(const kernels::ProgramSummary& program, bool with_parts, v1::Program* out) {
  out->set_program(program.handle);
  out->set_gpu(static_cast<uint32_t>(program.gpu));
  for (const auto& [kind, count] : program.kinds) {
    v1::KindCount* of_kind = out->add_ops();
    of_kind->set_kind(concert_op_kind_name(kind));
    of_kind->set_count(count);
  }
  out->set_op_count(program.op_count);
  out->set_binding_count(program.bindings);
  out->set_arena_bytes(program.arena_bytes);
  out->set_workspace_bytes(program.workspace_bytes);
  out->set_slot_bytes(program.slot_bytes);
  out->set_predicted_us(program.predicted_us);
  out->set_why_no_step(Printable(program.why_no_step));
  out->set_replicas(program.replicas);
  out->set_of_batch(program.of_batch);
  if (program.engines == nullptr) return;
  for (const kernels::EngineTimes& engine : *program.engines)
    FillEngine(engine, with_parts, out->add_engines());
}

}  // namespace

void FillSession(const SessionInfo& session, Time now, bool with_program_parts, v1::Session* out) {
  out->set_session_id(session.id);
  out->set_uid(session.uid);
  out->set_pid(session.pid);
  out->set_client_name(Printable(session.client_name));
  out->set_connected_seconds(ToSeconds(std::max<Time>(0, now - session.connected_at)));
  out->set_queue_count(session.queues);
  out->set_buffer_count(session.buffers);
  out->set_registered_bytes(session.registered_bytes);
  out->set_sealed_bytes(session.sealed_bytes);
  out->set_shared_bytes(session.shared_bytes);
  for (const uint32_t gpu : session.gpus) out->add_gpus(gpu);
  for (const kernels::ProgramSummary& program : session.programs) {
    FillProgram(program, with_program_parts, out->add_programs());
  }
}

}  // namespace concert::daemon::admin
