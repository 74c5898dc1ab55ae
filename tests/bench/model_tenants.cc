#include "tests/bench/model_tenants.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/device/sim/sim_node.h"
#include "policies/seam/policy.h"
#include "tests/bench/dispatcher_bed.h"
#include "tests/bench/statistics.h"

namespace concert::bench {
namespace {

using daemon::sim::SimNode;

constexpr policies::Time kEpochNs = 1'000'000'000;  // time 0 means "never" in places
// How long a dispatcher that has nothing to do takes to look again.
constexpr double kLookUs = 0.2;
// The model's own limit on what may be in flight is far away: a client has one step at a time.
constexpr double kSilenceUs = 1e6;

policies::Time Ns(double us) { return static_cast<policies::Time>(us * 1e3); }

// The simulated GPU; each call takes the dispatcher's clock on by what it costs the host.
class TimedGpu final : public daemon::Device {
 public:
  TimedGpu(SimNode& node, const RoundCosts& costs, VirtualClock& clock)
      : node_(node), gpu_(node.gpu(0)), costs_(costs), clock_(clock) {}

  const daemon::DeviceInfo& info() const override { return gpu_.info(); }
  absl::StatusOr<daemon::Allocation> Allocate(uint64_t bytes) override {
    return gpu_.Allocate(bytes);
  }
  absl::StatusOr<daemon::Allocation> Import(const daemon::ImportRequest& request) override {
    return gpu_.Import(request);
  }
  void Free(const daemon::Allocation& allocation) override { gpu_.Free(allocation); }
  absl::Status Launch(daemon::Lane lane, const daemon::LaunchRequest& request) override {
    const auto ops = static_cast<double>(request.ops.size());
    const bool group = request.form == policies::Form::kGroup;
    clock_.now_us += costs_.launch + costs_.launch_op * ops +
                     (group ? costs_.group_call : costs_.library_call * ops);
    node_.AdvanceTo(Ns(clock_.now_us));
    return gpu_.Launch(lane, request);
  }
  absl::Status Signal(daemon::Lane lane, std::span<const daemon::TimelineWrite> writes) override {
    return gpu_.Signal(lane, writes);
  }
  absl::Status Order(daemon::Lane lane, daemon::Lane before) override {
    return gpu_.Order(lane, before);
  }
  std::vector<policies::Variant> Variants(const policies::Problem& problem,
                                          int sm_budget) override {
    return gpu_.Variants(problem, sm_budget);
  }
  void UseTuned(std::shared_ptr<const policies::TunedTable> table) override {
    gpu_.UseTuned(std::move(table));
  }
  absl::Status healthy() const override { return gpu_.healthy(); }

 private:
  SimNode& node_;
  daemon::sim::SimDevice& gpu_;
  const RoundCosts& costs_;
  VirtualClock& clock_;
};

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
  Model(const TenantScenario& scenario, const std::string& policy, const ModelOptions& options,
        std::unique_ptr<SimNode> node)
      : options_(options),
        node_(std::move(node)),
        gpu_(*node_, options.costs, clock_),
        bed_(gpu_, policy, daemon::DispatcherOptions{}, /*queues=*/1) {
    for (const TenantScenario::Client& client : scenario.clients) {
      const auto uid = static_cast<uint32_t>(loops_.size() + 2);
      const auto priority = static_cast<policies::Priority>(client.priority);
      Loop& loop = loops_.emplace_back();
      loop.session = bed_.OpenSession(uid, 1, priority);
      loop.chain = client.chain.gemms;
      outcome_.clients.push_back({.name = ClientName(client), .priority = client.priority});
      PutOff(loop, 0);
    }
  }

  absl::StatusOr<ModelOutcome> Run() {
    const double end_us = options_.run_time_ms * 1e3;
    double last_news_us = 0;
    while (clock_.now_us < end_us) {
      node_->AdvanceTo(Ns(clock_.now_us));
      for (size_t i = 0; i < loops_.size(); ++i) Step(loops_[i], outcome_.clients[i]);
      if (Turn()) last_news_us = clock_.now_us;
      if (clock_.now_us - last_news_us > kSilenceUs) {
        return absl::DeadlineExceededError("nothing happens any more in the model");
      }
    }
    outcome_.run_time_us = clock_.now_us;
    outcome_.co_run_share =
        ops_ == 0 ? 0 : static_cast<double>(co_run_ops_) / static_cast<double>(ops_);
    return std::move(outcome_);
  }

 private:
  // Its next step is written from `us` on.
  void PutOff(Loop& loop, double us) const {
    loop.next_at_us = us + options_.costs.submit_batch +
                      options_.costs.submit_op * static_cast<double>(loop.chain.size());
  }

  void Step(Loop& loop, ModelClient& client) {
    if (loop.waiting) {
      // Acquire: pairs with the simulator's release store of the timeline.
      uint64_t& timeline = bed_.memory(loop.session).timeline(0);
      if (std::atomic_ref<uint64_t>(timeline).load(std::memory_order_acquire) < loop.ticket) return;
      const double seen_at_us = clock_.now_us + options_.costs.to_visible;
      client.steps_us.push_back(seen_at_us - loop.submitted_at_us);
      loop.waiting = false;
      PutOff(loop, seen_at_us);
    }
    if (loop.next_at_us > clock_.now_us) return;
    for (size_t i = 0; i < loop.chain.size(); ++i) {
      bed_.Write(loop.session, DispatcherBed::Gemm(loop.chain[i], 0, i));
    }
    bed_.Ring(loop.session);
    submitted_ += loop.chain.size();
    loop.ticket += loop.chain.size();
    loop.submitted_at_us = clock_.now_us;
    loop.waiting = true;
  }

  // Whether the dispatcher had something to do.
  bool Turn() {
    const double began_us = clock_.now_us;
    clock_.now_us +=
        options_.costs.turn + options_.costs.admit_op * static_cast<double>(submitted_);
    submitted_ = 0;
    const bool news = bed_.Turn(Ns(began_us) + kEpochNs);
    if (!news) clock_.now_us = began_us + kLookUs;
    uint64_t ended = 0;
    bed_.DrainRecords([&](const auto& record) {
      if constexpr (std::is_same_v<std::decay_t<decltype(record)>, daemon::OpRecord>) {
        ++ended;
        co_run_ops_ += record.others > 0 && record.form != policies::Form::kSingle;
      }
    });
    ops_ += ended;
    clock_.now_us += options_.costs.finish_op * static_cast<double>(ended);
    return news;
  }

  const ModelOptions& options_;
  VirtualClock clock_;
  const std::unique_ptr<SimNode> node_;
  TimedGpu gpu_;
  DispatcherBed bed_;
  std::vector<Loop> loops_;
  ModelOutcome outcome_;
  uint64_t submitted_ = 0;  // and not admitted
  uint64_t ops_ = 0, co_run_ops_ = 0;
};

absl::Status CheckModel(const TenantScenario& scenario, const std::string& policy) {
  if (policies::FindPolicy(policy) == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("there is no policy named ", policy));
  }
  for (const TenantScenario::Client& client : scenario.clients) {
    if (!DispatcherBed::Takes(client.chain.gemms)) {
      return absl::InvalidArgumentError(
          absl::StrCat(scenario.name, ": the chain of client ", ClientName(client), " has ",
                       client.chain.gemms.size(), " GEMMs; the model takes ",
                       DispatcherBed::kMaxGemms, " with matrices of at most 1 GiB"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

namespace {

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
  auto node = SimNode::Open({.gpus = 1, .pace = daemon::sim::Pace::kVirtual, .compute = false});
  if (!node.ok()) return node.status();
  return Model(scenario, policy, options, *std::move(node)).Run();
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
