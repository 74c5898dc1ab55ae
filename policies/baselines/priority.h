// Like streams, but work of high priority on high lanes and collectives ahead of waiting GEMMs.
#ifndef CONCERT_POLICIES_BASELINES_PRIORITY_H_
#define CONCERT_POLICIES_BASELINES_PRIORITY_H_

#include <memory>

#include "policies/seam/policy.h"

namespace concert::policies {

std::unique_ptr<Policy> MakePriority(const PolicyInputs& inputs);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_BASELINES_PRIORITY_H_
