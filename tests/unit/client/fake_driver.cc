// A CUDA driver with one GPU whose memory is the host's. Streams hold their waits, writes and
// copies in order and get on with them in whichever call comes next, so a test decides what ends
// when. Knows what the client's library calls, and no more.
#include "tests/unit/client/fake_driver.h"

#include <cuda.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <map>

struct CUstream_st {
  std::deque<std::function<bool()>> work;  // false: it has to wait
  bool destroyed = false;
};

namespace {

std::list<CUstream_st> streams;
std::map<CUdeviceptr, size_t> memory;

}  // namespace

#pragma GCC visibility push(default)
extern "C" concert::test::FakeDriver concert_fake_driver;
concert::test::FakeDriver concert_fake_driver;
#pragma GCC visibility pop

namespace {

// Returns whether all streams are at their end.
bool GetOn() {
  for (bool moved = true; moved;) {
    moved = false;
    for (CUstream_st& stream : streams) {
      while (!stream.work.empty() && stream.work.front()()) {
        stream.work.pop_front();
        moved = true;
      }
    }
  }
  streams.remove_if([](const CUstream_st& one) { return one.destroyed && one.work.empty(); });
  concert_fake_driver.streams = static_cast<int>(streams.size());
  bool ended = true;
  for (const CUstream_st& stream : streams) ended &= stream.work.empty();
  return ended;
}

CUresult Enqueue(CUstream stream, std::function<bool()> work) {
  stream->work.push_back(std::move(work));
  GetOn();
  return CUDA_SUCCESS;
}

CUresult Allocate(CUdeviceptr* pointer, size_t bytes) {
  *pointer = reinterpret_cast<CUdeviceptr>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  memory[*pointer] = bytes;
  concert_fake_driver.bytes += static_cast<int64_t>(bytes);
  return CUDA_SUCCESS;
}

void Free(CUdeviceptr pointer) {
  concert_fake_driver.bytes -= static_cast<int64_t>(memory[pointer]);
  memory.erase(pointer);
  std::free(reinterpret_cast<void*>(pointer));
}

CUresult NeedContext() {
  return concert_fake_driver.contexts > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult WaitForAll() {
  if (!GetOn()) ++concert_fake_driver.hung;
  return CUDA_SUCCESS;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult, const char** name) { return *name = "FAKE", CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult, const char** text) { return *text = "", CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice* device, int ordinal) { return *device = ordinal, CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int* count) { return *count = 1, CUDA_SUCCESS; }
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice) { return *uuid = {}, CUDA_SUCCESS; }
CUresult cuDeviceGetName(char* name, int, CUdevice) {
  return std::strcpy(name, "a fake"), CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(size_t* bytes, CUdevice) { return *bytes = 1 << 30, CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute, CUdevice) {
  return *value = 1, CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  return *context = nullptr, CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice* device) { return *device = 0, NeedContext(); }
CUresult cuCtxPushCurrent(CUcontext) { return ++concert_fake_driver.contexts, CUDA_SUCCESS; }
CUresult cuCtxPopCurrent(CUcontext*) { return --concert_fake_driver.contexts, CUDA_SUCCESS; }
CUresult cuCtxSynchronize() { return WaitForAll(); }
CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return *least = *greatest = 0, CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr* pointer, size_t bytes) { return Allocate(pointer, bytes); }
CUresult cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream) {
  return Allocate(pointer, bytes);
}
// As a driver's, it waits for all that runs.
CUresult cuMemFree(CUdeviceptr pointer) {
  const CUresult result = WaitForAll();
  Free(pointer);
  return result;
}
CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  return Enqueue(stream, [pointer] { return Free(pointer), true; });
}
CUresult cuMemsetD8(CUdeviceptr pointer, unsigned char value, size_t bytes) {
  return std::memset(reinterpret_cast<void*>(pointer), value, bytes), CUDA_SUCCESS;
}
CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  return std::memcpy(reinterpret_cast<void*>(to), from, bytes), CUDA_SUCCESS;
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  return std::memcpy(to, reinterpret_cast<const void*>(from), bytes), CUDA_SUCCESS;
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Enqueue(stream, [=] {
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
    return true;
  });
}
CUresult cuMemGetAddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr pointer) {
  auto found = memory.upper_bound(pointer);
  if (found == memory.begin() || pointer - (--found)->first >= found->second) {
    return CUDA_ERROR_NOT_FOUND;
  }
  *base = found->first;
  *bytes = found->second;
  return CUDA_SUCCESS;
}
CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr) {
  return *handle = {}, CUDA_SUCCESS;
}
CUresult cuPointerGetAttribute(void* value, CUpointer_attribute, CUdeviceptr) {
  return *static_cast<int*>(value) = 0, CUDA_SUCCESS;
}
CUresult cuMemHostRegister(void*, size_t, unsigned) {
  const CUresult result = NeedContext();
  if (result == CUDA_SUCCESS) ++concert_fake_driver.registered;
  return result;
}
CUresult cuMemHostUnregister(void*) {
  if (NeedContext() != CUDA_SUCCESS) return NeedContext();
  --concert_fake_driver.registered;
  return WaitForAll();
}
CUresult cuMemHostGetDevicePointer(CUdeviceptr* device, void* host, unsigned) {
  return *device = reinterpret_cast<CUdeviceptr>(host), CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned, int) {
  *stream = &streams.emplace_back();
  GetOn();
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream stream) {
  stream->destroyed = true;
  GetOn();
  return CUDA_SUCCESS;
}
CUresult cuStreamQuery(CUstream stream) {
  GetOn();
  if (concert_fake_driver.failed) return CUDA_ERROR_ILLEGAL_ADDRESS;
  return stream->work.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuStreamSynchronize(CUstream stream) {
  GetOn();
  const bool legacy = stream == nullptr || stream == CU_STREAM_LEGACY;  // queues' are not behind it
  if (!legacy && !stream->work.empty()) ++concert_fake_driver.hung;
  return CUDA_SUCCESS;
}
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr word, cuuint64_t value, unsigned) {
  return Enqueue(stream, [=] {
    return __atomic_load_n(reinterpret_cast<const uint64_t*>(word), __ATOMIC_ACQUIRE) >= value;
  });
}
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr word, cuuint64_t value, unsigned) {
  return Enqueue(stream, [=] {
    __atomic_store_n(reinterpret_cast<uint64_t*>(word), value, __ATOMIC_RELEASE);
    return true;
  });
}

// Of memory that other processes share, which nothing here does.
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle*, void*,
                                        CUmemAllocationHandleType) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuMemAddressReserve(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuMemAddressFree(CUdeviceptr, size_t) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuMemUnmap(CUdeviceptr, size_t) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle) { return CUDA_ERROR_NOT_SUPPORTED; }

}  // extern "C"
#pragma GCC visibility pop
