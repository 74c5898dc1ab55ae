#include "tests/support/fake_daemon.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace concert::test {
namespace {

constexpr uint32_t kMaxQueues = 64;
constexpr uint64_t kBufferBytes = 4096;
constexpr int kUnreadBytes = 8192;  // of replies, as in daemon/session/packet.cc

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::abort();
}

int Memfd(uint64_t bytes, int seals) {
  const int fd = memfd_create("fake_daemon", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) Die("memfd");
  if (seals != 0 && fcntl(fd, F_ADD_SEALS, seals) != 0) Die("F_ADD_SEALS");
  return fd;
}

void Send(int socket, const void* data, size_t bytes, const std::vector<int>& fds) {
  iovec io{const_cast<void*>(data), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(32 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size() * sizeof(int));
  }
  // The client may be gone already, which is no concern of the daemon's. That of one with too many
  // unread replies ends.
  const ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && errno == EAGAIN) shutdown(socket, SHUT_RDWR);
}

template <typename Reply>
Reply ReplyTo(const std::vector<char>& request) {
  Reply reply{};
  auto* head = reinterpret_cast<concert_control_reply*>(&reply);
  std::memcpy(&head->header, request.data(), sizeof(head->header));
  head->header.size = sizeof(Reply);
  return reply;
}

template <typename Request>
Request As(const std::vector<char>& bytes) {
  Request request{};
  std::memcpy(&request, bytes.data(), std::min(sizeof(request), bytes.size()));
  return request;
}

}  // namespace

FakeDaemon::FakeDaemon(Options options) : options_(std::move(options)) {
  char directory[] = "/tmp/concert-test-XXXXXX";
  if (mkdtemp(directory) == nullptr) test::Die("mkdtemp");
  directory_ = directory;
  path_ = directory_ + "/concert.sock";
  MakeRegions();
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "%s", path_.c_str());
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    test::Die("bind");
  }
  if (listen(listener_, 8) != 0) test::Die("listen");
  stop_ = eventfd(0, EFD_CLOEXEC);
  thread_ = std::thread([this] { Serve(); });
}

FakeDaemon::~FakeDaemon() {
  const uint64_t one = 1;
  if (write(stop_, &one, sizeof(one)) != sizeof(one)) test::Die("stop");
  thread_.join();
  Die();
  for (int fd : eventfds_) close(fd);
  munmap(client_memory_, layout_.client_bytes);
  munmap(daemon_memory_, layout_.daemon_bytes);
  for (int fd : {listener_, stop_, client_fd_, daemon_fd_}) close(fd);
  unlink(path_.c_str());
  rmdir(directory_.c_str());
}

void FakeDaemon::MakeRegions() {
  uint64_t client = 0, daemon = sizeof(concert_session_page);
  const auto take = [](uint64_t& end, uint64_t bytes) {
    const uint64_t at = end;
    end += (bytes + 63) / 64 * 64;
    return at;
  };
  layout_.ring_count = options_.rings;
  layout_.max_queues = kMaxQueues;
  layout_.max_user_timelines = options_.user_timelines;
  take(client, options_.rings * sizeof(concert_submit_control));
  layout_.waiters_offset = take(client, kMaxQueues * sizeof(uint32_t));
  layout_.user_timelines_offset = take(client, options_.user_timelines * sizeof(concert_timeline));
  layout_.ring_states_offset = take(daemon, options_.rings * sizeof(concert_ring_state));
  layout_.timelines_offset = take(daemon, kMaxQueues * sizeof(concert_timeline));
  for (uint32_t i = 0; i < options_.rings; ++i) {
    concert_ring_layout& ring = layout_.rings[i];
    ring.gpu = i;
    ring.capacity = options_.capacity;
    ring.completion_capacity = options_.completion_capacity;
    ring.descriptors_offset = take(client, ring.capacity * sizeof(concert_descriptor));
    ring.completions_offset = take(daemon, ring.completion_capacity * sizeof(concert_completion));
    eventfds_.push_back(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  }
  layout_.client_bytes = (client + 4095) / 4096 * 4096;
  layout_.daemon_bytes = (daemon + 4095) / 4096 * 4096;
  const int resizing = options_.seal ? F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL : 0;
  client_fd_ = Memfd(layout_.client_bytes, resizing);
  daemon_fd_ = Memfd(layout_.daemon_bytes, 0);
  const auto map = [](int fd, uint64_t bytes) {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) test::Die("mmap");
    return static_cast<char*>(data);
  };
  client_memory_ = map(client_fd_, layout_.client_bytes);
  daemon_memory_ = map(daemon_fd_, layout_.daemon_bytes);
  // After our own writable mapping, so that nobody else can make one.
  if (resizing != 0 && fcntl(daemon_fd_, F_ADD_SEALS, resizing | F_SEAL_FUTURE_WRITE) != 0) {
    test::Die("F_SEAL_FUTURE_WRITE");
  }
}

void FakeDaemon::Serve() {
  for (;;) {
    const int connection = connection_.load();
    pollfd items[] = {{stop_, POLLIN, 0}, {connection >= 0 ? connection : listener_, POLLIN, 0}};
    if (poll(items, 2, -1) < 0) test::Die("poll");
    if (items[0].revents != 0) return;
    if (connection < 0) {
      const int accepted = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (setsockopt(accepted, SOL_SOCKET, SO_SNDBUF, &kUnreadBytes, sizeof(kUnreadBytes)) != 0)
        test::Die("SO_SNDBUF");
      connection_.store(accepted);
      continue;
    }
    std::vector<char> request(4096);
    char control[256];
    iovec io{request.data(), request.size()};
    msghdr message{};
    message.msg_iov = &io;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t size = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
    if (size <= 0) {
      // The client left, or the test has let the daemon die. Nothing is read any more.
      pollfd stop{stop_, POLLIN, 0};
      poll(&stop, 1, -1);
      return;
    }
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c), sizeof(fd));
      close(fd);
    }
    request.resize(static_cast<size_t>(size));
    const MutexLock lock(mutex_);
    requests_.push_back(request);
    if (holding_) {
      held_requests_.push_back(request);
    } else if (options_.reply) {
      Handle(connection, request);
    }
  }
}

void FakeDaemon::Handle(int client, const std::vector<char>& request) {
  switch (As<concert_control_header>(request).type) {
    case CONCERT_CONTROL_HELLO:
      return SayHello(client, As<concert_hello>(request));
    case CONCERT_CONTROL_CREATE_QUEUE: {
      auto reply = ReplyTo<concert_create_queue_reply>(request);
      reply.queue = next_queue_++;
      reply.ring = As<concert_create_queue>(request).gpu;
      return Send(client, &reply, sizeof(reply), {});
    }
    case CONCERT_CONTROL_ALLOCATE_BUFFER: {
      auto reply = ReplyTo<concert_buffer_reply>(request);
      const uint64_t bytes = As<concert_allocate_buffer>(request).bytes;
      if (bytes > kBufferBytes) {
        reply.reply.status = CONCERT_ABI_RESOURCE_EXHAUSTED;
        std::snprintf(reply.reply.message, sizeof(reply.reply.message), "bytes is %llu",
                      static_cast<unsigned long long>(bytes));
        return Send(client, &reply, sizeof(reply), {});
      }
      reply.buffer = next_buffer_++;
      reply.allocation_bytes = kBufferBytes;
      const int fd = Memfd(kBufferBytes, F_SEAL_SHRINK | F_SEAL_GROW);
      Send(client, &reply, sizeof(reply), {fd});
      close(fd);
      return;
    }
    case CONCERT_CONTROL_IMPORT_BUFFER: {
      auto reply = ReplyTo<concert_buffer_reply>(request);
      reply.buffer = next_buffer_++;
      reply.allocation_bytes = As<concert_import_buffer>(request).allocation_bytes;
      return Send(client, &reply, sizeof(reply), {});
    }
    case CONCERT_CONTROL_SEAL_BUFFER: {
      auto reply = ReplyTo<concert_buffer_reply>(request);
      reply.buffer = next_buffer_++;
      return Send(client, &reply, sizeof(reply), {});
    }
    case CONCERT_CONTROL_JOIN_COMMUNICATOR: {
      auto reply = ReplyTo<concert_join_communicator_reply>(request);
      const uint32_t rank = As<concert_join_communicator>(request).rank;
      reply.communicator = next_communicator_++ << 8 | rank;  // as the daemon numbers handles
      return Send(client, &reply, sizeof(reply), {});
    }
    case CONCERT_CONTROL_CREATE_PROGRAM:
      if (options_.hold_programs) return held_.push_back(request);
      std::this_thread::sleep_for(options_.program_time);
      return AnswerProgram(client, request);
    default: {
      auto reply = ReplyTo<concert_control_reply>(request);
      return Send(client, &reply, sizeof(reply), {});
    }
  }
}

void FakeDaemon::Hold() {
  const MutexLock lock(mutex_);
  holding_ = true;
}

void FakeDaemon::AwaitHeld(size_t count) const {
  const auto held = [this] {
    const MutexLock lock(mutex_);
    return held_requests_.size();
  };
  while (held() < count) std::this_thread::yield();
}

void FakeDaemon::Answer() {
  const MutexLock lock(mutex_);
  holding_ = false;
  for (const std::vector<char>& request : held_requests_) Handle(connection_.load(), request);
  held_requests_.clear();
}

void FakeDaemon::AnswerProgram(int client, const std::vector<char>& request) {
  auto reply = ReplyTo<concert_program_reply>(request);
  reply.reply.status = program_status_;
  reply.flags = program_flags_;
  if (program_status_ == CONCERT_ABI_OK) reply.program = next_program_++;
  Send(client, &reply, sizeof(reply), {});
}

void FakeDaemon::AnswerProgramsWith(concert_status_abi status, uint32_t flags) {
  const MutexLock lock(mutex_);
  program_status_ = status;
  program_flags_ = flags;
}

void FakeDaemon::AnswerPrograms() {
  const auto any = [this] {
    const MutexLock lock(mutex_);
    return !held_.empty();
  };
  while (!any()) std::this_thread::yield();
  const MutexLock lock(mutex_);
  for (const std::vector<char>& request : held_) AnswerProgram(connection_.load(), request);
  held_.clear();
}

void FakeDaemon::SayHello(int client, const concert_hello& hello) {
  std::vector<char> request(sizeof(hello));
  std::memcpy(request.data(), &hello, sizeof(hello));
  auto reply = ReplyTo<concert_hello_reply>(request);
  auto* page = Daemon<concert_session_page>(0);
  page->magic = CONCERT_SESSION_MAGIC;
  page->abi_major = reply.abi_major = CONCERT_ABI_MAJOR;
  page->abi_minor = reply.abi_minor = CONCERT_ABI_MINOR;
  page->session = reply.session = options_.session;
  page->features = reply.features =
      hello.features & (CONCERT_FEATURE_HOST_MEMORY | CONCERT_OP_FEATURES);
  page->state = CONCERT_SESSION_RUNNING;
  reply.gpu_count = options_.rings;
  for (uint32_t i = 0; i < options_.rings; ++i) {
    std::snprintf(reply.gpus[i].name, sizeof(reply.gpus[i].name), "simulated GPU %u", i);
    reply.gpus[i].memory_bytes = 1u << 30;
    reply.gpus[i].sm_count = 132;
    reply.gpus[i].device = 1;
  }
  reply.layout = layout_;
  if (options_.edit_hello) options_.edit_hello(reply);
  std::vector<int> fds = {client_fd_, daemon_fd_};
  fds.insert(fds.end(), eventfds_.begin(), eventfds_.end());
  if (reply.reply.status != CONCERT_ABI_OK) fds.clear();
  Send(client, &reply, sizeof(reply), fds);
}

void FakeDaemon::Die() {
  const int connection = connection_.load();
  // shutdown, not close: the serving thread may be polling it. To the client both look the same.
  if (connection >= 0) shutdown(connection, SHUT_RDWR);
}

void FakeDaemon::CloseSession(concert_message message) {
  auto* page = Daemon<concert_session_page>(0);
  page->close_status = CONCERT_ABI_UNAVAILABLE;
  page->close_message = static_cast<uint16_t>(message);
  __atomic_store_n(&page->state, CONCERT_SESSION_CLOSED, __ATOMIC_RELEASE);
}

uint64_t FakeDaemon::tail(uint32_t ring) const {
  return __atomic_load_n(&Client<concert_submit_control>(0)[ring].tail, __ATOMIC_ACQUIRE);
}

concert_descriptor FakeDaemon::descriptor(uint64_t position, uint32_t ring) const {
  const auto* slots = Client<concert_descriptor>(layout_.rings[ring].descriptors_offset);
  return slots[position % options_.capacity];
}

void FakeDaemon::Consume(uint64_t head, uint32_t ring) {
  __atomic_store_n(&state(ring).head, head, __ATOMIC_RELEASE);
}

void FakeDaemon::SetSleeping(bool sleeping, uint32_t ring) {
  __atomic_store_n(&state(ring).sleeping, sleeping ? 1u : 0u, __ATOMIC_SEQ_CST);
}

void FakeDaemon::SetCompany(uint32_t company, uint32_t ring) {
  __atomic_store_n(&state(ring).company, company, __ATOMIC_RELAXED);
}

uint64_t FakeDaemon::Rings(uint32_t ring) {
  uint64_t count = 0;
  return read(eventfds_[ring], &count, sizeof(count)) == sizeof(count) ? count : 0;
}

void FakeDaemon::Fail(uint32_t queue, uint64_t ticket, concert_status_abi status,
                      concert_message message, std::vector<uint64_t> args, uint32_t ring,
                      uint16_t covered) {
  auto* entries = Daemon<concert_completion>(layout_.rings[ring].completions_offset);
  concert_completion& entry = entries[completions_ % options_.completion_capacity];
  entry = {};
  entry.sequence = completions_ + 1;
  entry.ticket = ticket;
  entry.queue = static_cast<uint16_t>(queue);
  entry.covered = covered;
  entry.status = static_cast<uint16_t>(status);
  entry.message = static_cast<uint16_t>(message);
  std::copy(args.begin(), args.end(), entry.args);
  __atomic_store_n(&state(ring).completion_tail, ++completions_, __ATOMIC_RELEASE);
  Reach(queue, ticket);
}

uint64_t FakeDaemon::completion_head(uint32_t ring) const {
  return __atomic_load_n(&Client<concert_submit_control>(0)[ring].completion_head,
                         __ATOMIC_ACQUIRE);
}

void FakeDaemon::Reach(uint32_t queue, uint64_t value) {
  uint64_t* word = &Daemon<concert_timeline>(layout_.timelines_offset)[queue].value;
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
  // Dekker pair with the client's "add waiter, full fence, load timeline".
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  const uint32_t* waiters = Client<uint32_t>(layout_.waiters_offset) + queue;
  if (__atomic_load_n(waiters, __ATOMIC_ACQUIRE) == 0) return;
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void FakeDaemon::AwaitSleeper(uint32_t queue) const {
  const uint32_t* waiters = Client<uint32_t>(layout_.waiters_offset) + queue;
  while (__atomic_load_n(waiters, __ATOMIC_ACQUIRE) == 0) std::this_thread::yield();
}

uint64_t FakeDaemon::user_timeline(uint32_t index) const {
  return __atomic_load_n(&Client<concert_timeline>(layout_.user_timelines_offset)[index].value,
                         __ATOMIC_ACQUIRE);
}

std::vector<std::vector<char>> FakeDaemon::Requests(concert_control_type type) const {
  const MutexLock lock(mutex_);
  std::vector<std::vector<char>> found;
  for (const auto& request : requests_) {
    if (As<concert_control_header>(request).type == type) found.push_back(request);
  }
  return found;
}

}  // namespace concert::test
