// A CUDA driver that takes what the group launcher calls and does nothing, on a GPU of 132 SMs.
// Tests replace the functions that they watch.
#ifndef CONCERT_TESTS_SUPPORT_IDLE_DRIVER_H_
#define CONCERT_TESTS_SUPPORT_IDLE_DRIVER_H_

#include <cstdlib>

#include "kernels/cuda_api/driver.h"

namespace concert::test {

// Host memory is real and zero; device memory has the address that the caller's variable had.
inline kernels::cuda::Driver IdleDriver() {
  kernels::cuda::Driver driver;
  driver.cuFuncSetAttribute = [](auto...) { return CUDA_SUCCESS; };
  driver.cuDeviceGet = [](auto...) { return CUDA_SUCCESS; };
  driver.cuDeviceGetAttribute = [](int* value, CUdevice_attribute, CUdevice) {
    *value = 132;
    return CUDA_SUCCESS;
  };
  driver.cuEventCreate = [](auto...) { return CUDA_SUCCESS; };
  driver.cuEventDestroy = [](auto...) { return CUDA_SUCCESS; };
  driver.cuEventRecord = [](auto...) { return CUDA_SUCCESS; };
  driver.cuStreamWaitEvent = [](auto...) { return CUDA_SUCCESS; };
  driver.cuMemAlloc = [](auto...) { return CUDA_SUCCESS; };
  driver.cuMemFree = [](auto...) { return CUDA_SUCCESS; };
  driver.cuMemsetD8Async = [](auto...) { return CUDA_SUCCESS; };
  driver.cuMemcpyHtoDAsync = [](auto...) { return CUDA_SUCCESS; };
  driver.cuTensorMapEncodeTiled = [](auto...) { return CUDA_SUCCESS; };
  driver.cuLaunchKernelEx = [](auto...) { return CUDA_SUCCESS; };
  driver.cuMemHostAlloc = [](void** memory, size_t bytes, unsigned) {
    *memory = std::calloc(1, bytes);
    return CUDA_SUCCESS;
  };
  driver.cuMemFreeHost = [](void* memory) {
    std::free(memory);
    return CUDA_SUCCESS;
  };
  return driver;
}

}  // namespace concert::test

#endif  // CONCERT_TESTS_SUPPORT_IDLE_DRIVER_H_
