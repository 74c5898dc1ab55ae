#include "tests/bench/rank_worker.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tests/bench/overlap_data.h"
#include "tests/bench/rank_board.h"

namespace concert::bench {
namespace {

constexpr uint64_t kRankSeed = 20260103;
constexpr double kReducedTolerance = 1e-2;  // rounding to bf16 once a hop
constexpr char kLocal[] = "local:";

class RankWorker {
 public:
  RankWorker(const RankOptions& options, RankBoard& board)
      : options_(options),
        board_(board),
        data_(board.ranks, std::max(options.sizes.source, options.sizes.output), kRankSeed) {}

  absl::Status CarryOut(RankSlot& slot) {
    switch (board_.what) {
      case RankCommand::kOpen:
        return Open();
      case RankCommand::kPrepare:
        return Prepare();
      case RankCommand::kRun:
        return Run(slot);
      case RankCommand::kVerify:
        return Verify(slot);
      case RankCommand::kEnd:
        break;
    }
    return absl::OkStatus();
  }

 private:
  struct Contender {
    std::unique_ptr<RankClient> client;  // null: could not be made
    absl::Status opened, prepared;
  };

  absl::Status Open();
  absl::Status OpenLocal();
  Contender OpenContender(const std::string& contender, const absl::Status& local_opened);
  absl::Status Prepare();
  absl::Status Run(RankSlot& slot);
  absl::Status Verify(RankSlot& slot);
  absl::Status Poison(RankClient& client);
  absl::StatusOr<double> ErrorOf(RankClient& client, const char*& what);
  // Writes the same into the memory of each contender; those that compute locally share theirs.
  absl::Status WriteToAll(RankMemory memory, uint64_t offset, std::span<const uint8_t> data);
  // Those of the board's contender, or why it does not take part.
  absl::StatusOr<RankClient*> Current();

  const RankOptions& options_;
  RankBoard& board_;
  OverlapData data_;
  std::unique_ptr<LocalRank> local_;
  std::vector<Contender> contenders_;  // declared after what they use
  std::vector<RankClient*> memories_;  // one client for each memory
  GemmScenario gemm_;                  // the workload's
  std::optional<GemmWorkload> workload_;
  OverlapTask task_;
  std::vector<uint8_t> poison_;          // of the GEMM's output
  std::vector<uint8_t> before_, after_;  // the collective's output
  std::vector<uint8_t> scratch_;         // what was read back; kept, since its pages are many
};

absl::Status RankWorker::OpenLocal() {
  std::vector<LocalWay> ways;
  for (const std::string& contender : options_.contenders) {
    if (!absl::StartsWith(contender, kLocal)) continue;
    const LocalWay* const way = FindLocalWay(std::string(absl::StripPrefix(contender, kLocal)));
    if (way == nullptr)
      return absl::InvalidArgumentError(absl::StrCat("no contender is called ", contender));
    ways.push_back(*way);
  }
  if (ways.empty()) return absl::OkStatus();
  const std::string bytes = absl::HexStringToBytes(options_.gpu_uuid);
  std::array<uint8_t, 16> uuid{};
  if (bytes.size() != uuid.size())
    return absl::InvalidArgumentError("--gpu must be 32 hexadecimal digits");
  std::memcpy(uuid.data(), bytes.data(), uuid.size());
  absl::StatusOr<std::unique_ptr<LocalRank>> local =
      LocalRank::Open(uuid, options_.rank, board_, ways, options_.sizes);
  if (!local.ok()) return local.status();
  local_ = *std::move(local);
  return absl::OkStatus();
}

RankWorker::Contender RankWorker::OpenContender(const std::string& contender,
                                                const absl::Status& local_opened) {
  if (!absl::StartsWith(contender, kLocal)) {
    auto client = MakeDaemonRank(contender, options_.rank, board_.ranks, options_.sizes);
    if (client.ok()) return {.client = *std::move(client), .opened = {}, .prepared = {}};
    return {.client = nullptr, .opened = client.status(), .prepared = {}};
  }
  if (!local_opened.ok()) return {.client = nullptr, .opened = local_opened, .prepared = {}};
  const LocalWay* const way = FindLocalWay(std::string(absl::StripPrefix(contender, kLocal)));
  return {.client = local_->Client(*way), .opened = {}, .prepared = {}};
}

// A contender that cannot be had takes no part; the others do.
absl::Status RankWorker::Open() {
  // First of all: it sets what the libraries read from the environment.
  const absl::Status local_opened = OpenLocal();
  bool has_local = false;
  for (const std::string& place : options_.contenders) {
    Contender& contender = contenders_.emplace_back(OpenContender(place, local_opened));
    const bool shares = absl::StartsWith(place, kLocal) && std::exchange(has_local, true);
    if (contender.client != nullptr && !shares) memories_.push_back(contender.client.get());
  }
  for (uint64_t offset = 0; offset < options_.sizes.source;) {
    const auto input = data_.Input(options_.rank, options_.sizes.source - offset);
    if (absl::Status s = WriteToAll(RankMemory::kSource, offset, input); !s.ok()) return s;
    offset += input.size();
  }
  return absl::OkStatus();
}

absl::Status RankWorker::WriteToAll(RankMemory memory, uint64_t offset,
                                    std::span<const uint8_t> data) {
  for (RankClient* client : memories_) {
    if (absl::Status written = client->Write(memory, offset, data); !written.ok()) return written;
  }
  return absl::OkStatus();
}

absl::Status RankWorker::Prepare() {
  const CollectiveShape was = std::exchange(task_, board_.task).collective;
  const GemmShape& shape = task_.gemm;
  const auto same = [&](const GemmShape& other) {
    return other.m == shape.m && other.n == shape.n && other.k == shape.k &&
           other.dtype == shape.dtype;
  };
  if (!workload_ || !same(gemm_.gemms.front())) {
    gemm_.gemms = {shape};
    workload_.emplace(gemm_, kRankSeed + options_.rank, GemmWorkload::Layout::kRepeated);
    const std::vector<uint8_t> image = workload_->MakeImage();
    if (absl::Status s = WriteToAll(RankMemory::kGemm, 0, image); !s.ok()) return s;
    poison_ = workload_->Poison(0);
  }
  const CollectiveShape& is = task_.collective;
  if (after_.empty() || is.kind != was.kind || is.bytes != was.bytes) {
    before_ = data_.Before(is, options_.rank);
    after_ = data_.After(is, options_.rank);
  }
  for (Contender& contender : contenders_) {
    if (contender.client != nullptr)
      contender.prepared = contender.client->Prepare(task_, *workload_);
  }
  return absl::OkStatus();
}

absl::StatusOr<RankClient*> RankWorker::Current() {
  Contender& contender = contenders_[board_.contender];
  if (!contender.opened.ok()) return contender.opened;
  if (!contender.prepared.ok()) return contender.prepared;
  return contender.client.get();
}

absl::Status RankWorker::Run(RankSlot& slot) {
  const absl::StatusOr<RankClient*> client = Current();
  if (!client.ok()) return client.status();
  for (uint32_t run = 0; run < board_.runs; ++run) {
    const absl::StatusOr<uint64_t> start = StartTogether(board_);
    if (!start.ok()) return start.status();
    const auto ends = (*client)->Run(board_.gemms, board_.collective, *start);
    if (!ends.ok()) return ends.status();
    slot.ends[run] = *ends;
  }
  return absl::OkStatus();
}

absl::Status RankWorker::Poison(RankClient& client) {
  for (int set = 0; set < workload_->sets(); ++set) {
    absl::Status s = client.Write(RankMemory::kGemm, workload_->place(set, 0).d, poison_);
    if (!s.ok()) return s;
  }
  return client.Write(RankMemory::kOutput, 0, before_);
}

// Of the GEMMs and of the collective, whichever is worse measured by what is allowed; `what`:
// whose, if it is too large.
absl::StatusOr<double> RankWorker::ErrorOf(RankClient& client, const char*& what) {
  double worst = 0;
  scratch_.resize(std::max(scratch_.size(), std::max(poison_.size(), after_.size())));
  const std::span<uint8_t> output(scratch_.data(), poison_.size());
  const int written = std::min(workload_->sets(), static_cast<int>(task_.repeat));
  for (int set = 0; set < written; ++set) {
    absl::Status s = client.Read(RankMemory::kGemm, workload_->place(set, 0).d, output);
    if (!s.ok()) return s;
    const double error = workload_->RelativeError(set, 0, output);
    if (!(error <= GemmWorkload::Tolerance(task_.gemm.dtype))) {
      what = "the GEMM's";
      return error;
    }
    worst = std::max(worst, error);
  }
  const std::span<uint8_t> result(scratch_.data(), after_.size());
  if (absl::Status s = client.Read(RankMemory::kOutput, 0, result); !s.ok()) return s;
  const double error = RelativeErrorOfBf16(after_, result);
  if (!(error <= (task_.collective.reduces() ? kReducedTolerance : 0))) {
    what = "the collective's";
    return error;
  }
  return std::max(worst, error);
}

// DATA_LOSS when results are wrong.
absl::Status RankWorker::Verify(RankSlot& slot) {
  const absl::StatusOr<RankClient*> client = Current();
  if (!client.ok()) return client.status();
  if (absl::Status poisoned = Poison(**client); !poisoned.ok()) return poisoned;
  const absl::StatusOr<uint64_t> start = StartTogether(board_);
  if (!start.ok()) return start.status();
  const auto ends = (*client)->Run(/*gemms=*/true, /*collective=*/true, *start);
  if (!ends.ok()) return ends.status();
  const char* wrong = nullptr;
  const absl::StatusOr<double> error = ErrorOf(**client, wrong);
  if (!error.ok()) return error.status();
  if (wrong != nullptr)
    return absl::DataLossError(absl::StrCat(wrong, " results are wrong: relative error ", *error));
  slot.worst_error = *error;
  return absl::OkStatus();
}

}  // namespace

absl::Status RunRank(const RankOptions& options) {
  const absl::StatusOr<MappedRankBoard> mapped = MapRankBoard(options.board, /*create=*/false);
  if (!mapped.ok()) return mapped.status();
  RankBoard& board = **mapped;
  if (options.rank >= board.ranks || board.ranks > kMaxBoardRanks)
    return absl::InvalidArgumentError(absl::StrCat("--rank is ", options.rank));
  RankSlot& slot = board.slots[options.rank];
  RankWorker worker(options, board);
  for (uint32_t seen = 0;;) {
    seen = AwaitCommand(board, seen);
    const bool end = board.what == RankCommand::kEnd;
    const absl::Status carried_out = worker.CarryOut(slot);
    const absl::string_view message = carried_out.message();
    slot.message[message.copy(slot.message.data(), slot.message.size() - 1)] = 0;
    slot.code.store(carried_out.raw_code(), std::memory_order_relaxed);
    slot.done.store(seen, std::memory_order_release);  // for the suite's acquire
    if (end) return absl::OkStatus();
  }
}

}  // namespace concert::bench
