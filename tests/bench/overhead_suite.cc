#include "tests/bench/overhead_suite.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <ostream>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/bench/child_process.h"
#include "tests/bench/daemon_contender.h"
#include "tests/bench/node_under_test.h"
#include "tests/bench/plan_log.h"
#include "tests/bench/progress.h"
#include "tests/bench/statistics.h"
#include "tests/bench/tiny_gemm.h"

namespace concert::bench {
namespace {

using nlohmann::json;
using SteadyClock = std::chrono::steady_clock;

constexpr int kBlockOps = 200, kSimBlockOps = 20;  // the simulator computes on the CPU
constexpr int kBusyClients = 7;
constexpr std::chrono::seconds kClientStartLimit(30);
constexpr double kQuantiles[] = {0.50, 0.90, 0.99};
constexpr const char* kQuantileNames[] = {"p50", "p90", "p99"};

// Seven processes that keep the daemon busy, except while paused.
class BusyClients {
 public:
  static absl::StatusOr<std::unique_ptr<BusyClients>> Start(const std::string& socket);
  ~BusyClients() {
    clients_.clear();  // before their log goes
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  void Pause() { SignalAll(SIGSTOP); }
  void Resume() { SignalAll(SIGCONT); }
  bool AllRunning() {
    for (ChildProcess& client : clients_) {
      if (!client.Running()) return false;
    }
    return true;
  }

 private:
  void SignalAll(int signal) {
    for (ChildProcess& client : clients_) client.Signal(signal);
  }

  std::string folder_;
  std::vector<ChildProcess> clients_;
};

absl::StatusOr<std::unique_ptr<BusyClients>> BusyClients::Start(const std::string& socket) {
  auto busy = std::make_unique<BusyClients>();
  busy->folder_ =
      absl::StrCat(std::filesystem::temp_directory_path().string(), "/concert-load.XXXXXX");
  if (mkdtemp(busy->folder_.data()) == nullptr)
    return absl::PermissionDeniedError("cannot make a temporary folder");
  const auto ready_path = [&](int i) { return absl::StrCat(busy->folder_, "/ready", i); };
  for (int i = 0; i < kBusyClients; ++i) {
    absl::StatusOr<ChildProcess> client =
        ChildProcess::Start({ProgramFolder() + "/concert-bench", "client-load", "--socket", socket,
                             "--ready", ready_path(i)},
                            busy->folder_ + "/log");
    if (!client.ok()) return client.status();
    busy->clients_.push_back(*std::move(client));
  }
  const auto limit = SteadyClock::now() + kClientStartLimit;
  for (int i = 0; i < kBusyClients; ++i) {
    while (!std::filesystem::exists(ready_path(i))) {
      if (!busy->AllRunning() || SteadyClock::now() > limit) {
        return absl::UnavailableError("a busy client did not start");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  return busy;
}

int BlockOps(const NodeUnderTest& node) { return node.is_sim() ? kSimBlockOps : kBlockOps; }

// Microseconds of each of `ops` ops.
absl::Status RunBlock(TinyGemm& gemm, int ops, std::vector<double>& samples_us) {
  for (int i = 0; i < ops; ++i) {
    const SteadyClock::time_point begin = SteadyClock::now();
    if (absl::Status status = gemm.LaunchAndWait(); !status.ok()) return status;
    samples_us.push_back(
        std::chrono::duration<double, std::micro>(SteadyClock::now() - begin).count());
  }
  return absl::OkStatus();
}

absl::Status Measure(TinyGemm& local, TinyGemm& ring, BusyClients* busy, int rounds, int ops,
                     PairedBlocks& blocks) {
  for (int round = -1; round < rounds; ++round) {  // the first warms up
    if (Interrupted()) return absl::CancelledError("interrupted");
    std::vector<double> local_us, ring_us;
    if (busy != nullptr) busy->Pause();
    if (absl::Status status = RunBlock(local, ops, local_us); !status.ok()) return status;
    if (busy != nullptr) busy->Resume();
    if (absl::Status status = RunBlock(ring, ops, ring_us); !status.ok()) return status;
    if (busy != nullptr && !busy->AllRunning())
      return absl::UnavailableError("a busy client has ended");
    if (round >= 0) blocks.Add(std::move(local_us), std::move(ring_us));
  }
  return absl::OkStatus();
}

json Describe(const char* name, const PairedBlocks& blocks) {
  json entry = {{"name", name}};
  for (size_t i = 0; i < std::size(kQuantiles); ++i) {
    entry["local_us"][kQuantileNames[i]] = blocks.Baseline(kQuantiles[i]);
    entry["ring_us"][kQuantileNames[i]] = blocks.Candidate(kQuantiles[i]);
    entry["added_us"][kQuantileNames[i]] = blocks.PooledDifference(kQuantiles[i]);
    entry["added_us_by_block"][kQuantileNames[i]] = blocks.BlockDifference(kQuantiles[i]);
  }
  return entry;
}

// "plan" and "plans", by which the ring's last ops were launched. Empty where they are not known:
// only a private daemon's admin socket is.
json RingPlans(const NodeUnderTest& node) {
  json plans = json::object();
  if (!node.daemon) return plans;
  const auto logged = LastPlans(node.daemon->admin_socket());
  if (!logged.ok()) return plans;
  const json described = DescribePlans(*logged, /*gemms=*/1);
  for (const char* key : {"plan", "plans"}) {
    if (described.contains(key)) plans[key] = described[key];
  }
  return plans;
}

// A policy that makes of one op what most of the ring's plans are made of: alone the daemon may
// take a library's kernel, and among eight clients a group launch that signals itself.
std::string PolicyOfRing(const NodeUnderTest& node, const RunOptions& options) {
  const json plans = RingPlans(node);
  if (!plans.contains("plans")) return options.policy;
  return plans["plans"][0]["form"] == "group" ? "group" : "serial";
}

absl::StatusOr<json> MeasureScenario(const char* name, bool is_busy, const NodeUnderTest& node,
                                     TinyGemm& ring, const RunOptions& options) {
  std::unique_ptr<BusyClients> busy;
  if (is_busy) {
    absl::StatusOr<std::unique_ptr<BusyClients>> started = BusyClients::Start(node.socket);
    if (!started.ok()) return started.status();
    busy = *std::move(started);
  }
  std::vector<double> unmeasured_us;
  if (absl::Status ran = RunBlock(ring, BlockOps(node), unmeasured_us); !ran.ok()) return ran;
  absl::StatusOr<std::unique_ptr<TinyGemm>> local =
      MakeLocalTinyGemm(node.is_sim() ? "sim" : "cuda", PolicyOfRing(node, options));
  if (!local.ok()) return local.status();
  PairedBlocks blocks;
  absl::Status measured =
      Measure(**local, ring, busy.get(), options.rounds, BlockOps(node), blocks);
  if (!measured.ok()) return measured;
  json entry = Describe(name, blocks);
  entry["local_form"] = (*local)->form();
  entry.update(RingPlans(node));
  return entry;
}

}  // namespace

absl::Status RunOverheadSuite(const RunOptions& options, json& result) {
  absl::StatusOr<NodeUnderTest> node = OpenNodeUnderTest(options);
  if (!node.ok()) return node.status();
  result["header"] = MakeHeader(*node, options);
  result["header"].update(
      {{"block_ops", BlockOps(*node)}, {"cpus", std::thread::hardware_concurrency()}});
  absl::StatusOr<std::unique_ptr<TinyGemm>> ring = MakeRingTinyGemm(node->session);
  if (!ring.ok()) return ring.status();

  constexpr std::pair<const char*, bool> kScenarios[] = {{"idle", false}, {"seven_busy", true}};
  Progress progress(std::size(kScenarios));
  for (const auto& [name, is_busy] : kScenarios) {
    progress.Step(name);
    const absl::StatusOr<json> entry = MeasureScenario(name, is_busy, *node, **ring, options);
    if (!entry.ok()) return entry.status();
    result["scenarios"].push_back(*entry);
    result["summary"][absl::StrCat("added_p50_us_", name)] = (*entry)["added_us"]["p50"];
  }
  return absl::OkStatus();
}

void PrintOverheadResult(const json& result, std::ostream& out) {
  out << absl::StrFormat("%-12s %-8s %9s %9s %9s\n", "scenario", "us", "p50", "p90", "p99");
  for (const json& scenario : result["scenarios"]) {
    for (const char* series : {"local_us", "ring_us", "added_us"}) {
      const json& quantiles = scenario[series];
      out << absl::StrFormat("%-12s %-8s %9.2f %9.2f %9.2f\n", scenario["name"].get<std::string>(),
                             std::string(series, 0, std::string(series).find('_')),
                             quantiles["p50"].get<double>(), quantiles["p90"].get<double>(),
                             quantiles["p99"].get<double>());
    }
  }
}

absl::Status RunClientLoad(const std::string& socket, const std::string& ready_path) {
  Result<Session> session = Session::Connect(
      {.socket_path = socket, .client_name = "concert-bench-load", .fallback = Fallback::kNone});
  if (!session.ok()) return ToAbsl(session.status());
  absl::StatusOr<std::unique_ptr<TinyGemm>> ring = MakeRingTinyGemm(*session);
  if (!ring.ok()) return ring.status();
  for (bool first = true; !Interrupted(); first = false) {
    if (absl::Status status = (*ring)->LaunchAndWait(); !status.ok()) return status;
    if (first) std::ofstream(ready_path).flush();
  }
  return absl::OkStatus();
}

}  // namespace concert::bench
