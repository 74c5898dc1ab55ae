#include "tests/bench/rank_crew.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/bench/progress.h"
#include "tests/bench/shared_word.h"

namespace concert::bench {
namespace {

// Contexts, communicators, operands of a gigabyte for a dozen contenders, and their check.
constexpr uint64_t kCommandLimitNs = 180'000'000'000;
// For the others, once one has failed: the longest that a rank waits for another.
constexpr uint64_t kOthersLimitNs = 90'000'000'000;
constexpr std::chrono::microseconds kRankLook(200);
constexpr std::chrono::seconds kRankExitLimit(20);

}  // namespace

absl::StatusOr<std::unique_ptr<RankCrew>> RankCrew::Start(const Options& options) {
  std::string folder =
      absl::StrCat(std::filesystem::temp_directory_path().string(), "/concert-ranks.XXXXXX");
  if (mkdtemp(folder.data()) == nullptr)
    return absl::PermissionDeniedError(absl::StrCat("cannot make a folder ", folder));
  std::unique_ptr<RankCrew> crew(new RankCrew(folder));
  absl::StatusOr<MappedRankBoard> board = MapRankBoard(folder + "/board", /*create=*/true);
  if (!board.ok()) return board.status();
  crew->board_ = *std::move(board);
  crew->board_->ranks = static_cast<uint32_t>(options.gpu_uuids.size());
  for (size_t rank = 0; rank < options.gpu_uuids.size(); ++rank) {
    std::vector<std::string> argv = {ProgramFolder() + "/concert-bench",
                                     "rank",
                                     "--board",
                                     folder + "/board",
                                     "--rank",
                                     absl::StrCat(rank),
                                     "--gpu",
                                     options.gpu_uuids[rank],
                                     "--gemm-bytes",
                                     absl::StrCat(options.sizes.gemm),
                                     "--source-bytes",
                                     absl::StrCat(options.sizes.source),
                                     "--output-bytes",
                                     absl::StrCat(options.sizes.output)};
    for (const std::string& contender : options.contenders)
      argv.insert(argv.end(), {"--contender", contender});
    absl::StatusOr<ChildProcess> process = ChildProcess::Start(argv, folder + "/log");
    if (!process.ok()) return process.status();
    crew->ranks_.push_back(*std::move(process));
  }
  if (absl::Status opened = crew->Call(RankCommand::kOpen); !opened.ok()) return opened;
  return crew;
}

RankCrew::~RankCrew() {
  if (board_ != nullptr && !Interrupted()) {
    board_->what = RankCommand::kEnd;
    CallCommand(*board_);
    for (ChildProcess& rank : ranks_) rank.EndsWithin(kRankExitLimit);
  }
  for (ChildProcess& rank : ranks_) rank.Signal(SIGTERM);  // all at once
  ranks_.clear();                                          // before their folder goes
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

absl::Status RankCrew::Prepare(const OverlapTask& task) {
  board_->task = task;
  return Call(RankCommand::kPrepare);
}

absl::StatusOr<double> RankCrew::Verify(size_t contender) {
  absl::Status verified = Call(RankCommand::kVerify, static_cast<uint32_t>(contender));
  if (!verified.ok()) return verified;
  double worst = 0;
  for (size_t rank = 0; rank < ranks_.size(); ++rank)
    worst = std::max(worst, board_->slots[rank].worst_error);
  return worst;
}

absl::StatusOr<std::vector<RunTimes>> RankCrew::Run(size_t contender, bool gemms, bool collective,
                                                    uint32_t runs) {
  board_->gemms = gemms;
  board_->collective = collective;
  board_->runs = std::min(runs, kMaxRuns);
  absl::Status ran = Call(RankCommand::kRun, static_cast<uint32_t>(contender));
  if (!ran.ok()) return ran;
  std::vector<RunTimes> times(board_->runs);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (size_t run = 0; run < times.size(); ++run) {
      const RunEnds& ends = board_->slots[rank].ends[run];
      times[run].gemms_us =
          std::max(times[run].gemms_us, static_cast<double>(ends.gemms_ns) / 1000);
      times[run].collective_us =
          std::max(times[run].collective_us, static_cast<double>(ends.collective_ns) / 1000);
    }
  }
  return times;
}

absl::Status RankCrew::Call(RankCommand what, uint32_t contender) {
  if (Interrupted()) return absl::CancelledError("interrupted");
  board_->what = what;
  board_->contender = contender;
  CallCommand(*board_);
  uint64_t limit_ns = NowNs() + kCommandLimitNs;
  absl::Status failed;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const absl::Status done = AwaitRank(rank, limit_ns);
    if (Interrupted()) return absl::CancelledError("interrupted");
    if (!done.ok()) limit_ns = std::min(limit_ns, NowNs() + kOthersLimitNs);
    failed.Update(done);  // the first
  }
  return failed;
}

absl::Status RankCrew::AwaitRank(size_t rank, uint64_t limit_ns) {
  const RankSlot& slot = board_->slots[rank];
  const uint32_t command = board_->command.load(std::memory_order_relaxed);
  for (;;) {
    // Before the look at the slot: whoever has ended has written it before.
    const bool running = ranks_[rank].Running();
    if (slot.done.load(std::memory_order_acquire) == command) break;
    if (Interrupted()) return absl::CancelledError("interrupted");
    if (!running) return absl::UnavailableError(absl::StrCat("rank ", rank, " has ended: ", Log()));
    if (NowNs() > limit_ns)
      return absl::DeadlineExceededError(absl::StrCat("rank ", rank, " does not answer: ", Log()));
    std::this_thread::sleep_for(kRankLook);
  }
  const auto code = static_cast<absl::StatusCode>(slot.code.load(std::memory_order_relaxed));
  if (code == absl::StatusCode::kOk) return absl::OkStatus();
  return absl::Status(code, absl::StrCat("rank ", rank, ": ", slot.message.data()));
}

std::string RankCrew::Log() const {
  std::ifstream log(folder_ + "/log");
  return std::string(std::istreambuf_iterator<char>(log), {});
}

}  // namespace concert::bench
