#include "daemon/telemetry/stats.h"

#include <algorithm>
#include <numeric>

namespace concert::daemon {
namespace {

// A refused op still has the kind that its client wrote; all that mean nothing count as 0.
uint16_t KindOf(const OpRecord& op) { return op.kind <= kMaxKind ? op.kind : 0; }

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

void OpStats::Add(const OpRecord& record) {
  ++op_count;
  if (record.status != 0) {
    ++failures[std::min<size_t>(record.status, kStatusCount - 1)];
    return;
  }
  bytes += record.bytes;
  flops += record.flops;
  gpu_seconds += record.gpu_us * 1e-6;
  ++form_op_count[static_cast<size_t>(record.form)];
  if (record.company > 0) {
    ++company_op_count;
    gained_seconds += (record.serial_us - record.gpu_us) * 1e-6;
  }
  const Time ready_at = record.ready_at != 0 ? record.ready_at : record.admitted_at;
  queue_wait.Add(record.started_at - ready_at);
  // Ends that were seen at once cannot be told apart (PlanRecord), and such an op has no time of
  // its own.
  if (record.finished_at > record.started_at) run_time.Add(record.finished_at - record.started_at);
}

void OpStats::Merge(const OpStats& other) {
  op_count += other.op_count;
  for (int i = 0; i < kStatusCount; ++i) failures[i] += other.failures[i];
  bytes += other.bytes;
  flops += other.flops;
  gpu_seconds += other.gpu_seconds;
  company_op_count += other.company_op_count;
  for (size_t i = 0; i < form_op_count.size(); ++i) form_op_count[i] += other.form_op_count[i];
  gained_seconds += other.gained_seconds;
  queue_wait.Merge(other.queue_wait);
  run_time.Merge(other.run_time);
}

void OpStats::Subtract(const OpStats& earlier) {
  op_count -= earlier.op_count;
  for (int i = 0; i < kStatusCount; ++i) failures[i] -= earlier.failures[i];
  bytes -= earlier.bytes;
  flops -= earlier.flops;
  gpu_seconds -= earlier.gpu_seconds;
  company_op_count -= earlier.company_op_count;
  for (size_t i = 0; i < form_op_count.size(); ++i) form_op_count[i] -= earlier.form_op_count[i];
  gained_seconds -= earlier.gained_seconds;
  queue_wait.Subtract(earlier.queue_wait);
  run_time.Subtract(earlier.run_time);
}

uint64_t OpStats::FailureCount() const {
  return std::accumulate(failures.begin(), failures.end(), uint64_t{0});
}

void Companions::Add(uint32_t session, uint64_t plans) {
  // One slot is kept for session 0, which stands for all that do not fit.
  const bool fits = plans_.contains(session) || plans_.size() + 1 < kMaxListed;
  plans_[fits ? session : 0] += plans;
}

void Companions::Subtract(const Companions& earlier) {
  for (const auto& [session, plans] : earlier.plans_) {
    const auto it = plans_.find(session);
    if (it != plans_.end() && (it->second -= plans) == 0) plans_.erase(it);
  }
}

void DeviceStats::Add(const PlanRecord& record) {
  ++plan_count;
  if (record.op_count > 1) ++company_plan_count;
  ++plans_by_company[static_cast<size_t>(policies::CompanyClassOf(record.op_count))];
  predicted_seconds += record.predicted_us * 1e-6;
  serial_seconds += record.serial_us * 1e-6;
  actual_seconds += static_cast<double>(record.finished_at - record.started_at) * 1e-9;
}

void DeviceStats::Subtract(const DeviceStats& earlier) {
  ops.Subtract(earlier.ops);
  plan_count -= earlier.plan_count;
  company_plan_count -= earlier.company_plan_count;
  for (size_t i = 0; i < plans_by_company.size(); ++i)
    plans_by_company[i] -= earlier.plans_by_company[i];
  predicted_seconds -= earlier.predicted_seconds;
  actual_seconds -= earlier.actual_seconds;
  serial_seconds -= earlier.serial_seconds;
  dropped_record_count -= earlier.dropped_record_count;
}

void Stats::Add(uint8_t gpu, const OpRecord& op) {
  total.Add(op);
  devices[gpu].ops.Add(op);
  kinds[KindOf(op)].Add(op);
  SessionStats* session = Find(op.session);
  if (session == nullptr) return departed.Add(op);
  session->ops.Add(op);
  session->last_active_at = std::max(session->last_active_at, op.finished_at);
}

void Stats::Add(uint8_t gpu, const PlanRecord& plan) {
  devices[gpu].Add(plan);
  AddCompany(plan);
}

void Stats::AddCompany(const PlanRecord& plan) {
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
      const bool in_company = *peer != *self || (self + 1 != end && *(self + 1) == *self);
      if (in_company) session->companions.Add(*peer);
    }
  }
}

SessionStats* Stats::Find(uint32_t session) {
  const auto it = sessions.find(session);
  return it == sessions.end() ? nullptr : &it->second;
}

void Stats::BeginSession(uint32_t session) {
  if (sessions.size() >= kMaxSessions) {
    // Ended ones go first, then whoever has been quiet longest.
    Fold(std::min_element(sessions.begin(), sessions.end(), [](const auto& a, const auto& b) {
      const bool a_ended = a.second.ended_at != 0, b_ended = b.second.ended_at != 0;
      if (a_ended != b_ended) return a_ended;
      return a.second.last_active_at < b.second.last_active_at;
    }));
  }
  sessions[session] = {};
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
  return sessions.erase(it);
}

void Stats::Subtract(const Stats& earlier) {
  total.Subtract(earlier.total);
  departed.Subtract(earlier.departed);
  for (const auto& [gpu, stats] : earlier.devices) devices[gpu].Subtract(stats);
  for (const auto& [kind, stats] : earlier.kinds) kinds[kind].Subtract(stats);
  for (const auto& [id, stats] : earlier.sessions) {
    const auto it = sessions.find(id);
    if (it == sessions.end()) continue;  // folded
    it->second.ops.Subtract(stats.ops);
    it->second.companions.Subtract(stats.companions);
  }
  std::erase_if(kinds, [](const auto& kind) { return kind.second.op_count == 0; });
  std::erase_if(sessions, [](const auto& session) { return session.second.ops.op_count == 0; });
}

}  // namespace concert::daemon
