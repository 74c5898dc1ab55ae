// A session with a daemon.
#ifndef CONCERT_CLIENT_SRC_REMOTE_SESSION_H_
#define CONCERT_CLIENT_SRC_REMOTE_SESSION_H_

#include <array>
#include <atomic>
#include <bitset>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "client/src/failure.h"
#include "client/src/handles.h"
#include "client/src/mapping.h"
#include "client/src/remote/batch_programs.h"
#include "client/src/remote/control_socket.h"
#include "client/src/remote/names.h"
#include "client/src/remote/outcomes.h"
#include "client/src/remote/regions.h"
#include "client/src/remote/ring.h"
#include "proto/mutex.h"
#include "proto/unique_fd.h"

namespace concert::client {

class RemoteSession final : public concert_session {
 public:
  // *no_daemon: nobody listens at `path`, so that a fallback may be tried.
  static int Connect(const char* path, const concert_connect_options& options,
                     std::shared_ptr<concert_session>* session, bool* no_daemon,
                     concert_error* error);
  ~RemoteSession() override;

  uint32_t id() const override { return id_; }
  bool is_local() const override { return false; }
  std::span<const concert_gpu> gpus() const override { return {gpus_.data(), gpu_count_}; }
  void Close() override;

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
  int BeginBatch(uint32_t gpu, concert_error* error) override;
  int EndBatch(uint32_t gpu, concert_error* error) override;
  int Poll(concert_ticket ticket, bool* done, concert_error* error) override;
  int Wait(concert_ticket ticket, int64_t timeout_ns, concert_error* error) override;
  int WaitOnStream(concert_ticket ticket, void* stream, concert_error* error) override;

  // ---- For the session's own handles ----

  ControlSocket& control() { return control_; }
  BatchPrograms& batch_programs() { return batch_programs_; }
  // As control().Call, for what takes of the session's quotas: programs of batches give way to it.
  template <typename Request, typename Reply>
  int CallForRoom(concert_control_type type, Request* request, Reply* reply, int send_fd,
                  std::vector<UniqueFd>* fds, const Deadline& deadline, concert_error* error) {
    return TakeRoom(deadline, error, [&](concert_error* why, bool* has_no_room) {
      reply->reply.status = CONCERT_ABI_OK;
      const int code = control_.Call(type, request, reply, send_fd, fds, deadline, why);
      *has_no_room = reply->reply.status == CONCERT_ABI_RESOURCE_EXHAUSTED;
      return code;
    });
  }
  const concert_gpu* FindGpu(uint32_t gpu, concert_error* error) const;
  // Publishes what open batches have collected: before something that it may use is given up, which
  // the daemon keeps for what was published before it is told; and before somebody waits, since
  // what he waits for may wait for ops of any of them.
  void HandOver();
  // Gives up a buffer or a program.
  void ReleaseHandle(uint32_t handle, const Deadline& deadline);

  // UNAVAILABLE, and why, when the session has ended. Without `thorough` it costs one load; with
  // it, the socket is asked too, at most every 10 ms, because a killed daemon leaves its pages as
  // they were.
  int CheckOpen(bool thorough, concert_error* error);
  int64_t submit_timeout_ns() const { return submit_timeout_ns_; }
  // UNIMPLEMENTED unless the daemon offered these CONCERT_FEATURE_*, without which it does not know
  // `what`.
  int Require(uint64_t features, const char* what, concert_error* error) const {
    if ((features_ & features) == features) return CONCERT_OK;
    return Fail(error, CONCERT_UNIMPLEMENTED,
                "%s, which this daemon does not know; update concertd", what);
  }

  // User timelines.
  uint64_t* user_timeline(uint32_t index) { return regions_.user_timeline(index); }
  void ReleaseUserTimeline(uint32_t index);
  void SignalUserTimeline(uint32_t index, uint64_t value);
  int SignalUserTimelineOnStream(uint32_t index, uint64_t value, void* stream,
                                 concert_error* error);

 private:
  // What a ticket of this session is watched through.
  struct Watch {
    const uint64_t* word = nullptr;
    uint32_t* waiters = nullptr;
    Ring* ring = nullptr;  // null: a user timeline, which has no outcomes
    uint32_t queue = 0;
    int64_t nap_ns = 0;  // longest sleep before everything is looked at again
  };

  int Handshake(const concert_connect_options& options, const Deadline& deadline,
                concert_error* error);
  int Adopt(const concert_hello_reply& reply, std::vector<UniqueFd> fds, concert_error* error);
  Ring* FindRing(uint32_t gpu, concert_error* error) const;
  int TakeRoom(const Deadline& deadline, concert_error* error,
               const std::function<int(concert_error*, bool*)>& call);
  int Find(concert_ticket ticket, Watch* watch, concert_error* error);
  static bool Reached(const Watch& watch, uint64_t value);
  // One look at the timeline; `thorough`: at the socket too, now and then.
  int Look(const Watch& watch, uint64_t value, bool thorough, bool* done, concert_error* error);
  int Outcome(const Watch& watch, uint64_t ticket, concert_error* error);
  bool SpinUntilReached(const Watch& watch, uint64_t value, int64_t limit_ns);
  static void Sleep(const Watch& watch, uint64_t value, int64_t limit_ns);
  static int FailLate(const Watch& watch, concert_ticket ticket, int64_t timeout_ns,
                      concert_error* error);
  // UNIMPLEMENTED on simulated GPUs, with what to use instead.
  int CheckStreams(const char* instead, concert_error* error) const;
  // Once, for every GPU: *device is the one whose context was current.
  int RegisterWithCuda(const Mapping& region, bool read_only, std::atomic<int>* device,
                       concert_error* error);

  ControlSocket control_;
  Regions regions_;
  uint32_t id_ = 0;
  uint64_t features_ = 0;
  bool recognises_batches_ = false;
  int64_t submit_timeout_ns_ = 0;
  std::array<concert_gpu, CONCERT_MAX_RINGS> gpus_{};
  uint32_t gpu_count_ = 0;
  Names names_;
  Outcomes outcomes_{names_};
  std::vector<std::unique_ptr<Ring>> rings_;
  BatchPrograms batch_programs_{control_, rings_};
  // The ring of each queue, set when it is created; null: no such queue yet.
  std::array<std::atomic<Ring*>, CONCERT_MAX_QUEUES> queue_rings_{};

  std::atomic<bool> lost_{false};
  std::atomic<int64_t> hangup_checked_ns_{0};
  std::atomic<uint32_t> polls_{0};

  Mutex user_timelines_mutex_;
  std::bitset<CONCERT_MAX_USER_TIMELINES> user_timelines_used_
      CONCERT_GUARDED_BY(user_timelines_mutex_);
  std::array<uint32_t, CONCERT_MAX_USER_TIMELINES>
      user_waiters_{};  // as waiters[], in this process

  Mutex cuda_mutex_;  // one registration at a time
  static constexpr int kNotRegistered = -1;
  std::atomic<int> daemon_region_device_{kNotRegistered};
  std::atomic<int> client_region_device_{kNotRegistered};
};

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_REMOTE_SESSION_H_
