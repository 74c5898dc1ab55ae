// The control protocol's client end (proto/ring/control_abi.h): one request at a time, each bounded
// in time.
#ifndef CONCERT_CLIENT_SRC_REMOTE_CONTROL_SOCKET_H_
#define CONCERT_CLIENT_SRC_REMOTE_CONTROL_SOCKET_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "client/src/clock.h"
#include "client/src/fork.h"
#include "client/src/turn.h"
#include "concert/concert.h"
#include "proto/mutex.h"
#include "proto/ring/control_abi.h"
#include "proto/unique_fd.h"

namespace concert::client {

// Thread-safe. A call's deadline bounds all of it: waiting for its turn behind other threads'
// calls, for room in the socket and for the reply.
class ControlSocket {
 public:
  // *no_daemon: nobody listens there, as opposed to a daemon that refuses.
  // `timeout_ns` is that of later calls, too; `deadline` this one's.
  int Connect(const char* path, int64_t timeout_ns, const Deadline& deadline, bool* no_daemon,
              concert_error* error);

  // That of a call which begins now.
  Deadline NextDeadline() const { return Deadline(timeout_ns_); }

  // Sends `request` (its header is filled in here), with `send_fd` unless that is -1, and receives
  // the reply and its fds. A reply that is not OK becomes the error, and its head stands in
  // `reply`. What a reply that comes too late has made is given up again.
  template <typename Request, typename Reply>
  int Call(concert_control_type type, Request* request, Reply* reply, int send_fd,
           std::vector<UniqueFd>* fds, const Deadline& deadline, concert_error* error) {
    static_assert(std::is_same_v<decltype(Request::header), concert_control_header>);
    request->header = {CONCERT_CONTROL_MAGIC, static_cast<uint16_t>(type),
                       static_cast<uint16_t>(sizeof(Request)), 0, 0};
    return Transact(&request->header, send_fd, reply, sizeof(Reply), fds, deadline, error);
  }

  // Gives up what a handle stands for, by a request of this type (DESTROY_QUEUE, RELEASE_BUFFER,
  // LEAVE_COMMUNICATOR), and returns when the daemon has, or at the deadline: it is told then in
  // the next turn.
  void Release(concert_control_type type, uint32_t handle, const Deadline& deadline);
  // The same without waiting for anybody: the daemon may be told later. Calls that follow come
  // behind it.
  void ReleaseSoon(concert_control_type type, uint32_t handle);

  enum class Posted { kYes, kBusy, kFailed };
  // Sends a request as Call does, and leaves its reply to Collect: one at a time. Waits for
  // nothing: kBusy while another call is under way or the daemon has much to answer.
  Posted Post(concert_create_program* request, int send_fd);
  // The reply to what was posted; an answer of the library's own, UNAVAILABLE, when none can come
  // any more or `deadline` has passed. False: it is not there yet, and nobody waits for it: there
  // is no `deadline`, or another call is under way until then.
  // REQUIRES: something was posted and not collected.
  bool Collect(const Deadline* deadline, concert_program_reply* reply);

  // True when the daemon has closed its end or died. One system call.
  bool HungUp() const;

  // Ends the session; later calls fail.
  void Shutdown();

 private:
  // A handle that the daemon has to be told of, that nobody uses.
  struct Unwanted {
    concert_control_type type;  // of the request that gives it up
    uint32_t handle;
  };
  union Packet;

  int Transact(concert_control_header* request, int send_fd, void* reply, size_t reply_bytes,
               std::vector<UniqueFd>* fds, const Deadline& deadline, concert_error* error);
  int TransactInTurn(concert_control_header* request, int send_fd, void* reply, size_t reply_bytes,
                     std::vector<UniqueFd>* fds, const Deadline& deadline, concert_error* error)
      CONCERT_REQUIRES(turn_);
  int TakeReply(const Packet& packet, ssize_t size, bool lost_fds,
                const concert_control_header& request, void* reply, size_t reply_bytes,
                concert_error* error);
  int Send(const concert_control_header* request, int send_fd, const Deadline& deadline,
           concert_error* error) CONCERT_REQUIRES(turn_);
  int Number(concert_control_header* request, concert_error* error) CONCERT_REQUIRES(turn_);
  // Reads one packet, as recvmsg does.
  ssize_t ReceiveReply(Packet* packet, std::vector<UniqueFd>* fds, bool* lost_fds)
      CONCERT_REQUIRES(turn_);
  // Before each Send: keeps replies that nobody waits for any more, and waits for one only if too
  // many are still to come.
  int AwaitRoom(const Deadline& deadline, concert_error* error) CONCERT_REQUIRES(turn_);
  int FailLate(concert_error* error) const;
  // A whole reply to a request that nobody waits for: to what was posted, or to one whose caller
  // gave up.
  void Keep(const Packet& packet, size_t bytes) CONCERT_REQUIRES(turn_);
  bool CollectInTurn(const Deadline* deadline) CONCERT_REQUIRES(turn_);
  // What the reply has made, if anything, is not wanted.
  void GiveUp(const Packet& packet);
  // False if one is left.
  bool SendUnwanted(const Deadline& deadline) CONCERT_REQUIRES(turn_);
  std::optional<Unwanted> FirstUnwanted();
  void EndTurn() CONCERT_THREAD_SAFETY(release_capability(turn_));

  UniqueFd socket_;
  ClosedInChildren closed_in_children_;  // ends before the socket's number is somebody else's
  int64_t timeout_ns_ = 0;
  std::atomic<bool> shut_down_{false};
  Turn turn_;  // one request and its reply
  uint32_t next_request_ CONCERT_GUARDED_BY(turn_) = 1;
  uint32_t unanswered_ CONCERT_GUARDED_BY(turn_) = 0;  // sent, and no reply was read
  uint32_t posted_ CONCERT_GUARDED_BY(turn_) = 0;      // request without a reply yet; 0: none
  concert_program_reply posted_reply_ CONCERT_GUARDED_BY(turn_) = {};
  Mutex unwanted_mutex_;  // within a turn or without
  std::vector<Unwanted> unwanted_ CONCERT_GUARDED_BY(unwanted_mutex_);
};

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_REMOTE_CONTROL_SOCKET_H_
