// The answers of the admin API as text for people. Pure functions; `--json` output is json.h's.
#ifndef CONCERT_CLIENT_CTL_RENDER_H_
#define CONCERT_CLIENT_CTL_RENDER_H_

#include <string>

#include "proto/concert/v1/admin.pb.h"

namespace concert::ctl {

// A line for whoever reads times: "" unless the daemon's GPUs are simulated.
std::string SimulatedNote(bool simulated);

std::string RenderStatus(const v1::GetStatusResponse& status);
std::string RenderDevices(const v1::ListDevicesResponse& devices);
std::string RenderSessions(const v1::ListSessionsResponse& sessions);
// What sessions have registered to run as one op each.
std::string RenderPrograms(const v1::ListSessionsResponse& sessions);
// Totals since the daemon started: by GPU, by kind of op, by session.
std::string RenderStats(const v1::Stats& stats);
// One sentence per plan, newest first.
std::string RenderPlans(const v1::ListPlansResponse& plans);
// What waits for whom, and what runs.
std::string RenderCollectives(const v1::GetCollectivesResponse& response);
// One row per resource.
std::string RenderQuotas(const v1::GetQuotasResponse& quotas);
std::string RenderPolicies(const v1::ListPoliciesResponse& policies);

// One message of a watch as one line under WatchTitle(). REQUIRES: interval_seconds > 0.
std::string WatchTitle();
std::string RenderWatchLine(const v1::WatchStatsResponse& delta);

// One screen of `top`: what happened in the interval, by GPU and by session. REQUIRES:
// interval_seconds > 0.
std::string RenderTop(const v1::GetStatusResponse& status, const v1::ListSessionsResponse& sessions,
                      const v1::WatchStatsResponse& delta);

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_RENDER_H_
