#include "daemon/device/cuda/nvtx_ranges.h"

#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <string>

#include "policies/seam/policy.h"
#include "proto/ring/messages.h"

namespace concert::daemon::cuda {
namespace {

constexpr std::array<const char*, policies::kFormCount> kFormNames = {"single", "streams", "group"};

// 0 is no category.
uint32_t CategoryOf(policies::Reason reason) { return static_cast<uint32_t>(reason) + 1; }

}  // namespace

NvtxRanges::NvtxRanges(bool on) {
  if (!on) return;
  domain_ = nvtxDomainCreateA("concert");
  if (domain_ == nullptr) return;
  for (size_t kind = 0; kind < kKindCount; ++kind) {
    for (size_t form = 0; form < policies::kFormCount; ++form) {
      const std::string name = std::string(concert_op_kind_name(kind)) + ", " + kFormNames[form];
      names_[kind][form] = nvtxDomainRegisterStringA(domain_, name.c_str());
    }
  }
  for (int i = 0; i < policies::kReasonCount; ++i) {
    const auto reason = static_cast<policies::Reason>(i);
    const std::string text(policies::ReasonText(reason));
    nvtxDomainNameCategoryA(domain_, CategoryOf(reason), text.c_str());
  }
}

void NvtxRanges::Push(uint16_t kind, policies::Form form, policies::Reason reason,
                      uint64_t plan) const {
  nvtxEventAttributes_t range{};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.category = CategoryOf(reason);
  range.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  range.payload.ullValue = plan;
  range.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  range.message.registered =
      names_[std::min<size_t>(kind, kKindCount - 1)][static_cast<size_t>(form)];
  nvtxDomainRangePushEx(domain_, &range);
}

void NvtxRanges::Pop(nvtxDomainRegistration_st* domain) { nvtxDomainRangePop(domain); }

}  // namespace concert::daemon::cuda
