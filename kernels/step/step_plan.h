// From a program to the stages of the step kernel: which of its ops become one stage, and which
// stages a stage waits for. Pure and deterministic.
#ifndef CONCERT_KERNELS_STEP_STEP_PLAN_H_
#define CONCERT_KERNELS_STEP_STEP_PLAN_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/op.h"
#include "kernels/program/program.h"
#include "kernels/step/step_stage.h"

namespace concert::kernels {

// More make planning slow: it looks at every pair.
inline constexpr size_t kMaxStages = 1024;
// For results that blocks exchange, of one of both: what a program's workspace has room for.
inline constexpr uint64_t kStepExchangeBytes = 14 << 20;

struct PlannedStage {
  StageKind kind = StageKind::kCopy;
  Op op;                   // of attention and rows
  StepGemm gemm;           // of a GEMM
  StepCopy copy;           // of a copy
  bool exchanges = false;  // attention: op's out is in the exchange
  Awaited awaited = Awaited::kNever;
  std::vector<uint32_t> ops;        // of the program, by place: all that the stage does
  std::vector<uint32_t> waits;      // stages, all of them earlier, that must have ended
  std::vector<uint32_t> looks_for;  // stages whose results it reads from the exchange
  std::optional<uint32_t> a_from;   // of a GEMM: the one of them that makes all of its A
  // Of attention: the stage that makes q and appends to the cache, all of which comes through the
  // exchange, so that the cache may be read before that stage has ended. None: q and what has been
  // appended are in memory.
  std::optional<uint32_t> heads_from;
};

// Exchanged matrices, in stages and their operands, lie at kExchangeBase and up; whoever launches
// the stages moves them to where they are.
inline constexpr Address kExchangeBase = Address{1} << 62;

struct StepPlan {
  std::vector<PlannedStage> stages;
  uint64_t exchange_bytes = 0;  // of one of both
  // The last stage copies bindings out, as the first copies them in: for runs that cannot use them
  // where they are given.
  bool copies_out = false;
};

// `exchange_bytes_max`: what does not fit goes by memory. The plan has passed CheckStep, whose
// error it is else. FAILED_PRECONDITION: the step kernel cannot run it; the message says which op,
// and why.
absl::StatusOr<StepPlan> PlanStep(const Program& program, uint64_t exchange_bytes_max);

// "gemm 3 <- rope_append 4": an op and what was folded into it, for who looks on.
std::string DescribeStage(const Program& program, const PlannedStage& stage);
// "gemm <- rope_append": the kinds of ops that became one.
std::string KindsOf(const Program& program, std::span<const uint32_t> ops);
// The same of all stages, by kinds alone ("gemm <- rope_append"), with what they cost, and in their
// order: what a program that the step kernel runs has as Program::stages. Without those that copy
// bindings, unless every run needs them.
std::vector<Program::Stage> StagesOf(const Program& program, const StepPlan& plan);

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_STEP_STEP_PLAN_H_
