#include "client/ctl/render.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <vector>

#include "client/ctl/table.h"

namespace concert::ctl {
namespace {

std::string Fixed(double value, int decimals) {
  char text[64];
  snprintf(text, sizeof(text), "%.*f", decimals, value);
  return text;
}

std::string StateText(v1::DaemonState state) {
  switch (state) {
    case v1::DAEMON_STATE_RUNNING:
      return "running";
    case v1::DAEMON_STATE_DRAINING:
      return "draining: accepts no new ops";
    default:
      return "in a state this concertctl does not know";
  }
}

// "3 failed (2 INVALID_ARGUMENT, 1 CANCELLED)"
std::string FailuresText(const v1::OpStats& ops) {
  std::string text = std::to_string(ops.failed_op_count());
  const char* separator = " (";
  for (const v1::FailureCount& failure : ops.failures()) {
    text += separator + std::to_string(failure.op_count()) + " " + failure.status();
    separator = ", ";
  }
  return ops.failures().empty() ? text : text + ")";
}

// "7 (120), 3 (8), ...": with whom, and in how many plans.
std::string CoRunnersText(const v1::SessionStats& session) {
  constexpr int kShown = 3;
  std::string text;
  for (int i = 0; i < session.co_runners_size() && i < kShown; ++i) {
    const v1::CoRunner& co_runner = session.co_runners(i);
    if (i > 0) text += ", ";
    text += co_runner.session_id() == 0 ? "others" : std::to_string(co_runner.session_id());
    text += " (" + std::to_string(co_runner.plan_count()) + ")";
  }
  return session.co_runners_size() > kShown ? text + ", ..." : text;
}

// The columns that every set of ops has, as totals.
const std::vector<Table::Column> kOpColumns = {{"OPS"},   {"FAILED"},  {"FLOP"},     {"BYTES"},
                                               {"GPU S"}, {"CO-RUN"},  {"GAINED S"}, {"WAIT P50"},
                                               {"P99"},   {"RUN P50"}, {"P99"}};

std::vector<std::string> OpCells(const v1::OpStats& ops) {
  return {Count(ops.op_count()),
          Count(ops.failed_op_count()),
          Count(static_cast<double>(ops.flop_count())),
          Bytes(ops.moved_bytes()),
          Fixed(ops.gpu_seconds(), 3),
          Percent(ops.co_run_op_count(), ops.op_count() - ops.failed_op_count()),
          Fixed(ops.gained_seconds(), 3),
          Micros(ops.queue_wait().p50_us()),
          Micros(ops.queue_wait().p99_us()),
          Micros(ops.run_time().p50_us()),
          Micros(ops.run_time().p99_us())};
}

Table OpTable(const std::string& title) {
  std::vector<Table::Column> columns = {{title, Align::kLeft}};
  columns.insert(columns.end(), kOpColumns.begin(), kOpColumns.end());
  return Table(columns);
}

void AddOps(Table& table, const std::string& name, const v1::OpStats& ops) {
  std::vector<std::string> cells = {name};
  for (std::string& cell : OpCells(ops)) cells.push_back(std::move(cell));
  table.AddRow(std::move(cells));
}

// The same as rates over an interval.
Table RateTable(std::vector<Table::Column> columns) {
  for (const char* title :
       {"OPS/S", "FLOP/S", "B/S", "GPU", "CO-RUN", "WAIT P50", "P99", "RUN P50", "P99"}) {
    columns.push_back({title});
  }
  return Table(std::move(columns));
}

// "-" for nothing: not one op, or none of the kind that does this.
std::string Rate(uint64_t count, double seconds) {
  return count == 0 ? "-" : Count(static_cast<double>(count) / seconds);
}

// `gpus`: on how many the ops ended.
void AddRates(Table& table, std::vector<std::string> cells, const v1::OpStats& ops, double seconds,
              int gpus) {
  for (std::string& cell : std::vector<std::string>{
           Rate(ops.op_count(), seconds), Rate(ops.flop_count(), seconds),
           Rate(ops.moved_bytes(), seconds),
           ops.op_count() == 0 ? "-" : Percent(ops.gpu_seconds(), seconds * gpus),
           Percent(ops.co_run_op_count(), ops.op_count() - ops.failed_op_count()),
           Micros(ops.queue_wait().p50_us()), Micros(ops.queue_wait().p99_us()),
           Micros(ops.run_time().p50_us()), Micros(ops.run_time().p99_us())}) {
    cells.push_back(std::move(cell));
  }
  table.AddRow(std::move(cells));
}

std::string TopGpus(const v1::WatchStatsResponse& delta) {
  Table table = RateTable({{"GPU"}});
  for (const v1::DeviceStats& device : delta.stats().devices()) {
    AddRates(table, {std::to_string(device.gpu())}, device.ops(), delta.interval_seconds(), 1);
  }
  return table.Render();
}

// Every connected session, the busiest first.
std::string TopSessions(const v1::ListSessionsResponse& sessions,
                        const v1::WatchStatsResponse& delta) {
  std::map<uint32_t, const v1::SessionStats*> stats_by_session;
  for (const v1::SessionStats& stats : delta.stats().sessions())
    stats_by_session[stats.session_id()] = &stats;
  std::vector<std::pair<const v1::Session*, const v1::SessionStats*>> rows;
  for (const v1::Session& session : sessions.sessions()) {
    const auto it = stats_by_session.find(session.session_id());
    rows.emplace_back(&session, it == stats_by_session.end() ? &v1::SessionStats::default_instance()
                                                             : it->second);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.second->ops().gpu_seconds() > b.second->ops().gpu_seconds();
  });
  Table table = RateTable({{"SESSION"}, {"UID"}, {"PID"}, {"CLIENT", Align::kLeft}});
  for (const auto& [session, stats] : rows) {
    AddRates(table,
             {std::to_string(session->session_id()), std::to_string(session->uid()),
              std::to_string(session->pid()), session->client_name()},
             stats->ops(), delta.interval_seconds(), std::max(1, stats->gpus_size()));
  }
  return table.Render();
}

// "       ops: 120 single, 30 streams, 850 group; plans of 1: 300, 2: 60, 4: 30, 8: 10, more: 0"
std::string GpuFormsText(const v1::DeviceStats& device) {
  const v1::OpStats& ops = device.ops();
  std::string text = "       ops: " + Count(ops.single_op_count()) + " single, " +
                     Count(ops.streams_op_count()) + " streams, " + Count(ops.group_op_count()) +
                     " group";
  const char* separator = "; plans of ";
  for (const v1::DegreeStats& size : device.degrees()) {
    const uint32_t most = size.max_op_count();
    text += separator + (most == 0 ? "more" : (most > 1 ? "up to " : "") + std::to_string(most)) +
            ": " + Count(size.plan_count());
    separator = ", ";
  }
  return text + "\n";
}

std::string GpuPlansText(const v1::DeviceStats& device) {
  std::string text = "GPU " + std::to_string(device.gpu()) + ": " + Count(device.plan_count()) +
                     " plans, " + Percent(device.co_run_plan_count(), device.plan_count()) +
                     " with several ops; took " + Fixed(device.actual_seconds(), 3) +
                     " s, predicted " + Fixed(device.predicted_seconds(), 3) +
                     " s, one after the other " + Fixed(device.serial_seconds(), 3) + " s";
  if (device.dropped_record_count() > 0) {
    text += "; " + Count(device.dropped_record_count()) + " records lost";
  }
  return text + "\n" + GpuFormsText(device);
}

// What a run that is alone is predicted to take by this engine, if the program has it.
std::string EngineMicros(const v1::Program& program, const std::string& engine) {
  for (const v1::ProgramEngine& its : program.engines())
    if (its.engine() == engine) return Micros(its.predicted_us());
  return "-";
}

void AddParts(const std::string& session, const v1::Program& program, Table& table) {
  for (const v1::ProgramEngine& engine : program.engines()) {
    for (const v1::ProgramPart& part : engine.parts()) {
      table.AddRow({session, std::to_string(program.program()), engine.engine(),
                    std::to_string(part.count()), Micros(part.predicted_us()),
                    Micros(part.count() * part.predicted_us()), part.what()});
    }
  }
}

}  // namespace

std::string SimulatedNote(bool simulated) {
  return simulated ? "SIMULATED: times are a model's, results are computed on this CPU\n" : "";
}

std::string RenderStatus(const v1::GetStatusResponse& status) {
  std::string out = "concertd " + status.version() + ", pid " + std::to_string(status.pid()) +
                    ", up " + Seconds(status.uptime_seconds()) + ", " + StateText(status.state()) +
                    "\n";
  out += "device    " + status.backend() + " (" + status.backend_reason() + ")\n";
  if (status.simulated()) out += "          " + SimulatedNote(true);
  if (!status.degraded().empty()) out += "DEGRADED  " + status.degraded() + "\n";
  out += "GPUs      " + std::to_string(status.healthy_device_count()) + " of " +
         std::to_string(status.device_count()) + " healthy\n";
  out += "policy    " + status.policy() + "\n";
  out += "sessions  " + std::to_string(status.session_count()) + " on " + status.client_socket() +
         "\n";
  out += "ops       " + Count(status.op_count()) + ", " + Count(status.failed_op_count()) +
         " failed\n";
  return out;
}

std::string RenderDevices(const v1::ListDevicesResponse& devices) {
  Table table({{"GPU"},
               {"DEVICE", Align::kLeft},
               {"NAME", Align::kLeft},
               {"MEMORY"},
               {"SMS"},
               {"PEERS", Align::kLeft},
               {"POLICY", Align::kLeft},
               {"PLANS"},
               {"READY"},
               {"QUEUED"},
               {"HEALTH", Align::kLeft},
               {"UUID", Align::kLeft}});
  for (const v1::Device& device : devices.devices()) {
    table.AddRow({std::to_string(device.gpu()), device.backend(), device.name(),
                  Bytes(device.memory_bytes()), std::to_string(device.sm_count()),
                  device.peer_access() ? "yes" : "no", device.policy(),
                  std::to_string(device.plans_in_flight_count()),
                  std::to_string(device.ready_op_count()), std::to_string(device.queued_op_count()),
                  device.healthy() ? "ok" : "failed: " + device.health_message(), device.uuid()});
  }
  return table.Render();
}

std::string RenderSessions(const v1::ListSessionsResponse& sessions) {
  if (sessions.sessions().empty()) return "no sessions\n";
  Table table({{"SESSION"},
               {"UID"},
               {"PID"},
               {"CLIENT", Align::kLeft},
               {"CONNECTED"},
               {"QUEUES"},
               {"BUFFERS"},
               {"REGISTERED"},
               {"SEALED"},
               {"SHARED"},
               {"GPUS", Align::kLeft}});
  for (const v1::Session& session : sessions.sessions()) {
    std::string gpus;
    for (const uint32_t gpu : session.gpus())
      gpus += (gpus.empty() ? "" : ",") + std::to_string(gpu);
    table.AddRow({std::to_string(session.session_id()), std::to_string(session.uid()),
                  std::to_string(session.pid()), session.client_name(),
                  Seconds(session.connected_seconds()), std::to_string(session.queue_count()),
                  std::to_string(session.buffer_count()), Bytes(session.registered_bytes()),
                  Bytes(session.sealed_bytes()), Bytes(session.shared_bytes()), gpus});
  }
  return table.Render();
}

std::string RenderPrograms(const v1::ListSessionsResponse& sessions) {
  Table table({{"SESSION"},
               {"CLIENT", Align::kLeft},
               {"PROGRAM"},
               {"GPU"},
               {"OPS"},
               {"BINDINGS"},
               {"ARENA"},
               {"UNSHARED"},
               {"WORKSPACE"},
               {"STEP"},
               {"GRAPH"},
               {"REPLICAS"},
               {"OF", Align::kLeft}});
  Table parts({{"SESSION"},
               {"PROGRAM"},
               {"ENGINE", Align::kLeft},
               {"TIMES"},
               {"EACH"},
               {"IN ALL"},
               {"STAGE OR KERNEL", Align::kLeft}});
  Table graphs({{"SESSION"}, {"PROGRAM"}, {"WHY NO STEP KERNEL RUNS IT", Align::kLeft}});
  for (const v1::Session& session : sessions.sessions()) {
    for (const v1::Program& program : session.programs()) {
      std::string kinds;
      for (const v1::KindCount& ops : program.ops())
        kinds += (kinds.empty() ? "" : ", ") + std::to_string(ops.count()) + " " + ops.kind();
      table.AddRow({std::to_string(session.session_id()), session.client_name(),
                    std::to_string(program.program()), std::to_string(program.gpu()),
                    std::to_string(program.op_count()),
                    program.of_batch() ? "batch" : std::to_string(program.binding_count()),
                    Bytes(program.arena_bytes()), Bytes(program.slot_bytes()),
                    Bytes(program.workspace_bytes()), EngineMicros(program, "step"),
                    EngineMicros(program, "graph"),
                    program.replicas() > 1 ? std::to_string(program.replicas()) : "-", kinds});
      AddParts(std::to_string(session.session_id()), program, parts);
      if (program.why_no_step().empty()) continue;
      graphs.AddRow({std::to_string(session.session_id()), std::to_string(program.program()),
                     program.why_no_step()});
    }
  }
  if (table.empty()) return "no programs\n";
  std::string text = table.Render();
  if (!graphs.empty()) text += "\n" + graphs.Render();
  if (!parts.empty()) text += "\n" + parts.Render();
  return text;
}

std::string RenderStats(const v1::Stats& stats) {
  std::string out = SimulatedNote(stats.simulated());
  for (const v1::DeviceStats& device : stats.devices()) out += GpuPlansText(device);
  Table gpus = OpTable("GPU"), kinds = OpTable("KIND"), sessions = OpTable("SESSION");
  for (const v1::DeviceStats& device : stats.devices())
    AddOps(gpus, std::to_string(device.gpu()), device.ops());
  for (const v1::KindStats& kind : stats.kinds()) AddOps(kinds, kind.kind(), kind.ops());
  for (const v1::SessionStats& session : stats.sessions()) {
    AddOps(sessions, std::to_string(session.session_id()) + (session.ended() ? " (ended)" : ""),
           session.ops());
  }
  if (stats.departed().op_count() > 0) AddOps(sessions, "departed", stats.departed());
  out += "\n" + gpus.Render();
  if (!kinds.empty()) out += "\n" + kinds.Render();
  if (!sessions.empty()) out += "\n" + sessions.Render();
  if (stats.total().failed_op_count() > 0) out += "\nfailed: " + FailuresText(stats.total()) + "\n";
  Table sharing({{"SESSION"}, {"SHARED PLANS WITH SESSIONS (PLANS)", Align::kLeft}});
  for (const v1::SessionStats& session : stats.sessions()) {
    if (session.co_runners().empty()) continue;
    sharing.AddRow({std::to_string(session.session_id()), CoRunnersText(session)});
  }
  return sharing.empty() ? out : out + "\n" + sharing.Render();
}

std::string RenderPlans(const v1::ListPlansResponse& plans) {
  if (plans.plans().empty()) return "no plan has ended yet\n";
  std::string out = SimulatedNote(plans.simulated());
  for (const v1::Plan& plan : plans.plans()) out += plan.text() + "\n";
  return out;
}

namespace {

// "1 (GPU 1, session 7), 2 (not joined)": its ranks of that state, or of none but "there".
std::string RanksText(const v1::Collective& collective, bool there) {
  std::string text;
  for (const v1::CollectiveRank& rank : collective.ranks()) {
    if ((rank.state() == "there") != there) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(rank.rank());
    if (!rank.has_gpu()) {
      text += " (" + rank.state() + ")";
      continue;
    }
    text += " (GPU " + std::to_string(rank.gpu());
    if (rank.has_session_id()) text += ", session " + std::to_string(rank.session_id());
    text += ")";
  }
  return text;
}

// "p2p, 8 SMs, 412 us predicted"
std::string HowText(const v1::Collective& collective) {
  std::string text = collective.transport();
  if (collective.sm_count() > 0) text += ", " + std::to_string(collective.sm_count()) + " SMs";
  return text + ", " + Micros(collective.predicted_us()) + " predicted";
}

}  // namespace

std::string RenderCollectives(const v1::GetCollectivesResponse& response) {
  std::string out = SimulatedNote(response.simulated()) +
                    std::to_string(response.communicator_count()) + " communicators\n";
  Table waiting({{"COMMUNICATOR"},
                 {"OP"},
                 {"KIND", Align::kLeft},
                 {"BYTES"},
                 {"UID"},
                 {"WAITS"},
                 {"THERE"},
                 {"WAITS FOR", Align::kLeft},
                 {"WHO WAITS", Align::kLeft}});
  Table running({{"COMMUNICATOR"},
                 {"OP"},
                 {"KIND", Align::kLeft},
                 {"BYTES"},
                 {"UID"},
                 {"RUNS"},
                 {"HOW", Align::kLeft},
                 {"RANKS", Align::kLeft}});
  for (const v1::Collective& collective : response.collectives()) {
    std::vector<std::string> cells = {std::to_string(collective.communicator()),
                                      std::to_string(collective.sequence()),
                                      collective.kind(),
                                      Bytes(collective.bytes()),
                                      std::to_string(collective.uid()),
                                      Micros(collective.seconds() * 1e6)};
    if (collective.running()) {
      cells.insert(cells.end(), {HowText(collective), RanksText(collective, true)});
      running.AddRow(std::move(cells));
    } else {
      cells.insert(cells.end(), {std::to_string(collective.ranks_there_count()) + " of " +
                                     std::to_string(collective.rank_count()),
                                 RanksText(collective, false), RanksText(collective, true)});
      waiting.AddRow(std::move(cells));
    }
  }
  if (!waiting.empty()) out += "\n" + waiting.Render();
  if (!running.empty()) out += "\n" + running.Render();
  if (response.cut()) out += "\nthere are more than are listed\n";
  return out;
}

std::string RenderQuotas(const v1::GetQuotasResponse& quotas) {
  Table table({{"RESOURCE", Align::kLeft},
               {"USED"},
               {"IN ALL"},
               {"PER USER"},
               {"HEAVIEST USERS", Align::kLeft},
               {"BEYOND", Align::kLeft}});
  for (const v1::Quota& quota : quotas.quotas()) {
    const bool bytes = quota.resource().ends_with("_bytes");
    const auto amount = [&](uint64_t count) {
      return bytes ? Bytes(count) : std::to_string(count);
    };
    const auto limit = [&](uint64_t count) { return count == 0 ? "-" : amount(count); };
    std::string users;
    for (const v1::QuotaUser& user : quota.heaviest_users()) {
      users += (users.empty() ? "" : ", ") + std::to_string(user.uid()) + " (" +
               amount(user.used()) + ")";
    }
    table.AddRow({quota.resource(), amount(quota.used()), limit(quota.node_limit()),
                  limit(quota.user_limit()), users, quota.beyond()});
  }
  Table budgets({{"THREAD", Align::kLeft}, {"OF", Align::kLeft}, {"PER TURN"}});
  for (const v1::Budget& budget : quotas.budgets()) {
    budgets.AddRow({budget.thread(), budget.work(), std::to_string(budget.per_turn_count())});
  }
  return table.Render() + "\n" + budgets.Render();
}

std::string RenderPolicies(const v1::ListPoliciesResponse& policies) {
  Table table({{"", Align::kLeft}, {"POLICY", Align::kLeft}, {"WHAT IT DOES", Align::kLeft}});
  for (const v1::Policy& policy : policies.policies()) {
    table.AddRow(
        {policy.name() == policies.current_policy() ? "*" : "", policy.name(), policy.summary()});
  }
  return table.Render();
}

std::string WatchTitle() {
  return "     OPS/S     FLOP/S        B/S  GPU BUSY   CO-RUN    WAIT P50         P99     RUN P50  "
         "       P99  "
         "DROPPED\n";
}

std::string RenderWatchLine(const v1::WatchStatsResponse& delta) {
  const v1::OpStats& ops = delta.stats().total();
  const double seconds = delta.interval_seconds();
  const double gpus = std::max(1, delta.stats().devices_size());
  char line[256];
  snprintf(line, sizeof(line), "%10s %10s %10s %9s %8s %11s %11s %11s %11s %8llu\n",
           Rate(ops.op_count(), seconds).c_str(), Rate(ops.flop_count(), seconds).c_str(),
           Rate(ops.moved_bytes(), seconds).c_str(),
           ops.op_count() == 0 ? "-" : Percent(ops.gpu_seconds(), seconds * gpus).c_str(),
           Percent(ops.co_run_op_count(), ops.op_count() - ops.failed_op_count()).c_str(),
           Micros(ops.queue_wait().p50_us()).c_str(), Micros(ops.queue_wait().p99_us()).c_str(),
           Micros(ops.run_time().p50_us()).c_str(), Micros(ops.run_time().p99_us()).c_str(),
           static_cast<unsigned long long>(delta.dropped_count()));
  return line;
}

std::string RenderTop(const v1::GetStatusResponse& status, const v1::ListSessionsResponse& sessions,
                      const v1::WatchStatsResponse& delta) {
  return "concertd " + status.version() + ", up " + Seconds(status.uptime_seconds()) + ", " +
         StateText(status.state()) + ", policy " + status.policy() + ", " +
         std::to_string(status.session_count()) + " sessions" +
         (status.simulated() ? ", SIMULATED" : "") +
         (status.degraded().empty() ? "" : ", DEGRADED (concertctl status)") + "\n\n" +
         TopGpus(delta) + "\n" + TopSessions(sessions, delta);
}

}  // namespace concert::ctl
