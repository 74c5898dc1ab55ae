// The daemon's own types as messages of the admin API.
#ifndef CONCERT_DAEMON_ADMIN_TO_PROTO_H_
#define CONCERT_DAEMON_ADMIN_TO_PROTO_H_

#include "daemon/admin/daemon_control.h"
#include "daemon/telemetry/telemetry.h"
#include "proto/concert/v1/admin.pb.h"

namespace concert::daemon::admin {

void FillStats(const Stats& stats, Time now, v1::Stats* out);
void FillTracedOp(uint8_t gpu, const OpRecord& op, v1::TracedOp* out);
void FillPlan(const RecentPlan& plan, v1::Plan* out);
void FillCollectives(const CollectiveReport& report, v1::GetCollectivesResponse* out);
void FillQuotas(const Accounts& accounts, v1::GetQuotasResponse* out);
void FillDevice(const DeviceStatus& device, v1::Device* out);
void FillSensors(const Sensors& sensors, v1::Device* out);
void FillSession(const SessionInfo& session, Time now, bool with_program_parts, v1::Session* out);

}  // namespace concert::daemon::admin

#endif  // CONCERT_DAEMON_ADMIN_TO_PROTO_H_
