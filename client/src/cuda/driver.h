// What the library needs of CUDA's driver, through a libcuda opened at run time. Built without the
// toolkit (CONCERT_CUDA=off), every call is UNIMPLEMENTED with a sentence. Nothing is initialised
// before the first call.
//
// GPUs are named by UUID, because the daemon's numbers and this process's CUDA_VISIBLE_DEVICES may
// differ. Memory belongs to the GPU's primary context, which the runtime API and frameworks use
// too.
#ifndef CONCERT_CLIENT_SRC_CUDA_DRIVER_H_
#define CONCERT_CLIENT_SRC_CUDA_DRIVER_H_

#include <cstdint>

#include "concert/concert.h"

namespace concert::client::cuda {

using Uuid = uint8_t[16];

// The GPU that is this process's CUDA device `ordinal`.
int DescribeDevice(int ordinal, Uuid* gpu, concert_error* error);

// Waits for all work of this process on the GPU.
int Synchronize(const Uuid& gpu, concert_error* error);

// A VMM allocation of another process, mapped here.
struct VmmMapping {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t handle = 0;
};
int MapVmm(const Uuid& gpu, int fd, uint64_t bytes, VmmMapping* mapping, concert_error* error);
void UnmapVmm(const VmmMapping& mapping);

// What a device pointer belongs to. `ipc_handle` names the whole allocation. INVALID_ARGUMENT for
// one to no memory of CUDA's, or to another GPU's.
struct PointerInfo {
  uint64_t base = 0;
  uint64_t allocation_bytes = 0;
  uint8_t ipc_handle[64] = {};
};
int DescribePointer(const Uuid& gpu, uint64_t pointer, PointerInfo* info, concert_error* error);

// Copies between device memory and host memory, that have ended on the device on return.
int CopyToDevice(const Uuid& gpu, uint64_t to, const void* from, uint64_t bytes,
                 concert_error* error);
int CopyToHost(const Uuid& gpu, void* to, uint64_t from, uint64_t bytes, concert_error* error);

// Makes host memory addressable by every GPU of the process. Needs a current context, of which
// *device is set to the CUDA device. UNIMPLEMENTED when `read_only` and the GPU cannot register
// memory that it may not write.
int RegisterHost(void* data, uint64_t bytes, bool read_only, int* device, concert_error* error);
// Needs none: makes the primary context of `device` current meanwhile.
void UnregisterHost(void* data, int device);

// Enqueue on `stream`, whose context is current: wait until *word >= value; store value to *word.
// `word` lies in registered host memory.
int StreamWait(void* stream, const uint64_t* word, uint64_t value, concert_error* error);
int StreamWrite(void* stream, uint64_t* word, uint64_t value, concert_error* error);

}  // namespace concert::client::cuda

#endif  // CONCERT_CLIENT_SRC_CUDA_DRIVER_H_
