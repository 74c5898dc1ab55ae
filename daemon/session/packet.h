// Packets of the control protocol (proto/ring/control_abi.h) on a client's socket. Nothing here
// waits.
#ifndef CONCERT_DAEMON_SESSION_PACKET_H_
#define CONCERT_DAEMON_SESSION_PACKET_H_

#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/ring/control_abi.h"
#include "proto/unique_fd.h"

namespace concert::daemon {

// A received packet: the fixed-size message and the descriptors that came with it.
struct Packet {
  alignas(8) std::array<std::byte, 1024> bytes;
  size_t size = 0;
  std::vector<UniqueFd> fds;
  template <typename T>
  const T& as() const {
    return *reinterpret_cast<const T*>(bytes.data());
  }
  const concert_control_header& header() const { return as<concert_control_header>(); }
  // Whether magic, type, size and number of descriptors are as the protocol has them.
  bool WellFormed() const;
  // INVALID_ARGUMENT: a reserved field is not 0, which a later version may give a meaning.
  // REQUIRES: WellFormed().
  absl::Status CheckReserved() const;
};

// Of the reply to a request of the type; 0 if there is no such type.
size_t ReplySize(uint16_t type);

enum class Received {
  kPacket,
  kNothing,  // nothing to read now
  kOver,     // the client is gone or does not speak the protocol
};
Received Receive(int socket, Packet& packet);
// `type` is that of the next packet, which stays where it is and is what Receive gets next. Over is
// final, even where a later look would find packets: a client that leaves replies unread is seen to
// be gone (ECONNRESET) once, and before what it sent.
Received NextType(int socket, uint16_t& type);

// Fills in `head` as the answer to `request` and sends it as the first of `bytes` bytes. False if
// the client does not take it.
bool Reply(int socket, const Packet& request, const absl::Status& status,
           concert_control_reply& head, size_t bytes, std::span<const int> fds);

// From here on Reply fails for a client that leaves some ten replies unread, or a Hello's and some
// ten. Linux counts descriptors in them, and refuses to send any to anybody while there are more
// than RLIMIT_NOFILE. By default a client could leave 167.
void BoundUnreadReplies(int socket);

// Text from a fixed array that need not end in zero.
template <size_t N>
std::string TextOf(const char (&text)[N]) {
  return {text, strnlen(text, N)};
}

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SESSION_PACKET_H_
