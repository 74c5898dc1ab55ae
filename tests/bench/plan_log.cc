#include "tests/bench/plan_log.h"

#include <cmath>
#include <map>
#include <tuple>

#include "tests/bench/statistics.h"

namespace concert::bench {

nlohmann::json DescribePlans(const std::vector<LoggedPlan>& plans, int gemms) {
  using Kind = std::tuple<std::string, uint32_t, uint32_t>;
  std::map<Kind, int> frequency;
  const LoggedPlan* typical = nullptr;
  int typical_count = 0;
  std::vector<double> predicted_us, planned_us, errors;
  for (const LoggedPlan& plan : plans) ++frequency[{plan.form, plan.ops, plan.launches}];
  for (const LoggedPlan& plan : plans) {
    const int count = frequency[{plan.form, plan.ops, plan.launches}];
    if (count > typical_count) {
      typical = &plan;
      typical_count = count;
    }
    if (plan.ops == 0 || plan.predicted_us <= 0 || plan.actual_us <= 0) continue;
    predicted_us.push_back(plan.predicted_us * gemms / plan.ops);
    planned_us.push_back(plan.actual_us * gemms / plan.ops);
    errors.push_back(std::abs(plan.predicted_us / plan.actual_us - 1));
  }
  nlohmann::json description = nlohmann::json::object();
  if (typical != nullptr) description["plan"] = typical->text;
  if (!errors.empty()) {
    description["predicted_us"] = Quantile(predicted_us, 0.5);
    description["planned_us"] = Quantile(planned_us, 0.5);
    description["prediction_error"] = Quantile(errors, 0.5);
  }
  return description;
}

}  // namespace concert::bench
