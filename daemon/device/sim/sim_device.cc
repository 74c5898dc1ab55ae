#include "daemon/device/sim/sim_device.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/digest/digest.h"
#include "kernels/op_table.h"
#include "kernels/step/step_plan.h"

namespace concert::daemon::sim {

SimDevice::SimDevice(int index, uint64_t memory_bytes, const policies::DeviceModel& model,
                     SimExecutor& executor)
    : memory_(index, memory_bytes), executor_(executor) {
  info_.gpu = index;
  info_.backend = "sim";
  info_.name = absl::StrCat("concert simulator, ", model.sm_count, " SMs");
  static constexpr char kUuid[] =
      "concert-sim-gpu";  // and the index: the same on every node and run
  std::copy(std::begin(kUuid), std::end(kUuid) - 1, info_.uuid.begin());
  info_.uuid.back() = static_cast<uint8_t>(index);
  info_.memory_bytes = memory_bytes;
  info_.software = "simulated";
  info_.peer_access = true;
  info_.model = model;
}

absl::StatusOr<uint64_t> SimDevice::Digest(Address data, uint64_t bytes) {
  if (absl::Status status = healthy(); !status.ok()) return status;
  return kernels::DigestOf(reinterpret_cast<const void*>(data), bytes);
}

absl::StatusOr<bool> SimDevice::Same(Address a, Address b, uint64_t bytes) {
  if (absl::Status status = healthy(); !status.ok()) return status;
  // A piece at a time, copied first: clients may write `a` meanwhile, and then some memcmp read
  // beyond the end (glibc 2.36 without AVX2).
  std::array<char, 4096> piece;
  for (uint64_t done = 0; done < bytes; done += piece.size()) {
    const size_t count = std::min<uint64_t>(piece.size(), bytes - done);
    std::memcpy(piece.data(), reinterpret_cast<const void*>(a + done), count);
    if (std::memcmp(piece.data(), reinterpret_cast<const void*>(b + done), count) != 0)
      return false;
  }
  return true;
}

absl::Status SimDevice::Copy(Address to, Address from, uint64_t bytes) {
  if (absl::Status status = healthy(); !status.ok()) return status;
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return absl::OkStatus();
}

absl::Status SimDevice::Prepare(kernels::Program& program) {
  const absl::StatusOr<kernels::StepPlan> plan =
      kernels::PlanStep(program, kernels::kStepExchangeBytes);
  if (plan.ok()) {
    program.stages = kernels::StagesOf(program, *plan);
  } else {
    program.why_no_step = std::string(plan.status().message());
  }
  return absl::OkStatus();
}

absl::Status SimDevice::CheckLaunchable() {
  if (absl::Status status = healthy(); !status.ok()) return status;
  int left = launches_to_fail_.load(std::memory_order_relaxed);
  while (left > 0) {
    if (launches_to_fail_.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) {
      return absl::InternalError("injected launch failure");
    }
  }
  return absl::OkStatus();
}

absl::Status SimDevice::Launch(const LaunchRequest& launch) {
  const Lane lane = launch.planned.lane;
  const std::span<const Op* const> ops = launch.ops;
  if (lane >= policies::kLaneCount || policies::IsCollectiveLane(lane) || ops.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("launch of ", ops.size(), " ops on lane ", lane));
  }
  const bool group = launch.planned.form == policies::Form::kGroup;
  for (const Op* op : ops) {
    const kernels::OpKind* kind = kernels::FindOpKind(op->kind);
    if (kind == nullptr || kind->collective ||
        (group && (op->work.runs_on != policies::RunsOn::kSms ||
                   op->work.is_gemm() != ops[0]->work.is_gemm()))) {
      return absl::InvalidArgumentError(
          absl::StrCat("op kind ", op->kind, " cannot be launched in this form"));
    }
  }
  if (!launch.writes.empty() && launch.writes.size() != ops.size()) {
    return absl::InvalidArgumentError(absl::StrCat("a launch of ", ops.size(), " ops with ",
                                                   launch.writes.size(), " timeline writes"));
  }
  const kernels::GroupWorkList* list = launch.work_list();
  if (group && list != nullptr &&
      (list->problem_count != ops.size() || ops.size() > kernels::kMaxGroupProblems)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a launch of ", ops.size(), " ops with a work list of ", list->problem_count, " problems"));
  }
  if (absl::Status status = CheckLaunchable(); !status.ok()) return status;
  const Op& first = *ops[0];
  if (first.kind == CONCERT_OP_PROGRAM &&
      stall_next_run_.exchange(false, std::memory_order_relaxed)) {
    stalled_ = {.session = first.session, .queue = first.queue, .ticket = first.ticket};
  }
  return executor_.Launch(info_.gpu, launch);
}

absl::Status SimDevice::Signal(Lane lane, std::span<const TimelineWrite> writes) {
  if (absl::Status status = healthy(); !status.ok()) return status;
  return executor_.Signal(info_.gpu, lane, writes);
}

absl::Status SimDevice::Order(Lane lane, Lane before) {
  if (absl::Status status = healthy(); !status.ok()) return status;
  return executor_.Order(info_.gpu, lane, before);
}

std::vector<policies::Variant> SimDevice::Variants(const policies::Problem& problem,
                                                   int sm_budget) {
  policies::Variant variant;
  variant.source = policies::Variant::Source::kCublasLt;
  variant.dtype = problem.dtype;
  variant.sm_budget = static_cast<uint16_t>(sm_budget);
  variant.tile_m = problem.m <= 64 ? 64 : 128;  // as ShapeOf
  variant.tile_n = 128;
  return {variant};
}

void SimDevice::TakeStalledRuns(absl::FunctionRef<void(const kernels::StalledRun&)> tell) {
  if (stalled_.has_value()) tell(*stalled_);
  stalled_.reset();
}

absl::Status SimDevice::healthy() const {
  if (!executor_.faulted(info_.gpu)) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("simulated GPU ", info_.gpu, " has faulted"));
}

}  // namespace concert::daemon::sim
