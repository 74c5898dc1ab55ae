#include "tests/bench/tenant_worker.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tests/bench/chain_client.h"
#include "tests/bench/local_gpu.h"
#include "tests/bench/scenario_file.h"
#include "tests/bench/tenant_board.h"

namespace concert::bench {
namespace {

constexpr uint64_t kSeed = 20260102;
constexpr uint64_t kStartLimitNs = 20'000'000'000;  // for the last client to arrive

absl::StatusOr<TenantScenario::Client> FindClient(const TenantOptions& options) {
  const auto scenarios = ReadTenantScenarios(options.scenarios, "");
  if (!scenarios.ok()) return scenarios.status();
  for (const TenantScenario& scenario : *scenarios) {
    if (scenario.name == options.scenario &&
        options.index < static_cast<int>(scenario.clients.size()))
      return scenario.clients[options.index];
  }
  return absl::NotFoundError(absl::StrCat("no client ", options.index, " of a scenario '",
                                          options.scenario, "' in ", options.scenarios));
}

absl::StatusOr<std::unique_ptr<ChainClient>> MakeClient(const TenantOptions& options, int priority,
                                                        const GemmWorkload& workload,
                                                        const std::vector<uint8_t>& image) {
  if (!options.socket.empty()) {
    constexpr Priority kPriorities[] = {kLow, kNormal, kHigh};
    return MakeDaemonChainClient(options.socket, kPriorities[priority + 1], workload, image);
  }
  const std::string bytes = absl::HexStringToBytes(options.gpu_uuid);
  GpuUuid uuid{};
  if (bytes.size() != uuid.size())
    return absl::InvalidArgumentError("--gpu must be 32 hexadecimal digits");
  std::memcpy(uuid.data(), bytes.data(), uuid.size());
  return MakeLocalChainClient(uuid, /*high_priority=*/priority > 0, workload, image);
}

void Note(TenantSlot& slot, TenantStep step) {
  slot.step.store(step, std::memory_order_release);  // for the suite's acquire
}

// Clients open the GPU one after the other: of many that make contexts at once, a driver or an MPS
// server may refuse some, and then nobody knows who was one too many.
absl::StatusOr<std::unique_ptr<ChainClient>> MakeClientInTurn(const TenantOptions& options,
                                                              int priority, GemmWorkload& workload,
                                                              TenantBoard& board,
                                                              TenantSlot& slot) {
  const std::vector<uint8_t> image = workload.MakeImage();
  Note(slot, TenantStep::kTurn);
  AwaitTurn(board, options.index);
  Note(slot, TenantStep::kGpu);
  auto client = MakeClient(options, priority, workload, image);
  PassTurn(board);  // also when this one failed: the others say how they fared
  return client;
}

// DATA_LOSS when results are wrong.
absl::Status Check(ChainClient& client, const GemmWorkload& workload, double& worst) {
  const absl::StatusOr<double> error = WorstError(client, workload);
  if (!error.ok()) return error.status();
  const double tolerance = GemmWorkload::Tolerance(workload.shape(0).dtype);
  if (!(*error <= tolerance)) {
    return absl::DataLossError(absl::StrCat("wrong results: relative error ", *error, ", at most ",
                                            tolerance, " allowed"));
  }
  worst = std::max(worst, *error);
  return absl::OkStatus();
}

// All start at the same moment, which this returns.
absl::StatusOr<uint64_t> StartTogether(TenantBoard& board) {
  const auto participants = static_cast<uint32_t>(std::popcount(board.participants));
  if (board.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == participants)
    board.start_ns.store(NowNs(), std::memory_order_release);  // for the load below
  const uint64_t limit = NowNs() + kStartLimitNs;
  for (;;) {
    const uint64_t start = board.start_ns.load(std::memory_order_acquire);
    if (start != 0) return start;
    if (NowNs() > limit) return absl::DeadlineExceededError("a client did not come to the start");
  }
}

// How much of a chain that ran from `before` to `after` ran between `begin` and `end`.
double ShareWithin(uint64_t before, uint64_t after, uint64_t begin, uint64_t end) {
  const uint64_t first = std::max(before, begin), last = std::min(after, end);
  return last <= first ? 0
                       : static_cast<double>(last - first) / static_cast<double>(after - before);
}

absl::Status RunLap(TenantBoard& board, TenantSlot& slot, ChainClient& client, int sets,
                    uint64_t& chains_so_far) {
  const absl::StatusOr<uint64_t> start = StartTogether(board);
  if (!start.ok()) return start.status();
  const uint64_t begin = *start + uint64_t{1000} * board.warmup_us;
  const uint64_t end = begin + uint64_t{1000} * board.window_us;
  slot.chains = 0;
  slot.latency_count = 0;
  for (uint64_t before = NowNs(); before < end;) {
    absl::Status ran = client.RunChain(static_cast<int>(chains_so_far++ % sets));
    if (!ran.ok()) return ran;
    const uint64_t after = NowNs();
    slot.chains += ShareWithin(before, after, begin, end);
    if (after >= begin && after < end && slot.latency_count < kMaxLatencies)
      slot.latencies_us[slot.latency_count++] = static_cast<float>(after - before) / 1000;
    before = after;
  }
  return absl::OkStatus();
}

absl::Status Serve(const TenantOptions& options, TenantBoard& board, TenantSlot& slot) {
  const absl::StatusOr<TenantScenario::Client> self = FindClient(options);
  if (!self.ok()) return self.status();
  GemmWorkload workload(self->chain, kSeed + options.index, GemmWorkload::Layout::kChained);
  auto client = MakeClientInTurn(options, self->priority, workload, board, slot);
  if (!client.ok()) return client.status();
  Note(slot, TenantStep::kFirstChains);
  if (absl::Status poisoned = PoisonOutputs(**client, workload); !poisoned.ok()) return poisoned;
  for (int set = 0; set < workload.sets(); ++set) {
    if (absl::Status ran = (*client)->RunChain(set); !ran.ok()) return ran;
  }
  Note(slot, TenantStep::kFirstCheck);
  absl::Status checked = Check(**client, workload, slot.worst_error);
  if (!checked.ok()) return checked;
  Note(slot, TenantStep::kLaps);
  slot.state.store(TenantState::kReady, std::memory_order_release);

  uint64_t chains = 0;
  for (uint32_t done = 0;;) {
    const uint32_t lap = AwaitLap(board, done);
    if (lap == kLastLap) break;
    if ((board.participants >> options.index & 1) != 0) {
      absl::Status ran = RunLap(board, slot, **client, workload.sets(), chains);
      if (!ran.ok()) return ran;
    }
    done = lap;
    slot.laps_done.store(lap, std::memory_order_release);
  }
  Note(slot, TenantStep::kLastCheck);
  checked = Check(**client, workload, slot.worst_error);
  if (!checked.ok()) return checked;
  slot.state.store(TenantState::kDone, std::memory_order_release);
  return absl::OkStatus();
}

}  // namespace

absl::Status RunTenant(const TenantOptions& options) {
  if (options.index < 0 || options.index >= kMaxTenants)
    return absl::InvalidArgumentError(absl::StrCat("--index is ", options.index));
  const absl::StatusOr<MappedBoard> board = MapBoard(options.board, /*create=*/false);
  if (!board.ok()) return board.status();
  TenantSlot& slot = (*board)->slots[options.index];
  absl::Status served = Serve(options, **board, slot);
  if (!served.ok()) {
    const std::string message = served.ToString();
    message.copy(slot.message.data(), slot.message.size() - 1);
    slot.state.store(TenantState::kFailed, std::memory_order_release);
  }
  return served;
}

}  // namespace concert::bench
