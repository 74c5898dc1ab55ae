#include "tests/bench/tenant_cast.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/bench/gpu_state.h"
#include "tests/bench/step_job.h"

namespace concert::bench {
namespace {

// Contexts of eight processes, some 2 GB of weights each and their check on the CPU.
constexpr std::chrono::seconds kStartLimit(180);
// PyTorch compiles for minutes before it has a cache.
constexpr std::chrono::seconds kCompileLimit(900);
// Where the driver looks for MPS when CUDA_MPS_PIPE_DIRECTORY says nothing.
constexpr char kDefaultControl[] = "/tmp/nvidia-mps/control";

// What a user would set for clients under MPS, whose servers know two priorities: 0 and, below
// it, 1.
std::vector<std::vector<std::string>> MpsEnvironments(const TenantGroup& group,
                                                      const MpsDaemon& mps) {
  std::vector<std::vector<std::string>> environments;
  int highest = -1;
  for (const auto& client : group.clients) highest = std::max(highest, client.priority);
  for (const auto& client : group.clients) {
    environments.push_back(mps.environment());
    environments.back().push_back(
        absl::StrCat("CUDA_MPS_CLIENT_PRIORITY=", client.priority < highest ? 1 : 0));
  }
  return environments;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TenantCast>> TenantCast::Start(const RunOptions& options,
                                                              const TenantPlace& place,
                                                              const TenantGroup& group,
                                                              const TenantMode& mode) {
  std::unique_ptr<TenantCast> cast(new TenantCast(mode));
  if (absl::Status started = cast->Prepare(options, place, group); !started.ok())
    return cast->Explain(started);
  return cast;
}

absl::Status TenantCast::Prepare(const RunOptions& options, const TenantPlace& place,
                                 const TenantGroup& group) {
  TenantCrew::Options crew{.suite = place.suite,
                           .scenarios = options.scenarios,
                           .socket = "",
                           .gpu_uuid = place.uuid,
                           .form = mode_.form,
                           .python = options.python,
                           .one_process = mode_.one_process,
                           .start_limit = mode_.has_daemon() ? kStartLimit : kCompileLimit,
                           .environments = {}};
  if (mode_.has_daemon()) {
    RunOptions own = options;
    own.policy = mode_.policy;
    if (mode_.policy != options.policy) own.socket.clear();  // it has a policy of its own already
    own.device = place.is_sim ? "sim" : "cuda";
    absl::StatusOr<NodeUnderTest> node = OpenNodeUnderTest(own);
    if (!node.ok()) return node.status();
    node_ = *std::move(node);
    crew.socket = node_.socket;
  }
  if (mode_.mps) {
    absl::StatusOr<std::unique_ptr<MpsDaemon>> mps = MpsDaemon::Start();
    if (!mps.ok()) return mps.status();
    mps_ = *std::move(mps);
    crew.environments = MpsEnvironments(group, *mps_);
  }
  absl::StatusOr<std::unique_ptr<TenantCrew>> started = TenantCrew::Start(group, crew);
  if (!started.ok()) return started.status();
  crew_ = *std::move(started);
  return absl::OkStatus();
}

absl::Status TenantCast::AwaitReady() {
  if (absl::Status ready = crew_->AwaitReady(); !ready.ok()) return ready;
  return mps_ ? mps_->HasServer() : absl::OkStatus();
}

std::vector<LoggedPlan> TenantCast::Plans() const {
  if (!node_.daemon) return {};
  return LastPlans(node_.daemon->admin_socket(), /*after_ns=*/0,
                   mode_.form == kProgramForm ? "program" : "gemm")
      .value_or(std::vector<LoggedPlan>());
}

std::vector<RegisteredProgram> TenantCast::Programs() const {
  if (!node_.daemon) return {};
  return RegisteredPrograms(node_.daemon->admin_socket())
      .value_or(std::vector<RegisteredProgram>());
}

absl::Status TenantCast::Explain(const absl::Status& status) const {
  if (status.ok() || absl::IsCancelled(status)) return status;
  std::string message = absl::StrCat(mode_.name, ": ", status.message());
  if (node_.daemon) absl::StrAppend(&message, "; the daemon's log: ", node_.daemon->LogTail());
  absl::StrAppend(&message, "; ", GpuState(), "; under MPS: ", mps_ ? "yes" : "no");
  if (mps_) absl::StrAppend(&message, "; ", mps_->LogTail());
  return absl::Status(status.code(), message);
}

absl::Status LeaveMps() {
  unsetenv("CUDA_MPS_PIPE_DIRECTORY");
  std::error_code ignored;
  if (!std::filesystem::exists(kDefaultControl, ignored)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("an MPS control daemon listens at ", kDefaultControl,
                   ", so that no process would take time slices: stop it with `echo quit | "
                   "nvidia-cuda-mps-control`, or remove that file if it has gone"));
}

}  // namespace concert::bench
