#include "tests/bench/rank_stage.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tests/bench/daemon_contender.h"
#include "tests/bench/gemm_workload.h"
#include "tests/bench/local_gpu.h"

namespace concert::bench {

absl::StatusOr<std::unique_ptr<RankStage>> RankStage::Open(const RunOptions& options,
                                                           nlohmann::json& header) {
  // Nobody takes multicast, neither daemons nor ranks, which inherit this.
  setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/0);
  std::unique_ptr<RankStage> stage(new RankStage(options));
  absl::StatusOr<NodeUnderTest> node = OpenNodeUnderTest(options);
  if (!node.ok()) return node.status();
  stage->concert_ = *std::move(node);
  stage->contenders_.push_back({.name = "concert", .policy = options.policy});
  stage->places_.push_back(stage->concert_.socket);
  for (uint32_t gpu = 0; gpu < stage->gpus(); ++gpu) {
    Result<concert_gpu> info = stage->concert_.session.GpuInfo(gpu);
    if (!info.ok()) return ToAbsl(info.status());
    stage->gpu_uuids_.push_back(absl::BytesToHexString(
        absl::string_view(reinterpret_cast<const char*>(info->uuid), sizeof(info->uuid))));
  }
  header = MakeHeader(stage->concert_, options);
  header["baseline_path"] = stage->is_sim() ? "policy" : "local";
  if (stage->is_sim()) return stage;
  GpuUuid uuid;
  std::memcpy(uuid.data(), stage->concert_.gpu.uuid, uuid.size());
  absl::StatusOr<std::unique_ptr<LocalGpu>> local = LocalGpu::Open(uuid);
  if (!local.ok()) return local.status();
  const LocalGpu::Versions versions = (*local)->versions();
  header.update({{"driver", versions.driver},
                 {"cuda", versions.cuda},
                 {"cublas", versions.cublas},
                 {"nccl", versions.nccl}});
  return stage;
}

absl::StatusOr<std::unique_ptr<PrivateDaemon>> RankStage::Launch(
    const RankContender& contender) const {
  PrivateDaemon::Options own = {.device = is_sim() ? "sim" : "cuda",
                                .policy = contender.policy,
                                .config = options_.config,
                                .settings = {}};
  if (!contender.transport.empty()) own.settings = {"--transport", contender.transport};
  if (contender.sms > 0)
    own.settings.insert(own.settings.end(), {"--collective-sms", absl::StrCat(contender.sms)});
  return PrivateDaemon::Launch(own);
}

void RankStage::Add(const std::vector<RankContender>& contenders, nlohmann::json& header) {
  std::vector<absl::StatusOr<std::unique_ptr<PrivateDaemon>>> daemons;
  for (const RankContender& contender : contenders) {
    daemons.push_back(nullptr);
    if (!contender.policy.empty()) daemons.back() = Launch(contender);
  }
  for (size_t i = 0; i < contenders.size(); ++i) {
    auto& daemon = daemons[i];
    absl::Status ready = daemon.status();
    if (ready.ok() && *daemon != nullptr) ready = (*daemon)->WaitUntilReady();
    if (!ready.ok()) {
      header["left_out"].push_back({{"name", contenders[i].name}, {"why", ready.ToString()}});
      continue;
    }
    contenders_.push_back(contenders[i]);
    places_.push_back(*daemon != nullptr ? (*daemon)->socket() : "local:" + contenders[i].way);
    if (*daemon != nullptr) daemons_.push_back(*std::move(daemon));
  }
}

absl::StatusOr<RankCrew*> RankStage::Crew(uint32_t ranks, const RankMemorySizes& sizes) {
  if (crew_ != nullptr && crew_ranks_ == ranks) return crew_.get();
  crew_ = nullptr;
  absl::StatusOr<std::unique_ptr<RankCrew>> crew =
      RankCrew::Start({.gpu_uuids = {gpu_uuids_.begin(), gpu_uuids_.begin() + ranks},
                       .contenders = places_,
                       .sizes = sizes});
  if (!crew.ok()) return crew.status();
  crew_ = *std::move(crew);
  crew_ranks_ = ranks;
  return crew_.get();
}

RankMemorySizes SizesFor(const std::vector<OverlapTask>& tasks) {
  RankMemorySizes sizes;
  for (const OverlapTask& task : tasks) {
    GemmScenario scenario;
    scenario.gemms = {task.gemm};
    const GemmWorkload workload(scenario, /*seed=*/0, GemmWorkload::Layout::kRepeated);
    const CollectiveShape& shape = task.collective;
    sizes.gemm = std::max(sizes.gemm, workload.bytes());
    if (!shape.in_place()) sizes.source = std::max(sizes.source, shape.src_bytes());
    sizes.output = std::max(sizes.output, shape.dst_bytes());
  }
  return sizes;
}

}  // namespace concert::bench
