// The default: company where the cost model says that it is faster, one after the other where it is
// not.
#ifndef CONCERT_POLICIES_AUTO_H_
#define CONCERT_POLICIES_AUTO_H_

#include <memory>

#include "policies/policy.h"

namespace concert::policies {

std::unique_ptr<Policy> MakeAuto(const PolicyInputs& inputs);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_AUTO_H_
