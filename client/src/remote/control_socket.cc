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

namespace concert::client {
namespace {

constexpr size_t kFdsMax = 2 + CONCERT_MAX_RINGS;
constexpr int64_t kMillisecondNs = 1'000'000;

// Large enough for every reply; a longer packet is not one of ours.
union Packet {
  concert_control_reply reply;
  concert_hello_reply hello;
};

bool IsWhole(const Packet& packet, ssize_t size) {
  const concert_control_header& header = packet.reply.header;
  return static_cast<size_t>(size) >= sizeof(packet.reply) &&
         header.magic == CONCERT_CONTROL_MAGIC && header.size == size;
}

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
// errno.
ssize_t Receive(int socket, Packet* packet, std::vector<UniqueFd>* fds) {
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
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    errno = (message.msg_flags & MSG_CTRUNC) != 0 ? EMFILE : EMSGSIZE;
    return -1;
  }
  return size;
}

}  // namespace

int ControlSocket::Connect(const char* path, int64_t timeout_ns, bool* no_daemon,
                           concert_error* error) {
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
    return Fail(error, CONCERT_RESOURCE_EXHAUSTED, "cannot make a socket: %s", strerror(errno));
  }
  const Deadline deadline(timeout_ns);
  for (;;) {
    const auto* to = reinterpret_cast<const sockaddr*>(&address);
    if (connect(socket_.get(), to, sizeof(address)) == 0) return CONCERT_OK;
    if (errno == EINTR) continue;
    if (errno == EACCES || errno == EPERM) {
      return Fail(error, CONCERT_PERMISSION_DENIED, "may not connect to the daemon at %s: %s", path,
                  strerror(errno));
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

int ControlSocket::Send(const concert_control_header* request, int send_fd, concert_error* error) {
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
  const Deadline deadline(timeout_ns_);
  for (;;) {
    if (sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return CONCERT_OK;
    if (errno == EINTR) continue;
    if (errno != EAGAIN || !WaitFor(socket_.get(), POLLOUT, deadline)) {
      return Fail(error, CONCERT_UNAVAILABLE, "cannot send to the daemon: %s", strerror(errno));
    }
  }
}

int ControlSocket::Transact(concert_control_header* request, int send_fd, void* reply,
                            size_t reply_bytes, std::vector<UniqueFd>* fds, concert_error* error) {
  const MutexLock lock(mutex_);
  if (int code = Number(request, error)) return code;
  if (int code = Send(request, send_fd, error)) return code;
  const Deadline deadline(timeout_ns_);
  for (;;) {
    if (!WaitFor(socket_.get(), POLLIN, deadline)) {
      return Fail(error, CONCERT_DEADLINE_EXCEEDED, "the daemon did not reply within %lld ms",
                  static_cast<long long>(timeout_ns_ / kMillisecondNs));
    }
    Packet packet;
    std::vector<UniqueFd> received;
    const ssize_t size = Receive(socket_.get(), &packet, &received);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (size <= 0) {
      return Fail(error, CONCERT_UNAVAILABLE, "the daemon closed the connection%s%s",
                  size < 0 ? ": " : "", size < 0 ? strerror(errno) : "");
    }
    const concert_control_reply& head = packet.reply;
    const bool whole = IsWhole(packet, size);
    if (whole && head.header.request < request->request) {
      Keep(&packet, static_cast<size_t>(size));  // its fds close with `received`
      continue;
    }
    if (!whole || head.header.request != request->request || head.header.type != request->type ||
        (head.status == CONCERT_ABI_OK && static_cast<size_t>(size) != reply_bytes)) {
      return Fail(error, CONCERT_INTERNAL,
                  "the daemon's reply to request type %u is not one (%zd bytes)", request->type,
                  size);
    }
    if (head.status != CONCERT_ABI_OK) {
      return Fail(error, static_cast<int>(head.status), "%.*s",
                  static_cast<int>(strnlen(head.message, sizeof(head.message))), head.message);
    }
    std::memcpy(reply, &packet, reply_bytes);
    if (fds != nullptr) *fds = std::move(received);
    return CONCERT_OK;
  }
}

int ControlSocket::Number(concert_control_header* request, concert_error* error) {
  if (shut_down_.load()) return Fail(error, CONCERT_UNAVAILABLE, "the session was closed");
  request->request = next_request_++;
  return CONCERT_OK;
}

int ControlSocket::Post(concert_create_program* request, int send_fd, concert_error* error) {
  request->header = {CONCERT_CONTROL_MAGIC, CONCERT_CONTROL_CREATE_PROGRAM,
                     static_cast<uint16_t>(sizeof(*request)), 0, 0};
  const MutexLock lock(mutex_);
  if (int code = Number(&request->header, error)) return code;
  if (int code = Send(&request->header, send_fd, error)) return code;
  posted_ = request->header.request;
  return CONCERT_OK;
}

void ControlSocket::Keep(const void* packet, size_t bytes) {
  concert_program_reply reply{};
  std::memcpy(&reply, packet, std::min(bytes, sizeof(reply)));
  if (posted_ == 0 || reply.reply.header.request != posted_) return;
  const bool fits = reply.reply.header.type == CONCERT_CONTROL_CREATE_PROGRAM &&
                    (reply.reply.status != CONCERT_ABI_OK || bytes == sizeof(reply));
  if (!fits) reply.reply.status = CONCERT_ABI_UNAVAILABLE;
  posted_reply_ = reply;
  posted_ = 0;
}

bool ControlSocket::Collect(bool wait, concert_program_reply* reply) {
  // Somebody else's call may last; its reply brings this one along.
  if (wait) {
    mutex_.Lock();
  } else if (!mutex_.TryLock()) {
    return false;
  }
  const bool there = CollectLocked(wait);
  if (there) *reply = posted_reply_;
  mutex_.Unlock();
  return there;
}

bool ControlSocket::CollectLocked(bool wait) {
  const Deadline deadline(timeout_ns_);
  while (posted_ != 0) {
    Packet packet;
    std::vector<UniqueFd> received;
    const ssize_t size = Receive(socket_.get(), &packet, &received);
    if (size > 0 && IsWhole(packet, size)) {
      Keep(&packet, static_cast<size_t>(size));
    } else if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (!wait) return false;
      if (WaitFor(socket_.get(), POLLIN, deadline)) continue;
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
