#include "tests/bench/tenant_crew.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/bench/progress.h"

namespace concert::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Contexts of eight processes, some 500 MB of weights each and their check on the CPU.
constexpr std::chrono::seconds kStepLimit(180);
// For the others, once one has failed: each opens the GPU within a second or two.
constexpr std::chrono::seconds kReportLimit(10);
// For a context and its memory to go, of every client.
constexpr std::chrono::seconds kExitLimit(30);
constexpr std::chrono::milliseconds kLook(1);
// Long enough for caches, clocks and the daemon's plans to settle, a fifth of a window.
constexpr int kWarmupShare = 5;
constexpr int kAttempts = 10;  // the last one 512 windows long: the simulator's CPU is slow

}  // namespace

absl::StatusOr<std::unique_ptr<TenantCrew>> TenantCrew::Start(const TenantScenario& scenario,
                                                              const Options& options) {
  std::string folder =
      absl::StrCat(std::filesystem::temp_directory_path().string(), "/concert-tenants.XXXXXX");
  if (mkdtemp(folder.data()) == nullptr)
    return absl::PermissionDeniedError(absl::StrCat("cannot make a folder ", folder));
  std::unique_ptr<TenantCrew> crew(new TenantCrew(scenario, folder));
  absl::StatusOr<MappedBoard> board = MapBoard(folder + "/board", /*create=*/true);
  if (!board.ok()) return board.status();
  crew->board_ = *std::move(board);
  for (size_t i = 0; i < scenario.clients.size(); ++i) {
    std::vector<std::string> argv = {ProgramFolder() + "/concert-bench",
                                     "tenant",
                                     "--board",
                                     folder + "/board",
                                     "--index",
                                     absl::StrCat(i),
                                     "--scenarios",
                                     options.scenarios,
                                     "--scenario",
                                     scenario.name};
    if (options.socket.empty()) {
      argv.insert(argv.end(), {"--gpu", options.gpu_uuid});
    } else {
      argv.insert(argv.end(), {"--socket", options.socket});
    }
    absl::StatusOr<ChildProcess> client = ChildProcess::Start(
        argv, folder + "/log",
        i < options.environments.size() ? options.environments[i] : std::vector<std::string>{});
    if (!client.ok()) return client.status();
    crew->clients_.push_back(*std::move(client));
  }
  return crew;
}

TenantCrew::~TenantCrew() {
  for (ChildProcess& client : clients_) client.Signal(SIGTERM);  // all at once
  clients_.clear();                                              // before their folder goes
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

// "client 1 of 8 (normal priority, 16 GEMMs from 512x1024x1024)"
std::string TenantCrew::Describe(size_t i) const {
  constexpr const char* kPriorities[] = {"low", "normal", "high"};
  const TenantScenario::Client& client = scenario_.clients[i];
  const GemmShape& first = client.chain.gemms.front();
  return absl::StrCat("client ", i, " of ", clients_.size(), " (", kPriorities[client.priority + 1],
                      " priority, ", client.chain.gemms.size(), " GEMMs from ", first.m, "x",
                      first.n, "x", first.k, ")");
}

std::string TenantCrew::Log() const {
  std::ifstream log(folder_ + "/log");
  return std::string(std::istreambuf_iterator<char>(log), {});
}

template <typename Reached>
std::string TenantCrew::AwaitClient(size_t i, const Reached& reached, const char* what,
                                    Clock::time_point limit) {
  const TenantSlot& slot = board_->slots[i];
  for (;;) {
    // Before the look at the slot: whoever has ended has written it before.
    const bool running = clients_[i].Running();
    const TenantState state = slot.state.load(std::memory_order_acquire);
    if (state != TenantState::kFailed && reached(slot)) return "";
    const char* const step = StepName(slot.step.load(std::memory_order_acquire));
    if (state == TenantState::kFailed)
      return absl::StrCat(Describe(i), " failed ", step, ": ", std::string(slot.message.data()));
    if (!running)
      return absl::StrCat(Describe(i), " ended ", step, " before it ", what, ": ", Log());
    if (Interrupted() || Clock::now() > limit)
      return absl::StrCat(Describe(i), " has not ", what, " in time: it is ", step);
    std::this_thread::sleep_for(kLook);
  }
}

template <typename Reached>
absl::Status TenantCrew::Await(const Reached& reached, const char* what) {
  Clock::time_point limit = Clock::now() + kStepLimit;
  std::vector<std::string> failures;
  for (size_t i = 0; i < clients_.size(); ++i) {
    std::string failure = AwaitClient(i, reached, what, limit);
    if (Interrupted()) return absl::CancelledError("interrupted");
    if (failure.empty()) continue;
    limit = std::min(limit, Clock::now() + kReportLimit);
    failures.push_back(std::move(failure));
  }
  if (failures.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrJoin(failures, "; "));
}

absl::Status TenantCrew::AwaitReady() {
  return Await(
      [](const TenantSlot& slot) {
        return slot.state.load(std::memory_order_acquire) == TenantState::kReady;
      },
      "computed its first chains");
}

absl::Status TenantCrew::RunWindow(uint64_t participants, std::chrono::microseconds window) {
  board_->window_us = static_cast<uint32_t>(window.count());
  board_->warmup_us = board_->window_us / kWarmupShare;
  board_->participants = participants;
  board_->arrived.store(0, std::memory_order_relaxed);  // CallLap publishes all of these
  board_->start_ns.store(0, std::memory_order_relaxed);
  CallLap(*board_, ++laps_);
  return Await(
      [&](const TenantSlot& slot) {
        return slot.laps_done.load(std::memory_order_acquire) == laps_;
      },
      "finished a lap");
}

TenantCrew::Lap TenantCrew::ReadLap(uint64_t participants) const {
  Lap lap;
  double gemms = 0;
  for (size_t i = 0; i < clients_.size(); ++i) {
    lap.gemms_per_s.push_back(0);
    lap.latencies_us.emplace_back();
    if ((participants >> i & 1) == 0) continue;
    const TenantSlot& slot = board_->slots[i];
    const double own = slot.chains * static_cast<double>(scenario_.clients[i].chain.gemms.size());
    gemms += own;
    lap.gemms_per_s.back() = 1e6 * own / board_->window_us;
    lap.latencies_us.back().assign(slot.latencies_us.begin(),
                                   slot.latencies_us.begin() + slot.latency_count);
  }
  lap.us_per_gemm = board_->window_us / gemms;
  return lap;
}

absl::StatusOr<TenantCrew::Lap> TenantCrew::RunLap(uint64_t participants,
                                                   std::chrono::microseconds window) {
  for (int attempt = 0; attempt < kAttempts; ++attempt, window *= 2) {
    if (absl::Status ran = RunWindow(participants, window); !ran.ok()) return ran;
    bool everybody_finished = true;
    for (size_t i = 0; i < clients_.size(); ++i) {
      if ((participants >> i & 1) != 0 && board_->slots[i].latency_count == 0)
        everybody_finished = false;
    }
    if (everybody_finished) return ReadLap(participants);
  }
  return absl::DeadlineExceededError(
      absl::StrCat("a client finished no chain within ", board_->window_us, " us"));
}

absl::StatusOr<double> TenantCrew::Finish() {
  CallLap(*board_, kLastLap);
  absl::Status done = Await(
      [](const TenantSlot& slot) {
        return slot.state.load(std::memory_order_acquire) == TenantState::kDone;
      },
      "checked its last results");
  if (!done.ok()) return done;
  // A client killed while it gives its context back can leave an MPS server with a fault.
  for (size_t i = 0; i < clients_.size(); ++i) {
    if (!clients_[i].EndsWithin(kExitLimit))
      return absl::DeadlineExceededError(absl::StrCat(Describe(i), " does not end"));
  }
  double worst = 0;
  for (size_t i = 0; i < clients_.size(); ++i)
    worst = std::max(worst, board_->slots[i].worst_error);
  return worst;
}

}  // namespace concert::bench
