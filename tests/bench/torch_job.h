// Clients of suite "steps" without concert: PyTorch's compiled steps, replayed from CUDA graphs.
#ifndef CONCERT_TESTS_BENCH_TORCH_JOB_H_
#define CONCERT_TESTS_BENCH_TORCH_JOB_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/step_scenario.h"
#include "tests/bench/tenant_job.h"
#include "tests/bench/tenant_worker.h"

namespace concert::bench {

// The clients of the options run in one Python process (torch_step.py), which this one starts,
// gives orders and outlives.
absl::StatusOr<std::unique_ptr<TenantJob>> MakeTorchJob(const TenantOptions& options,
                                                        const StepScenario& scenario);

// The version of PyTorch that `python`, a program or its name, has. UNAVAILABLE, with the reason,
// where there is none that can use a GPU.
absl::StatusOr<std::string> TorchVersion(const std::string& python);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_TORCH_JOB_H_
