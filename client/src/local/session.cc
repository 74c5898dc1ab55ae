#include "client/src/local/session.h"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bitset>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "client/src/clock.h"
#include "client/src/cuda/api.h"
#include "client/src/cuda/driver.h"
#include "client/src/failure.h"
#include "client/src/local/cublas_lt.h"
#include "client/src/local/operands.h"
#include "client/src/remote/shared_word.h"
#include "proto/mutex.h"
#include "proto/ring/messages.h"
#include "proto/ring/ring_abi.h"

namespace concert::client {
namespace {

constexpr uint32_t kSessionId = 1;
constexpr size_t kWorkspaceBytes = 32u << 20;  // what NVIDIA recommends for Hopper
constexpr timespec kNap{0, 20'000};
constexpr int64_t kStreamCheckNs = 1'000'000;

// Timelines of queues and user timelines: host memory that streams wait on and write to.
struct Timelines {
  concert_timeline queues[CONCERT_MAX_QUEUES];
  concert_timeline user[CONCERT_MAX_USER_TIMELINES];
};

class LocalSession;

class LocalBuffer final : public concert_buffer {
 public:
  LocalBuffer(std::shared_ptr<LocalSession> session, uint32_t gpu, CUdeviceptr address,
              uint64_t bytes, bool owned)
      : concert_buffer(bytes),
        session_(std::move(session)),
        gpu_(gpu),
        address_(address),
        owned_(owned) {
    id = Register();
  }
  ~LocalBuffer() override;
  int Address(void** address, concert_error*) override {
    *address = reinterpret_cast<void*>(address_);
    return CONCERT_OK;
  }
  int Write(uint64_t offset, const void* data, uint64_t bytes, concert_error* error) override;
  int Read(uint64_t offset, void* data, uint64_t bytes, concert_error* error) override;
  int Seal(concert_error* error) override {
    return Fail(error, CONCERT_UNIMPLEMENTED,
                "sealed buffers need concertd; CONCERT_FALLBACK=cublas computes GEMMs and copies");
  }

 private:
  uint32_t Register();

  const std::shared_ptr<LocalSession> session_;
  const uint32_t gpu_;
  const CUdeviceptr address_;
  const bool owned_;
};

class LocalSession final : public concert_session {
 public:
  int Open(concert_error* error);
  ~LocalSession() override;

  uint32_t id() const override { return kSessionId; }
  bool is_local() const override { return true; }
  std::span<const concert_gpu> gpus() const override { return gpus_; }
  void Close() override { closed_.store(true); }

  int Allocate(uint32_t gpu, uint64_t bytes, concert_buffer** buffer,
               concert_error* error) override;
  int Import(const concert_import& import, concert_buffer** buffer, concert_error* error) override;
  int CreateQueue(uint32_t gpu, int32_t priority, concert_queue** queue,
                  concert_error* error) override;
  int Join(const concert_join& join, concert_communicator** communicator,
           concert_error* error) override;
  int BeginProgram(uint32_t gpu, concert_program** program, concert_queue** queue,
                   concert_error* error) override;
  int CreateUserTimeline(concert_user_timeline** timeline, concert_error* error) override;
  int BeginBatch(uint32_t gpu, concert_error* error) override { return CheckGpu(gpu, error); }
  int EndBatch(uint32_t gpu, concert_error* error) override { return CheckGpu(gpu, error); }
  int Poll(concert_ticket ticket, bool* done, concert_error* error) override;
  int Wait(concert_ticket ticket, int64_t timeout_ns, concert_error* error) override;
  int WaitOnStream(concert_ticket ticket, void* stream, concert_error* error) override;

  const cuda::Api& api() const { return *api_; }
  const CublasLt& lt() const { return *lt_; }
  CUdevice device(uint32_t gpu) const { return devices_[gpu]; }
  const concert_gpu& gpu(uint32_t gpu) const { return gpus_[gpu]; }
  Timelines& timelines() { return *timelines_; }
  BufferTable& buffers() { return buffers_; }
  int CheckGpu(uint32_t gpu, concert_error* error) const;
  int CheckOpen(concert_error* error) const;
  // The word that a ticket watches; null, with an error, for a foreign or unknown timeline.
  uint64_t* Word(concert_ticket ticket, concert_error* error);
  void ReleaseQueue(uint32_t index);
  void ReleaseUserTimeline(uint32_t index);

 private:
  int OpenGpus(concert_error* error);

  const cuda::Api* api_ = nullptr;
  const CublasLt* lt_ = nullptr;
  std::vector<CUdevice> devices_;
  std::vector<concert_gpu> gpus_;
  Timelines* timelines_ = nullptr;
  bool registered_ = false;
  std::atomic<bool> closed_{false};
  BufferTable buffers_;
  Mutex mutex_;
  std::bitset<CONCERT_MAX_QUEUES> queues_used_ CONCERT_GUARDED_BY(mutex_);
  std::bitset<CONCERT_MAX_USER_TIMELINES> user_used_ CONCERT_GUARDED_BY(mutex_);
  // To notice a failed device.
  std::array<CUstream, CONCERT_MAX_QUEUES> streams_ CONCERT_GUARDED_BY(mutex_) = {};
};

class LocalQueue final : public concert_queue {
 public:
  LocalQueue(std::shared_ptr<LocalSession> session, uint32_t gpu, uint32_t index)
      : session_(std::move(session)),
        gpu_(gpu),
        index_(index),
        word_(&session_->timelines().queues[index].value),
        ticket_(LoadAcquire(word_)) {}
  ~LocalQueue() override;
  int Open(int32_t priority, concert_error* error);
  CUstream stream() const { return stream_; }

  concert_ticket last() const override {
    return {CONCERT_TIMELINE_ID(kSessionId, index_), ticket_};
  }
  int Submit(EncodedOp& op, const concert_submit_options& options, concert_ticket* ticket,
             concert_error* error) override;

 private:
  // What the fallback computes of a kind.
  struct Kind {
    uint16_t kind;
    int (*locate)(concert_descriptor&, const BufferTable&, concert_error*);
    // Of a descriptor that was located.
    int (LocalQueue::*enqueue)(const concert_descriptor&, concert_error*);
  };
  static const Kind* FindKind(uint16_t kind);  // null: it is not for the fallback
  int EnqueueGemm(const concert_descriptor& descriptor, concert_error* error);
  int EnqueueCopy(const concert_descriptor& descriptor, concert_error* error);

  const std::shared_ptr<LocalSession> session_;
  const uint32_t gpu_;
  const uint32_t index_;
  uint64_t* const word_;
  uint64_t ticket_;
  CUstream stream_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
  Workspace workspace_;
};

class LocalUserTimeline final : public concert_user_timeline {
 public:
  LocalUserTimeline(std::shared_ptr<LocalSession> session, uint32_t index)
      : session_(std::move(session)),
        index_(index),
        word_(&session_->timelines().user[index].value) {}
  ~LocalUserTimeline() override { session_->ReleaseUserTimeline(index_); }
  concert_ticket At(uint64_t value) const override {
    return {CONCERT_TIMELINE_ID(kSessionId, index_ | CONCERT_TIMELINE_USER), value};
  }
  int Signal(uint64_t value, concert_error*) override {
    uint64_t now = LoadAcquire(word_);
    while (now < value && !__atomic_compare_exchange_n(word_, &now, value, true, __ATOMIC_RELEASE,
                                                       __ATOMIC_RELAXED)) {
    }
    return CONCERT_OK;
  }
  int SignalOnStream(uint64_t value, void* stream, concert_error* error) override {
    return cuda::StreamWrite(stream, word_, value, error);
  }

 private:
  const std::shared_ptr<LocalSession> session_;
  const uint32_t index_;
  uint64_t* const word_;
};

// ---- LocalBuffer

uint32_t LocalBuffer::Register() { return session_->buffers().Add({address_, bytes}); }

LocalBuffer::~LocalBuffer() {
  session_->buffers().Remove(id);
  if (!owned_) return;
  const cuda::PrimaryContext context(session_->api(), session_->device(gpu_), nullptr);
  if (context.code() == CONCERT_OK) session_->api().cuMemFree(address_);
}

int LocalBuffer::Write(uint64_t offset, const void* data, uint64_t bytes, concert_error* error) {
  return cuda::CopyToDevice(session_->gpu(gpu_).uuid, address_ + offset, data, bytes, error);
}

int LocalBuffer::Read(uint64_t offset, void* data, uint64_t bytes, concert_error* error) {
  return cuda::CopyToHost(session_->gpu(gpu_).uuid, data, address_ + offset, bytes, error);
}

// ---- LocalQueue

int LocalQueue::Open(int32_t priority, concert_error* error) {
  const cuda::Api& api = session_->api();
  const cuda::PrimaryContext context(api, session_->device(gpu_), error);
  if (context.code() != CONCERT_OK) return context.code();
  int least = 0, greatest = 0;
  api.cuCtxGetStreamPriorityRange(&least, &greatest);
  const int level = priority > 0 ? greatest : priority < 0 ? least : (least + greatest) / 2;
  if (int code = Check(api, api.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, level),
                       "cuStreamCreateWithPriority", error)) {
    return code;
  }
  if (int code =
          Check(api, api.cuMemAlloc(&workspace_.address, kWorkspaceBytes), "cuMemAlloc", error)) {
    return code;
  }
  workspace_.bytes = kWorkspaceBytes;
  return session_->lt().CreateHandle(&handle_, error);
}

LocalQueue::~LocalQueue() {
  const cuda::Api& api = session_->api();
  session_->ReleaseQueue(index_);  // first: no waiter looks at the stream any more
  const cuda::PrimaryContext context(api, session_->device(gpu_), nullptr);
  if (context.code() != CONCERT_OK) return;
  // What was submitted still runs, and it needs the workspace.
  if (stream_ != nullptr) api.cuStreamSynchronize(stream_);
  if (handle_ != nullptr) session_->lt().DestroyHandle(handle_);
  if (workspace_.address != 0) api.cuMemFree(workspace_.address);
  if (stream_ != nullptr) api.cuStreamDestroy(stream_);
}

const LocalQueue::Kind* LocalQueue::FindKind(uint16_t kind) {
  static constexpr Kind kKinds[] = {
      {CONCERT_OP_GEMM, LocateGemm, &LocalQueue::EnqueueGemm},
      {CONCERT_OP_COPY, LocateCopy, &LocalQueue::EnqueueCopy},
  };
  const auto* found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                   [kind](const Kind& row) { return row.kind == kind; });
  return found == std::end(kKinds) ? nullptr : found;
}

int LocalQueue::Submit(EncodedOp& op, const concert_submit_options& options, concert_ticket* ticket,
                       concert_error* error) {
  const Kind* kind = FindKind(op.descriptor.kind);
  if (kind == nullptr) {
    return Fail(error, CONCERT_UNIMPLEMENTED,
                "%s needs concertd; CONCERT_FALLBACK=cublas computes GEMMs and copies",
                concert_op_kind_name(op.descriptor.kind));
  }
  if (int code = kind->locate(op.descriptor, session_->buffers(), error)) return code;
  if (int code = session_->CheckOpen(error)) return code;
  const cuda::PrimaryContext context(session_->api(), session_->device(gpu_), error);
  if (context.code() != CONCERT_OK) return context.code();
  for (uint32_t i = 0; i < options.wait_count; ++i) {
    const concert_ticket& wait = options.waits[i];
    if (wait.timeline == 0) continue;
    const uint64_t* word = session_->Word(wait, error);
    if (word == nullptr) return CONCERT_INVALID_ARGUMENT;
    if (int code = cuda::StreamWait(stream_, word, wait.value, error)) return code;
  }
  if (int code = (this->*kind->enqueue)(op.descriptor, error)) return code;
  if (int code = cuda::StreamWrite(stream_, word_, ticket_ + 1, error)) return code;
  ++ticket_;
  *ticket = last();
  return CONCERT_OK;
}

int LocalQueue::EnqueueGemm(const concert_descriptor& descriptor, concert_error* error) {
  return session_->lt().Gemm(handle_, descriptor.body.gemm, workspace_, stream_, error);
}

int LocalQueue::EnqueueCopy(const concert_descriptor& descriptor, concert_error* error) {
  const cuda::Api& api = session_->api();
  const concert_copy_body& op = descriptor.body.copy;
  return Check(api, api.cuMemcpyDtoDAsync(op.dst.offset, op.src.offset, op.bytes, stream_),
               "cuMemcpyDtoDAsync", error);
}

// ---- LocalSession

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
  if (int code = cuda::RegisterHost(page, sizeof(Timelines), /*read_only=*/false, error))
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
  return CONCERT_OK;
}

LocalSession::~LocalSession() {
  if (registered_) {
    const cuda::PrimaryContext context(*api_, devices_[0], nullptr);
    if (context.code() == CONCERT_OK) cuda::UnregisterHost(timelines_);
  }
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
    while (index < CONCERT_MAX_QUEUES && queues_used_[index]) ++index;
    if (index == CONCERT_MAX_QUEUES) {
      return Fail(error, CONCERT_RESOURCE_EXHAUSTED, "the session has %d queues already",
                  CONCERT_MAX_QUEUES);
    }
    queues_used_[index] = true;
  }
  auto made = std::make_unique<LocalQueue>(
      std::static_pointer_cast<LocalSession>(shared_from_this()), gpu, index);
  if (int code = made->Open(priority, error)) return code;
  {
    const MutexLock lock(mutex_);
    streams_[index] = made->stream();
  }
  *queue = made.release();
  return CONCERT_OK;
}

void LocalSession::ReleaseQueue(uint32_t index) {
  const MutexLock lock(mutex_);
  streams_[index] = nullptr;
  queues_used_[index] = false;
}

int LocalSession::Join(const concert_join&, concert_communicator**, concert_error* error) {
  return Fail(error, CONCERT_UNIMPLEMENTED,
              "communicators need concertd; CONCERT_FALLBACK=cublas computes GEMMs and copies");
}

int LocalSession::BeginProgram(uint32_t, concert_program**, concert_queue**, concert_error* error) {
  return Fail(error, CONCERT_UNIMPLEMENTED,
              "programs need concertd; CONCERT_FALLBACK=cublas computes GEMMs and copies");
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
  if (session == kSessionId && is_user && user < CONCERT_MAX_USER_TIMELINES) {
    return &timelines_->user[user].value;
  }
  if (session == kSessionId && !is_user && index < CONCERT_MAX_QUEUES) {
    return &timelines_->queues[index].value;
  }
  Fail(error, CONCERT_INVALID_ARGUMENT,
       "the ticket's timeline %u of session %u is not one of this "
       "process, which computes without a daemon",
       index, session);
  return nullptr;
}

int LocalSession::Poll(concert_ticket ticket, bool* done, concert_error* error) {
  *done = true;
  if (ticket.timeline == 0) return CONCERT_OK;
  const uint64_t* word = Word(ticket, error);
  if (word == nullptr) return CONCERT_INVALID_ARGUMENT;
  if (LoadAcquire(word) >= ticket.value) return CONCERT_OK;
  if (int code = CheckOpen(error)) return code;
  *done = false;
  return CONCERT_OK;
}

int LocalSession::Wait(concert_ticket ticket, int64_t timeout_ns, concert_error* error) {
  const Deadline deadline(timeout_ns);
  int64_t next_check_ns = NowNs() + kStreamCheckNs;
  for (;;) {
    bool done = false;
    const int code = Poll(ticket, &done, error);
    if (done || code != CONCERT_OK) return code;
    if (deadline.passed()) {
      return Fail(error, CONCERT_DEADLINE_EXCEEDED, "the ticket was not reached within %.3f ms",
                  static_cast<double>(timeout_ns) / 1e6);
    }
    // A faulted device never reaches the ticket; its streams say so.
    const auto index = static_cast<uint32_t>(ticket.timeline);
    if (index < CONCERT_MAX_QUEUES && NowNs() >= next_check_ns) {
      next_check_ns = NowNs() + kStreamCheckNs;
      const MutexLock lock(mutex_);
      if (streams_[index] != nullptr) {
        const CUresult result = api_->cuStreamQuery(streams_[index]);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
          return Check(*api_, result, "cuStreamQuery", error);
        }
      }
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

void SayOnce(const char* why, const concert_gpu& gpu) {
  static std::atomic_flag said;  // stderr is a property of the process
  if (said.test_and_set()) return;
  std::fprintf(stderr,
               "libconcert: %s; computing in this process with cuBLASLt on %s "
               "(CONCERT_FALLBACK=cublas): GEMMs and copies only, not scheduled\n",
               why, gpu.name);
}

}  // namespace

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
