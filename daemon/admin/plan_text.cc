#include "daemon/admin/plan_text.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/op_table.h"
#include "policies/seam/policy.h"
#include "proto/ring/messages.h"

namespace concert::daemon {
namespace {

int ListedOps(const PlanRecord& plan) {
  return std::min<int>(plan.op_count, PlanRecord::kMaxListed);
}

std::string CountOf(int count, const char* noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

// "5 GEMMs", "2 GEMMs and 1 all_reduce", "18 ops" when not all are listed.
std::string OpsText(const PlanRecord& plan) {
  if (plan.op_count > PlanRecord::kMaxListed) return CountOf(plan.op_count, "op");
  std::vector<std::pair<uint16_t, int>> counts;  // in order of appearance
  for (int i = 0; i < ListedOps(plan); ++i) {
    const auto it = std::find_if(counts.begin(), counts.end(), [&](const auto& entry) {
      return entry.first == plan.ops[i].kind;
    });
    if (it == counts.end()) {
      counts.emplace_back(plan.ops[i].kind, 1);
    } else {
      ++it->second;
    }
  }
  std::vector<std::string> words;
  for (const auto& [kind, count] : counts) {
    const char* noun = kernels::FindOpKind(kind)->noun;
    words.push_back(noun != nullptr ? CountOf(count, noun)
                                    : absl::StrCat(count, " ", concert_op_kind_name(kind)));
  }
  return absl::StrJoin(words, " and ");
}

std::string SessionsText(const PlanRecord& plan) {
  const int listed = ListedOps(plan);
  std::string ids = absl::StrJoin(
      plan.ops.begin(), plan.ops.begin() + listed, ", ",
      [](std::string* out, const PlanRecord::Listed& op) { absl::StrAppend(out, op.session); });
  if (plan.op_count > listed) ids += ", ...";
  return absl::StrCat(listed == 1 ? "session " : "sessions ", ids);
}

// " on 124 SMs", or nothing when the plan may use all.
std::string SmsText(const PlanRecord& plan) {
  return plan.sm_count == 0 ? "" : absl::StrCat(" on ", CountOf(plan.sm_count, "SM"));
}

// " by p2p"; a barrier moves nothing.
std::string TransportText(const PlanRecord& plan) {
  const std::string_view name = TransportOf(plan);
  return name.empty() ? "" : absl::StrCat(" by ", std::string(name));
}

// "group of 5 GEMMs (sessions ...) in one launch on 124 SMs"
std::string WorkText(const PlanRecord& plan) {
  const std::string ops = absl::StrCat(OpsText(plan), " (", SessionsText(plan), ")");
  switch (plan.form) {
    case policies::Form::kSingle:
      return absl::StrCat(ops, TransportText(plan), SmsText(plan));
    case policies::Form::kStreams:
      return absl::StrCat(ops, " side by side on ", CountOf(plan.launch_count, "lane"),
                          plan.sm_count == 0 ? "" : ", each", SmsText(plan));
    case policies::Form::kGroup:
      return absl::StrCat(
          "group of ", ops, " in ",
          plan.launch_count == 1 ? "one launch" : absl::StrCat(plan.launch_count, " launches"),
          SmsText(plan));
  }
  return ops;
}

}  // namespace

std::string_view TransportOf(const PlanRecord& plan) {
  if (!plan.is_collective() || plan.ops[0].kind == CONCERT_OP_BARRIER) return "";
  return policies::kTransportNames[static_cast<size_t>(plan.transport)];
}

std::string PlanText(int gpu, const PlanRecord& plan) {
  const double actual_us = static_cast<double>(plan.finished_at - plan.started_at) / 1e3;
  std::string text =
      absl::StrFormat("GPU %d: %s: predicted %.1f us, ", gpu, WorkText(plan), plan.predicted_us);
  // See PlanRecord: of several ends that were seen at once the first plan has all the time. What is
  // less than what is written is none, too.
  constexpr double kLeastUs = 0.05;
  absl::StrAppend(&text, actual_us >= kLeastUs ? absl::StrFormat("took %.1f us", actual_us)
                                               : "seen to end together with the one before");
  if (plan.op_count > 1)
    absl::StrAppendFormat(&text, "; one after the other %.1f us", plan.serial_us);
  const std::string_view reason = policies::ReasonText(plan.reason);
  absl::StrAppend(&text, " (", absl::string_view(reason.data(), reason.size()), ")");
  return text;
}

}  // namespace concert::daemon
