// What a collective takes by each transport, and which is chosen. Pure.
#ifndef CONCERT_POLICIES_COST_COLLECTIVE_COST_H_
#define CONCERT_POLICIES_COST_COLLECTIVE_COST_H_

#include "policies/seam/transport.h"
#include "policies/seam/work.h"

namespace concert::policies {

// From the start of the last rank's part to the end, if nothing else runs. `loaded_bytes`: what a
// rank's blocks load where kernels of ours carry it.
double TransportUs(const DeviceModel& device, const Work& work, uint64_t loaded_bytes,
                   const TransportChoice& choice);

// The way that is predicted to be the fastest or, of those that are hardly slower, the one that
// leaves GEMMs the most SMs. NCCL if work.transports and the device have nothing else in common.
TransportChoice ChooseTransport(const DeviceModel& device, const Work& work, uint64_t loaded_bytes);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_COST_COLLECTIVE_COST_H_
