#include "tests/bench/c3_suite.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/bench/c3_result.h"
#include "tests/bench/rank_contender.h"
#include "tests/bench/rank_stage.h"
#include "tests/bench/rank_turns.h"
#include "tests/bench/result_file.h"
#include "tests/bench/scenario_file.h"
#include "tests/bench/scenario_loop.h"

namespace concert::bench {
namespace {

using nlohmann::json;

// Runs alone say how fast the halves can be. They scatter less than runs together.
constexpr int kAloneEvery = 2;
constexpr uint32_t kPlannedRuns = 2;  // that are looked up in the daemon's plans
constexpr int kPlanLooks = 100;
constexpr std::chrono::milliseconds kPlanLook(5);

using Role = C3Member::Role;

// The suite's inside: who takes part and what the scenarios need.
struct C3 {
  const RunOptions& options;
  std::unique_ptr<RankStage> stage;
  std::vector<C3Member> members;  // as the stage's contenders
  Rivals rivals;
  std::vector<std::string> forms;             // names
  std::map<uint32_t, RankMemorySizes> sizes;  // by ranks
  std::map<size_t, std::string> broken = {};  // members that would take the others' time, and why
};

// All but concert, which is there already; those whose daemons come up.
void AddMembers(C3& c3, json& header) {
  std::vector<C3Member> others = C3Baselines(c3.stage->is_sim());
  if (c3.options.forms) {
    for (C3Member& form : C3Forms()) others.push_back(std::move(form));
  }
  std::vector<RankContender> contenders;
  for (const C3Member& member : others) contenders.push_back(member.contender);
  c3.stage->Add(contenders, header);
  c3.members = {{c3.stage->contenders().front(), Role::kConcert, true, true}};
  for (C3Member& member : others) {
    if (c3.members.size() == c3.stage->contenders().size()) break;
    const std::string& name = member.contender.name;
    if (c3.stage->contenders()[c3.members.size()].name != name) continue;  // left out
    (member.role == Role::kForm ? c3.forms : c3.rivals.baselines).push_back(name);
    c3.members.push_back(std::move(member));
  }
  header["baselines"] = c3.rivals.baselines;
  header["forms"] = c3.forms;
}

absl::StatusOr<C3> Open(const RunOptions& options, std::vector<OverlapScenario>& scenarios,
                        json& header) {
  absl::StatusOr<std::unique_ptr<RankStage>> stage = RankStage::Open(options, header);
  if (!stage.ok()) return stage.status();
  C3 c3{.options = options,
        .stage = *std::move(stage),
        .members = {},
        .rivals = {},
        .forms = {},
        .sizes = {}};
  AddMembers(c3, header);

  std::map<uint32_t, std::vector<OverlapTask>> tasks;
  for (OverlapScenario& scenario : scenarios) {
    const uint32_t ranks = scenario.collective.ranks;
    if (ranks > c3.stage->gpus()) {
      scenario.unsupported =
          absl::StrCat("it needs ", ranks, " GPUs; this node has ", c3.stage->gpus());
      continue;
    }
    tasks[ranks].push_back(
        {scenario.gemm, static_cast<uint32_t>(scenario.repeat), scenario.collective});
  }
  for (const auto& [ranks, own] : tasks) c3.sizes[ranks] = SizesFor(own);
  return c3;
}

// Which members compute this scenario right; why the others do not goes to `unavailable`.
absl::StatusOr<std::vector<size_t>> Verify(C3& c3, RankCrew& crew, CollectiveKind kind,
                                           double& worst, json& unavailable) {
  std::vector<size_t> able;
  for (size_t i = 0; i < c3.members.size(); ++i) {
    const C3Member& member = c3.members[i];
    if (!Carries(member.contender, kind)) continue;
    if (const auto why = c3.broken.find(i); why != c3.broken.end()) {
      unavailable.push_back({{"name", member.contender.name}, {"why", why->second}});
      continue;
    }
    const absl::StatusOr<double> error = crew.Verify(i);
    if (error.ok()) {
      worst = std::max(worst, *error);
      able.push_back(i);
      continue;
    }
    if (Interrupted() || member.role == Role::kConcert) return error.status();
    const std::string why = error.status().ToString();
    unavailable.push_back({{"name", member.contender.name}, {"why", why}});
    if (!absl::IsDataLoss(error.status()) && !absl::IsNotFound(error.status()))
      c3.broken.emplace(i, why);
  }
  return able;
}

// Their samples go to `samples`, which must outlive them.
std::vector<RankTurn> TurnsOf(const C3& c3, const std::vector<size_t>& able,
                              OverlapSamples& samples) {
  std::vector<RankTurn> turns;
  const auto add = [&](size_t who, bool gemms, bool collective, Samples& all) {
    std::vector<double>& own = all[c3.members[who].contender.name];
    turns.push_back({.contender = who,
                     .gemms = gemms,
                     .collective = collective,
                     .every = gemms && collective ? 1 : kAloneEvery,
                     .add = [&own](const RunTimes& run) { own.push_back(run.both_us()); }});
  };
  for (const size_t who : able) {
    add(who, true, true, samples.together);
    if (c3.members[who].gemm_alone) add(who, true, false, samples.gemm_alone);
    if (c3.members[who].collective_alone) add(who, false, true, samples.collective_alone);
  }
  return turns;
}

// The plans that ended after `begin_ns`, once those of so many GEMMs and collectives of GPU 0 are
// there: they are logged a moment after clients see the ends.
absl::StatusOr<std::vector<LoggedPlan>> AwaitPlans(const std::string& socket, uint64_t begin_ns,
                                                   uint32_t gemms, uint32_t collectives) {
  absl::StatusOr<std::vector<LoggedPlan>> plans;
  for (int look = 0; look < kPlanLooks; ++look) {
    plans = AllLastPlans(socket, begin_ns);
    if (!plans.ok()) break;
    uint32_t logged_gemms = 0, logged_collectives = 0;
    for (const LoggedPlan& plan : *plans) {
      if (plan.gpu == 0) (plan.kind == "gemm" ? logged_gemms : logged_collectives) += plan.ops;
    }
    if (logged_gemms >= gemms && logged_collectives >= collectives) break;
    std::this_thread::sleep_for(kPlanLook);
  }
  return plans;
}

// What concert's daemon says of some more runs.
absl::StatusOr<json> PlansOf(const C3& c3, RankCrew& crew, uint32_t repeat, double actual_us) {
  const std::string socket = c3.stage->concert_admin_socket();
  if (socket.empty()) return json::object();
  const auto before = AllLastPlans(socket);
  if (!before.ok()) return before.status();
  const uint64_t begin_ns = before->empty() ? 0 : before->front().finished_at_ns;
  const auto runs = crew.Run(/*contender=*/0, /*gemms=*/true, /*collective=*/true, kPlannedRuns);
  if (!runs.ok()) return runs.status();
  const auto plans = AwaitPlans(socket, begin_ns, kPlannedRuns * repeat, kPlannedRuns);
  if (!plans.ok()) return plans.status();
  return DescribeOverlapPlans(*plans, static_cast<int>(repeat), actual_us);
}

absl::StatusOr<json> Measure(C3& c3, const OverlapScenario& scenario) {
  const uint32_t ranks = scenario.collective.ranks;
  const absl::StatusOr<RankCrew*> crew = c3.stage->Crew(ranks, c3.sizes.at(ranks));
  if (!crew.ok()) return crew.status();
  absl::Status prepared = (*crew)->Prepare(
      {scenario.gemm, static_cast<uint32_t>(scenario.repeat), scenario.collective});
  if (!prepared.ok()) return prepared;
  double worst = 0;
  json unavailable = json::array();
  const auto able = Verify(c3, **crew, scenario.collective.kind, worst, unavailable);
  if (!able.ok()) return able.status();
  OverlapSamples samples;
  const std::vector<RankTurn> turns = TurnsOf(c3, *able, samples);
  absl::Status taken = TakeRankTurns(**crew, turns, c3.options.rounds);
  if (!taken.ok()) return taken;
  json entry =
      DescribeOverlap(scenario, samples, c3.rivals, c3.forms, c3.stage->memory_bytes_per_s());
  entry["max_rel_error"] = worst;
  if (!unavailable.empty()) entry["unavailable"] = unavailable;
  const auto plans = PlansOf(c3, **crew, static_cast<uint32_t>(scenario.repeat),
                             entry["times_us"]["concert"]["p50"].get<double>());
  if (!plans.ok()) return plans.status();
  entry.update(*plans);
  return entry;
}

}  // namespace

absl::Status RunC3Suite(const RunOptions& options, json& result) {
  auto scenarios = ReadOverlapScenarios(options.scenarios, options.filter);
  if (!scenarios.ok()) return scenarios.status();
  absl::StatusOr<C3> c3 = Open(options, *scenarios, result["header"]);
  if (!c3.ok()) return c3.status();
  return MeasureScenarios(
      options, *scenarios,
      [&](const OverlapScenario& scenario) {
        absl::StatusOr<json> entry = Measure(*c3, scenario);
        c3->stage->DropCrewAfter(entry.status());
        return entry;
      },
      [&](const json& entries) { return OverlapSummary(entries, c3->rivals, kC3LossTolerance); },
      result);
}

}  // namespace concert::bench
