// Who takes part in the suites "c3" and "collectives", and where.
#ifndef CONCERT_TESTS_BENCH_RANK_STAGE_H_
#define CONCERT_TESTS_BENCH_RANK_STAGE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tests/bench/node_under_test.h"
#include "tests/bench/rank_contender.h"
#include "tests/bench/rank_crew.h"
#include "tests/bench/suite.h"

namespace concert::bench {

class RankStage {
 public:
  // Opens the daemon under test, "concert", which is contender 0. `options` must outlive the stage.
  // Fills in the header.
  static absl::StatusOr<std::unique_ptr<RankStage>> Open(const RunOptions& options,
                                                         nlohmann::json& header);
  // Adds contenders: their daemons come up side by side. One whose daemon does not stands in the
  // header's "left_out", with the reason, and is none.
  void Add(const std::vector<RankContender>& contenders, nlohmann::json& header);

  bool is_sim() const { return concert_.is_sim(); }
  uint32_t gpus() const { return concert_.session.gpu_count(); }
  double memory_bytes_per_s() const { return concert_.memory_bytes_per_s(); }
  const std::vector<RankContender>& contenders() const { return contenders_; }
  // Empty where the daemon is not ours.
  std::string concert_admin_socket() const {
    return concert_.daemon ? concert_.daemon->admin_socket() : "";
  }
  // Of so many ranks; the others' end first. `sizes`: for all tasks that it will get.
  absl::StatusOr<RankCrew*> Crew(uint32_t ranks, const RankMemorySizes& sizes);
  // After `failed` the crew may hang: the next one is a new one, unless results were just wrong.
  void DropCrewAfter(const absl::Status& failed) {
    if (!failed.ok() && !absl::IsDataLoss(failed)) crew_ = nullptr;
  }

 private:
  explicit RankStage(const RunOptions& options) : options_(options) {}
  absl::StatusOr<std::unique_ptr<PrivateDaemon>> Launch(const RankContender& contender) const;

  const RunOptions& options_;
  NodeUnderTest concert_;
  std::vector<std::unique_ptr<PrivateDaemon>> daemons_;
  std::vector<RankContender> contenders_;
  std::vector<std::string> places_;  // as RankOptions::contenders
  std::vector<std::string> gpu_uuids_;
  uint32_t crew_ranks_ = 0;
  std::unique_ptr<RankCrew> crew_;  // declared last: ends first
};

// The memory that these tasks need, each by itself.
RankMemorySizes SizesFor(const std::vector<OverlapTask>& tasks);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_RANK_STAGE_H_
