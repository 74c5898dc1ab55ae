#include "tests/bench/tenant_worker.h"

#include <algorithm>
#include <memory>
#include <span>

#include "absl/strings/str_cat.h"
#include "tests/bench/chain_job.h"
#include "tests/bench/step_job.h"
#include "tests/bench/tenant_board.h"
#include "tests/bench/tenant_job.h"

namespace concert::bench {
namespace {

constexpr uint64_t kStartLimitNs = 20'000'000'000;  // for the last process to arrive

absl::StatusOr<std::unique_ptr<TenantJob>> MakeJob(const TenantOptions& options) {
  return options.suite == "steps" ? MakeStepJob(options) : MakeChainJob(options);
}

// All start at the same moment, which this returns.
absl::StatusOr<uint64_t> StartTogether(TenantBoard& board) {
  if (board.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == board.expected)
    board.start_ns.store(NowNs(), std::memory_order_release);  // for the load below
  const uint64_t limit = NowNs() + kStartLimitNs;
  for (;;) {
    const uint64_t start = board.start_ns.load(std::memory_order_acquire);
    if (start != 0) return start;
    if (NowNs() > limit) return absl::DeadlineExceededError("a client did not come to the start");
  }
}

class Worker {
 public:
  Worker(const TenantOptions& options, TenantBoard& board)
      : options_(options),
        board_(board),
        slots_(board.slots.data() + options.index, static_cast<size_t>(options.clients)) {}

  absl::Status Serve() {
    absl::StatusOr<std::unique_ptr<TenantJob>> job = MakeJob(options_);
    if (!job.ok()) return job.status();
    if (absl::Status ready = GetReady(**job); !ready.ok()) return ready;
    slot().state.store(TenantState::kReady, std::memory_order_release);
    for (uint32_t done = 0;;) {
      const uint32_t lap = AwaitLap(board_, done);
      if (lap == kLastLap) break;
      if (absl::Status ran = RunLap(**job); !ran.ok()) return ran;
      done = lap;
      slot().laps_done.store(lap, std::memory_order_release);
    }
    Note(TenantStep::kLastCheck);
    if (absl::Status checked = Check(**job); !checked.ok()) return checked;
    slot().state.store(TenantState::kDone, std::memory_order_release);
    return absl::OkStatus();
  }

 private:
  TenantSlot& slot() { return slots_.front(); }
  void Note(TenantStep step) {
    slot().step.store(step, std::memory_order_release);  // for the suite's acquire
  }

  absl::Status GetReady(TenantJob& job) {
    if (absl::Status prepared = job.Prepare(); !prepared.ok()) return prepared;
    Note(TenantStep::kTurn);
    AwaitTurn(board_, options_.index);
    Note(TenantStep::kGpu);
    absl::Status opened = job.Open();
    PassTurn(board_);  // also when this one failed: the others say how they fared
    if (!opened.ok()) return opened;
    Note(TenantStep::kFirstRuns);
    if (absl::Status ran = job.RunFirst(slot()); !ran.ok()) return ran;
    Note(TenantStep::kFirstCheck);
    if (absl::Status checked = Check(job); !checked.ok()) return checked;
    Note(TenantStep::kLaps);
    return absl::OkStatus();
  }

  absl::Status Check(TenantJob& job) {
    const absl::StatusOr<double> error = job.Check();
    if (!error.ok()) return error.status();
    for (TenantSlot& own : slots_) own.worst_error = std::max(own.worst_error, *error);
    return absl::OkStatus();
  }

  absl::Status RunLap(TenantJob& job) {
    const uint64_t own = ~uint64_t{0} >> (kMaxTenants - options_.clients) << options_.index;
    if ((board_.participants & own) == 0) return absl::OkStatus();
    const absl::StatusOr<uint64_t> start = StartTogether(board_);
    if (!start.ok()) return start.status();
    const uint64_t begin = *start + uint64_t{1000} * board_.warmup_us;
    return job.RunLap({.begin_ns = begin,
                       .end_ns = begin + uint64_t{1000} * board_.window_us,
                       .participants = board_.participants},
                      slots_, static_cast<size_t>(options_.index));
  }

  const TenantOptions& options_;
  TenantBoard& board_;
  const std::span<TenantSlot> slots_;
};

}  // namespace

absl::Status RunTenant(const TenantOptions& options) {
  if (options.index < 0 || options.clients < 1 || options.index + options.clients > kMaxTenants) {
    return absl::InvalidArgumentError(
        absl::StrCat("--index is ", options.index, " and --clients ", options.clients));
  }
  const absl::StatusOr<MappedBoard> board = MapBoard(options.board, /*create=*/false);
  if (!board.ok()) return board.status();
  absl::Status served = Worker(options, **board).Serve();
  if (!served.ok()) {
    TenantSlot& slot = (*board)->slots[options.index];
    const std::string message = served.ToString();
    message.copy(slot.message.data(), slot.message.size() - 1);
    slot.state.store(TenantState::kFailed, std::memory_order_release);
  }
  return served;
}

absl::Status NoSuchClient(const TenantOptions& options) {
  return absl::NotFoundError(absl::StrCat("no client ", options.index, " of a scenario '",
                                          options.scenario, "' in ", options.scenarios));
}

}  // namespace concert::bench
