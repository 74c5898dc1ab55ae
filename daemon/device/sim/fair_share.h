// Max-min fair sharing of one resource.
#ifndef CONCERT_DAEMON_DEVICE_SIM_FAIR_SHARE_H_
#define CONCERT_DAEMON_DEVICE_SIM_FAIR_SHARE_H_

#include <span>

namespace concert::daemon::sim {

// The rate every demand is capped at, so that the sum of min(demand, cap) is at most `capacity` and
// nobody gets less than an equal share of what others leave: small demands are served in full,
// large ones get the cap. Infinite when all demands fit. At most 64 demands.
double FairCap(std::span<const double> demands, double capacity);

}  // namespace concert::daemon::sim

#endif  // CONCERT_DAEMON_DEVICE_SIM_FAIR_SHARE_H_
