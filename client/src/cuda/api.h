// The functions of libcuda that the library calls, found in a libcuda opened at run time. Only for
// files that are built with the toolkit's headers.
#ifndef CONCERT_CLIENT_SRC_CUDA_API_H_
#define CONCERT_CLIENT_SRC_CUDA_API_H_

#include <cuda.h>

#include "client/src/cuda/driver.h"

namespace concert::client::cuda {

#define CONCERT_CUDA_FUNCTIONS(X)   \
  X(cuInit)                         \
  X(cuGetErrorName)                 \
  X(cuGetErrorString)               \
  X(cuDeviceGet)                    \
  X(cuDeviceGetCount)               \
  X(cuDeviceGetUuid)                \
  X(cuDeviceGetName)                \
  X(cuDeviceTotalMem)               \
  X(cuDeviceGetAttribute)           \
  X(cuDevicePrimaryCtxRetain)       \
  X(cuDevicePrimaryCtxRelease)      \
  X(cuCtxGetDevice)                 \
  X(cuCtxPushCurrent)               \
  X(cuCtxPopCurrent)                \
  X(cuCtxSynchronize)               \
  X(cuMemAlloc)                     \
  X(cuMemAllocAsync)                \
  X(cuMemFree)                      \
  X(cuMemFreeAsync)                 \
  X(cuMemsetD8)                     \
  X(cuMemcpyHtoD)                   \
  X(cuMemcpyDtoH)                   \
  X(cuMemcpyDtoDAsync)              \
  X(cuMemGetAddressRange)           \
  X(cuIpcGetMemHandle)              \
  X(cuPointerGetAttribute)          \
  X(cuMemImportFromShareableHandle) \
  X(cuMemAddressReserve)            \
  X(cuMemAddressFree)               \
  X(cuMemMap)                       \
  X(cuMemUnmap)                     \
  X(cuMemSetAccess)                 \
  X(cuMemRelease)                   \
  X(cuMemHostRegister)              \
  X(cuMemHostUnregister)            \
  X(cuMemHostGetDevicePointer)      \
  X(cuStreamCreateWithPriority)     \
  X(cuStreamDestroy)                \
  X(cuStreamQuery)                  \
  X(cuStreamSynchronize)            \
  X(cuStreamWaitValue64)            \
  X(cuStreamWriteValue64)           \
  X(cuCtxGetStreamPriorityRange)

struct Api {
#define X(name) decltype(&::name) name = nullptr;
  CONCERT_CUDA_FUNCTIONS(X)
#undef X
};

// Opens libcuda and initialises it, once per process. UNAVAILABLE, with the reason, where that
// fails.
int LoadApi(const Api** api, concert_error* error);

// OK, or INTERNAL with the call's name and CUDA's own words.
int Check(const Api& api, CUresult result, const char* call, concert_error* error);

// The GPU of this process with that UUID; NOT_FOUND when CUDA_VISIBLE_DEVICES hides it.
int FindDevice(const Api& api, const Uuid& gpu, CUdevice* device, concert_error* error);

// Makes a device's primary context current, for a scope. Keeps the context alive until the process
// ends, as the memory of buffers needs it.
class PrimaryContext {
 public:
  PrimaryContext(const Api& api, CUdevice device, concert_error* error);
  ~PrimaryContext();
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;
  int code() const { return code_; }

 private:
  const Api& api_;
  int code_ = CONCERT_OK;
};

}  // namespace concert::client::cuda

#endif  // CONCERT_CLIENT_SRC_CUDA_API_H_
