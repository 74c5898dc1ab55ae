// Every ready GEMM that one launch can carry in one launch, whether that is faster or not: the form
// `group` alone, for comparison. Everything else one after the other, as `serial`. `static_split`
// does the same, but collectives go out first and launches leave them the SMs that are reserved for
// them while they run: ConCCL's c3_rp (arXiv 2412.14335).
#ifndef CONCERT_POLICIES_BASELINES_GROUPED_H_
#define CONCERT_POLICIES_BASELINES_GROUPED_H_

#include <memory>

#include "policies/seam/policy.h"

namespace concert::policies {

std::unique_ptr<Policy> MakeGrouped(const PolicyInputs& inputs);
std::unique_ptr<Policy> MakeStaticSplit(const PolicyInputs& inputs);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_BASELINES_GROUPED_H_
