// The control thread: accepts clients, speaks the control protocol (proto/ring/control_abi.h) and
// owns sessions, their memory, their buffers and the communicators. Ops never pass here.
#ifndef CONCERT_DAEMON_SESSION_SERVER_H_
#define CONCERT_DAEMON_SESSION_SERVER_H_

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/config/defaults.h"
#include "daemon/quota/machine.h"
#include "daemon/sched/engine.h"
#include "daemon/sched/outbox.h"
#include "daemon/service/unix_socket.h"
#include "daemon/session/communicators.h"
#include "daemon/session/connections.h"
#include "daemon/session/errands.h"
#include "daemon/session/packet.h"
#include "daemon/session/program_maker.h"
#include "daemon/session/replicas.h"
#include "daemon/session/sealed_memory.h"
#include "daemon/session/session.h"
#include "daemon/session/summaries.h"
#include "daemon/session/user_turns.h"
#include "daemon/session/wait_limit.h"
#include "proto/ring/control_abi.h"

namespace concert::daemon {

struct ServerOptions {
  std::string socket_path;
  uint32_t socket_mode = 0666;  // who may connect; uids are told apart by SO_PEERCRED
  uint32_t ring_capacity = defaults::kRingCapacity;
  int64_t hello_timeout_ns = 2'000'000'000;
  // Called on the control thread; on_open before the session's client can do anything.
  std::function<void(const Session&)> on_open, on_close;
  std::function<void(const Session&, const kernels::Failure&)> on_broken;
  // Two ops of the session race, and are let; or a program of it stalled for the first time.
  std::function<void(const Session&, const kernels::Failure&)> on_fault;
  uint32_t first_session = 1;  // the first id, for tests
};

struct ServerCounters {
  std::atomic<uint64_t> accepted{0}, refused{0}, broken{0}, hello_timeouts{0}, evicted{0};
};

class Server {
 public:
  // Serves on the socket. ALREADY_EXISTS if somebody else does. Everything that clients take is
  // charged to the engine's accounts.
  static absl::StatusOr<std::unique_ptr<Server>> Create(const ServerOptions& options,
                                                        Engine& engine);
  ~Server();

  void Start();
  // Ends the thread. Sessions that are still there are closed; REQUIRES that the engine still runs,
  // so that their memory can be let go.
  void Stop();

  // Any thread: as of the last change.
  std::vector<SessionSummary> Sessions() const { return summaries_.All(); }
  size_t session_count() const { return summaries_.size(); }
  const ServerCounters& counters() const { return counters_; }
  // Any thread: what sealed buffers on a GPU hold and save.
  SealedMemory::Bytes sealed_bytes(int gpu) const { return sealed_memory_.bytes(gpu); }
  // Any thread. No new sessions from here on, and sessions learn that the daemon is draining.
  void BeginDrain();

 private:
  Server(const ServerOptions& options, Engine& engine, std::unique_ptr<UnixSocketPath> path);
  absl::Status Listen();

  // One loop of the thread (server.cc).
  void Run();
  // From when there are events, or the timeout, `limit` is set.
  void HandleEvents(int timeout_ms, WaitLimit& limit);
  void Accept();
  void HandleControlEvents();
  void HandleControlEvent(const ControlEvent& event);
  void ExpireConnections();
  void ForgetUsers();

  // Sessions begin and end (server_sessions.cc).
  void HandleConnection(Connection& connection);
  void HandleHello(Connection connection, const Packet& packet);
  absl::Status OpenSession(Session& session, const Packet& packet);
  uint32_t NextSessionId();
  absl::Status MakeMemory(Session& session, const concert_hello& hello);
  void Introduce(const Session& session);
  // The client learns why; what it has goes when all have let go of it.
  void Close(Session& session, const kernels::Failure& why);
  void CloseAll();
  void Release(Session& session);
  void EndSessions();
  void FinishClose(Session& session);
  // Never waits: what has no room is sent in a later turn.
  void Tell(int gpu, const DispatcherMessage& message);
  // RESOURCE_EXHAUSTED, naming the GPU, if nothing new is begun there, because its dispatcher is so
  // far behind.
  absl::Status MayBegin(int gpu) const;
  bool SendLate();

  // Requests (requests.cc). Each reads a packet of its type, acts and replies.
  void HandleReadable(Session& session);
  void HandleRequests();
  uint32_t HandleRequestsOf(Session& session, uint32_t most);
  void HandleNext(Session& session);
  void HandlePacket(Session& session, Packet& packet);
  bool HasRing(const Session& session, uint32_t gpu) const;
  void HandleCreateQueue(Session& session, const Packet& packet);
  void HandleDestroyQueue(Session& session, const Packet& packet);
  template <typename Answer>
  void Send(Session& session, const Packet& request, const absl::Status& status, Answer& reply,
            std::span<const int> fds = {}) {
    SendBytes(session, request, status, HeadOf(reply), sizeof(reply), fds);
  }
  void Refuse(Session& session, const Packet& request, const absl::Status& status);
  void SendBytes(Session& session, const Packet& request, const absl::Status& status,
                 concert_control_reply& reply, size_t bytes, std::span<const int> fds);
  // What every reply begins with.
  template <typename Answer>
  static concert_control_reply& HeadOf(Answer& reply) {
    return reinterpret_cast<concert_control_reply&>(reply);
  }

  // Requests that may take long are errands. A session waits for its turn, and then for the errand;
  // meanwhile nothing else is read of its socket.
  void AwaitErrand(Session& session);
  void BeginErrands();
  // The session's errand is `work`, which is for the errands' thread; `finish` answers by
  // EndErrand.
  template <typename Result>
  void BeginErrand(Session& session, Packet& request, absl::AnyInvocable<Result()> work,
                   absl::AnyInvocable<void(Result)> finish) {
    session.errand = std::make_unique<Packet>(std::move(request));
    errands_.Begin<Result>(std::move(work), std::move(finish));
  }
  // Answers session.errand. A session that was closed meanwhile goes now.
  template <typename Answer>
  void EndErrand(Session& session, const absl::Status& status, Answer& reply,
                 std::span<const int> fds = {}) {
    EndErrandBytes(session, status, HeadOf(reply), sizeof(reply), fds);
  }
  void EndErrandBytes(Session& session, const absl::Status& status, concert_control_reply& reply,
                      size_t bytes, std::span<const int> fds);
  // Until one event has come; with false only of the client's end.
  void WatchRequests(const Session& session, bool watch);

  // Buffers (buffers.cc).
  void HandleAllocateBuffer(Session& session, Packet& packet);
  void HandleImportBuffer(Session& session, Packet& packet);
  void BeginBuffer(Session& session, Packet& packet, uint32_t gpu, uint64_t bytes,
                   absl::AnyInvocable<absl::StatusOr<Allocation>(Device&)> make);
  void FinishNewBuffer(Session& session, const absl::StatusOr<Allocation>& allocation,
                       uint64_t bytes);
  void HandleReleaseBuffer(Session& session, const Packet& packet);
  void HandleSealBuffer(Session& session, Packet& packet);
  absl::StatusOr<uint32_t> ChargeSeal(Session& session, const concert_seal_buffer& request);
  void FinishSeal(Session& session, uint32_t index, const absl::StatusOr<SealedMemory::Kept>& kept);
  // The entry of a buffer or program that the client has not released. NOT_FOUND, naming it.
  absl::StatusOr<uint32_t> FindBuffer(const Session& session, uint32_t handle) const;
  // Checks and charges a buffer of `bytes`, with an entry for it in the table.
  absl::Status ChargeBuffer(Session& session, uint32_t gpu, uint64_t bytes);
  // What a buffer takes, with an entry for it in the table.
  absl::Status ChargeEntry(Session& session, std::span<const Charge> charges);
  // Ops may use the `bytes` that the client asked for, not what they were rounded up to. The
  // handle.
  uint32_t AddBuffer(Session& session, const Allocation& allocation, uint64_t bytes,
                     std::shared_ptr<kernels::Program> program = nullptr,
                     std::optional<SealedMemory::Holding> sealed = std::nullopt);
  // What the client has released: now, or with the last program that uses it.
  void GiveUpBuffer(Session& session, uint32_t index);
  // Asks dispatchers to let go of it; FinishBuffer when all have.
  void ReleaseBuffer(Session& session, uint32_t index);
  void FinishBuffer(Session& session, uint32_t index);
  void FreeBuffer(Session& session, uint32_t index);
  void EndSharing(uint32_t session, uint64_t bytes);

  // Programs (programs.cc).
  void HandleCreateProgram(Session& session, Packet& packet);
  absl::Status ChargeProgram(Session& session, const concert_create_program& request);
  void FinishProgram(Session& session, absl::StatusOr<MadeProgram> made);
  void UniteReplicas(Session& session, const Replicas::Joining& joining,
                     concert_program_reply reply);
  void ForgetProgram(Session& session, uint32_t index, const kernels::Program& program);

  // Memberships (memberships.cc).
  void HandleJoinCommunicator(Session& session, Packet& packet);
  absl::StatusOr<Communicators::Joined> Join(Session& session,
                                             const concert_join_communicator& request);
  // Its handle.
  uint32_t Enter(Session& session, const Membership& membership, int gpu);
  void LeaveRanks(uint32_t communicator, uint32_t rank);
  void HandleLeaveCommunicator(Session& session, const Packet& packet);
  void Leave(Session& session, const Membership& membership, int gpu);

  const ServerOptions options_;
  Engine& engine_;
  const std::unique_ptr<UnixSocketPath> path_;
  UniqueFd listener_, epoll_, wake_;
  MemoryReserve memory_reserve_;
  std::thread thread_;
  std::atomic<bool> stop_{false}, drain_{false};
  bool draining_ = false, closing_all_ = false;
  ServerCounters counters_;

  Connections connections_;
  std::map<uint32_t, std::unique_ptr<Session>> sessions_;
  std::deque<uint32_t> ending_;  // sessions whose buffers are being freed
  Communicators communicators_;
  SealedMemory sealed_memory_;
  std::vector<Outbox<DispatcherMessage>> to_dispatchers_;  // by GPU
  Outbox<IssuerMessage> to_issuer_;
  Replicas replicas_;
  Summaries summaries_;
  // A session is in one of these at most, and its requests are not watched meanwhile.
  UserTurns request_turns_, errand_turns_;
  uint32_t next_session_;
  int64_t next_forgetting_ns_ = 0;

  Errands errands_;  // last: its thread uses what is above
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SESSION_SERVER_H_
