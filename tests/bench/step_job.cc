#include "tests/bench/step_job.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/bench/step_client.h"
#include "tests/bench/step_reference.h"
#include "tests/bench/step_scenario.h"
#include "tests/bench/torch_job.h"

namespace concert::bench {
namespace {

class StepJob : public ClosedLoop {
 public:
  StepJob(const TenantOptions& options, const StepScenario::Client& client)
      : options_(options), data_(client, options.index) {}

  absl::Status Prepare() override {
    if (ChecksAllRows(data_)) expected_ = ReferenceStep(data_);
    return absl::OkStatus();
  }
  absl::Status Open() override {
    const auto form =
        options_.form == kOpsForm ? StepClient::Form::kOps : StepClient::Form::kProgram;
    absl::StatusOr<std::unique_ptr<StepClient>> client =
        StepClient::Connect(options_.socket, data_, form);
    if (!client.ok()) return client.status();
    client_ = *std::move(client);
    return absl::OkStatus();
  }
  absl::Status RunFirst(TenantSlot& slot) override {
    if (absl::Status made = client_->MakeMemory(); !made.ok()) return made;
    const uint64_t begun_ns = NowNs();
    if (absl::Status listed = client_->ListStep(); !listed.ok()) return listed;
    const uint64_t listed_ns = NowNs();
    if (absl::Status ran = client_->RunStep(); !ran.ok()) return ran;
    if (options_.form != kProgramForm) return absl::OkStatus();
    slot.first_run = {.registering_ms = static_cast<double>(listed_ns - begun_ns) / 1e6,
                      .run_ms = static_cast<double>(NowNs() - listed_ns) / 1e6};
    return absl::OkStatus();
  }
  absl::StatusOr<double> Check() override {
    const absl::StatusOr<std::vector<uint16_t>> results = client_->Results();
    if (!results.ok()) return results.status();
    if (expected_.values.empty()) {
      const absl::StatusOr<std::vector<LayerCache>> cache = client_->Cache();
      if (!cache.ok()) return cache.status();
      expected_ = ReferenceStep(data_, *cache);
    }
    return WithinTolerance(StepError(expected_, data_.results(), *results),
                           StepTolerance(data_.model()));
  }

 protected:
  absl::Status RunOnce() override { return client_->RunStep(); }

 private:
  const TenantOptions options_;
  const StepData data_;
  ExpectedStep expected_;
  std::unique_ptr<StepClient> client_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TenantJob>> MakeStepJob(const TenantOptions& options) {
  const auto scenarios = ReadStepScenarios(options.scenarios, "");
  if (!scenarios.ok()) return scenarios.status();
  for (const StepScenario& scenario : *scenarios) {
    const size_t end = static_cast<size_t>(options.index) + static_cast<size_t>(options.clients);
    if (scenario.name != options.scenario || end > scenario.clients.size()) continue;
    if (options.form == kTorchForm) return MakeTorchJob(options, scenario);
    return std::make_unique<StepJob>(options, scenario.clients[options.index]);
  }
  return NoSuchClient(options);
}

}  // namespace concert::bench
