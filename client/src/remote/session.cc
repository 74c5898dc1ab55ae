#include "client/src/remote/session.h"

#include <fcntl.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "client/src/clock.h"
#include "client/src/cuda/driver.h"
#include "client/src/entry.h"
#include "client/src/failure.h"
#include "client/src/remote/buffer.h"
#include "client/src/remote/program.h"
#include "client/src/remote/queue.h"
#include "client/src/remote/shared_word.h"
#include "client/src/remote/user_timeline.h"

namespace concert::client {
namespace {

// The daemon makes memory and programs of all clients one after the other, and on a machine that is
// short of CPUs with a tenth of one.
constexpr int64_t kConnectTimeoutNs = 30'000'000'000;
constexpr int64_t kSubmitTimeoutNs = 1'000'000'000;
constexpr int64_t kHangupCheckNs = 10'000'000;
// Between requests for the room that programs of batches have given up.
constexpr int64_t kGiveWayPauseNs = 1'000'000;

// Copies a name into a fixed field. False when it does not fit with its final zero.
template <size_t N>
bool CopyName(const char* name, char (&field)[N]) {
  const size_t length = std::strlen(name);
  if (length >= N) return false;
  std::memcpy(field, name, length + 1);
  return true;
}

}  // namespace

int RemoteSession::Connect(const char* path, const concert_connect_options& options,
                           std::shared_ptr<concert_session>* session, bool* no_daemon,
                           concert_error* error) {
  auto made = std::make_shared<RemoteSession>();
  const int64_t timeout_ns = options.timeout_ns > 0 ? options.timeout_ns : kConnectTimeoutNs;
  const Deadline deadline(timeout_ns);
  if (int code = made->control_.Connect(path, timeout_ns, deadline, no_daemon, error)) return code;
  if (int code = made->Handshake(options, deadline, error)) return code;
  *session = std::move(made);
  return CONCERT_OK;
}

int RemoteSession::Handshake(const concert_connect_options& options, const Deadline& deadline,
                             concert_error* error) {
  submit_timeout_ns_ =
      options.submit_timeout_ns == 0 ? kSubmitTimeoutNs : options.submit_timeout_ns;
  recognises_batches_ = options.batches != CONCERT_BATCHES_OPS;
  concert_hello hello{};
  hello.abi_major = CONCERT_ABI_MAJOR;
  hello.abi_minor = CONCERT_ABI_MINOR;
  hello.features = CONCERT_FEATURE_CUDA_MEMORY | CONCERT_FEATURE_HOST_MEMORY | CONCERT_OP_FEATURES;
  hello.gpu_mask = options.gpu_mask;
  const char* name = options.client_name;
  if (name == nullptr) {
    std::strncpy(hello.client_name, program_invocation_short_name, sizeof(hello.client_name) - 1);
  } else if (!CopyName(name, hello.client_name)) {
    return Fail(error, CONCERT_INVALID_ARGUMENT, "client_name is longer than %d bytes",
                CONCERT_CLIENT_NAME_MAX - 1);
  }
  concert_hello_reply reply;
  std::vector<UniqueFd> fds;
  if (int code = control_.Call(CONCERT_CONTROL_HELLO, &hello, &reply, -1, &fds, deadline, error)) {
    return code;
  }
  return Adopt(reply, std::move(fds), error);
}

int RemoteSession::Adopt(const concert_hello_reply& reply, std::vector<UniqueFd> fds,
                         concert_error* error) {
  if (reply.abi_major != CONCERT_ABI_MAJOR) {
    return Fail(error, CONCERT_FAILED_PRECONDITION,
                "the daemon speaks version %u.%u of the ring ABI, this libconcert %d.%d; "
                "install matching versions",
                reply.abi_major, reply.abi_minor, CONCERT_ABI_MAJOR, CONCERT_ABI_MINOR);
  }
  const uint32_t ring_count = std::min<uint32_t>(reply.layout.ring_count, CONCERT_MAX_RINGS);
  if (fds.size() != 2 + ring_count || reply.gpu_count > CONCERT_MAX_RINGS) {
    return Fail(error, CONCERT_FAILED_PRECONDITION,
                "the daemon sent %zu file descriptors and %u GPUs for %u rings", fds.size(),
                reply.gpu_count, reply.layout.ring_count);
  }
  if (int code = regions_.Map(reply.layout, fds[0], fds[1], error)) return code;
  const concert_session_page& page = regions_.page();
  if (page.magic != CONCERT_SESSION_MAGIC || page.session != reply.session || page.session == 0) {
    return Fail(error, CONCERT_FAILED_PRECONDITION,
                "the daemon's session page is not one: magic %llx, session %u instead of %u",
                static_cast<unsigned long long>(page.magic), page.session, reply.session);
  }
  id_ = reply.session;
  names_.set_session(id_);
  features_ = reply.features;
  gpu_count_ = reply.gpu_count;
  for (uint32_t i = 0; i < gpu_count_; ++i) {
    const concert_gpu_info& from = reply.gpus[i];
    gpus_[i].backend = from.device;
    std::memcpy(gpus_[i].name, from.name, sizeof(from.name) - 1);
    std::memcpy(gpus_[i].uuid, from.uuid, sizeof(from.uuid));
    gpus_[i].memory_bytes = from.memory_bytes;
    gpus_[i].sm_count = from.sm_count;
  }
  for (uint32_t i = 0; i < ring_count; ++i) {
    rings_.push_back(std::make_unique<Ring>(regions_, i, std::move(fds[2 + i]), &outcomes_));
    if (recognises_batches_ && (features_ & CONCERT_FEATURE_BATCH_PROGRAMS) != 0)
      rings_[i]->RecogniseBatches();
    if (rings_[i]->gpu() < gpu_count_) gpus_[rings_[i]->gpu()].has_ring = 1;
  }
  return CONCERT_OK;
}

RemoteSession::~RemoteSession() {
  const int daemon_device = daemon_region_device_.load();
  const int client_device = client_region_device_.load();
  if (daemon_device != kNotRegistered)
    cuda::UnregisterHost(regions_.daemon().data(), daemon_device);
  if (client_device != kNotRegistered)
    cuda::UnregisterHost(regions_.client().data(), client_device);
}

void RemoteSession::Close() {
  lost_.store(true, std::memory_order_release);
  control_.Shutdown();
}

int RemoteSession::CheckOpen(bool thorough, concert_error* error) {
  const concert_session_page& page = regions_.page();
  if (LoadAcquire(&page.state) == CONCERT_SESSION_CLOSED) {
    char sentence[sizeof(concert_error::message)];
    names_.Render(page.close_message, page.close_args, sentence, sizeof(sentence));
    return Fail(error, CONCERT_UNAVAILABLE, "the daemon closed the session: %s", sentence);
  }
  if (thorough && !lost_.load(std::memory_order_acquire)) {
    const int64_t now_ns = NowNs();
    if (now_ns - hangup_checked_ns_.load(std::memory_order_relaxed) >= kHangupCheckNs) {
      hangup_checked_ns_.store(now_ns, std::memory_order_relaxed);
      if (control_.HungUp()) lost_.store(true, std::memory_order_release);
    }
  }
  if (!lost_.load(std::memory_order_acquire)) return CONCERT_OK;
  return Fail(error, CONCERT_UNAVAILABLE,
              "the session has ended: it was closed or the daemon went away");
}

const concert_gpu* RemoteSession::FindGpu(uint32_t gpu, concert_error* error) const {
  if (gpu < gpu_count_) return &gpus_[gpu];
  Fail(error, CONCERT_INVALID_ARGUMENT, "gpu is %u, but the node has %u GPUs", gpu, gpu_count_);
  return nullptr;
}

Ring* RemoteSession::FindRing(uint32_t gpu, concert_error* error) const {
  for (const auto& ring : rings_) {
    if (ring->gpu() == gpu) return ring.get();
  }
  Fail(error, CONCERT_INVALID_ARGUMENT,
       "gpu is %u, for which the session has no ring; check gpu_mask and concert_gpu_count", gpu);
  return nullptr;
}

int RemoteSession::Allocate(uint32_t gpu, uint64_t bytes, concert_buffer** buffer,
                            concert_error* error) {
  const concert_gpu* info = FindGpu(gpu, error);
  if (info == nullptr) return CONCERT_INVALID_ARGUMENT;
  return RemoteBuffer::Allocate(std::static_pointer_cast<RemoteSession>(shared_from_this()), *info,
                                gpu, bytes, buffer, error);
}

int RemoteSession::Import(const concert_import& import, concert_buffer** buffer,
                          concert_error* error) {
  const concert_gpu* info = FindGpu(import.gpu, error);
  if (info == nullptr) return CONCERT_INVALID_ARGUMENT;
  return RemoteBuffer::Import(std::static_pointer_cast<RemoteSession>(shared_from_this()), *info,
                              import, buffer, error);
}

int RemoteSession::CreateQueue(uint32_t gpu, int32_t priority, concert_queue** queue,
                               concert_error* error) {
  Ring* ring = FindRing(gpu, error);
  if (ring == nullptr) return CONCERT_INVALID_ARGUMENT;
  concert_create_queue request{};
  request.gpu = gpu;
  request.priority = priority;
  concert_create_queue_reply reply;
  if (int code = control_.Call(CONCERT_CONTROL_CREATE_QUEUE, &request, &reply, -1, nullptr,
                               control_.NextDeadline(), error)) {
    return code;
  }
  if (reply.queue >= regions_.layout().max_queues || reply.ring >= rings_.size() ||
      rings_[reply.ring].get() != ring) {
    return Fail(error, CONCERT_INTERNAL,
                "the daemon made queue %u on ring %u, which do not exist for GPU %u", reply.queue,
                reply.ring, gpu);
  }
  // The daemon takes the index of a queue whose ops have all ended, on whichever GPU: what became
  // of them is asked for by the index.
  Ring* const before = queue_rings_[reply.queue].load(std::memory_order_acquire);
  if (before != nullptr && before != ring) before->Drain();
  auto self = std::static_pointer_cast<RemoteSession>(shared_from_this());
  *queue = new RemoteQueue(std::move(self), ring, reply.queue, reply.ticket);
  queue_rings_[reply.queue].store(ring, std::memory_order_release);
  return CONCERT_OK;
}

int RemoteSession::Join(const concert_join& join, concert_communicator** communicator,
                        concert_error* error) {
  concert_join_communicator request{};
  request.rank = join.rank;
  request.ranks = join.ranks;
  request.gpu = join.gpu;
  if (join.name == nullptr || *join.name == '\0' || !CopyName(join.name, request.name)) {
    return Fail(error, CONCERT_INVALID_ARGUMENT, "name must have between 1 and %d bytes",
                CONCERT_COMMUNICATOR_NAME_MAX - 1);
  }
  concert_join_communicator_reply reply;
  if (int code = control_.Call(CONCERT_CONTROL_JOIN_COMMUNICATOR, &request, &reply, -1, nullptr,
                               control_.NextDeadline(), error)) {
    return code;
  }
  names_.AddCommunicator(reply.communicator, join.name);
  auto self = std::static_pointer_cast<RemoteSession>(shared_from_this());
  *communicator = new RemoteCommunicator(std::move(self), reply.communicator, join.gpu);
  return CONCERT_OK;
}

int RemoteSession::BeginProgram(uint32_t gpu, concert_program** program, concert_queue** queue,
                                concert_error* error) {
  if (FindGpu(gpu, error) == nullptr) return CONCERT_INVALID_ARGUMENT;
  return RemoteProgram::Begin(std::static_pointer_cast<RemoteSession>(shared_from_this()), gpu,
                              program, queue, error);
}

int RemoteSession::BeginBatch(uint32_t gpu, concert_error* error) {
  Ring* ring = FindRing(gpu, error);
  if (ring == nullptr) return CONCERT_INVALID_ARGUMENT;
  ring->BeginBatch();
  return CONCERT_OK;
}

int RemoteSession::EndBatch(uint32_t gpu, concert_error* error) {
  Ring* ring = FindRing(gpu, error);
  if (ring == nullptr) return CONCERT_INVALID_ARGUMENT;
  Ring::AfterBatch after;
  if (!ring->EndBatch(&after)) {
    return Fail(error, CONCERT_FAILED_PRECONDITION, "no batch is open on GPU %u", gpu);
  }
  // The ops are handed over, whatever becomes of this.
  Guard(nullptr, [&] {
    batch_programs_.After(*ring, after);
    return static_cast<int>(CONCERT_OK);
  });
  return CONCERT_OK;
}

void RemoteSession::HandOver() {
  for (const auto& ring : rings_) ring->Flush();
}

void RemoteSession::ReleaseHandle(uint32_t handle, const Deadline& deadline) {
  HandOver();
  control_.Release(CONCERT_CONTROL_RELEASE_BUFFER, handle, deadline);
}

int RemoteSession::TakeRoom(const Deadline& deadline, concert_error* error,
                            const std::function<int(concert_error*, bool*)>& call) {
  concert_error why;
  bool has_no_room = false;  // as opposed to this process
  int code = call(&why, &has_no_room);
  Deadline room_comes(0);
  if (has_no_room && batch_programs_.GiveUp(deadline, &room_comes)) {
    do {
      const timespec pause{0, kGiveWayPauseNs};
      nanosleep(&pause, nullptr);
      code = call(&why, &has_no_room);
    } while (has_no_room && !room_comes.passed());
  }
  if (code != CONCERT_OK && error != nullptr) *error = why;
  return code;
}

}  // namespace concert::client
