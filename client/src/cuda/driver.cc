#include "client/src/cuda/driver.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "client/src/cuda/api.h"
#include "client/src/failure.h"

namespace concert::client::cuda {
namespace {

// Runs `body(api, device)` with the GPU's primary context current.
template <typename Body>
int OnGpu(const Uuid& gpu, concert_error* error, Body body) {
  const Api* api = nullptr;
  CUdevice device = 0;
  if (int code = LoadApi(&api, error)) return code;
  if (int code = FindDevice(*api, gpu, &device, error)) return code;
  const PrimaryContext context(*api, device, error);
  if (context.code() != CONCERT_OK) return context.code();
  return body(*api, device);
}

int DevicePointer(const Api& api, const void* host, CUdeviceptr* device, concert_error* error) {
  return Check(api, api.cuMemHostGetDevicePointer(device, const_cast<void*>(host), 0),
               "cuMemHostGetDevicePointer", error);
}

}  // namespace

int DescribeDevice(int ordinal, Uuid* gpu, concert_error* error) {
  const Api* api = nullptr;
  CUdevice device = 0;
  CUuuid uuid;
  if (int code = LoadApi(&api, error)) return code;
  if (int code = Check(*api, api->cuDeviceGet(&device, ordinal), "cuDeviceGet", error)) return code;
  if (int code = Check(*api, api->cuDeviceGetUuid(&uuid, device), "cuDeviceGetUuid", error)) {
    return code;
  }
  static_assert(sizeof(uuid.bytes) == sizeof(*gpu));
  std::memcpy(*gpu, uuid.bytes, sizeof(*gpu));
  return CONCERT_OK;
}

int Synchronize(const Uuid& gpu, concert_error* error) {
  return OnGpu(gpu, error, [&](const Api& api, CUdevice) {
    return Check(api, api.cuCtxSynchronize(), "cuCtxSynchronize", error);
  });
}

int MapVmm(const Uuid& gpu, int fd, uint64_t bytes, VmmMapping* mapping, concert_error* error) {
  return OnGpu(gpu, error, [&](const Api& api, CUdevice device) -> int {
    CUmemGenericAllocationHandle handle = 0;
    void* os_handle = reinterpret_cast<void*>(static_cast<intptr_t>(fd));
    if (int code = Check(api,
                         api.cuMemImportFromShareableHandle(
                             &handle, os_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                         "cuMemImportFromShareableHandle", error)) {
      return code;
    }
    CUdeviceptr address = 0;
    CUresult result = api.cuMemAddressReserve(&address, bytes, 0, 0, 0);
    const char* call = "cuMemAddressReserve";
    bool mapped = false;
    if (result == CUDA_SUCCESS) {
      call = "cuMemMap";
      result = api.cuMemMap(address, bytes, 0, handle, 0);
      mapped = result == CUDA_SUCCESS;
    }
    if (mapped) {
      call = "cuMemSetAccess";
      CUmemAccessDesc access{};
      access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      access.location.id = device;
      access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      result = api.cuMemSetAccess(address, bytes, &access, 1);
    }
    if (result == CUDA_SUCCESS) {
      *mapping = {address, bytes, handle};
      return CONCERT_OK;
    }
    if (mapped) api.cuMemUnmap(address, bytes);
    if (address != 0) api.cuMemAddressFree(address, bytes);
    api.cuMemRelease(handle);
    return Check(api, result, call, error);
  });
}

void UnmapVmm(const VmmMapping& mapping) {
  const Api* api = nullptr;
  if (mapping.address == 0 || LoadApi(&api, nullptr) != CONCERT_OK) return;
  api->cuMemUnmap(mapping.address, mapping.bytes);
  api->cuMemAddressFree(mapping.address, mapping.bytes);
  api->cuMemRelease(mapping.handle);
}

int DescribePointer(const Uuid& gpu, uint64_t pointer, PointerInfo* info, concert_error* error) {
  return OnGpu(gpu, error, [&](const Api& api, CUdevice device) -> int {
    CUdeviceptr base = 0;
    size_t bytes = 0;
    int owner = -1;
    CUipcMemHandle handle;
    if (api.cuMemGetAddressRange(&base, &bytes, pointer) != CUDA_SUCCESS) {
      return Fail(error, CONCERT_INVALID_ARGUMENT,
                  "pointer is 0x%llx, which is no memory that CUDA has allocated",
                  static_cast<unsigned long long>(pointer));
    }
    if (int code = Check(
            api, api.cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer),
            "cuPointerGetAttribute", error)) {
      return code;
    }
    if (owner != device) {
      return Fail(error, CONCERT_INVALID_ARGUMENT,
                  "the memory lies on CUDA device %d of this process, and gpu names another; "
                  "import it there",
                  owner);
    }
    if (int code =
            Check(api, api.cuIpcGetMemHandle(&handle, base),
                  "cuIpcGetMemHandle (pool and VMM memory has none: import its fd)", error)) {
      return code;
    }
    static_assert(sizeof(handle) == sizeof(info->ipc_handle));
    info->base = base;
    info->allocation_bytes = bytes;
    std::memcpy(info->ipc_handle, &handle, sizeof(handle));
    return CONCERT_OK;
  });
}

int CopyToDevice(const Uuid& gpu, uint64_t to, const void* from, uint64_t bytes,
                 concert_error* error) {
  return OnGpu(gpu, error, [&](const Api& api, CUdevice) -> int {
    if (int code = Check(api, api.cuMemcpyHtoD(to, from, bytes), "cuMemcpyHtoD", error)) {
      return code;
    }
    // From pageable memory it returns when the bytes are staged. Who reads them next, the daemon,
    // is ordered behind nothing of this context, and the buffer may be unmapped at once.
    return Check(api, api.cuStreamSynchronize(CU_STREAM_LEGACY), "cuStreamSynchronize", error);
  });
}

int CopyToHost(const Uuid& gpu, void* to, uint64_t from, uint64_t bytes, concert_error* error) {
  return OnGpu(gpu, error, [&](const Api& api, CUdevice) {
    return Check(api, api.cuMemcpyDtoH(to, from, bytes), "cuMemcpyDtoH", error);
  });
}

int RegisterHost(void* data, uint64_t bytes, bool read_only, int* device, concert_error* error) {
  const Api* api = nullptr;
  if (int code = LoadApi(&api, error)) return code;
  static_assert(std::is_same_v<CUdevice, int>);
  if (api->cuCtxGetDevice(device) != CUDA_SUCCESS) {
    return Fail(error, CONCERT_FAILED_PRECONDITION,
                "no CUDA context is current on this thread; make the stream's context current");
  }
  unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  if (read_only) {
    int supported = 0;
    api->cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED,
                              *device);
    if (supported == 0) {
      return Fail(error, CONCERT_UNIMPLEMENTED,
                  "this GPU cannot wait on memory that the daemon shares read-only; "
                  "use concert_wait instead of concert_wait_on_stream");
    }
    flags |= CU_MEMHOSTREGISTER_READ_ONLY;
  }
  return Check(*api, api->cuMemHostRegister(data, bytes, flags), "cuMemHostRegister", error);
}

void UnregisterHost(void* data, int device) {
  const Api* api = nullptr;
  if (LoadApi(&api, nullptr) != CONCERT_OK) return;
  const PrimaryContext context(*api, device, nullptr);
  if (context.code() == CONCERT_OK) api->cuMemHostUnregister(data);
}

int StreamWait(void* stream, const uint64_t* word, uint64_t value, concert_error* error) {
  const Api* api = nullptr;
  CUdeviceptr address = 0;
  if (int code = LoadApi(&api, error)) return code;
  if (int code = DevicePointer(*api, word, &address, error)) return code;
  return Check(*api,
               api->cuStreamWaitValue64(static_cast<CUstream>(stream), address, value,
                                        CU_STREAM_WAIT_VALUE_GEQ),
               "cuStreamWaitValue64", error);
}

int StreamWrite(void* stream, uint64_t* word, uint64_t value, concert_error* error) {
  const Api* api = nullptr;
  CUdeviceptr address = 0;
  if (int code = LoadApi(&api, error)) return code;
  if (int code = DevicePointer(*api, word, &address, error)) return code;
  return Check(*api,
               api->cuStreamWriteValue64(static_cast<CUstream>(stream), address, value,
                                         CU_STREAM_WRITE_VALUE_DEFAULT),
               "cuStreamWriteValue64", error);
}

}  // namespace concert::client::cuda
