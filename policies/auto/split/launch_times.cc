#include "policies/auto/split/launch_times.h"

namespace concert::policies {
namespace {

// The tuner measures a co-run set on an idle GPU. Of shorter times starting is so much that behind
// other launches they say nothing.
constexpr float kMinMeasuredUs = 40;

}  // namespace

void LaunchTimes::Start(const Site& site, const Ratios& ratios) {
  site_ = site;
  ratios_ = ratios;
  predicted_ = 0;
}

std::optional<float> LaunchTimes::TunedUs(std::span<const Problem> problems, Form form) const {
  if (tuned_ == nullptr || tuned_->empty() || site_.sms.late > 0) return std::nullopt;
  float sum_us = 0;
  for (const Problem& problem : problems) {
    const TunedRow* row = tuned_->Find({.problem = problem,
                                        .sm_budget = static_cast<uint16_t>(site_.sms.budget),
                                        .degree = DegreeOf(static_cast<int>(problems.size())),
                                        .form = form});
    if (row == nullptr || !(row->median_us > 0)) return std::nullopt;
    sum_us += row->median_us;
  }
  return sum_us >= kMinMeasuredUs ? std::optional(sum_us) : std::nullopt;
}

// What was measured includes the copies that the tuner's operands, whose rows follow each other
// without a gap, need of the same problem.
float LaunchTimes::GroupUs(std::span<const Problem> problems, uint64_t repack_bytes, bool& tuned) {
  const std::optional<float> measured_us = TunedUs(problems, Form::kGroup);
  tuned = measured_us.has_value();
  if (tuned) return *measured_us;
  predicted_ += static_cast<int>(problems.size());
  const float group_us = compiler_->PredictUs(problems, site_.sms, site_.goal);
  return group_us + compiler_->RepackUs(repack_bytes);
}

void LaunchTimes::CompileList(std::span<const Problem> problems, const Site& site,
                              Step& step) const {
  step.work_list = compiler_->Compile(problems, site.sms, site.goal);
  if (step.work_list != nullptr) step.list_version = step.work_list->version;
}

}  // namespace concert::policies
