#include "client/src/remote/control_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "client/src/clock.h"
#include "client/src/failure.h"
#include "client/src/file_limit.h"

namespace concert::client {

// Large enough for every reply; a longer packet is not one of ours.
union ControlSocket::Packet {
  concert_control_reply reply;
  concert_hello_reply hello;
  concert_create_queue_reply queue;
  concert_buffer_reply buffer;
  concert_join_communicator_reply communicator;
  concert_program_reply program;

  bool IsWhole(ssize_t size) const {
    const concert_control_header& header = reply.header;
    return size >= static_cast<ssize_t>(sizeof(reply)) && header.magic == CONCERT_CONTROL_MAGIC &&
           header.size == size;
  }
};

namespace {

constexpr size_t kFdsMax = 2 + CONCERT_MAX_RINGS;
constexpr int64_t kMillisecondNs = 1'000'000;
// Requests without a reply that was read. The daemon ends the session of a client that leaves some
// ten unread (docs/protocol.md), and as many as these may come at once.
constexpr uint32_t kUnansweredMax = 8;

// Waits until `events` are there or the deadline passes. Returns false then.
bool WaitFor(int socket, short events, const Deadline& deadline) {
  for (;;) {
    pollfd item{socket, events, 0};
    const int64_t left_ns = deadline.Left(1000 * kMillisecondNs);
    const int left_ms = static_cast<int>((left_ns + kMillisecondNs - 1) / kMillisecondNs);
    const int count = poll(&item, 1, left_ms);
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) return true;  // the call that follows reports it
    if (deadline.passed()) return false;
  }
}

// Receives one packet and takes ownership of its fds. Returns its size, 0 at the end, -1 with
// errno. *lost_fds: this process had none free for some of them.
template <typename Packet>
ssize_t Receive(int socket, Packet* packet, std::vector<UniqueFd>* fds, bool* lost_fds) {
  iovec io{packet, sizeof(*packet)};
  alignas(cmsghdr) char control[CMSG_SPACE(kFdsMax * sizeof(int))];
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t size = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (size < 0) return size;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
      fds->emplace_back(fd);
    }
  }
  if ((message.msg_flags & MSG_TRUNC) != 0) {
    errno = EMSGSIZE;
    return -1;
  }
  *lost_fds = (message.msg_flags & MSG_CTRUNC) != 0;
  return size;
}

// `size` is what Receive has returned.
int FailHungUp(ssize_t size, concert_error* error) {
  return Fail(error, CONCERT_UNAVAILABLE, "the daemon closed the connection%s%s",
              size < 0 ? ": " : "", size < 0 ? strerror(errno) : "");
}

// Requests that give a handle up are alike.
concert_release_buffer GiveUpRequest(concert_control_type type, uint32_t handle) {
  static_assert(sizeof(concert_destroy_queue) == sizeof(concert_release_buffer) &&
                sizeof(concert_leave_communicator) == sizeof(concert_release_buffer));
  return {
      {CONCERT_CONTROL_MAGIC, static_cast<uint16_t>(type), sizeof(concert_release_buffer), 0, 0},
      handle,
      0};
}

}  // namespace

int ControlSocket::Connect(const char* path, int64_t timeout_ns, const Deadline& deadline,
                           bool* no_daemon, concert_error* error) {
  timeout_ns_ = timeout_ns;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (std::strlen(path) >= sizeof(address.sun_path)) {
    return Fail(error, CONCERT_INVALID_ARGUMENT,
                "the socket path %.128s... is longer than %zu bytes", path,
                sizeof(address.sun_path) - 1);
  }
  std::strcpy(address.sun_path, path);
  closed_in_children_ = ClosedInChildren(
      [] { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  socket_ = UniqueFd(closed_in_children_.fd());
  if (!socket_) {
    if (IsNoFdFree(errno)) return FailNoFdFree("a socket", error);
    return Fail(error, CONCERT_RESOURCE_EXHAUSTED, "cannot make a socket: %s", strerror(errno));
  }
  for (;;) {
    const auto* to = reinterpret_cast<const sockaddr*>(&address);
    if (connect(socket_.get(), to, sizeof(address)) == 0) return CONCERT_OK;
    if (errno == EINTR) continue;
    if (errno == EACCES || errno == EPERM) {
      return Fail(error, CONCERT_PERMISSION_DENIED, "may not connect to the daemon at %s: %s", path,
                  strerror(errno));
    }
    if (errno == EPROTOTYPE) {  // a stream socket, as that of the admin API is
      return Fail(error, CONCERT_INVALID_ARGUMENT,
                  "%s is no socket for clients; give the daemon's socket, not its admin_socket "
                  "(CONCERT_SOCKET)",
                  path);
    }
    // EAGAIN: its backlog is full, so a daemon is there but busy.
    if (errno != EAGAIN || deadline.passed()) {
      *no_daemon = errno != EAGAIN;
      return Fail(error, CONCERT_UNAVAILABLE, "no daemon at %s: %s", path, strerror(errno));
    }
    const timespec pause{0, kMillisecondNs};
    nanosleep(&pause, nullptr);
  }
}

int ControlSocket::Send(const concert_control_header* request, int send_fd,
                        const Deadline& deadline, concert_error* error) {
  iovec io{const_cast<concert_control_header*>(request), request->size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  if (send_fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &send_fd, sizeof(send_fd));
  }
  for (;;) {
    if (sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) {
      ++unanswered_;
      return CONCERT_OK;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN || !WaitFor(socket_.get(), POLLOUT, deadline)) {
      return Fail(error, CONCERT_UNAVAILABLE, "cannot send to the daemon: %s", strerror(errno));
    }
  }
}

ssize_t ControlSocket::ReceiveReply(Packet* packet, std::vector<UniqueFd>* fds, bool* lost_fds) {
  const ssize_t size = Receive(socket_.get(), packet, fds, lost_fds);
  if (size > 0 && unanswered_ > 0) --unanswered_;
  return size;
}

int ControlSocket::AwaitRoom(const Deadline& deadline, concert_error* error) {
  // Replies that have come are read before there are too many, so that nobody has to wait.
  while (unanswered_ > 0) {
    Packet packet;
    std::vector<UniqueFd> received;
    bool lost_fds = false;
    const ssize_t size = ReceiveReply(&packet, &received, &lost_fds);
    if (size > 0) {
      if (packet.IsWhole(size)) Keep(packet, static_cast<size_t>(size));
      continue;
    }
    if (size == 0 || (errno != EAGAIN && errno != EINTR)) return FailHungUp(size, error);
    if (errno == EINTR) continue;
    if (unanswered_ < kUnansweredMax) return CONCERT_OK;
    if (!WaitFor(socket_.get(), POLLIN, deadline)) return FailLate(error);
  }
  return CONCERT_OK;
}

int ControlSocket::FailLate(concert_error* error) const {
  return Fail(error, CONCERT_DEADLINE_EXCEEDED, "the daemon did not reply within %lld ms",
              static_cast<long long>(timeout_ns_ / kMillisecondNs));
}

int ControlSocket::Transact(concert_control_header* request, int send_fd, void* reply,
                            size_t reply_bytes, std::vector<UniqueFd>* fds,
                            const Deadline& deadline, concert_error* error) {
  if (!turn_.Take(deadline)) {
    return Fail(error, CONCERT_DEADLINE_EXCEEDED,
                "calls of other threads waited for the daemon for all of the %lld ms that this one "
                "had",
                static_cast<long long>(timeout_ns_ / kMillisecondNs));
  }
  const int code = TransactInTurn(request, send_fd, reply, reply_bytes, fds, deadline, error);
  EndTurn();
  return code;
}

int ControlSocket::TransactInTurn(concert_control_header* request, int send_fd, void* reply,
                                  size_t reply_bytes, std::vector<UniqueFd>* fds,
                                  const Deadline& deadline, concert_error* error) {
  SendUnwanted(deadline);
  if (int code = AwaitRoom(deadline, error)) return code;
  if (int code = Number(request, error)) return code;
  if (int code = Send(request, send_fd, deadline, error)) return code;
  for (;;) {
    if (!WaitFor(socket_.get(), POLLIN, deadline)) return FailLate(error);
    Packet packet;
    std::vector<UniqueFd> received;
    bool lost_fds = false;
    const ssize_t size = ReceiveReply(&packet, &received, &lost_fds);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (size <= 0) return FailHungUp(size, error);
    if (packet.IsWhole(size) && packet.reply.header.request < request->request) {
      Keep(packet, static_cast<size_t>(size));  // its fds close with `received`
      continue;
    }
    const int code = TakeReply(packet, size, lost_fds, *request, reply, reply_bytes, error);
    if (code == CONCERT_OK && fds != nullptr) *fds = std::move(received);
    return code;
  }
}

int ControlSocket::TakeReply(const Packet& packet, ssize_t size, bool lost_fds,
                             const concert_control_header& request, void* reply, size_t reply_bytes,
                             concert_error* error) {
  const concert_control_reply& head = packet.reply;
  if (!packet.IsWhole(size) || head.header.request != request.request ||
      head.header.type != request.type ||
      (head.status == CONCERT_ABI_OK && static_cast<size_t>(size) != reply_bytes)) {
    return Fail(error, CONCERT_INTERNAL,
                "the daemon's reply to request type %u is not one (%zd bytes)", request.type, size);
  }
  if (head.status != CONCERT_ABI_OK) {
    std::memcpy(reply, &head, sizeof(head));
    return Fail(error, static_cast<int>(head.status), "%.*s",
                static_cast<int>(strnlen(head.message, sizeof(head.message))), head.message);
  }
  if (lost_fds) {
    GiveUp(packet);
    return FailNoFdFree("what the daemon sent", error);
  }
  std::memcpy(reply, &packet, reply_bytes);
  return CONCERT_OK;
}

int ControlSocket::Number(concert_control_header* request, concert_error* error) {
  if (shut_down_.load()) return Fail(error, CONCERT_UNAVAILABLE, "the session was closed");
  request->request = next_request_++;
  return CONCERT_OK;
}

void ControlSocket::Release(concert_control_type type, uint32_t handle, const Deadline& deadline) {
  if (!turn_.Take(deadline)) return ReleaseSoon(type, handle);
  concert_release_buffer request = GiveUpRequest(type, handle);
  concert_control_reply reply;
  TransactInTurn(&request.header, -1, &reply, sizeof(reply), nullptr, deadline, nullptr);
  if (request.header.request == 0) {  // not sent
    const MutexLock lock(unwanted_mutex_);
    unwanted_.push_back({type, handle});
  }
  EndTurn();
}

void ControlSocket::ReleaseSoon(concert_control_type type, uint32_t handle) {
  {
    const MutexLock lock(unwanted_mutex_);
    unwanted_.push_back({type, handle});
  }
  // Who has the turn looks at them when he has given it back.
  if (turn_.TryTake()) EndTurn();
}

std::optional<ControlSocket::Unwanted> ControlSocket::FirstUnwanted() {
  const MutexLock lock(unwanted_mutex_);
  if (unwanted_.empty()) return std::nullopt;
  return unwanted_.front();
}

bool ControlSocket::SendUnwanted(const Deadline& deadline) {
  // Not under its mutex, which nobody is to wait for long.
  while (const std::optional<Unwanted> first = FirstUnwanted()) {
    concert_release_buffer request = GiveUpRequest(first->type, first->handle);
    if (Number(&request.header, nullptr) != CONCERT_OK ||
        AwaitRoom(deadline, nullptr) != CONCERT_OK ||
        Send(&request.header, -1, deadline, nullptr) != CONCERT_OK) {
      return false;
    }
    const MutexLock lock(unwanted_mutex_);
    unwanted_.erase(unwanted_.begin());  // Keep drops the reply
  }
  return true;
}

void ControlSocket::EndTurn() {
  bool sent = SendUnwanted(Deadline(0));
  turn_.GiveBack();
  // Who came with another in the meantime has not waited for the turn.
  while (sent && FirstUnwanted().has_value() && turn_.TryTake()) {
    sent = SendUnwanted(Deadline(0));
    turn_.GiveBack();
  }
}

ControlSocket::Posted ControlSocket::Post(concert_create_program* request, int send_fd) {
  request->header = {CONCERT_CONTROL_MAGIC, CONCERT_CONTROL_CREATE_PROGRAM,
                     static_cast<uint16_t>(sizeof(*request)), 0, 0};
  if (!turn_.TryTake()) return Posted::kBusy;
  Posted posted = Posted::kFailed;
  if (Number(&request->header, nullptr) == CONCERT_OK) {
    if (AwaitRoom(Deadline(0), nullptr) == CONCERT_OK &&
        Send(&request->header, send_fd, Deadline(0), nullptr) == CONCERT_OK) {
      posted_ = request->header.request;
      posted = Posted::kYes;
    } else if (!HungUp()) {
      posted = Posted::kBusy;
    }
  }
  EndTurn();
  return posted;
}

void ControlSocket::Keep(const Packet& packet, size_t bytes) {
  if (posted_ == 0 || packet.reply.header.request != posted_) return GiveUp(packet);
  concert_program_reply reply{};
  std::memcpy(&reply, &packet, std::min(bytes, sizeof(reply)));
  const bool fits = reply.reply.header.type == CONCERT_CONTROL_CREATE_PROGRAM &&
                    (reply.reply.status != CONCERT_ABI_OK || bytes == sizeof(reply));
  if (!fits) reply.reply.status = CONCERT_ABI_UNAVAILABLE;
  posted_reply_ = reply;
  posted_ = 0;
}

void ControlSocket::GiveUp(const Packet& packet) {
  Unwanted made{CONCERT_CONTROL_RELEASE_BUFFER, 0};
  size_t bytes = 0;
  switch (packet.reply.header.type) {
    case CONCERT_CONTROL_CREATE_QUEUE:
      made = {CONCERT_CONTROL_DESTROY_QUEUE, packet.queue.queue};
      bytes = sizeof(packet.queue);
      break;
    case CONCERT_CONTROL_ALLOCATE_BUFFER:
    case CONCERT_CONTROL_IMPORT_BUFFER:
    case CONCERT_CONTROL_SEAL_BUFFER:
      made.handle = packet.buffer.buffer;
      bytes = sizeof(packet.buffer);
      break;
    case CONCERT_CONTROL_JOIN_COMMUNICATOR:
      made = {CONCERT_CONTROL_LEAVE_COMMUNICATOR, packet.communicator.communicator};
      bytes = sizeof(packet.communicator);
      break;
    case CONCERT_CONTROL_CREATE_PROGRAM:
      made.handle = packet.program.program;
      bytes = sizeof(packet.program);
      break;
    default:
      return;  // makes nothing
  }
  if (packet.reply.status != CONCERT_ABI_OK || packet.reply.header.size != bytes) return;
  const MutexLock lock(unwanted_mutex_);
  unwanted_.push_back(made);
}

bool ControlSocket::Collect(const Deadline* deadline, concert_program_reply* reply) {
  // Somebody else's call may last; its reply brings this one along.
  if (deadline == nullptr) {
    if (!turn_.TryTake()) return false;
  } else if (!turn_.Take(*deadline)) {
    return false;
  }
  const bool there = CollectInTurn(deadline);
  if (there) *reply = posted_reply_;
  EndTurn();
  return there;
}

bool ControlSocket::CollectInTurn(const Deadline* deadline) {
  while (posted_ != 0) {
    Packet packet;
    std::vector<UniqueFd> received;
    bool lost_fds = false;
    const ssize_t size = ReceiveReply(&packet, &received, &lost_fds);
    if (size > 0 && packet.IsWhole(size)) {
      Keep(packet, static_cast<size_t>(size));
    } else if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (deadline == nullptr) return false;
      if (WaitFor(socket_.get(), POLLIN, *deadline)) continue;
      posted_ = 0;
      posted_reply_.reply.status = CONCERT_ABI_UNAVAILABLE;
    } else {  // the end, or nothing of ours
      posted_ = 0;
      posted_reply_.reply.status = CONCERT_ABI_UNAVAILABLE;
    }
  }
  return true;
}

bool ControlSocket::HungUp() const {
  if (shut_down_.load()) return true;
  pollfd item{socket_.get(), POLLRDHUP, 0};
  return poll(&item, 1, 0) > 0;
}

void ControlSocket::Shutdown() {
  shut_down_.store(true);
  shutdown(socket_.get(), SHUT_RDWR);
}

}  // namespace concert::client
