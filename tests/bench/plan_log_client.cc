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

}  // namespace

absl::StatusOr<std::vector<LoggedPlan>> AllLastPlans(const std::string& admin_socket,
                                                     uint64_t after_ns) {
  ctl::Connection connection(admin_socket, kAnswerLimit);
  v1::ListPlansRequest request;
  request.set_max_plan_count(kPlans);
  v1::ListPlansResponse response;
  const grpc::Status called =
      connection.Call(&ctl::Connection::Stub::ListPlans, request, &response);
  if (!called.ok())
    return absl::Status(static_cast<absl::StatusCode>(called.error_code()), called.error_message());
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

}  // namespace concert::bench
