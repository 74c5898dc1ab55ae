// Every ready op at once, on the lane behind its predecessor or the one that is idle soonest.
// Always everything together, no priorities: what a server that gives each request a stream gets.
#ifndef CONCERT_POLICIES_BASELINES_STREAMS_H_
#define CONCERT_POLICIES_BASELINES_STREAMS_H_

#include <memory>

#include "policies/seam/policy.h"

namespace concert::policies {

std::unique_ptr<Policy> MakeStreams(const PolicyInputs& inputs);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_BASELINES_STREAMS_H_
