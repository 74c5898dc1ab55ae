// Arrays of addresses on their way to the GPU: pinned memory and its copy on the device, some of
// both per lane.
#ifndef CONCERT_KERNELS_GROUP_POINTER_RING_H_
#define CONCERT_KERNELS_GROUP_POINTER_RING_H_

#include <array>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "kernels/cuda_api/driver.h"
#include "policies/seam/lanes.h"

namespace concert::kernels::cuda {

// One thread at a time. Allocates and waits in Init and the destructor only. REQUIRES: the GPU's
// context is current in every call.
class PointerRing {
 public:
  static constexpr int kSlotPointers = 1024;
  // Uploads of one lane that may be on their way. A lane holds few launches at a time; one that
  // finds no slot takes another form instead of waiting.
  static constexpr int kSlotsPerLane = 16;
  static constexpr int kLanes = policies::kCollectiveLane;  // those before it carry GEMMs

  // Part of one lane's memory, to be filled in by the caller.
  struct Slot {
    std::span<CUdeviceptr> host;  // kSlotPointers
    CUdeviceptr device;           // where they will be
    CUevent uploaded;
  };

  PointerRing(const Driver& driver, int gpu) : driver_(driver), gpu_(gpu) {}
  PointerRing(const PointerRing&) = delete;
  PointerRing& operator=(const PointerRing&) = delete;
  // REQUIRES: nothing that was uploaded is still in use.
  ~PointerRing();

  absl::Status Init();

  // The lane's next slot; null while its last upload is not over. Taking it again before Upload
  // gives the same slot.
  std::optional<Slot> Take(policies::Lane lane) const;
  // Copies the first `count` addresses to slot.device on `stream`, which must be the lane's: work
  // enqueued on it later sees them, until the slot is uploaded again. Consumes the slot.
  absl::Status Upload(policies::Lane lane, const Slot& slot, int count, CUstream stream);

 private:
  static constexpr size_t kSlotBytes = kSlotPointers * sizeof(CUdeviceptr);
  static constexpr size_t kBytes = kSlotBytes * kSlotsPerLane * kLanes;

  const Driver& driver_;
  const int gpu_;
  CUdeviceptr* host_ = nullptr;  // pinned; [kLanes][kSlotsPerLane][kSlotPointers]
  CUdeviceptr device_ = 0;       // laid out alike
  std::array<CUevent, kSlotsPerLane * kLanes> uploaded_{};
  std::array<uint8_t, kLanes> next_{};  // slot of each lane
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GROUP_POINTER_RING_H_
