#include "tests/bench/model_tenants.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "policies/seam/policy.h"
#include "tests/bench/statistics.h"

namespace concert::bench {
namespace {

// The model's own limit on what may be in flight is far away: a client has one step at a time.
constexpr double kSilenceUs = 1e6;

// One client's closed loop: a step is its chain, submitted at once to one queue.
struct Loop {
  uint32_t session = 0;
  std::span<const GemmShape> chain;
  uint64_t ticket = 0;   // of the last op submitted
  bool waiting = false;  // for that
  double submitted_at_us = 0;
  double next_at_us = 0;  // when the next step is in the ring, if it does not wait
};

class Model {
 public:
  Model(const TenantScenario& scenario, const std::string& policy, const ModelOptions& options)
      : options_(options),
        timed_(options.costs, policy, daemon::DispatcherOptions{}, /*queues=*/1) {
    for (const TenantScenario::Client& client : scenario.clients) {
      const auto uid = static_cast<uint32_t>(loops_.size() + 2);
      const auto priority = static_cast<policies::Priority>(client.priority);
      Loop& loop = loops_.emplace_back();
      loop.session = timed_.bed().OpenSession(uid, 1, priority);
      loop.chain = client.chain.gemms;
      loop.next_at_us = timed_.WrittenAtUs(0, loop.chain.size());
      outcome_.clients.push_back({.name = ClientName(client), .priority = client.priority});
    }
    timed_.gpu().set_on_end([this](double us) {
      for (size_t i = 0; i < loops_.size(); ++i) Look(us, loops_[i], outcome_.clients[i]);
    });
  }

  absl::StatusOr<ModelOutcome> Run() {
    const double end_us = options_.run_time_ms * 1e3;
    double last_news_us = 0;
    while (timed_.now_us() < end_us) {
      for (Loop& loop : loops_) Submit(loop);
      const bool news = timed_.Turn([this](const daemon::OpRecord& record) {
        ++ops_;
        co_run_ops_ += record.others > 0 && record.form != policies::Form::kSingle;
      });
      if (news) last_news_us = timed_.now_us();
      if (timed_.now_us() - last_news_us > kSilenceUs) {
        return absl::DeadlineExceededError("nothing happens any more in the model");
      }
    }
    outcome_.run_time_us = timed_.now_us();
    outcome_.co_run_share =
        ops_ == 0 ? 0 : static_cast<double>(co_run_ops_) / static_cast<double>(ops_);
    return std::move(outcome_);
  }

 private:
  // The client looks at its timeline, as something has ended.
  void Look(double us, Loop& loop, ModelClient& client) {
    if (!loop.waiting || timed_.bed().memory(loop.session).timeline(0) < loop.ticket) return;
    client.steps_us.push_back(us - loop.submitted_at_us);
    loop.waiting = false;
    loop.next_at_us = timed_.WrittenAtUs(us, loop.chain.size());
  }

  void Submit(Loop& loop) {
    if (loop.waiting || loop.next_at_us > timed_.now_us()) return;
    DispatcherBed& bed = timed_.bed();
    for (size_t i = 0; i < loop.chain.size(); ++i) {
      bed.Write(loop.session, DispatcherBed::Gemm(loop.chain[i], 0, i));
    }
    bed.Ring(loop.session);
    loop.ticket += loop.chain.size();
    loop.submitted_at_us = loop.next_at_us;
    loop.waiting = true;
  }

  const ModelOptions& options_;
  TimedBed timed_;
  std::vector<Loop> loops_;
  ModelOutcome outcome_;
  uint64_t ops_ = 0, co_run_ops_ = 0;
};

absl::Status CheckModel(const TenantScenario& scenario, const std::string& policy) {
  if (policies::FindPolicy(policy) == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("there is no policy named ", policy));
  }
  for (const TenantScenario::Client& client : scenario.clients) {
    if (!DispatcherBed::Fits(client.chain.gemms)) {
      return absl::InvalidArgumentError(
          absl::StrCat(scenario.name, ": the chain of client ", ClientName(client), " has ",
                       client.chain.gemms.size(), " GEMMs; the model takes ",
                       DispatcherBed::kMaxGemms, " with matrices of at most 1 GiB"));
    }
  }
  return absl::OkStatus();
}

// Of all clients, or of those that are not urgent if there are any.
std::vector<double> StepsOfOthers(std::span<const ModelClient> clients) {
  const bool others = std::any_of(clients.begin(), clients.end(),
                                  [](const ModelClient& client) { return client.priority <= 0; });
  std::vector<double> steps_us;
  for (const ModelClient& client : clients) {
    if (others && client.priority > 0) continue;
    steps_us.insert(steps_us.end(), client.steps_us.begin(), client.steps_us.end());
  }
  return steps_us;
}

}  // namespace

double ModelOutcome::StepsPerSecond() const {
  return static_cast<double>(StepsOfOthers(clients).size()) / run_time_us * 1e6;
}

double ModelOutcome::StepUs() const { return Quantile(StepsOfOthers(clients), 0.5); }

double ModelOutcome::HighestClassUs(double quantile) const {
  int highest = -1;
  for (const ModelClient& client : clients) highest = std::max(highest, client.priority);
  std::vector<double> steps_us;
  for (const ModelClient& client : clients) {
    if (client.priority != highest) continue;
    steps_us.insert(steps_us.end(), client.steps_us.begin(), client.steps_us.end());
  }
  return Quantile(steps_us, quantile);
}

absl::StatusOr<ModelOutcome> ModelTenants(const TenantScenario& scenario, const std::string& policy,
                                          const ModelOptions& options) {
  if (absl::Status status = CheckModel(scenario, policy); !status.ok()) return status;
  return Model(scenario, policy, options).Run();
}

namespace {

absl::Status RunScenario(const TenantScenario& scenario, const ModelOptions& options,
                         std::ostream& out) {
  out << "\n" << scenario.name << ", " << scenario.clients.size() << " clients:\n";
  for (const TenantScenario::Client& client : scenario.clients) {
    out << "    " << ClientName(client) << "\n";
  }
  out << absl::StrFormat(
      "%-10s %9s %8s %8s %10s   %s\n", "policy", "us a step", "steps/s", "speed-up", "co-run",
      scenario.has_priorities() ? "p50, p99 of high priority" : "p50, p99 of a step");
  double first = 0;
  for (const std::string& policy : options.policies) {
    const auto outcome = ModelTenants(scenario, policy, options);
    if (!outcome.ok()) return outcome.status();
    const double steps_per_s = outcome->StepsPerSecond();
    if (first == 0) first = steps_per_s;
    out << absl::StrFormat("%-10s %9.0f %8.0f %7.2fx %9.0f%%   %.0f, %.0f us\n", policy,
                           outcome->StepUs(), steps_per_s, steps_per_s / first,
                           100 * outcome->co_run_share, outcome->HighestClassUs(0.5),
                           outcome->HighestClassUs(0.99));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunModel(const ModelOptions& options, std::ostream& out) {
  const auto scenarios = ReadTenantScenarios(options.scenarios, options.filter);
  if (!scenarios.ok()) return scenarios.status();
  out << "A modelled H200, " << absl::StrFormat("%g", options.run_time_ms)
      << " ms of its time; nothing here was measured.\n";
  for (const TenantScenario& scenario : *scenarios) {
    if (!scenario.unsupported.empty()) continue;
    const bool alone = scenario.clients.size() == 1;  // the reader has added them
    if (alone && options.filter.empty()) continue;
    if (absl::Status status = RunScenario(scenario, options, out); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace concert::bench
