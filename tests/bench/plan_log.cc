#include "tests/bench/plan_log.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "tests/bench/statistics.h"

namespace concert::bench {
namespace {

// Plans that were seen to end at once.
struct Timed {
  uint64_t finished_at_ns;
  uint32_t ops = 0;
  double predicted_us = 0, actual_us = 0;
  bool predicted = true;  // all of them
};

std::vector<Timed> TimesOf(const std::vector<LoggedPlan>& plans) {
  std::vector<Timed> times;
  for (const LoggedPlan& plan : plans) {
    if (times.empty() || times.back().finished_at_ns != plan.finished_at_ns)
      times.push_back({.finished_at_ns = plan.finished_at_ns});
    Timed& timed = times.back();
    timed.ops += plan.ops;
    timed.predicted_us += plan.predicted_us;
    timed.actual_us += plan.actual_us;
    timed.predicted &= plan.predicted_us > 0;
  }
  return times;
}

using Kind = std::tuple<std::string, uint32_t, uint32_t>;  // form, ops, launches

nlohmann::json Kinds(const std::map<Kind, int>& frequency) {
  nlohmann::json kinds = nlohmann::json::array();
  for (const auto& [kind, count] : frequency) {
    const auto& [form, ops, launches] = kind;
    kinds.push_back({{"form", form}, {"ops", ops}, {"launches", launches}, {"count", count}});
  }
  std::stable_sort(kinds.begin(), kinds.end(), [](const auto& a, const auto& b) {
    return a["count"].template get<int>() > b["count"].template get<int>();
  });
  return kinds;
}

}  // namespace

nlohmann::json DescribePlans(const std::vector<LoggedPlan>& plans, int gemms) {
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
  }
  for (const Timed& timed : TimesOf(plans)) {
    if (!timed.predicted || timed.ops == 0 || timed.actual_us <= 0) continue;
    predicted_us.push_back(timed.predicted_us * gemms / timed.ops);
    planned_us.push_back(timed.actual_us * gemms / timed.ops);
    errors.push_back(std::abs(timed.predicted_us / timed.actual_us - 1));
  }
  nlohmann::json description = nlohmann::json::object();
  if (typical != nullptr) {
    description["plan"] = typical->text;
    description["plans"] = Kinds(frequency);
  }
  if (!errors.empty()) {
    description["predicted_us"] = Quantile(predicted_us, 0.5);
    description["planned_us"] = Quantile(planned_us, 0.5);
    description["prediction_error"] = Quantile(errors, 0.5);
  }
  return description;
}

}  // namespace concert::bench
