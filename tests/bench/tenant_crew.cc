#include "tests/bench/tenant_crew.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
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

constexpr std::chrono::seconds kLapLimit(180);  // also for the last check, on the CPU
// For the others, once one has failed: each opens the GPU within a second or two.
constexpr std::chrono::seconds kReportLimit(10);
// For a context and its memory to go, of every client.
constexpr std::chrono::seconds kExitLimit(30);
constexpr std::chrono::milliseconds kLook(1);
// A fifth of a window, for caches, clocks and the daemon's plans to settle.
constexpr int kWarmupShare = 5;
constexpr int kAttempts = 10;  // the last one 512 windows long: the simulator's CPU is slow

}  // namespace

absl::StatusOr<std::unique_ptr<TenantCrew>> TenantCrew::Start(const TenantGroup& group,
                                                              const Options& options) {
  std::string folder =
      absl::StrCat(std::filesystem::temp_directory_path().string(), "/concert-tenants.XXXXXX");
  if (mkdtemp(folder.data()) == nullptr)
    return absl::PermissionDeniedError(absl::StrCat("cannot make a folder ", folder));
  std::unique_ptr<TenantCrew> crew(new TenantCrew(group, options, folder));
  absl::StatusOr<MappedBoard> board = MapBoard(folder + "/board", /*create=*/true);
  if (!board.ok()) return board.status();
  crew->board_ = *std::move(board);
  const size_t processes = options.one_process ? 1 : group.clients.size();
  for (size_t i = 0; i < processes; ++i) {
    if (absl::Status started = crew->StartProcess(i); !started.ok()) return started;
  }
  return crew;
}

absl::Status TenantCrew::StartProcess(size_t i) {
  std::vector<std::string> argv = {ProgramFolder() + "/concert-bench", "tenant"};
  const size_t clients = options_.one_process ? group_.clients.size() : 1;
  const std::pair<const char*, std::string> arguments[] = {
      {"--suite", options_.suite},         {"--board", folder_ + "/board"},
      {"--index", absl::StrCat(i)},        {"--clients", absl::StrCat(clients)},
      {"--scenarios", options_.scenarios}, {"--scenario", group_.scenario},
      {"--form", options_.form},           {"--python", options_.python},
      {"--socket", options_.socket},       {"--gpu", options_.gpu_uuid}};
  for (const auto& [name, value] : arguments) {
    if (!value.empty()) argv.insert(argv.end(), {name, value});
  }
  const auto& environments = options_.environments;
  absl::StatusOr<ChildProcess> process =
      ChildProcess::Start(argv, folder_ + "/log",
                          i < environments.size() ? environments[i] : std::vector<std::string>{});
  if (!process.ok()) return process.status();
  processes_.push_back(*std::move(process));
  return absl::OkStatus();
}

TenantCrew::~TenantCrew() {
  for (ChildProcess& process : processes_) process.Signal(SIGTERM);  // all at once
  processes_.clear();                                                // before their folder goes
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

// "client 1 of 8 (512x1024x1024 x16, high)"
std::string TenantCrew::Describe(size_t i) const {
  const size_t count = group_.clients.size();
  if (options_.one_process) return absl::StrCat("the process of all ", count, " clients");
  return absl::StrCat("client ", i, " of ", count, " (", group_.clients[i].name, ")");
}

std::string TenantCrew::Log() const {
  std::ifstream log(folder_ + "/log");
  return std::string(std::istreambuf_iterator<char>(log), {});
}

template <typename Reached>
std::string TenantCrew::AwaitProcess(size_t i, const Reached& reached, const char* what,
                                     Clock::time_point limit) {
  const TenantSlot& slot = board_->slots[i];
  for (;;) {
    // Before the look at the slot: whoever has ended has written it before.
    const bool running = processes_[i].Running();
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
absl::Status TenantCrew::Await(const Reached& reached, const char* what,
                               std::chrono::seconds within) {
  Clock::time_point limit = Clock::now() + within;
  std::vector<std::string> failures;
  for (size_t i = 0; i < processes_.size(); ++i) {
    std::string failure = AwaitProcess(i, reached, what, limit);
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
      "run for the first time", options_.start_limit);
}

std::vector<FirstRun> TenantCrew::FirstRuns() const {
  std::vector<FirstRun> runs;
  for (size_t i = 0; i < processes_.size(); ++i) runs.push_back(board_->slots[i].first_run);
  return runs;
}

absl::Status TenantCrew::RunWindow(uint64_t participants, std::chrono::microseconds window) {
  board_->window_us = static_cast<uint32_t>(window.count());
  board_->warmup_us = board_->window_us / kWarmupShare;
  board_->participants = participants;
  board_->expected = options_.one_process ? 1 : std::popcount(participants);
  board_->arrived.store(0, std::memory_order_relaxed);  // CallLap publishes all of these
  board_->start_ns.store(0, std::memory_order_relaxed);
  CallLap(*board_, ++laps_);
  return Await(
      [&](const TenantSlot& slot) {
        return slot.laps_done.load(std::memory_order_acquire) == laps_;
      },
      "finished a lap", kLapLimit);
}

TenantCrew::Lap TenantCrew::ReadLap(uint64_t participants) const {
  Lap lap;
  double units = 0;
  for (size_t i = 0; i < group_.clients.size(); ++i) {
    lap.units_per_s.push_back(0);
    lap.latencies_us.emplace_back();
    if ((participants >> i & 1) == 0) continue;
    const TenantSlot& slot = board_->slots[i];
    const double own = slot.runs * group_.clients[i].units;
    units += own;
    lap.units_per_s.back() = 1e6 * own / board_->window_us;
    lap.latencies_us.back().assign(slot.latencies_us.begin(),
                                   slot.latencies_us.begin() + slot.latency_count);
  }
  lap.us_per_unit = board_->window_us / units;
  return lap;
}

absl::StatusOr<TenantCrew::Lap> TenantCrew::RunLap(uint64_t participants,
                                                   std::chrono::microseconds window) {
  for (int attempt = 0; attempt < kAttempts; ++attempt, window *= 2) {
    if (absl::Status ran = RunWindow(participants, window); !ran.ok()) return ran;
    bool everybody_finished = true;
    for (size_t i = 0; i < group_.clients.size(); ++i) {
      if ((participants >> i & 1) != 0 && board_->slots[i].latency_count == 0)
        everybody_finished = false;
    }
    if (everybody_finished) return ReadLap(participants);
  }
  return absl::DeadlineExceededError(
      absl::StrCat("a client finished no run within ", board_->window_us, " us"));
}

absl::StatusOr<std::vector<double>> TenantCrew::Finish() {
  CallLap(*board_, kLastLap);
  absl::Status done = Await(
      [](const TenantSlot& slot) {
        return slot.state.load(std::memory_order_acquire) == TenantState::kDone;
      },
      "checked its last results", kLapLimit);
  if (!done.ok()) return done;
  // A client killed while it gives its context back can leave an MPS server with a fault.
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (!processes_[i].EndsWithin(kExitLimit))
      return absl::DeadlineExceededError(absl::StrCat(Describe(i), " does not end"));
  }
  std::vector<double> errors;
  for (size_t i = 0; i < group_.clients.size(); ++i) errors.push_back(board_->slots[i].worst_error);
  return errors;
}

}  // namespace concert::bench
