// A plan in one sentence, e.g. "GPU 0: group of 5 GEMMs (sessions 3, 3, 7, 8, 8) in one launch on
// 124 SMs: predicted 41.0 us, took 43.0 us; one after the other 96.0 us (together is predicted
// faster)"; "GPU 0: 1 all_reduce (session 2) by p2p on 8 SMs: predicted 274.0 us, took 287.1 us (a
// collective goes out at once)".
#ifndef CONCERT_DAEMON_ADMIN_PLAN_TEXT_H_
#define CONCERT_DAEMON_ADMIN_PLAN_TEXT_H_

#include <string>
#include <string_view>

#include "daemon/telemetry/records.h"

namespace concert::daemon {

// What carried the plan's collective: "p2p". Empty: it has none, or one that moves nothing.
std::string_view TransportOf(const PlanRecord& plan);

std::string PlanText(int gpu, const PlanRecord& plan);

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_ADMIN_PLAN_TEXT_H_
