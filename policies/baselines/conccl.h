// ConCCL's ladder (arXiv 2412.14335) for collectives beside GEMMs, for comparison: every ready op
// at once, a launch each, and
//   order      ascending by the SMs that their blocks want, collectives first (c3_sp): what wants
//              few is not behind what takes all
//   partition  beside a collective whose kernels hold SMs, GEMMs leave as many (c3_rp): as the
//              coordinator's curves say is best for both
//   DMA        beside one that copy engines carry, which hold none, GEMMs that the memory bounds
//              leave kTrimmedSms, which they do not miss
// How a collective goes is the coordinator's to choose; `transport = "ce"` is the paper's way for
// what reduces nothing. Library kernels take their SMs as a hint.
#ifndef CONCERT_POLICIES_BASELINES_CONCCL_H_
#define CONCERT_POLICIES_BASELINES_CONCCL_H_

#include <memory>

#include "policies/seam/policy.h"

namespace concert::policies {

inline constexpr int kTrimmedSms = 8;

std::unique_ptr<Policy> MakeConccl(const PolicyInputs& inputs);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_BASELINES_CONCCL_H_
