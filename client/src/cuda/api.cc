#include "client/src/cuda/api.h"

#include <dlfcn.h>

#include <cstring>

#include "client/src/failure.h"
#include "proto/mutex.h"

namespace concert::client::cuda {
namespace {

// cuda.h renames functions to their current version (cuMemAlloc is cuMemAlloc_v2), so the name to
// look up is the macro's expansion.
#define CONCERT_TEXT(x) #x
#define CONCERT_EXPANDED_TEXT(x) CONCERT_TEXT(x)

struct Library {
  Api api;
  int code = CONCERT_OK;
  concert_error error{};

  Library() {
    void* handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      code = Fail(&error, CONCERT_UNAVAILABLE, "cannot open libcuda.so.1: %s", dlerror());
      return;
    }
#define X(name)                                                                                  \
  api.name = reinterpret_cast<decltype(api.name)>(dlsym(handle, CONCERT_EXPANDED_TEXT(name)));   \
  if (api.name == nullptr && code == CONCERT_OK) {                                               \
    code = Fail(&error, CONCERT_UNAVAILABLE, "libcuda.so.1 has no %s; update the NVIDIA driver", \
                CONCERT_EXPANDED_TEXT(name));                                                    \
  }
    CONCERT_CUDA_FUNCTIONS(X)
#undef X
    if (code == CONCERT_OK) code = Check(api, api.cuInit(0), "cuInit", &error);
  }
};

}  // namespace

int LoadApi(const Api** api, concert_error* error) {
  static const Library library;  // a handle to a shared library is a property of the process
  if (library.code != CONCERT_OK) return Fail(error, library.code, "%s", library.error.message);
  *api = &library.api;
  return CONCERT_OK;
}

int Check(const Api& api, CUresult result, const char* call, concert_error* error) {
  if (result == CUDA_SUCCESS) return CONCERT_OK;
  const char* name = nullptr;
  const char* text = nullptr;
  api.cuGetErrorName(result, &name);
  api.cuGetErrorString(result, &text);
  const int code =
      result == CUDA_ERROR_OUT_OF_MEMORY ? CONCERT_RESOURCE_EXHAUSTED : CONCERT_INTERNAL;
  return Fail(error, code, "%s: %s (%s)", call, name == nullptr ? "unknown error" : name,
              text == nullptr ? "" : text);
}

int FindDevice(const Api& api, const Uuid& gpu, CUdevice* device, concert_error* error) {
  int count = 0;
  if (int code = Check(api, api.cuDeviceGetCount(&count), "cuDeviceGetCount", error)) return code;
  for (int i = 0; i < count; ++i) {
    CUuuid uuid;
    if (api.cuDeviceGet(device, i) != CUDA_SUCCESS) continue;
    if (api.cuDeviceGetUuid(&uuid, *device) != CUDA_SUCCESS) continue;
    if (std::memcmp(&uuid, gpu, sizeof(uuid)) == 0) return CONCERT_OK;
  }
  return Fail(error, CONCERT_NOT_FOUND,
              "the buffer's GPU is not among the %d that CUDA shows this process; "
              "check CUDA_VISIBLE_DEVICES",
              count);
}

PrimaryContext::PrimaryContext(const Api& api, CUdevice device, concert_error* error) : api_(api) {
  CUcontext context = nullptr;
  code_ =
      Check(api, api.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain", error);
  if (code_ != CONCERT_OK) return;
  // Retained once per process and device, so that the context's count stays bounded.
  static Mutex mutex;
  static bool retained[64] = {};
  {
    const MutexLock lock(mutex);
    const int slot = device & 63;
    if (retained[slot]) api.cuDevicePrimaryCtxRelease(device);
    retained[slot] = true;
  }
  code_ = Check(api, api.cuCtxPushCurrent(context), "cuCtxPushCurrent", error);
}

PrimaryContext::~PrimaryContext() {
  CUcontext context;
  if (code_ == CONCERT_OK) api_.cuCtxPopCurrent(&context);
}

}  // namespace concert::client::cuda
