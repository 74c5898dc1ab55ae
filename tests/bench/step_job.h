// A client of suite "steps": decode or prefill steps through concert, or by PyTorch.
#ifndef CONCERT_TESTS_BENCH_STEP_JOB_H_
#define CONCERT_TESTS_BENCH_STEP_JOB_H_

#include <memory>

#include "absl/status/statusor.h"
#include "tests/bench/tenant_job.h"
#include "tests/bench/tenant_worker.h"

namespace concert::bench {

// What TenantOptions::form may be in this suite.
inline constexpr char kProgramForm[] = "program";  // a step is one op
inline constexpr char kOpsForm[] = "ops";          // a step is a batch of single ops
inline constexpr char kTorchForm[] = "torch";      // PyTorch, from a CUDA graph; no daemon

absl::StatusOr<std::unique_ptr<TenantJob>> MakeStepJob(const TenantOptions& options);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_STEP_JOB_H_
