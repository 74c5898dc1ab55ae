#include "tests/bench/chain_job.h"

#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tests/bench/chain_client.h"
#include "tests/bench/local_gpu.h"
#include "tests/bench/scenario_file.h"

namespace concert::bench {
namespace {

constexpr uint64_t kChainSeed = 20260102;

class ChainJob : public ClosedLoop {
 public:
  ChainJob(const TenantOptions& options, TenantScenario::Client self)
      : options_(options),
        self_(std::move(self)),
        workload_(self_.chain, kChainSeed + options.index, GemmWorkload::Layout::kChained) {}

  absl::Status Prepare() override {
    image_ = workload_.MakeImage();
    return absl::OkStatus();
  }
  absl::Status Open() override {
    absl::StatusOr<std::unique_ptr<ChainClient>> client = MakeClient();
    if (!client.ok()) return client.status();
    client_ = *std::move(client);
    image_ = {};
    return absl::OkStatus();
  }
  absl::Status RunFirst(TenantSlot&) override {
    if (absl::Status poisoned = PoisonOutputs(*client_, workload_); !poisoned.ok()) return poisoned;
    for (int set = 0; set < workload_.sets(); ++set) {
      if (absl::Status ran = client_->RunChain(set); !ran.ok()) return ran;
    }
    return absl::OkStatus();
  }
  absl::StatusOr<double> Check() override {
    const absl::StatusOr<double> error = WorstError(*client_, workload_);
    if (!error.ok()) return error.status();
    return WithinTolerance(*error, GemmWorkload::Tolerance(workload_.shape(0).dtype));
  }

 protected:
  absl::Status RunOnce() override {
    return client_->RunChain(static_cast<int>(chains_so_far_++ % workload_.sets()));
  }

 private:
  absl::StatusOr<std::unique_ptr<ChainClient>> MakeClient() const {
    if (!options_.socket.empty())
      return MakeDaemonChainClient(options_.socket, Priority{self_.priority}, workload_, image_);
    const std::string bytes = absl::HexStringToBytes(options_.gpu_uuid);
    GpuUuid uuid{};
    if (bytes.size() != uuid.size())
      return absl::InvalidArgumentError("--gpu must be 32 hexadecimal digits");
    std::memcpy(uuid.data(), bytes.data(), uuid.size());
    return MakeLocalChainClient(uuid, /*high_priority=*/self_.priority > 0, workload_, image_);
  }

  const TenantOptions options_;
  const TenantScenario::Client self_;
  GemmWorkload workload_;
  std::vector<uint8_t> image_;
  std::unique_ptr<ChainClient> client_;
  uint64_t chains_so_far_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TenantJob>> MakeChainJob(const TenantOptions& options) {
  const auto scenarios = ReadTenantScenarios(options.scenarios, "");
  if (!scenarios.ok()) return scenarios.status();
  for (const TenantScenario& scenario : *scenarios) {
    if (scenario.name == options.scenario &&
        options.index < static_cast<int>(scenario.clients.size()))
      return std::make_unique<ChainJob>(options, scenario.clients[options.index]);
  }
  return NoSuchClient(options);
}

}  // namespace concert::bench
