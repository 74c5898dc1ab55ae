// The control protocol's client end (proto/ring/control_abi.h): one request at a time, each bounded
// in time.
#ifndef CONCERT_CLIENT_SRC_REMOTE_CONTROL_SOCKET_H_
#define CONCERT_CLIENT_SRC_REMOTE_CONTROL_SOCKET_H_

#include <atomic>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "client/src/fork.h"
#include "concert/concert.h"
#include "proto/mutex.h"
#include "proto/ring/control_abi.h"
#include "proto/unique_fd.h"

namespace concert::client {

class ControlSocket {
 public:
  // *no_daemon: nobody listens there, as opposed to a daemon that refuses.
  int Connect(const char* path, int64_t timeout_ns, bool* no_daemon, concert_error* error);

  // Sends `request` (its header is filled in here), with `send_fd` unless that is -1, and receives
  // the reply and its fds. A reply that is not OK becomes the error. Thread-safe.
  template <typename Request, typename Reply>
  int Call(concert_control_type type, Request* request, Reply* reply, int send_fd,
           std::vector<UniqueFd>* fds, concert_error* error) {
    static_assert(std::is_same_v<decltype(Request::header), concert_control_header>);
    request->header = {CONCERT_CONTROL_MAGIC, static_cast<uint16_t>(type),
                       static_cast<uint16_t>(sizeof(Request)), 0, 0};
    return Transact(&request->header, send_fd, reply, sizeof(Reply), fds, error);
  }

  // Sends a request as Call does, and leaves its reply to Collect: one at a time. Waits for no more
  // than room in the socket. Thread-safe.
  int Post(concert_create_program* request, int send_fd, concert_error* error);
  // The reply to what was posted; an answer of the library's own, UNAVAILABLE, when none can come
  // any more. False: it is not there yet; never with `wait`. Without `wait` it does not block.
  // REQUIRES: something was posted and not collected. Thread-safe.
  bool Collect(bool wait, concert_program_reply* reply);

  // True when the daemon has closed its end or died. One system call.
  bool HungUp() const;

  // Ends the session; later calls fail. Thread-safe.
  void Shutdown();

 private:
  int Transact(concert_control_header* request, int send_fd, void* reply, size_t reply_bytes,
               std::vector<UniqueFd>* fds, concert_error* error);
  int Send(const concert_control_header* request, int send_fd, concert_error* error);
  int Number(concert_control_header* request, concert_error* error) CONCERT_REQUIRES(mutex_);
  // A whole reply to a request before the one that is waited for: to what was posted, or to one
  // whose caller gave up.
  void Keep(const void* packet, size_t bytes) CONCERT_REQUIRES(mutex_);
  bool CollectLocked(bool wait) CONCERT_REQUIRES(mutex_);

  UniqueFd socket_;
  ClosedInChildren closed_in_children_;  // ends before the socket's number is somebody else's
  int64_t timeout_ns_ = 0;
  std::atomic<bool> shut_down_{false};
  Mutex mutex_;  // one request and its reply
  uint32_t next_request_ CONCERT_GUARDED_BY(mutex_) = 1;
  uint32_t posted_ CONCERT_GUARDED_BY(mutex_) = 0;  // request without a reply yet; 0: none
  concert_program_reply posted_reply_ CONCERT_GUARDED_BY(mutex_) = {};
};

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_REMOTE_CONTROL_SOCKET_H_
