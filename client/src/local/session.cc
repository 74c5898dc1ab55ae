#include "client/src/local/session.h"

#include <sys/mman.h>
#include <time.h>

#include <cstdio>
#include <cstring>
#include <memory>

#include "client/src/clock.h"
#include "client/src/cuda/driver.h"
#include "client/src/failure.h"
#include "client/src/local/buffer.h"
#include "client/src/local/connect.h"
#include "client/src/local/queue.h"
#include "client/src/local/user_timeline.h"
#include "client/src/pointer_import.h"
#include "client/src/remote/shared_word.h"

namespace concert::client {
namespace {

constexpr timespec kNap{0, 20'000};
// Between two questions of a wait to the driver, which submitting threads wait for, too.
constexpr int64_t kStreamCheckNs = 1'000'000;

// Sessions of this process, downwards from the highest number, which no daemon's session has: a
// ticket of another is not taken for one of this.
uint32_t NextId() {
  static std::atomic<uint32_t> made{0};
  return UINT32_MAX - made.fetch_add(1, std::memory_order_relaxed);
}

void SayOnce(const char* why, const concert_gpu& gpu) {
  static std::atomic_flag said;  // stderr is a property of the process
  if (said.test_and_set()) return;
  std::fprintf(stderr,
               "libconcert: %s; computing in this process with cuBLASLt on %s "
               "(CONCERT_FALLBACK=cublas): GEMMs and copies only, not scheduled\n",
               why, gpu.name);
}

}  // namespace

int FailWithoutDaemon(const char* who, const char* needs, concert_error* error) {
  return Fail(error, CONCERT_UNIMPLEMENTED,
              "%s %s concertd; CONCERT_FALLBACK=cublas computes GEMMs and copies", who, needs);
}

LocalSession::LocalSession() : id_(NextId()) {}

int LocalSession::Open(concert_error* error) {
  if (int code = cuda::LoadApi(&api_, error)) return code;
  if (int code = CublasLt::Load(&lt_, error)) return code;
  if (int code = OpenGpus(error)) return code;
  void* page =
      mmap(nullptr, sizeof(Timelines), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return Fail(error, CONCERT_RESOURCE_EXHAUSTED, "out of host memory");
  timelines_ = static_cast<Timelines*>(page);
  const cuda::PrimaryContext context(*api_, devices_[0], error);
  if (context.code() != CONCERT_OK) return context.code();
  int device = 0;  // devices_[0]
  if (int code = cuda::RegisterHost(page, sizeof(Timelines), /*read_only=*/false, &device, error))
    return code;
  registered_ = true;
  return CONCERT_OK;
}

int LocalSession::OpenGpus(concert_error* error) {
  int count = 0;
  if (int code = Check(*api_, api_->cuDeviceGetCount(&count), "cuDeviceGetCount", error))
    return code;
  for (int i = 0; i < count; ++i) {
    CUdevice device = 0;
    if (int code = Check(*api_, api_->cuDeviceGet(&device, i), "cuDeviceGet", error)) return code;
    concert_gpu gpu{};
    CUuuid uuid{};
    size_t bytes = 0;
    int sm_count = 0;
    api_->cuDeviceGetName(gpu.name, sizeof(gpu.name), device);
    api_->cuDeviceGetUuid(&uuid, device);
    api_->cuDeviceTotalMem(&bytes, device);
    api_->cuDeviceGetAttribute(&sm_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    gpu.backend = CONCERT_BACKEND_CUDA;
    std::memcpy(gpu.uuid, &uuid, sizeof(gpu.uuid));
    gpu.memory_bytes = bytes;
    gpu.sm_count = static_cast<uint32_t>(sm_count);
    gpu.has_ring = 1;
    devices_.push_back(device);
    gpus_.push_back(gpu);
  }
  if (devices_.empty()) return Fail(error, CONCERT_UNAVAILABLE, "CUDA shows this process no GPU");
  const MutexLock lock(mutex_);
  lt_handles_.resize(devices_.size());
  return CONCERT_OK;
}

LocalSession::~LocalSession() {
  // A stream that still waits, for a timeline that nobody can signal any more, keeps what it would
  // touch: to free that would be to wait for it.
  for (uint32_t i = 0; i < CONCERT_MAX_QUEUES && timelines_ != nullptr; ++i) {
    if (!HasEnded(i)) return;
  }
  for (cublasLtHandle_t handle : lt_handles_) {
    if (handle != nullptr) lt_->DestroyHandle(handle);
  }
  if (registered_) cuda::UnregisterHost(timelines_, devices_[0]);
  if (timelines_ != nullptr) munmap(timelines_, sizeof(Timelines));
}

int LocalSession::CheckGpu(uint32_t gpu, concert_error* error) const {
  if (gpu < gpus_.size()) return CONCERT_OK;
  return Fail(error, CONCERT_INVALID_ARGUMENT, "gpu is %u, but the node has %zu GPUs", gpu,
              gpus_.size());
}

int LocalSession::CheckOpen(concert_error* error) const {
  if (!closed_.load()) return CONCERT_OK;
  return Fail(error, CONCERT_UNAVAILABLE, "the session was closed");
}

int LocalSession::Allocate(uint32_t gpu, uint64_t bytes, concert_buffer** buffer,
                           concert_error* error) {
  if (int code = CheckOpen(error)) return code;
  if (int code = CheckGpu(gpu, error)) return code;
  if (bytes == 0) return Fail(error, CONCERT_INVALID_ARGUMENT, "bytes is 0");
  const cuda::PrimaryContext context(*api_, devices_[gpu], error);
  if (context.code() != CONCERT_OK) return context.code();
  CUdeviceptr address = 0;
  if (int code = Check(*api_, api_->cuMemAlloc(&address, bytes), "cuMemAlloc", error)) return code;
  std::unique_ptr<LocalBuffer> made(
      new LocalBuffer(std::static_pointer_cast<LocalSession>(shared_from_this()), gpu, address,
                      bytes, /*owned=*/true));
  if (int code = Check(*api_, api_->cuMemsetD8(address, 0, bytes), "cuMemsetD8", error))
    return code;
  // cuMemset may return before the memory is set, and queues' streams do not wait for it.
  if (int code = Check(*api_, api_->cuStreamSynchronize(nullptr), "cuStreamSynchronize", error)) {
    return code;
  }
  *buffer = made.release();
  return CONCERT_OK;
}

int LocalSession::Import(const concert_import& import, concert_buffer** buffer,
                         concert_error* error) {
  if (int code = CheckOpen(error)) return code;
  if (int code = CheckGpu(import.gpu, error)) return code;
  if (import.memory != CONCERT_MEMORY_CUDA_POINTER) {
    return Fail(error, CONCERT_UNIMPLEMENTED,
                "CONCERT_FALLBACK=cublas imports only pointers, not memory of kind %u",
                import.memory);
  }
  cuda::PointerInfo found;
  if (int code = FindAllocation(import, gpus_[import.gpu].uuid, &found, error)) return code;
  *buffer = new LocalBuffer(std::static_pointer_cast<LocalSession>(shared_from_this()), import.gpu,
                            import.pointer, import.bytes, /*owned=*/false);
  return CONCERT_OK;
}

int LocalSession::CreateQueue(uint32_t gpu, int32_t priority, concert_queue** queue,
                              concert_error* error) {
  if (int code = CheckOpen(error)) return code;
  if (int code = CheckGpu(gpu, error)) return code;
  uint32_t index = 0;
  {
    const MutexLock lock(mutex_);
    while (index < CONCERT_MAX_QUEUES && (lines_[index].used || !HasEnded(index))) ++index;
    if (index == CONCERT_MAX_QUEUES) {
      return Fail(error, CONCERT_RESOURCE_EXHAUSTED,
                  "the session has %d queues already, with those that are destroyed but whose ops "
                  "have not ended",
                  CONCERT_MAX_QUEUES);
    }
    lines_[index] = {.used = true};
  }
  auto made = std::make_unique<LocalQueue>(
      std::static_pointer_cast<LocalSession>(shared_from_this()), gpu, index);
  if (int code = made->Open(priority, error)) return code;
  {
    const MutexLock lock(mutex_);
    lines_[index].stream = made->stream();
  }
  *queue = made.release();
  return CONCERT_OK;
}

void LocalSession::ReleaseQueue(uint32_t index, uint64_t last) {
  const MutexLock lock(mutex_);
  lines_[index] = {.last = last};
}

bool LocalSession::HasEnded(uint32_t line) const {
  return LoadAcquire(&timelines_->queues[line].value) >= lines_[line].last;
}

int LocalSession::LtHandle(uint32_t gpu, cublasLtHandle_t* handle, concert_error* error) {
  const MutexLock lock(mutex_);
  cublasLtHandle_t& made = lt_handles_[gpu];
  if (made == nullptr) {
    if (int code = lt_->CreateHandle(&made, error)) return code;
  }
  *handle = made;
  return CONCERT_OK;
}

int LocalSession::Join(const concert_join&, concert_communicator**, concert_error* error) {
  return FailWithoutDaemon("communicators", "need", error);
}

int LocalSession::BeginProgram(uint32_t, concert_program**, concert_queue**, concert_error* error) {
  return FailWithoutDaemon("programs", "need", error);
}

int LocalSession::CreateUserTimeline(concert_user_timeline** timeline, concert_error* error) {
  if (int code = CheckOpen(error)) return code;
  const MutexLock lock(mutex_);
  for (uint32_t i = 0; i < CONCERT_MAX_USER_TIMELINES; ++i) {
    if (user_used_[i]) continue;
    StoreRelease<uint64_t>(&timelines_->user[i].value, 0);
    *timeline =
        new LocalUserTimeline(std::static_pointer_cast<LocalSession>(shared_from_this()), i);
    user_used_[i] = true;
    return CONCERT_OK;
  }
  return Fail(error, CONCERT_RESOURCE_EXHAUSTED, "all %d user timelines of the session are in use",
              CONCERT_MAX_USER_TIMELINES);
}

void LocalSession::ReleaseUserTimeline(uint32_t index) {
  const MutexLock lock(mutex_);
  user_used_[index] = false;
}

uint64_t* LocalSession::Word(concert_ticket ticket, concert_error* error) {
  const auto session = static_cast<uint32_t>(ticket.timeline >> 32);
  const auto index = static_cast<uint32_t>(ticket.timeline);
  const uint32_t user = index & ~CONCERT_TIMELINE_USER;
  const bool is_user = user != index;
  if (session == id_ && is_user && user < CONCERT_MAX_USER_TIMELINES) {
    return &timelines_->user[user].value;
  }
  if (session == id_ && !is_user && index < CONCERT_MAX_QUEUES) {
    return &timelines_->queues[index].value;
  }
  Fail(error, CONCERT_INVALID_ARGUMENT,
       "the ticket's timeline %u of session %u is not one of this session, %u, which computes "
       "without a daemon and waits for its own only",
       index, session, id_);
  return nullptr;
}

int LocalSession::Poll(concert_ticket ticket, bool* done, concert_error* error) {
  return Look(ticket, /*thorough=*/true, done, error);
}

int LocalSession::Look(concert_ticket ticket, bool thorough, bool* done, concert_error* error) {
  *done = true;
  if (ticket.timeline == 0) return CONCERT_OK;
  const uint64_t* word = Word(ticket, error);
  if (word == nullptr) return CONCERT_INVALID_ARGUMENT;
  if (LoadAcquire(word) >= ticket.value) return CONCERT_OK;
  int code = CheckOpen(error);
  if (code == CONCERT_OK && thorough) code = CheckDevice(ticket, error);
  // What is done stays done, also if that came between the two looks.
  if (code != CONCERT_OK) return LoadAcquire(word) >= ticket.value ? CONCERT_OK : code;
  *done = false;
  return CONCERT_OK;
}

// A faulted device never reaches the ticket; its streams say so.
int LocalSession::CheckDevice(concert_ticket ticket, concert_error* error) {
  const auto index = static_cast<uint32_t>(ticket.timeline);
  if (index >= CONCERT_MAX_QUEUES) return CONCERT_OK;  // a user timeline
  const MutexLock lock(mutex_);
  const CUstream stream = lines_[index].stream;
  if (stream == nullptr) return CONCERT_OK;
  const CUresult result = api_->cuStreamQuery(stream);
  if (result == CUDA_ERROR_NOT_READY) return CONCERT_OK;
  return Check(*api_, result, "cuStreamQuery", error);
}

int LocalSession::Wait(concert_ticket ticket, int64_t timeout_ns, concert_error* error) {
  const Deadline deadline(timeout_ns);
  int64_t next_check_ns = 0;
  for (;;) {
    bool done = false;
    const bool thorough = NowNs() >= next_check_ns;
    if (thorough) next_check_ns = NowNs() + kStreamCheckNs;
    const int code = Look(ticket, thorough, &done, error);
    if (done || code != CONCERT_OK) return code;
    if (deadline.passed()) {
      return Fail(error, CONCERT_DEADLINE_EXCEEDED, "the ticket was not reached within %.3f ms",
                  static_cast<double>(timeout_ns) / 1e6);
    }
    nanosleep(&kNap, nullptr);
  }
}

int LocalSession::WaitOnStream(concert_ticket ticket, void* stream, concert_error* error) {
  if (ticket.timeline == 0) return CONCERT_OK;
  const uint64_t* word = Word(ticket, error);
  if (word == nullptr) return CONCERT_INVALID_ARGUMENT;
  return cuda::StreamWait(stream, word, ticket.value, error);
}

int ConnectLocal(const concert_connect_options&, const char* why,
                 std::shared_ptr<concert_session>* session, concert_error* error) {
  auto made = std::make_shared<LocalSession>();
  concert_error local_error;
  if (int code = made->Open(&local_error)) {
    return Fail(error, code, "%.200s; CONCERT_FALLBACK=cublas cannot help: %.250s", why,
                local_error.message);
  }
  SayOnce(why, made->gpu(0));
  *session = std::move(made);
  return CONCERT_OK;
}

}  // namespace concert::client
