// The only file here that includes gRPC, whose headers are slow to compile.
#include <chrono>

#include "client/ctl/connection.h"
#include "tests/bench/plan_log.h"

namespace concert::bench {
namespace {

constexpr std::chrono::seconds kAnswerLimit(5);
constexpr uint32_t kPlans = 256;  // as many as the daemon keeps

const char* FormText(v1::PlanForm form) {
  switch (form) {
    case v1::PLAN_FORM_SINGLE:
      return "single";
    case v1::PLAN_FORM_STREAMS:
      return "streams";
    case v1::PLAN_FORM_GROUP:
      return "group";
    default:
      return "";
  }
}

template <typename Method, typename Request, typename Response>
absl::Status Ask(const std::string& admin_socket, Method method, const Request& request,
                 Response& response) {
  ctl::Connection connection(admin_socket, kAnswerLimit);
  const grpc::Status called = connection.Call(method, request, &response);
  return absl::Status(static_cast<absl::StatusCode>(called.error_code()), called.error_message());
}

}  // namespace

absl::StatusOr<std::vector<LoggedPlan>> AllLastPlans(const std::string& admin_socket,
                                                     uint64_t after_ns) {
  v1::ListPlansRequest request;
  request.set_max_plan_count(kPlans);
  v1::ListPlansResponse response;
  absl::Status asked = Ask(admin_socket, &ctl::Connection::Stub::ListPlans, request, response);
  if (!asked.ok()) return asked;
  std::vector<LoggedPlan> plans;
  for (const v1::Plan& plan : response.plans()) {
    if (plan.finished_at_ns() <= after_ns) break;
    if (plan.ops_size() == 0) continue;
    plans.push_back({.text = plan.text(),
                     .form = FormText(plan.form()),
                     .ops = plan.op_count(),
                     .launches = plan.launch_count(),
                     .predicted_us = plan.predicted_us(),
                     .actual_us = plan.actual_us(),
                     .finished_at_ns = plan.finished_at_ns(),
                     .kind = plan.ops(0).kind(),
                     .gpu = plan.gpu()});
  }
  return plans;
}

absl::StatusOr<std::vector<LoggedPlan>> LastPlans(const std::string& admin_socket,
                                                  uint64_t after_ns, const std::string& kind) {
  absl::StatusOr<std::vector<LoggedPlan>> plans = AllLastPlans(admin_socket, after_ns);
  if (plans.ok()) std::erase_if(*plans, [&](const LoggedPlan& plan) { return plan.kind != kind; });
  return plans;
}

absl::StatusOr<std::vector<RegisteredProgram>> RegisteredPrograms(const std::string& admin_socket) {
  v1::ListSessionsResponse response;
  absl::Status asked =
      Ask(admin_socket, &ctl::Connection::Stub::ListSessions, v1::ListSessionsRequest(), response);
  if (!asked.ok()) return asked;
  std::vector<RegisteredProgram> programs;
  for (const v1::Session& session : response.sessions()) {
    for (const v1::Program& program : session.programs()) {
      programs.push_back({.arena_bytes = program.arena_bytes(),
                          .slot_bytes = program.slot_bytes(),
                          .workspace_bytes = program.workspace_bytes()});
    }
  }
  return programs;
}

}  // namespace concert::bench
