// NVTX ranges around launches: in Nsight Systems a dispatcher's thread then shows what each launch
// is, of which plan, and why that was made. They lie in domain "concert"; a range is named "gemm,
// group", its category is the plan's reason in words and its payload the plan's id.
#ifndef CONCERT_DAEMON_DEVICE_CUDA_NVTX_RANGES_H_
#define CONCERT_DAEMON_DEVICE_CUDA_NVTX_RANGES_H_

#include <array>
#include <cstdint>
#include <utility>

#include "policies/seam/form.h"
#include "policies/seam/plan.h"
#include "proto/ring/ring_abi.h"

struct nvtxDomainRegistration_st;
struct nvtxStringRegistration_st;

namespace concert::daemon::cuda {

// Thread-safe once it is made.
class NvtxRanges {
 public:
  // Registers all names, if it is `on` and a tool listens; else ranges are nothing, and making one
  // costs a branch. Loads the tool, as NVTX's first call does: before traffic.
  explicit NvtxRanges(bool on);
  // Tools keep domains until the process ends.
  NvtxRanges(const NvtxRanges&) = delete;
  NvtxRanges& operator=(const NvtxRanges&) = delete;

  // A range of the calling thread, until this is destroyed. Allocates and formats nothing.
  class Range {
   public:
    Range(const NvtxRanges& ranges, uint16_t kind, policies::Form form, policies::Reason reason,
          uint64_t plan)
        : domain_(ranges.domain_) {
      if (domain_ != nullptr) [[unlikely]]
        ranges.Push(kind, form, reason, plan);
    }
    ~Range() {
      if (domain_ != nullptr) [[unlikely]]
        Pop(domain_);
    }
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;

   private:
    nvtxDomainRegistration_st* const domain_;
  };

 private:
  static constexpr size_t kKindCount = CONCERT_OP_KIND_COUNT + 1;  // 0 is none

  void Push(uint16_t kind, policies::Form form, policies::Reason reason, uint64_t plan) const;
  static void Pop(nvtxDomainRegistration_st* domain);

  nvtxDomainRegistration_st* domain_ = nullptr;  // null: nobody listens
  std::array<std::array<nvtxStringRegistration_st*, policies::kFormCount>, kKindCount> names_{};
};

}  // namespace concert::daemon::cuda

#endif  // CONCERT_DAEMON_DEVICE_CUDA_NVTX_RANGES_H_
