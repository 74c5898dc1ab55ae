#include "daemon/session/packet.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "daemon/check.h"

namespace concert::daemon {
namespace {

// What a client may send along: one fd, with an import. Room for more, so that they are closed.
constexpr size_t kMaxFds = 4;
// Of replies that a client leaves unread, as Linux counts them: more than a page for a Hello's, and
// a kilobyte for most others. Linux doubles it.
constexpr int kUnreadBytes = 8192;

struct RequestKind {
  size_t size = 0;
  size_t reply_size = 0;
  size_t reserved_at = 0;  // where a reserved field of 32 bits is besides the header's; 0: nowhere
};

RequestKind KindOf(uint16_t type) {
  switch (type) {
    case CONCERT_CONTROL_HELLO:
      return {sizeof(concert_hello), sizeof(concert_hello_reply),
              offsetof(concert_hello, reserved)};
    case CONCERT_CONTROL_CREATE_QUEUE:
      return {sizeof(concert_create_queue), sizeof(concert_create_queue_reply)};
    case CONCERT_CONTROL_DESTROY_QUEUE:
      return {sizeof(concert_destroy_queue), sizeof(concert_control_reply),
              offsetof(concert_destroy_queue, reserved)};
    case CONCERT_CONTROL_ALLOCATE_BUFFER:
      return {sizeof(concert_allocate_buffer), sizeof(concert_buffer_reply),
              offsetof(concert_allocate_buffer, reserved)};
    case CONCERT_CONTROL_IMPORT_BUFFER:
      return {sizeof(concert_import_buffer), sizeof(concert_buffer_reply)};
    case CONCERT_CONTROL_RELEASE_BUFFER:
      return {sizeof(concert_release_buffer), sizeof(concert_control_reply),
              offsetof(concert_release_buffer, reserved)};
    case CONCERT_CONTROL_JOIN_COMMUNICATOR:
      return {sizeof(concert_join_communicator), sizeof(concert_join_communicator_reply),
              offsetof(concert_join_communicator, reserved)};
    case CONCERT_CONTROL_LEAVE_COMMUNICATOR:
      return {sizeof(concert_leave_communicator), sizeof(concert_control_reply),
              offsetof(concert_leave_communicator, reserved)};
    case CONCERT_CONTROL_CREATE_PROGRAM:
      return {sizeof(concert_create_program), sizeof(concert_program_reply)};
    case CONCERT_CONTROL_SEAL_BUFFER:
      return {sizeof(concert_seal_buffer), sizeof(concert_buffer_reply),
              offsetof(concert_seal_buffer, reserved)};
    default:
      return {};
  }
}

uint32_t AbiStatus(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kUnavailable:
      return static_cast<uint32_t>(status.raw_code());
    case absl::StatusCode::kAlreadyExists:
      return CONCERT_ABI_FAILED_PRECONDITION;
    default:
      return CONCERT_ABI_INTERNAL;
  }
}

}  // namespace

bool Packet::WellFormed() const {
  const bool import = header().type == CONCERT_CONTROL_IMPORT_BUFFER &&
                      size == sizeof(concert_import_buffer) &&
                      as<concert_import_buffer>().kind != CONCERT_IMPORT_CUDA_IPC;
  return header().magic == CONCERT_CONTROL_MAGIC && header().size == size &&
         size == KindOf(header().type).size &&
         fds.size() == (import || header().type == CONCERT_CONTROL_CREATE_PROGRAM ? 1 : 0);
}

absl::Status Packet::CheckReserved() const {
  uint32_t reserved = header().reserved;
  if (const size_t at = KindOf(header().type).reserved_at; reserved == 0 && at != 0)
    std::memcpy(&reserved, bytes.data() + at, sizeof(reserved));
  if (reserved == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("reserved of the request is ", reserved, "; it must be 0"));
}

size_t ReplySize(uint16_t type) { return KindOf(type).reply_size; }

Received Receive(int socket, Packet& packet) {
  iovec data{packet.bytes.data(), packet.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t size = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return Received::kNothing;
  // An empty packet looks like the end of the connection, but fds may have come with it.
  for (cmsghdr* part = size >= 0 ? CMSG_FIRSTHDR(&message) : nullptr; part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      packet.fds.emplace_back(fd);
    }
  }
  packet.size = size > 0 ? static_cast<size_t>(size) : 0;
  const bool whole = size > 0 && (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
  return whole && packet.size >= sizeof(concert_control_header) ? Received::kPacket
                                                                : Received::kOver;
}

Received NextType(int socket, uint16_t& type) {
  concert_control_header header{};
  const ssize_t size = recv(socket, &header, sizeof(header), MSG_DONTWAIT | MSG_PEEK);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return Received::kNothing;
  type = header.type;
  return size == sizeof(header) ? Received::kPacket : Received::kOver;
}

void BoundUnreadReplies(int socket) {
  const int set = setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &kUnreadBytes, sizeof(kUnreadBytes));
  CONCERT_CHECK(set == 0);  // any size is taken
}

bool Reply(int socket, const Packet& request, const absl::Status& status,
           concert_control_reply& head, size_t bytes, std::span<const int> fds) {
  head.header = {.magic = CONCERT_CONTROL_MAGIC,
                 .type = request.header().type,
                 .size = static_cast<decltype(head.header.size)>(bytes),
                 .request = request.header().request,
                 .reserved = 0};
  head.status = AbiStatus(status);
  const size_t length = std::min(status.message().size(), sizeof(head.message) - 1);
  status.message().copy(head.message, length);
  head.message[length] = '\0';

  iovec data{&head, bytes};
  alignas(cmsghdr) char control[CMSG_SPACE((2 + CONCERT_MAX_RINGS) * sizeof(int))];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(part), fds.data(), fds.size_bytes());
  }
  return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
}

}  // namespace concert::daemon
