#include "daemon/admin/admin_service.h"

#include <algorithm>
#include <string>
#include <vector>

#include "daemon/admin/caller.h"
#include "daemon/admin/to_grpc.h"
#include "daemon/admin/to_proto.h"

namespace concert::daemon::admin {
namespace {

constexpr uint32_t kDefaultPlanCount = 20;
constexpr uint32_t kMaxDrainSeconds = 3600;

grpc::Status OutOfRange(const char* field, uint32_t value, uint32_t highest) {
  return {grpc::StatusCode::INVALID_ARGUMENT, std::string(field) + " is " + std::to_string(value) +
                                                  "; it must be at most " +
                                                  std::to_string(highest)};
}

// The first reason, of the start or of a GPU since.
std::string Degraded(const DaemonInfo& info, const std::vector<DeviceStatus>& devices) {
  if (!info.degraded.empty()) return info.degraded;
  const auto failed = std::find_if(devices.begin(), devices.end(),
                                   [](const DeviceStatus& device) { return !device.health.ok(); });
  if (failed == devices.end()) return "";
  return "GPU " + std::to_string(failed->info.gpu) +
         " has failed: " + std::string(failed->health.message());
}

grpc::ServerUnaryReactor* Reply(grpc::CallbackServerContext* context,
                                const grpc::Status& status = grpc::Status::OK) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

}  // namespace

AdminService::AdminService(DaemonControl& control, Telemetry& telemetry)
    : control_(control),
      telemetry_(telemetry),
      watches_(telemetry, control.accounts().operators(), control.Info().simulated()),
      traces_(telemetry, control.accounts().operators(), control.Info().simulated()) {}

AdminService::Unary* AdminService::GetStatus(Context* context, const v1::GetStatusRequest*,
                                             v1::GetStatusResponse* response) {
  const DaemonInfo info = control_.Info();
  const auto devices = control_.Devices();
  const auto snapshot = telemetry_.Snapshot();
  response->set_version(info.version);
  response->set_pid(info.pid);
  response->set_state(control_.draining() ? v1::DAEMON_STATE_DRAINING : v1::DAEMON_STATE_RUNNING);
  response->set_uptime_seconds(static_cast<double>(control_.Now() - info.started_at) * 1e-9);
  response->set_backend(info.backend);
  response->set_backend_reason(info.backend_reason);
  response->set_policy(control_.PolicyName());
  response->set_device_count(devices.size());
  response->set_healthy_device_count(
      std::count_if(devices.begin(), devices.end(),
                    [](const DeviceStatus& device) { return device.health.ok(); }));
  response->set_session_count(control_.Sessions().size());
  response->set_op_count(snapshot->stats.total.op_count);
  response->set_failed_op_count(snapshot->stats.total.failed_op_count);
  response->set_client_socket(info.client_socket);
  response->set_simulated(info.simulated());
  response->set_degraded(Degraded(info, devices));
  return Reply(context);
}

AdminService::Unary* AdminService::ListDevices(Context* context, const v1::ListDevicesRequest*,
                                               v1::ListDevicesResponse* response) {
  const std::string policy = control_.PolicyName();
  for (const DeviceStatus& status : control_.Devices()) {
    v1::Device* device = response->add_devices();
    FillDevice(status, device);
    FillSensors(control_.ReadSensors(status.info.gpu), device);
    device->set_policy(policy);
  }
  return Reply(context);
}

AdminService::Unary* AdminService::ListSessions(Context* context,
                                                const v1::ListSessionsRequest* request,
                                                v1::ListSessionsResponse* response) {
  const Time now = control_.Now();
  for (const SessionInfo& session : control_.Sessions()) {
    FillSession(session, now, request->with_program_parts(), response->add_sessions());
  }
  return Reply(context);
}

AdminService::Unary* AdminService::GetStats(Context* context, const v1::GetStatsRequest*,
                                            v1::GetStatsResponse* response) {
  const auto snapshot = telemetry_.Snapshot();
  FillStats(snapshot->stats, snapshot->taken_at, response->mutable_stats());
  response->mutable_stats()->set_simulated(control_.Info().simulated());
  return Reply(context);
}

grpc::ServerWriteReactor<v1::WatchStatsResponse>* AdminService::WatchStats(
    Context*, const v1::WatchStatsRequest* request) {
  return watches_.Open(request->interval_ms());
}

grpc::ServerWriteReactor<v1::TraceResponse>* AdminService::Trace(Context* context,
                                                                 const v1::TraceRequest* request) {
  LogCall(*context, "a trace");
  return traces_.Open(*context, request->seconds());
}

AdminService::Unary* AdminService::ListPlans(Context* context, const v1::ListPlansRequest* request,
                                             v1::ListPlansResponse* response) {
  if (request->max_plan_count() > Telemetry::kMaxPlans) {
    return Reply(context,
                 OutOfRange("max_plan_count", request->max_plan_count(), Telemetry::kMaxPlans));
  }
  const size_t wanted =
      request->max_plan_count() == 0 ? kDefaultPlanCount : request->max_plan_count();
  const auto snapshot = telemetry_.Snapshot();
  response->set_now_ns(snapshot->taken_at);
  response->set_simulated(control_.Info().simulated());
  const size_t count = std::min(wanted, snapshot->plans.size());
  for (size_t i = 0; i < count; ++i) FillPlan(snapshot->plans[i], response->add_plans());
  return Reply(context);
}

AdminService::Unary* AdminService::GetPolicy(Context* context, const v1::GetPolicyRequest*,
                                             v1::GetPolicyResponse* response) {
  response->set_policy(control_.PolicyName());
  return Reply(context);
}

AdminService::Unary* AdminService::ListPolicies(Context* context, const v1::ListPoliciesRequest*,
                                                v1::ListPoliciesResponse* response) {
  for (const PolicyDescription& description : control_.Policies()) {
    v1::Policy* policy = response->add_policies();
    policy->set_name(description.name);
    policy->set_summary(description.summary);
  }
  response->set_current_policy(control_.PolicyName());
  return Reply(context);
}

AdminService::Unary* AdminService::GetQuotas(Context* context, const v1::GetQuotasRequest*,
                                             v1::GetQuotasResponse* response) {
  FillQuotas(control_.accounts(), response);
  return Reply(context);
}

AdminService::Unary* AdminService::GetCollectives(Context* context,
                                                  const v1::GetCollectivesRequest*,
                                                  v1::GetCollectivesResponse* response) {
  const auto report = control_.Collectives();
  if (!report.ok()) return Reply(context, ToGrpc(report.status()));
  FillCollectives(**report, response);
  response->set_simulated(control_.Info().simulated());
  return Reply(context);
}

AdminService::Unary* AdminService::SetPolicy(Context* context, const v1::SetPolicyRequest* request,
                                             v1::SetPolicyResponse* response) {
  if (request->policy().empty()) {
    return Reply(context,
                 {grpc::StatusCode::INVALID_ARGUMENT, "policy is empty; give the name of one"});
  }
  LogCall(*context, "policy " + request->policy());
  response->set_previous_policy(control_.PolicyName());
  return Reply(context, ToGrpc(control_.SetPolicy(request->policy())));
}

AdminService::Unary* AdminService::Drain(Context* context, const v1::DrainRequest* request,
                                         v1::DrainResponse*) {
  if (request->timeout_seconds() > kMaxDrainSeconds) {
    return Reply(context,
                 OutOfRange("timeout_seconds", request->timeout_seconds(), kMaxDrainSeconds));
  }
  LogCall(*context, "a drain");
  return Reply(context, ToGrpc(control_.Drain(request->timeout_seconds())));
}

}  // namespace concert::daemon::admin
