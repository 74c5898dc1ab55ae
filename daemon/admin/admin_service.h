// concert.v1.AdminService over a DaemonControl and the telemetry. All calls use gRPC's callback
// API: none holds a thread while it waits. A slow or dead watcher costs memory (its last message
// and the snapshot that the next delta starts from), bounded by Resource::kWatches.
//
// Only admin_server.cc includes this file (gRPC headers are slow to compile).
#ifndef CONCERT_DAEMON_ADMIN_ADMIN_SERVICE_H_
#define CONCERT_DAEMON_ADMIN_ADMIN_SERVICE_H_

#include "daemon/admin/daemon_control.h"
#include "daemon/admin/stats_watch.h"
#include "daemon/admin/trace_stream.h"
#include "daemon/telemetry/telemetry.h"
#include "proto/concert/v1/admin.grpc.pb.h"

namespace concert::daemon::admin {

class AdminService final : public v1::AdminService::CallbackService {
 public:
  // Both must outlive the service.
  AdminService(DaemonControl& control, Telemetry& telemetry);

  // Ends all streams with UNAVAILABLE and refuses new ones. Idempotent.
  void StopStreams() {
    watches_.Stop();
    traces_.Stop();
  }

  using Context = grpc::CallbackServerContext;
  using Unary = grpc::ServerUnaryReactor;
  Unary* GetStatus(Context*, const v1::GetStatusRequest*, v1::GetStatusResponse*) override;
  Unary* ListDevices(Context*, const v1::ListDevicesRequest*, v1::ListDevicesResponse*) override;
  Unary* ListSessions(Context*, const v1::ListSessionsRequest*, v1::ListSessionsResponse*) override;
  Unary* GetStats(Context*, const v1::GetStatsRequest*, v1::GetStatsResponse*) override;
  grpc::ServerWriteReactor<v1::WatchStatsResponse>* WatchStats(
      Context*, const v1::WatchStatsRequest*) override;
  grpc::ServerWriteReactor<v1::TraceResponse>* Trace(Context*, const v1::TraceRequest*) override;
  Unary* ListPlans(Context*, const v1::ListPlansRequest*, v1::ListPlansResponse*) override;
  Unary* GetPolicy(Context*, const v1::GetPolicyRequest*, v1::GetPolicyResponse*) override;
  Unary* ListPolicies(Context*, const v1::ListPoliciesRequest*, v1::ListPoliciesResponse*) override;
  Unary* GetCollectives(Context*, const v1::GetCollectivesRequest*,
                        v1::GetCollectivesResponse*) override;
  Unary* GetQuotas(Context*, const v1::GetQuotasRequest*, v1::GetQuotasResponse*) override;
  Unary* SetPolicy(Context*, const v1::SetPolicyRequest*, v1::SetPolicyResponse*) override;
  Unary* Drain(Context*, const v1::DrainRequest*, v1::DrainResponse*) override;

 private:
  DaemonControl& control_;
  Telemetry& telemetry_;
  StatsWatches watches_;
  TraceStreams traces_;
};

}  // namespace concert::daemon::admin

#endif  // CONCERT_DAEMON_ADMIN_ADMIN_SERVICE_H_
