#include "tests/bench/gemm_entrants.h"

#include <cstring>
#include <utility>

#include "policies/seam/policy.h"

namespace concert::bench {
namespace {

using nlohmann::json;

// cuBLASLt in this process, on the memory of a daemon contender.
class LocalContender : public Contender {
 public:
  LocalContender(std::unique_ptr<LocalRun> run, DaemonContender& memory)
      : run_(std::move(run)), memory_(memory) {}
  absl::StatusOr<double> Run(int batches) override { return run_->Run(batches); }
  absl::Status PoisonOutputs() override { return memory_.PoisonOutputs(); }
  absl::StatusOr<double> WorstError() override { return memory_.WorstError(); }

 private:
  std::unique_ptr<LocalRun> run_;
  DaemonContender& memory_;
};

struct Baseline {
  const char* name;
  LocalGpu::Form form;
};
constexpr Baseline kBaselines[] = {{"serial", LocalGpu::Form::kSerial},
                                   {"serial_tuned", LocalGpu::Form::kSerialTuned},
                                   {"streams", LocalGpu::Form::kStreams},
                                   {"streams_tuned", LocalGpu::Form::kStreamsTuned},
                                   {"streams_wide", LocalGpu::Form::kStreamsWide},
                                   {"group_library", LocalGpu::Form::kGroupLibrary},
                                   {"goldyloc_graph", LocalGpu::Form::kGoldyloc}};
struct IsolatedBaseline {
  const char* name;
  LocalGpu::IsolatedForm form;
};
constexpr IsolatedBaseline kIsolatedBaselines[] = {
    {"isolated_local", LocalGpu::IsolatedForm::kPlainLaunches},
    {"isolated_graph", LocalGpu::IsolatedForm::kGraph}};
// What stands in for them on the simulator, which has no cuBLASLt.
constexpr const char* kPolicyBaselines[] = {"serial", "streams"};
// The policies that know one form only; the oracle is the fastest of them and concert itself.
constexpr const char* kFormPolicies[] = {"serial", "streams", "group"};

absl::StatusOr<NodeUnderTest> OpenWithPolicy(RunOptions options, bool is_sim,
                                             const std::string& policy) {
  options.socket.clear();
  options.device = is_sim ? "sim" : "cuda";
  options.policy = policy;
  return OpenNodeUnderTest(options);
}

// Adds another daemon, or a line to the header's "left_out" where its policy does not exist.
absl::Status AddOther(const RunOptions& options, const std::string& policy, const std::string& name,
                      Arena& arena, json& header, std::vector<std::string>& names) {
  if (policies::FindPolicy(policy) == nullptr) {
    header["left_out"].push_back({{"name", name}, {"why", "no policy is called " + policy}});
    return absl::OkStatus();
  }
  absl::StatusOr<NodeUnderTest> node = OpenWithPolicy(options, arena.concert.is_sim(), policy);
  if (!node.ok()) return node.status();
  arena.others.push_back({name, *std::move(node)});
  names.push_back(name);
  return absl::OkStatus();
}

absl::Status OpenLocal(Arena& arena, json& header) {
  GpuUuid uuid;
  std::memcpy(uuid.data(), arena.concert.gpu.uuid, uuid.size());
  absl::StatusOr<std::unique_ptr<LocalGpu>> local = LocalGpu::Open(uuid);
  if (!local.ok()) return local.status();
  arena.local = *std::move(local);
  for (const Baseline& baseline : kBaselines) arena.rivals.baselines.push_back(baseline.name);
  const LocalGpu::Versions versions = arena.local->versions();
  header.update({{"baseline_path", "local"},
                 {"driver", versions.driver},
                 {"cuda", versions.cuda},
                 {"cublas", versions.cublas},
                 {"nccl", versions.nccl}});
  return absl::OkStatus();
}

absl::Status AddOthers(const RunOptions& options, Arena& arena, json& header) {
  if (arena.concert.is_sim()) {
    header["baseline_path"] = "policy";
    for (const std::string policy : kPolicyBaselines) {
      absl::Status added = AddOther(options, policy, policy, arena, header, arena.rivals.baselines);
      if (!added.ok()) return added;
    }
  }
  for (const std::string& policy : options.other_policies) {
    absl::Status added = AddOther(options, policy, policy, arena, header, arena.rivals.policies);
    if (!added.ok()) return added;
  }
  for (const std::string policy : kFormPolicies) {
    if (!options.forms) break;
    absl::Status added = AddOther(options, policy, "forced_" + policy, arena, header, arena.forms);
    if (!added.ok()) return added;
  }
  return absl::OkStatus();
}

// The baselines, on the memory of a daemon contender.
absl::Status AddLocal(LocalGpu& gpu, const GemmWorkload& workload, DaemonContender& memory,
                      Entrants& entrants) {
  Result<void*> mapped = memory.buffer().Address();
  if (!mapped.ok()) return ToAbsl(mapped.status());
  const auto address = reinterpret_cast<uint64_t>(*mapped);
  if (auto pinned = gpu.AllocatePinned(workload.largest_output_bytes()); pinned != nullptr)
    memory.ReadThrough(std::move(pinned));
  for (const Baseline& baseline : kBaselines) {
    auto run = gpu.Record(workload, address, baseline.form);
    if (absl::IsNotFound(run.status())) continue;
    if (!run.ok()) return run.status();
    entrants.steady.push_back(
        {baseline.name, std::make_unique<LocalContender>(*std::move(run), memory), {}});
  }
  for (const IsolatedBaseline& baseline : kIsolatedBaselines) {
    auto isolated = gpu.Isolate(workload, address, baseline.form);
    if (absl::IsNotFound(isolated.status())) continue;
    if (!isolated.ok()) return isolated.status();
    entrants.alone.push_back(
        {baseline.name,
         [run = std::shared_ptr<LocalIsolated>(*std::move(isolated)),
          sets = workload.sets()](int batch) { return run->RunOnce(batch % sets); },
         {}});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Arena> OpenArena(const RunOptions& options, json& header) {
  absl::StatusOr<NodeUnderTest> concert = OpenNodeUnderTest(options);
  if (!concert.ok()) return concert.status();
  Arena arena{
      .concert = *std::move(concert), .local = nullptr, .others = {}, .rivals = {}, .forms = {}};
  header = MakeHeader(arena.concert, options);
  if (!arena.concert.is_sim()) {
    if (absl::Status opened = OpenLocal(arena, header); !opened.ok()) return opened;
  }
  if (absl::Status added = AddOthers(options, arena, header); !added.ok()) return added;
  header["baselines"] = arena.rivals.baselines;
  header["policies"] = arena.rivals.policies;
  header["forms"] = arena.forms;
  return arena;
}

absl::StatusOr<Entrants> MakeEntrants(const Arena& arena, GemmWorkload& workload) {
  const std::vector<uint8_t> image = workload.MakeImage();
  Entrants entrants;
  auto concert = DaemonContender::Make(arena.concert.session, workload, image);
  if (!concert.ok()) return concert.status();
  DaemonContender& memory = **concert;
  entrants.concert = &memory;
  entrants.steady.push_back({"concert", *std::move(concert), {}});
  for (const Arena::Other& other : arena.others) {
    auto contender = DaemonContender::Make(other.node.session, workload, image);
    if (!contender.ok()) return contender.status();
    entrants.steady.push_back({other.name, *std::move(contender), {}});
  }
  entrants.alone.push_back(
      {"isolated", [&memory](int batch) { return memory.RunIsolated(batch); }, {}});
  if (!arena.local) return entrants;
  absl::Status added = AddLocal(*arena.local, workload, memory, entrants);
  if (!added.ok()) return added;
  return entrants;
}

}  // namespace concert::bench
