#include "daemon/telemetry/stats.h"

#include <algorithm>

namespace concert::daemon {
namespace {

// A refused op still has the kind that its client wrote; all that mean nothing count as 0.
uint16_t KindOf(const OpRecord& op) { return op.kind <= kMaxKind ? op.kind : 0; }

// From ready, else admitted, to started; ns.
Time WaitOf(const OpRecord& op) {
  const Time ready_at = op.ready_at != 0 ? op.ready_at : op.admitted_at;
  return std::max<Time>(0, op.started_at - ready_at);
}

bool RunsOnSms(const PlanRecord& plan) {
  const auto end = plan.ops.begin() + std::min<int>(plan.op_count, PlanRecord::kMaxListed);
  return std::any_of(plan.ops.begin(), end, [](const PlanRecord::Listed& op) {
    return op.runs_on == policies::RunsOn::kSms;
  });
}

// Of a GPU that has `all`; see DeviceStats.
int PlannedSms(const PlanRecord& plan, int all) {
  if (!RunsOnSms(plan)) return 0;
  if (plan.sm_count == 0) return all;
  const int side_by_side = plan.form == policies::Form::kStreams ? plan.launch_count : 1;
  return std::min(plan.sm_count * side_by_side, all);
}

}  // namespace

std::string_view StatusName(uint16_t status) {
  static constexpr std::array<std::string_view, OpStats::kStatusCount> kNames = {
      "OK",
      "CANCELLED",
      "UNKNOWN",
      "INVALID_ARGUMENT",
      "DEADLINE_EXCEEDED",
      "NOT_FOUND",
      "ALREADY_EXISTS",
      "PERMISSION_DENIED",
      "RESOURCE_EXHAUSTED",
      "FAILED_PRECONDITION",
      "ABORTED",
      "OUT_OF_RANGE",
      "UNIMPLEMENTED",
      "INTERNAL",
      "UNAVAILABLE",
      "DATA_LOSS",
      "UNAUTHENTICATED"};
  return status < kNames.size() ? kNames[status] : "UNKNOWN";
}

void OpTotals::Add(const OpRecord& record) {
  ++op_count;
  if (record.status != 0) {
    ++failed_op_count;
    return;
  }
  bytes += record.bytes;
  flops += record.flops;
  gpu_seconds += record.gpu_us * 1e-6;
  queue_wait_seconds += static_cast<double>(WaitOf(record)) * 1e-9;
  if (record.others == 0) return;
  ++co_run_op_count;
  const double run_seconds = static_cast<double>(record.finished_at - record.started_at) * 1e-9;
  interference_seconds += std::max(0.0, run_seconds - record.serial_us * 1e-6);
}

void OpTotals::Merge(const OpTotals& other) {
  op_count += other.op_count;
  failed_op_count += other.failed_op_count;
  bytes += other.bytes;
  flops += other.flops;
  gpu_seconds += other.gpu_seconds;
  queue_wait_seconds += other.queue_wait_seconds;
  co_run_op_count += other.co_run_op_count;
  interference_seconds += other.interference_seconds;
}

void OpTotals::Subtract(const OpTotals& earlier) {
  op_count -= earlier.op_count;
  failed_op_count -= earlier.failed_op_count;
  bytes -= earlier.bytes;
  flops -= earlier.flops;
  gpu_seconds -= earlier.gpu_seconds;
  queue_wait_seconds -= earlier.queue_wait_seconds;
  co_run_op_count -= earlier.co_run_op_count;
  interference_seconds -= earlier.interference_seconds;
}

void OpStats::Add(const OpRecord& record) {
  OpTotals::Add(record);
  if (record.status != 0) {
    ++failures[std::min<size_t>(record.status, kStatusCount - 1)];
    return;
  }
  ++form_op_count[static_cast<size_t>(record.form)];
  if (record.others > 0) gained_seconds += (record.serial_us - record.gpu_us) * 1e-6;
  queue_wait.Add(WaitOf(record));
  // Ends that were seen at once cannot be told apart (PlanRecord), and such an op has no time of
  // its own.
  if (record.finished_at > record.started_at) run_time.Add(record.finished_at - record.started_at);
}

void OpStats::Merge(const OpStats& other) {
  OpTotals::Merge(other);
  for (int i = 0; i < kStatusCount; ++i) failures[i] += other.failures[i];
  for (size_t i = 0; i < form_op_count.size(); ++i) form_op_count[i] += other.form_op_count[i];
  gained_seconds += other.gained_seconds;
  queue_wait.Merge(other.queue_wait);
  run_time.Merge(other.run_time);
}

void OpStats::Subtract(const OpStats& earlier) {
  OpTotals::Subtract(earlier);
  for (int i = 0; i < kStatusCount; ++i) failures[i] -= earlier.failures[i];
  for (size_t i = 0; i < form_op_count.size(); ++i) form_op_count[i] -= earlier.form_op_count[i];
  gained_seconds -= earlier.gained_seconds;
  queue_wait.Subtract(earlier.queue_wait);
  run_time.Subtract(earlier.run_time);
}

void CoRunners::Add(uint32_t session, uint64_t plans) {
  // One slot is kept for session 0, which stands for all that do not fit.
  const bool fits = plans_.contains(session) || plans_.size() + 1 < kMaxListed;
  plans_[fits ? session : 0] += plans;
}

void CoRunners::Subtract(const CoRunners& earlier) {
  for (const auto& [session, plans] : earlier.plans_) {
    const auto it = plans_.find(session);
    if (it != plans_.end() && (it->second -= plans) == 0) plans_.erase(it);
  }
}

void DeviceStats::Add(const PlanRecord& record) {
  ++plan_count;
  if (record.op_count > 1) ++co_run_plan_count;
  ++plans_by_degree[static_cast<size_t>(policies::DegreeOf(record.op_count))];
  predicted_seconds += record.predicted_us * 1e-6;
  serial_seconds += record.serial_us * 1e-6;
  const double seconds = static_cast<double>(record.finished_at - record.started_at) * 1e-9;
  actual_seconds += seconds;
  planned_sm_seconds += seconds * PlannedSms(record, sm_count);
}

void DeviceStats::Subtract(const DeviceStats& earlier) {
  ops.Subtract(earlier.ops);
  plan_count -= earlier.plan_count;
  co_run_plan_count -= earlier.co_run_plan_count;
  for (size_t i = 0; i < plans_by_degree.size(); ++i)
    plans_by_degree[i] -= earlier.plans_by_degree[i];
  predicted_seconds -= earlier.predicted_seconds;
  actual_seconds -= earlier.actual_seconds;
  serial_seconds -= earlier.serial_seconds;
  planned_sm_seconds -= earlier.planned_sm_seconds;
  dropped_record_count -= earlier.dropped_record_count;
}

void Stats::Add(uint8_t gpu, const OpRecord& op) {
  total.Add(op);
  devices[gpu].ops.Add(op);
  kinds[KindOf(op)].Add(op);
  classes[policies::IndexOf(op.priority)].Add(op);
  SessionStats* session = Find(op.session);
  if (session == nullptr) {
    departed.Add(op);
    departed_users[{kOtherUsers, gpu}].Add(op);
    return;
  }
  session->ops.Add(op);
  session->gpus[gpu].Add(op);
  session->classes[policies::IndexOf(op.priority)].Add(op);
  session->last_active_at = std::max(session->last_active_at, op.finished_at);
}

void Stats::Add(uint8_t gpu, const PlanRecord& plan) {
  devices[gpu].Add(plan);
  AddCoRun(plan);
}

void Stats::AddCoRun(const PlanRecord& plan) {
  const int listed = std::min<int>(plan.op_count, PlanRecord::kMaxListed);
  if (listed < 2) return;
  std::array<uint32_t, PlanRecord::kMaxListed> sorted;
  const auto end = sorted.begin() + listed;
  std::transform(plan.ops.begin(), plan.ops.begin() + listed, sorted.begin(),
                 [](const PlanRecord::Listed& op) { return op.session; });
  std::sort(sorted.begin(), end);
  for (auto self = sorted.begin(); self != end; self = std::upper_bound(self, end, *self)) {
    SessionStats* session = Find(*self);
    if (session == nullptr) continue;
    for (auto peer = sorted.begin(); peer != end; peer = std::upper_bound(peer, end, *peer)) {
      const bool co_runs = *peer != *self || (self + 1 != end && *(self + 1) == *self);
      if (co_runs) session->co_runners.Add(*peer);
    }
  }
}

SessionStats* Stats::Find(uint32_t session) {
  const auto it = sessions.find(session);
  return it == sessions.end() ? nullptr : &it->second;
}

void Stats::BeginSession(uint32_t session, uint32_t uid) {
  if (sessions.size() >= kMaxSessions) {
    // Ended ones go first, then whoever has been quiet longest.
    Fold(std::min_element(sessions.begin(), sessions.end(), [](const auto& a, const auto& b) {
      const bool a_ended = a.second.ended_at != 0, b_ended = b.second.ended_at != 0;
      if (a_ended != b_ended) return a_ended;
      return a.second.last_active_at < b.second.last_active_at;
    }));
  }
  sessions[session] = {.uid = uid};
}

void Stats::EndSession(uint32_t session, Time now) {
  if (SessionStats* stats = Find(session)) stats->ended_at = now;
}

void Stats::FoldEnded(Time now) {
  for (auto it = sessions.begin(); it != sessions.end();) {
    const Time ended_at = it->second.ended_at;
    it = ended_at != 0 && now - ended_at >= kKeepEnded ? Fold(it) : std::next(it);
  }
}

std::map<uint32_t, SessionStats>::iterator Stats::Fold(
    std::map<uint32_t, SessionStats>::iterator it) {
  departed.Merge(it->second.ops);
  for (const auto& [gpu, ops] : it->second.gpus) DepartedUser(it->second.uid, gpu).Merge(ops);
  return sessions.erase(it);
}

OpTotals& Stats::DepartedUser(uint32_t uid, uint8_t gpu) {
  const auto it = departed_users.find({uid, gpu});
  if (it != departed_users.end()) return it->second;
  const bool fits = departed_users.size() < kMaxDepartedUsers;
  return departed_users[{fits ? uid : kOtherUsers, gpu}];
}

Stats::ByUser Stats::Users() const {
  ByUser users = departed_users;
  for (const auto& [id, session] : sessions) {
    for (const auto& [gpu, ops] : session.gpus) users[{session.uid, gpu}].Merge(ops);
  }
  return users;
}

void Stats::Subtract(const Stats& earlier) {
  total.Subtract(earlier.total);
  departed.Subtract(earlier.departed);
  for (const auto& [user, ops] : earlier.departed_users) departed_users[user].Subtract(ops);
  for (const auto& [gpu, stats] : earlier.devices) devices[gpu].Subtract(stats);
  for (const auto& [kind, stats] : earlier.kinds) kinds[kind].Subtract(stats);
  for (size_t i = 0; i < classes.size(); ++i) classes[i].Subtract(earlier.classes[i]);
  for (const auto& [id, stats] : earlier.sessions) {
    const auto it = sessions.find(id);
    if (it == sessions.end()) continue;  // folded
    it->second.ops.Subtract(stats.ops);
    for (const auto& [gpu, ops] : stats.gpus) it->second.gpus[gpu].Subtract(ops);
    for (size_t i = 0; i < stats.classes.size(); ++i)
      it->second.classes[i].Subtract(stats.classes[i]);
    it->second.co_runners.Subtract(stats.co_runners);
  }
  std::erase_if(kinds, [](const auto& kind) { return kind.second.op_count == 0; });
  std::erase_if(sessions, [](const auto& session) { return session.second.ops.op_count == 0; });
}

}  // namespace concert::daemon
