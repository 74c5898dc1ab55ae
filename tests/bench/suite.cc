#include "tests/bench/suite.h"

#include <array>

#include "tests/bench/c3_suite.h"
#include "tests/bench/collectives_suite.h"
#include "tests/bench/gemm_suite.h"
#include "tests/bench/overhead_suite.h"
#include "tests/bench/print_result.h"
#include "tests/bench/steps_suite.h"
#include "tests/bench/tenants_suite.h"

namespace concert::bench {
namespace {

constexpr std::array kSuites = {
    Suite{"gemm", "GEMMs that become ready together, against cuBLASLt called directly", "gemm.json",
          RunGemmSuite, PrintComparison},
    Suite{"tenants", "processes that share a GPU, against time-slicing and MPS", "tenants.json",
          RunTenantsSuite, PrintComparison},
    Suite{"steps",
          "processes that each run whole decode or prefill steps, against PyTorch's CUDA graphs",
          "steps.json", RunStepsSuite, PrintComparison},
    Suite{"c3", "a GEMM beside a collective, against cuBLASLt and NCCL called directly", "c3.json",
          RunC3Suite, PrintComparison},
    Suite{"collectives", "collectives of all kinds and sizes, against NCCL, alone and beside GEMMs",
          "", RunCollectivesSuite, PrintCollectivesResult},
    Suite{"overhead", "what the way through the ring and the daemon adds to a tiny kernel's launch",
          "", RunOverheadSuite, PrintOverheadResult},
};

}  // namespace

std::span<const Suite> AllSuites() { return kSuites; }

const Suite* FindSuite(std::string_view name) {
  for (const Suite& suite : kSuites) {
    if (suite.name == name) return &suite;
  }
  return nullptr;
}

}  // namespace concert::bench
