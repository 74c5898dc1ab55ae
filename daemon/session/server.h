// The control thread: accepts clients, speaks the control protocol (proto/ring/control_abi.h) and
// owns sessions, their memory, their buffers and the communicators. Ops never pass here.
#ifndef CONCERT_DAEMON_SESSION_SERVER_H_
#define CONCERT_DAEMON_SESSION_SERVER_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/config/defaults.h"
#include "daemon/sched/engine.h"
#include "daemon/session/communicators.h"
#include "daemon/session/session.h"
#include "proto/mutex.h"
#include "proto/ring/control_abi.h"

namespace concert::daemon {

struct ServerOptions {
  std::string socket_path;
  uint32_t socket_mode = 0666;  // who may connect; uids are told apart by SO_PEERCRED
  size_t max_sessions = defaults::kMaxSessions;
  size_t max_sessions_per_uid = defaults::kMaxSessionsPerUid;
  size_t max_connecting = 64;  // connections that have not said Hello
  uint64_t max_buffer_bytes_per_uid = defaults::kMaxBufferBytesPerUid;
  size_t max_buffers_per_uid = defaults::kMaxBuffersPerUid;
  uint32_t ring_capacity = defaults::kRingCapacity;
  int64_t hello_timeout_ns = 2'000'000'000;
  // Called on the control thread.
  std::function<void(const Session&)> on_open, on_close;
  std::function<void(const Session&, const kernels::Failure&)> on_broken;
};

// A session as the admin API shows it.
struct SessionSummary {
  uint32_t id = 0, uid = 0;
  int32_t pid = 0;
  std::string name;
  int64_t connected_at_ns = 0;  // CLOCK_MONOTONIC
  uint32_t queues = 0, buffers = 0, communicators = 0;
  uint64_t buffer_bytes = 0;
  std::vector<int> gpus;
  bool closing = false;
};

struct ServerCounters {
  std::atomic<uint64_t> accepted{0}, refused{0}, broken{0}, hello_timeouts{0};
};

class Server {
 public:
  // Binds the socket. FAILED_PRECONDITION if another daemon answers on it.
  static absl::StatusOr<std::unique_ptr<Server>> Create(const ServerOptions& options,
                                                        Engine& engine);
  ~Server();

  void Start();
  // Ends the thread. Sessions that are still there are closed; REQUIRES that the engine still runs,
  // so that their memory can be let go.
  void Stop();

  // Any thread: as of the last change.
  std::vector<SessionSummary> Sessions() const;
  const ServerCounters& counters() const { return counters_; }
  // Any thread. No new sessions from here on, and sessions learn that the daemon is draining.
  void BeginDrain();

 private:
  struct Usage {
    size_t sessions = 0;
    uint64_t buffer_bytes = 0;
    size_t buffers = 0;
  };
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
  };

  Server(const ServerOptions& options, Engine& engine, UniqueFd listener);

  void Run();
  void Accept();
  void HandleControlEvents();
  void HandleControlEvent(const ControlEvent& event);
  void ExpireHellos();
  void Close(Session& session, const kernels::Failure& why);
  void FinishClose(Session& session);
  void Uncharge(const Session& session, const Session::Buffer& buffer);
  void FinishBuffer(Session& session, uint32_t handle);
  // Pushes to a dispatcher; while its box is full, its events are taken in so that it can go on.
  void Tell(int gpu, const DispatcherMessage& message);
  void TellIssuer(const IssuerMessage& message);
  void Publish();

  // Requests (requests.cc). Each reads a packet of its type, acts and replies.
  void HandleReadable(Session& session);
  bool Receive(Session& session, Packet& packet);
  void HandlePacket(Session& session, Packet& packet);
  void HandleHello(Session& session, const Packet& packet);
  void HandleCreateQueue(Session& session, const Packet& packet);
  void HandleDestroyQueue(Session& session, const Packet& packet);
  void HandleAllocateBuffer(Session& session, const Packet& packet);
  void HandleImportBuffer(Session& session, const Packet& packet);
  void HandleReleaseBuffer(Session& session, const Packet& packet);
  void HandleJoinCommunicator(Session& session, const Packet& packet);
  void HandleLeaveCommunicator(Session& session, const Packet& packet);
  void Leave(Session& session, const Membership& membership, int gpu);
  absl::Status OpenSession(Session& session, const concert_hello& hello);
  absl::Status CheckNewBuffer(const Session& session, uint32_t gpu, uint64_t bytes);
  // Ops may use the `bytes` that the client asked for, not what they were rounded up to.
  uint32_t AddBuffer(Session& session, const Allocation& allocation, uint64_t bytes);
  bool HasRing(const Session& session, uint32_t gpu) const;
  template <typename Reply>
  void Send(Session& session, const Packet& request, const absl::Status& status, Reply& reply,
            std::span<const int> fds = {});

  const ServerOptions options_;
  Engine& engine_;
  UniqueFd listener_, epoll_, wake_;
  std::thread thread_;
  std::atomic<bool> stop_{false}, drain_{false};
  bool draining_ = false;
  ServerCounters counters_;

  std::map<uint32_t, std::unique_ptr<Session>> sessions_;
  absl::flat_hash_map<uint32_t, Usage> usage_;  // by uid
  Communicators communicators_;
  std::vector<ControlEvent> pending_events_;
  uint32_t next_session_ = 1;
  size_t connecting_ = 0;

  mutable Mutex mutex_;
  std::vector<SessionSummary> summaries_ CONCERT_GUARDED_BY(mutex_);
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SESSION_SERVER_H_
