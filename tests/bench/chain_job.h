// A client of suite "tenants": a chain of dependent GEMMs, through concert or by itself.
#ifndef CONCERT_TESTS_BENCH_CHAIN_JOB_H_
#define CONCERT_TESTS_BENCH_CHAIN_JOB_H_

#include <memory>

#include "absl/status/statusor.h"
#include "tests/bench/tenant_job.h"
#include "tests/bench/tenant_worker.h"

namespace concert::bench {

absl::StatusOr<std::unique_ptr<TenantJob>> MakeChainJob(const TenantOptions& options);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_CHAIN_JOB_H_
