#include <array>

#include "policies/auto/auto.h"
#include "policies/baselines/conccl.h"
#include "policies/baselines/goldyloc.h"
#include "policies/baselines/grouped.h"
#include "policies/baselines/priority.h"
#include "policies/baselines/serial.h"
#include "policies/baselines/streams.h"
#include "policies/seam/policy.h"

namespace concert::policies {
namespace {

constexpr std::array<PolicyInfo, 8> kPolicies = {{
    {"auto", "together where that is predicted faster, never where it is predicted slower",
     MakeAuto},
    {"serial", "one op after the other", MakeSerial},
    {"streams", "every ready op at once, no priorities", MakeStreams},
    {"group", "every ready GEMM that one launch can carry in one launch", MakeGrouped},
    {"static_split",
     "as group, but the SMs are split: while a collective runs, GEMMs leave it its own",
     MakeStaticSplit},
    {"priority", "every ready op at once, high priority on lanes that go first", MakePriority},
    {"conccl",
     "every ready op at once, what wants few SMs first; GEMMs leave a collective's SMs to it",
     MakeConccl},
    {"goldyloc",
     "as many GEMMs at once as a trained model predicts best, each with a kernel for it",
     MakeGoldyloc},
}};

}  // namespace

std::span<const PolicyInfo> AllPolicies() { return kPolicies; }

const PolicyInfo* FindPolicy(std::string_view name) {
  for (const PolicyInfo& policy : kPolicies) {
    if (policy.name == name) return &policy;
  }
  return nullptr;
}

std::string_view ReasonText(Reason reason) {
  switch (reason) {
    case Reason::kNothingReady:
      return "nothing is ready";
    case Reason::kHeldBack:
      return "waits for what runs";
    case Reason::kOnlyOneReady:
      return "only one op is ready";
    case Reason::kPolicyOrder:
      return "the policy always does so";
    case Reason::kPriorityFirst:
      return "a higher priority goes first";
    case Reason::kTogetherFaster:
      return "together is predicted faster";
    case Reason::kTogetherNotFaster:
      return "together is not predicted faster";
    case Reason::kCollective:
      return "a collective goes out at once";
  }
  return "unknown";
}

std::string_view FormName(Form form) {
  switch (form) {
    case Form::kSingle:
      return "single";
    case Form::kStreams:
      return "streams";
    case Form::kGroup:
      return "group";
  }
  return "unknown";
}

}  // namespace concert::policies
