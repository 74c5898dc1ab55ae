// The CUDA driver API as a table of functions, resolved once from libcuda.so.1. Nothing links
// libcuda.
#ifndef CONCERT_KERNELS_CUDA_API_DRIVER_H_
#define CONCERT_KERNELS_CUDA_API_DRIVER_H_

#include <cuda.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda_api/shared_library.h"

// cuda.h maps many names to a versioned symbol (cuMemAlloc to cuMemAlloc_v2). The preprocessor does
// so here too, before X sees the name, so that member, type and symbol always agree with the
// header.
#define CONCERT_DRIVER_FUNCTIONS(X)                                                                \
  X(cuInit)                                                                                        \
  X(cuDriverGetVersion)                                                                            \
  X(cuGetErrorName)                                                                                \
  X(cuGetErrorString)                                                                              \
  X(cuDeviceGetCount)                                                                              \
  X(cuDeviceGet) X(cuDeviceGetName) X(cuDeviceGetUuid) X(cuDeviceTotalMem) X(                      \
      cuDeviceGetAttribute) X(cuDeviceCanAccessPeer) X(cuDevicePrimaryCtxRetain)                   \
      X(cuDevicePrimaryCtxRelease) X(cuCtxSetCurrent) X(cuCtxGetStreamPriorityRange) X(            \
          cuCtxEnablePeerAccess) X(cuStreamCreateWithPriority) X(cuStreamDestroy) X(cuStreamQuery) \
          X(cuStreamSynchronize) X(cuStreamWaitEvent) X(cuStreamWriteValue64) X(                   \
              cuStreamWaitValue64) X(cuStreamBatchMemOp) X(cuEventCreate) X(cuEventDestroy)        \
              X(cuEventRecord) X(cuMemAlloc) X(cuMemFree) X(cuMemGetAddressRange) X(               \
                  cuMemcpyDtoDAsync) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemsetD8Async)  \
                  X(cuMemHostRegister) X(cuMemHostUnregister) X(cuMemHostGetDevicePointer)         \
                      X(cuPointerGetAttribute) X(cuIpcGetMemHandle) X(cuIpcOpenMemHandle) X(       \
                          cuIpcCloseMemHandle) X(cuMemGetAllocationGranularity) X(cuMemCreate)     \
                          X(cuMemRelease) X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemMap)   \
                              X(cuMemUnmap) X(cuMemSetAccess) X(cuMemExportToShareableHandle) X(   \
                                  cuMemImportFromShareableHandle)                                  \
                                  X(cuMemGetAllocationPropertiesFromHandle) X(cuModuleLoadData) X( \
                                      cuModuleUnload) X(cuModuleGetFunction) X(cuLaunchKernel)     \
                                      X(cuStreamBeginCapture) X(cuStreamBeginCaptureToGraph)       \
                                          X(cuGraphCreate) X(cuGraphNodeSetEnabled) X(             \
                                              cuStreamEndCapture) X(cuGraphGetNodes)               \
                                              X(cuGraphNodeGetType) X(cuGraphKernelNodeGetParams)  \
                                                  X(cuGraphDestroy) X(cuGraphInstantiateWithFlags) \
                                                      X(cuGraphLaunch) X(cuGraphExecDestroy)       \
                                                          X(cuMemHostAlloc) X(cuMemFreeHost)       \
                                                              X(cuEventQuery) X(cuLaunchKernelEx)  \
                                                                  X(cuFuncSetAttribute)            \
                                                                      X(cuTensorMapEncodeTiled)    \
  X(cuStreamGetCaptureInfo) X(cuGraphExecKernelNodeSetParams)

namespace concert::kernels::cuda {

// Immutable once loaded; any thread may call.
class Driver {
 public:
  // Opens libcuda and initialises it. UNAVAILABLE where there is no driver or no GPU.
  static absl::StatusOr<Driver> Load();

#define X(name) decltype(&::name) name = nullptr;
  CONCERT_DRIVER_FUNCTIONS(X)
#undef X

  // The one translation of driver errors: "cuMemCreate on GPU 1: CUDA_ERROR_OUT_OF_MEMORY (out of
  // memory)". OK costs a comparison.
  absl::Status ToStatus(CUresult result, const char* call, int gpu) const {
    return result == CUDA_SUCCESS ? absl::OkStatus() : Failed(result, call, gpu);
  }

 private:
  absl::Status Failed(CUresult result, const char* call, int gpu) const;

  SharedLibrary library_;
};

}  // namespace concert::kernels::cuda

// Calls driver.function(args...) and returns from the enclosing function if it failed. OK falls
// through.
#define CONCERT_RETURN_IF_DRIVER_ERROR(driver, gpu, function, ...)                                \
  do {                                                                                            \
    const CUresult concert_result = (driver).function(__VA_ARGS__);                               \
    if (concert_result != CUDA_SUCCESS) return (driver).ToStatus(concert_result, #function, gpu); \
  } while (false)

#endif  // CONCERT_KERNELS_CUDA_API_DRIVER_H_
