#include "daemon/device/cuda/cuda_memory.h"

#include <cstring>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "proto/ring/control_abi.h"

namespace concert::daemon::cuda {
namespace {

using kernels::cuda::Driver;

CUmemAllocationProp PoolProperties(int gpu) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu};
  return properties;
}

// What a client sent does not fit: its fault, unless the GPU is full or broken.
absl::Status Refused(absl::Status status) {
  if (absl::IsResourceExhausted(status)) return status;
  return absl::InvalidArgumentError(
      absl::StrCat("the memory cannot be imported: ", status.message()));
}

absl::Status CheckRange(const ImportRequest& request) {
  if (request.bytes == 0 || request.bytes > request.allocation_bytes ||
      request.offset > request.allocation_bytes - request.bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("bytes ", request.bytes, " at offset ", request.offset,
                     " do not lie in allocation_bytes ", request.allocation_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

CudaMemory::~CudaMemory() {
  driver_.cuCtxSetCurrent(context_);
  for (const auto& [handle, mapping] : mappings_) Unmap(mapping);
}

absl::StatusOr<Allocation> CudaMemory::Allocate(uint64_t bytes) {
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuCtxSetCurrent, context_);
  const CUmemAllocationProp properties = PoolProperties(gpu_);
  size_t granularity = 0;
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuMemGetAllocationGranularity, &granularity,
                                 &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  if (bytes == 0) return absl::InvalidArgumentError("bytes is 0; ask for at least 1");
  if (bytes > UINT64_MAX - granularity) {
    return absl::ResourceExhaustedError(
        absl::StrCat("bytes is ", bytes, ", more than GPU ", gpu_, " has"));
  }
  const uint64_t rounded = (bytes + granularity - 1) / granularity * granularity;
  CUmemGenericAllocationHandle handle;
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuMemCreate, &handle, rounded, &properties, 0);
  // The mapping and the file descriptor keep the memory; the handle itself is not needed after
  // this.
  const auto release = absl::MakeCleanup([&] { driver_.cuMemRelease(handle); });
  return FinishPool(handle, rounded);
}

absl::StatusOr<Allocation> CudaMemory::FinishPool(CUmemGenericAllocationHandle handle,
                                                  uint64_t bytes) {
  absl::StatusOr<CUdeviceptr> base = Map(handle, bytes, shared_);
  if (!base.ok()) return base.status();
  const Mapping mapping = {*base, bytes};
  auto unmap = absl::MakeCleanup([&] { Unmap(mapping); });
  // Memory keeps what its last owner left there, which may be another user's data.
  if (absl::Status status = Zero(*base, bytes); !status.ok()) return status;
  int fd = -1;
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuMemExportToShareableHandle, &fd, handle,
                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  std::move(unmap).Cancel();
  return Allocation{.address = *base,
                    .bytes = bytes,
                    .gpu = gpu_,
                    .pool = shared_,
                    .export_fd = fd,
                    .backend_handle = Remember(mapping)};
}

absl::Status CudaMemory::Zero(CUdeviceptr base, uint64_t bytes) {
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuMemsetD8Async, base, 0, bytes, stream_);
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuStreamSynchronize, stream_);
  return absl::OkStatus();
}

absl::StatusOr<CUdeviceptr> CudaMemory::Map(CUmemGenericAllocationHandle handle, uint64_t bytes,
                                            bool for_all) {
  CUdeviceptr base = 0;
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuMemAddressReserve, &base, bytes, 0, 0, 0);
  absl::Status status =
      driver_.ToStatus(driver_.cuMemMap(base, bytes, 0, handle, 0), "cuMemMap", gpu_);
  if (!status.ok()) {
    driver_.cuMemAddressFree(base, bytes);
    return status;
  }
  status = GrantAccess(base, bytes, for_all);
  if (!status.ok()) {
    Unmap({base, bytes});
    return status;
  }
  return base;
}

absl::Status CudaMemory::GrantAccess(CUdeviceptr base, uint64_t bytes, bool for_all) {
  std::vector<CUmemAccessDesc> access;
  for (int gpu = 0; gpu < gpu_count_; ++gpu) {
    if (gpu != gpu_ && !for_all) continue;
    access.push_back({{CU_MEM_LOCATION_TYPE_DEVICE, gpu}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuMemSetAccess, base, bytes, access.data(),
                                 access.size());
  return absl::OkStatus();
}

absl::StatusOr<Allocation> CudaMemory::Import(const ImportRequest& request) {
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuCtxSetCurrent, context_);
  if (absl::Status status = CheckRange(request); !status.ok()) return status;
  switch (request.kind) {
    case CONCERT_IMPORT_CUDA_IPC:
      return ImportIpc(request);
    case CONCERT_IMPORT_CUDA_VMM:
      return ImportVmm(request);
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "kind is ", request.kind, "; a cuda device imports 1 (CUDA IPC) and 2 (CUDA VMM)"));
  }
}

absl::StatusOr<Allocation> CudaMemory::ImportIpc(const ImportRequest& request) {
  CUipcMemHandle handle;
  static_assert(sizeof(handle) == sizeof(request.ipc_handle));
  std::memcpy(&handle, request.ipc_handle.data(), sizeof(handle));
  CUdeviceptr base = 0;
  if (CUresult result =
          driver_.cuIpcOpenMemHandle(&base, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
      result != CUDA_SUCCESS) {
    return Refused(driver_.ToStatus(result, "cuIpcOpenMemHandle", gpu_));
  }
  if (absl::Status status = CheckIpcRange(base, request); !status.ok()) {
    driver_.cuIpcCloseMemHandle(base);
    return status;
  }
  return Allocation{.address = base + request.offset,
                    .bytes = request.bytes,
                    .gpu = gpu_,
                    .backend_handle = Remember({base, 0})};
}

// The client's words about size and place are checked against the driver's: a kernel that runs past
// the end, or that touches another GPU's imported memory, ends the context and with it every
// session.
absl::Status CudaMemory::CheckIpcRange(CUdeviceptr base, const ImportRequest& request) const {
  CUdeviceptr start = 0;
  size_t size = 0;
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuMemGetAddressRange, &start, &size, base);
  int owner = -1;
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuPointerGetAttribute, &owner,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, base);
  if (owner != gpu_) {
    return absl::InvalidArgumentError(
        absl::StrCat("gpu is ", gpu_, ", but the memory lies on GPU ", owner, "; import it there"));
  }
  const uint64_t usable = size - (base - start);
  if (request.allocation_bytes > usable) {
    return absl::InvalidArgumentError(absl::StrCat("allocation_bytes is ", request.allocation_bytes,
                                                   ", but the allocation has only ", usable,
                                                   " bytes"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Allocation> CudaMemory::ImportVmm(const ImportRequest& request) {
  CUmemGenericAllocationHandle handle;
  if (CUresult result = driver_.cuMemImportFromShareableHandle(
          &handle, reinterpret_cast<void*>(static_cast<intptr_t>(request.fd)),
          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
      result != CUDA_SUCCESS) {
    return Refused(driver_.ToStatus(result, "cuMemImportFromShareableHandle", gpu_));
  }
  const auto release = absl::MakeCleanup([&] { driver_.cuMemRelease(handle); });
  if (absl::Status status = CheckVmmLocation(handle); !status.ok()) return status;
  // Mapping fails if the allocation is not exactly as large as the client says.
  absl::StatusOr<CUdeviceptr> base = Map(handle, request.allocation_bytes, /*for_all=*/false);
  if (!base.ok()) return Refused(base.status());
  return Allocation{.address = *base + request.offset,
                    .bytes = request.bytes,
                    .gpu = gpu_,
                    .backend_handle = Remember({*base, request.allocation_bytes})};
}

absl::Status CudaMemory::CheckVmmLocation(CUmemGenericAllocationHandle handle) const {
  CUmemAllocationProp properties = {};
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuMemGetAllocationPropertiesFromHandle, &properties,
                                 handle);
  if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE || properties.location.id != gpu_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "gpu is ", gpu_, ", but the memory does not lie there (location type ",
        static_cast<int>(properties.location.type), ", id ", properties.location.id, ")"));
  }
  return absl::OkStatus();
}

void CudaMemory::Free(const Allocation& allocation) {
  Mapping mapping;
  {
    const MutexLock lock(mutex_);
    const auto found = mappings_.find(allocation.backend_handle);
    if (found == mappings_.end()) return;
    mapping = found->second;
    mappings_.erase(found);
  }
  driver_.cuCtxSetCurrent(context_);
  Unmap(mapping);
}

// Errors are not reported: after a fault of the GPU every call fails, and there is nothing left to
// undo.
void CudaMemory::Unmap(const Mapping& mapping) {
  if (mapping.bytes == 0) {
    driver_.cuIpcCloseMemHandle(mapping.base);
    return;
  }
  driver_.cuMemUnmap(mapping.base, mapping.bytes);
  driver_.cuMemAddressFree(mapping.base, mapping.bytes);
}

uint64_t CudaMemory::Remember(const Mapping& mapping) {
  const MutexLock lock(mutex_);
  mappings_.emplace(next_handle_, mapping);
  return next_handle_++;
}

absl::Status CudaMemory::CopyToHost(void* host, Address source, uint64_t bytes) {
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuCtxSetCurrent, context_);
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuMemcpyDtoHAsync, host, source, bytes, stream_);
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuStreamSynchronize, stream_);
  return absl::OkStatus();
}

absl::Status CudaMemory::CopyToDevice(Address destination, const void* host, uint64_t bytes) {
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuCtxSetCurrent, context_);
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuMemcpyHtoDAsync, destination, host, bytes,
                                 stream_);
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuStreamSynchronize, stream_);
  return absl::OkStatus();
}

}  // namespace concert::daemon::cuda
