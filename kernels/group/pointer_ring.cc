#include "kernels/group/pointer_ring.h"

namespace concert::kernels::cuda {

absl::Status PointerRing::Init() {
  void* host = nullptr;
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuMemHostAlloc, &host, kBytes, 0);
  host_ = static_cast<CUdeviceptr*>(host);
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuMemAlloc, &device_, kBytes);
  for (CUevent& event : uploaded_) {
    CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
  }
  return absl::OkStatus();
}

PointerRing::~PointerRing() {
  for (CUevent event : uploaded_) {
    if (event != nullptr) driver_.cuEventDestroy(event);
  }
  if (device_ != 0) driver_.cuMemFree(device_);
  if (host_ != nullptr) driver_.cuMemFreeHost(host_);
}

std::optional<PointerRing::Slot> PointerRing::Take(policies::Lane lane) const {
  const size_t index = size_t{lane} * kSlotsPerLane + next_[lane];
  // An event that was never recorded counts as over. The device's copy needs no check: the stream
  // runs the next upload to it after the kernels that read the last one.
  if (driver_.cuEventQuery(uploaded_[index]) != CUDA_SUCCESS) return std::nullopt;
  return Slot{.host = {host_ + index * kSlotPointers, kSlotPointers},
              .device = device_ + index * kSlotBytes,
              .uploaded = uploaded_[index]};
}

absl::Status PointerRing::Upload(policies::Lane lane, const Slot& slot, int count,
                                 CUstream stream) {
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuMemcpyHtoDAsync, slot.device, slot.host.data(),
                                 count * sizeof(CUdeviceptr), stream);
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuEventRecord, slot.uploaded, stream);
  next_[lane] = static_cast<uint8_t>((next_[lane] + 1) % kSlotsPerLane);
  return absl::OkStatus();
}

}  // namespace concert::kernels::cuda
