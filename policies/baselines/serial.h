// Everything one after the other on one lane: the baseline that running together is measured
// against. Collectives and other work never overlap either.
#ifndef CONCERT_POLICIES_BASELINES_SERIAL_H_
#define CONCERT_POLICIES_BASELINES_SERIAL_H_

#include <memory>

#include "policies/seam/policy.h"

namespace concert::policies {

std::unique_ptr<Policy> MakeSerial(const PolicyInputs& inputs);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_BASELINES_SERIAL_H_
