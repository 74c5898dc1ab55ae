// Suite files: {"suite": NAME, "scenarios": [...]}, as tests/bench/scenarios/ has them.
#ifndef CONCERT_TESTS_BENCH_SCENARIO_FILE_H_
#define CONCERT_TESTS_BENCH_SCENARIO_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "policies/seam/work.h"
#include "tests/bench/collective_shape.h"

namespace concert::bench {

using policies::Dtype;

// C[m,n] = A[m,k] * W[n,k]^T
struct GemmShape {
  uint32_t m = 0, n = 0, k = 0;
  Dtype dtype = Dtype::kBf16;  // of A and W

  bool has_scales() const { return dtype == Dtype::kFp8E4m3; }
  Dtype d_dtype() const { return dtype == Dtype::kFp8E4m3 ? Dtype::kBf16 : dtype; }
  double flops() const { return 2.0 * m * n * k; }
  // Each matrix moved once.
  double bytes() const {
    return DtypeBytes(dtype) * (1.0 * m * k + 1.0 * n * k) + DtypeBytes(d_dtype()) * 1.0 * m * n;
  }
};

// GEMMs that become ready together.
struct GemmScenario {
  std::string name;
  std::string group;             // the file's "class": equal, mixed, ...
  std::vector<GemmShape> gemms;  // with every "count" written out
  std::string unsupported;       // why concert cannot run it yet; empty: it can
};

// Scenarios of a "gemm" suite whose name matches `filter` (POSIX extended; empty: all). Every error
// is a sentence that names the file, the scenario, the key, its value and what is allowed.
absl::StatusOr<std::vector<GemmScenario>> ReadGemmScenarios(const std::string& path,
                                                            const std::string& filter);
absl::StatusOr<std::vector<GemmScenario>> ParseGemmScenarios(std::string_view text,
                                                             const std::string& path,
                                                             const std::string& filter);

// Processes that each run a chain of dependent GEMMs in a closed loop.
struct TenantScenario {
  struct Client {
    GemmScenario chain;  // its GEMMs, one behind the other
    int priority = 0;    // -1 low, 0 normal, 1 high
  };

  std::string name;
  std::vector<Client> clients;
  std::string unsupported;  // as GemmScenario's

  bool has_priorities() const;
};

// "16x2048x2048 x16", and its priority if that is not the usual one.
std::string ClientName(const TenantScenario::Client& client);

// The same for a "tenants" suite. A client's "chain" is repeated until it has "length" GEMMs.
// Behind the file's scenarios stands one of its own for every chain that a client of theirs has,
// with one client: "alone-16x2048x2048-x16".
absl::StatusOr<std::vector<TenantScenario>> ReadTenantScenarios(const std::string& path,
                                                                const std::string& filter);
absl::StatusOr<std::vector<TenantScenario>> ParseTenantScenarios(std::string_view text,
                                                                 const std::string& path,
                                                                 const std::string& filter);

// On every GPU a GEMM, `repeat` times, beside its rank of one collective. Nothing depends on
// anything.
struct OverlapScenario {
  std::string name;
  GemmShape gemm;
  int repeat = 1;
  CollectiveShape collective;  // its ranks: one a GPU
  std::string unsupported;     // as GemmScenario's
};

// The same for a "c3" suite.
absl::StatusOr<std::vector<OverlapScenario>> ReadOverlapScenarios(const std::string& path,
                                                                  const std::string& filter);
absl::StatusOr<std::vector<OverlapScenario>> ParseOverlapScenarios(std::string_view text,
                                                                   const std::string& path,
                                                                   const std::string& filter);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_SCENARIO_FILE_H_
