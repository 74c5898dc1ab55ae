// Every ready GEMM that one launch can carry in one launch, whether that is faster or not: the form
// `group` alone, for comparison. Everything else one after the other, as `serial`.
#ifndef CONCERT_POLICIES_BASELINES_GROUPED_H_
#define CONCERT_POLICIES_BASELINES_GROUPED_H_

#include <memory>

#include "policies/seam/policy.h"

namespace concert::policies {

std::unique_ptr<Policy> MakeGrouped(const PolicyInputs& inputs);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_BASELINES_GROUPED_H_
