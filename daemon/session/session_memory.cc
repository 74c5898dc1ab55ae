#include "daemon/session/session_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/check.h"

namespace concert::daemon {
namespace {

constexpr uint64_t kPage = 4096;

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010  // Linux 5.1
#endif

// Reserves `bytes` at the next multiple of `alignment`.
uint64_t Place(uint64_t& end, uint64_t bytes, uint64_t alignment) {
  const uint64_t offset = (end + alignment - 1) / alignment * alignment;
  end = offset + bytes;
  return offset;
}

concert_layout MakeLayout(const SessionMemory::Options& options) {
  concert_layout layout{};
  layout.ring_count = static_cast<uint32_t>(options.gpus.size());
  layout.max_queues = CONCERT_MAX_QUEUES;
  layout.max_user_timelines = CONCERT_MAX_USER_TIMELINES;
  uint64_t client = 0, daemon = 0;
  Place(client, layout.ring_count * sizeof(concert_submit_control), kPage);
  layout.waiters_offset = Place(client, layout.max_queues * sizeof(uint32_t), 64);
  // Own pages, since the client registers them with its GPU.
  layout.user_timelines_offset =
      Place(client, layout.max_user_timelines * sizeof(concert_timeline), kPage);
  Place(daemon, sizeof(concert_session_page), kPage);
  layout.ring_states_offset = Place(daemon, layout.ring_count * sizeof(concert_ring_state), 64);
  layout.timelines_offset = Place(daemon, layout.max_queues * sizeof(concert_timeline), kPage);
  for (uint32_t i = 0; i < layout.ring_count; ++i) {
    concert_ring_layout& ring = layout.rings[i];
    ring.gpu = static_cast<uint32_t>(options.gpus[i]);
    ring.capacity = ring.completion_capacity = options.ring_capacity;
    ring.descriptors_offset = Place(client, ring.capacity * sizeof(concert_descriptor), kPage);
    ring.completions_offset =
        Place(daemon, ring.completion_capacity * sizeof(concert_completion), kPage);
  }
  Place(client, 0, kPage);
  Place(daemon, 0, kPage);
  layout.client_bytes = (client + kPage - 1) / kPage * kPage;
  layout.daemon_bytes = (daemon + kPage - 1) / kPage * kPage;
  return layout;
}

absl::Status Errno(const char* what) {
  return absl::ResourceExhaustedError(absl::StrCat(what, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SessionMemory>> SessionMemory::Create(const Options& options) {
  CONCERT_CHECK(options.gpus.size() <= CONCERT_MAX_RINGS);
  std::unique_ptr<SessionMemory> memory(new SessionMemory);
  memory->layout_ = MakeLayout(options);
  const concert_layout& layout = memory->layout_;

  memory->client_fd_ = memfd_create("concert-client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  memory->daemon_fd_ = memfd_create("concert-daemon", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memory->client_fd_ < 0 || memory->daemon_fd_ < 0) return Errno("memfd_create");
  if (ftruncate(memory->client_fd_, static_cast<off_t>(layout.client_bytes)) != 0 ||
      ftruncate(memory->daemon_fd_, static_cast<off_t>(layout.daemon_bytes)) != 0) {
    return Errno("ftruncate of a session's memory");
  }
  void* client = mmap(nullptr, layout.client_bytes, PROT_READ, MAP_SHARED, memory->client_fd_, 0);
  if (client == MAP_FAILED) return Errno("mmap of the client region");
  memory->client_ = static_cast<char*>(client);
  void* daemon =
      mmap(nullptr, layout.daemon_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->daemon_fd_, 0);
  if (daemon == MAP_FAILED) return Errno("mmap of the daemon region");
  memory->daemon_ = static_cast<char*>(daemon);
  // No resizing: a client that shrank the file would turn our next access into SIGBUS. No future
  // write: our mapping above stays writable, the client can only map the daemon region for reading.
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (fcntl(memory->client_fd_, F_ADD_SEALS, kSeals) != 0)
    return Errno("sealing the client region");
  if (fcntl(memory->daemon_fd_, F_ADD_SEALS, kSeals | F_SEAL_FUTURE_WRITE) != 0) {
    return Errno("sealing the daemon region (needs Linux 5.1)");
  }
  concert_session_page& page = memory->page();
  page.magic = CONCERT_SESSION_MAGIC;
  page.abi_major = CONCERT_ABI_MAJOR;
  page.abi_minor = CONCERT_ABI_MINOR;
  page.session = options.session;
  page.features = options.features;
  page.state = CONCERT_SESSION_RUNNING;
  return memory;
}

SessionMemory::~SessionMemory() {
  CloseFds();
  if (client_ != nullptr) munmap(client_, layout_.client_bytes);
  if (daemon_ != nullptr) munmap(daemon_, layout_.daemon_bytes);
}

void SessionMemory::CloseFds() {
  if (client_fd_ >= 0) close(client_fd_);
  if (daemon_fd_ >= 0) close(daemon_fd_);
  client_fd_ = daemon_fd_ = -1;
}

void SessionMemory::MarkClosed(const kernels::Failure& why) {
  concert_session_page& p = page();
  p.close_status = static_cast<uint16_t>(why.status);
  p.close_message = static_cast<uint16_t>(why.message);
  for (size_t i = 0; i < why.args.size(); ++i) p.close_args[i] = why.args[i];
  // Release: whoever reads the state (client, acquire) also sees why.
  StoreRelease(p.state, static_cast<uint32_t>(CONCERT_SESSION_CLOSED));
}

void SessionMemory::MarkDraining() {
  StoreRelease(page().state, static_cast<uint32_t>(CONCERT_SESSION_DRAINING));
}

}  // namespace concert::daemon
