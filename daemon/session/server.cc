#include "daemon/session/server.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/check.h"
#include "daemon/clock.h"
#include "daemon/quota/budget.h"

namespace concert::daemon {
namespace {

constexpr int kTickMs = 100;
constexpr int kLateMs = 1;  // while a dispatcher or the issuer has no room
// Messages that tell a dispatcher of something new and that it has no room for.
constexpr size_t kMostLate = kDispatcherMailboxCapacity;
constexpr int64_t kForgetEveryNs = 1'000'000'000;

// Keys of the epoll set beside the ids of sessions, which are below 2^32, and those of connections.
constexpr uint64_t kListenerKey = uint64_t{1} << 32;
constexpr uint64_t kWakeKey = kListenerKey + 1;
constexpr uint64_t kControlKey = kListenerKey + 2;
constexpr uint64_t kErrandKey = kListenerKey + 3;
static_assert(kErrandKey < Connections::kFirstKey);

absl::Status Errno(const std::string& what) {
  return absl::FailedPreconditionError(absl::StrCat(what, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Create(const ServerOptions& options,
                                                       Engine& engine) {
  absl::StatusOr<std::unique_ptr<UnixSocketPath>> path =
      UnixSocketPath::Claim("socket", options.socket_path);
  if (!path.ok()) return path.status();
  std::unique_ptr<Server> server(new Server(options, engine, *std::move(path)));
  if (absl::Status status = server->Listen(); !status.ok()) return status;
  return server;
}

Server::Server(const ServerOptions& options, Engine& engine, std::unique_ptr<UnixSocketPath> path)
    : options_(options),
      engine_(engine),
      path_(std::move(path)),
      listener_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      connections_(epoll_.get()),
      sealed_memory_(engine.node()),
      to_issuer_(engine.issuer(), kRoomForParts),
      replicas_(engine.node(), [this](int gpu, const auto& message) { Tell(gpu, message); }),
      next_session_(options.first_session) {
  for (int gpu = 0; gpu < engine.gpu_count(); ++gpu) {
    to_dispatchers_.emplace_back(engine.dispatcher(gpu).mailbox());
  }
}

absl::Status Server::Listen() {
  if (!listener_ || !epoll_ || !wake_) return Errno("socket, epoll_create1 or eventfd");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string& path = path_->private_path();
  std::memcpy(address.sun_path, path.data(), path.size());
  if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    return Errno(absl::StrCat("bind ", path));
  if (chmod(path.c_str(), options_.socket_mode) != 0) return Errno("chmod of the socket");
  if (listen(listener_.get(), SOMAXCONN) != 0) return Errno("listen");
  const std::pair<int, uint64_t> watched[] = {{listener_.get(), kListenerKey},
                                              {wake_.get(), kWakeKey},
                                              {engine_.control().wake_fd(), kControlKey},
                                              {errands_.wake_fd(), kErrandKey}};
  for (const auto& [fd, key] : watched) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = key}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return Errno("epoll_ctl");
  }
  return path_->Publish();
}

Server::~Server() { Stop(); }

void Server::Start() { thread_ = std::thread(&Server::Run, this); }

void Server::Stop() {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_release);
  eventfd_write(wake_.get(), 1);
  thread_.join();
}

void Server::BeginDrain() {
  drain_.store(true, std::memory_order_release);
  eventfd_write(wake_.get(), 1);
}

void Server::Run() {
  pthread_setname_np(pthread_self(), "control");
  WaitLimit limit;
  limit.Set();
  for (;;) {
    if (stop_.load(std::memory_order_acquire) && !closing_all_) CloseAll();
    if (closing_all_ && sessions_.empty() && replicas_.idle()) break;
    if (drain_.load(std::memory_order_acquire) && !draining_) {
      draining_ = true;
      for (const auto& [id, session] : sessions_) {
        if (session->state == Session::State::kOpen) session->memory->MarkDraining();
      }
    }
    const bool late = SendLate();
    engine_.control().PrepareSleep();
    const bool more = !engine_.control().empty() || !ending_.empty() ||
                      request_turns_.anybody_waits() ||
                      (errand_turns_.anybody_waits() && !errands_.busy());
    HandleEvents(more ? 0 : late ? kLateMs : kTickMs, limit);
    HandleRequests();
    errands_.Finish();
    BeginErrands();
    HandleControlEvents();
    EndSessions();
    replicas_.Collect();
    ExpireConnections();
    ForgetUsers();
  }
}

void Server::HandleEvents(int timeout_ms, WaitLimit& limit) {
  std::array<epoll_event, 64> events;
  limit.Lift();
  const int count =
      epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  limit.Set();
  engine_.control().FinishSleep();
  for (int i = 0; i < count; ++i) {
    const uint64_t key = events[i].data.u64;
    // An earlier event of this round may have ended the session or closed the connection.
    if (key >= Connections::kFirstKey) {
      if (Connection* connection = connections_.Find(key)) HandleConnection(*connection);
    } else if (key == kListenerKey) {
      Accept();
    } else if (key == kWakeKey) {
      eventfd_t ignored;
      eventfd_read(wake_.get(), &ignored);
    } else if (key != kControlKey && key != kErrandKey) {
      const auto found = sessions_.find(static_cast<uint32_t>(key));
      if (found != sessions_.end()) HandleReadable(*found->second);
    }
  }
}

void Server::Accept() {
  for (uint32_t i = 0; i < PerTurn(Work::kConnections); ++i) {
    UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      // Out of descriptors, which are counted, so others of the process have taken them.
      if ((errno == EMFILE || errno == ENFILE) && !connections_.CloseOne()) usleep(1000);
      return;
    }
    BoundUnreadReplies(socket.get());
    ucred peer{};
    socklen_t length = sizeof(peer);
    const bool known = getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
    const bool added =
        known && connections_.Add(std::move(socket), peer.pid, engine_.accounts().Of(peer.uid),
                                  NowNs()) != nullptr;
    counters_.evicted.store(connections_.evicted(), std::memory_order_relaxed);
    (added ? counters_.accepted : counters_.refused).fetch_add(1, std::memory_order_relaxed);
  }
}

void Server::ExpireConnections() {
  const int64_t now = NowNs();
  connections_.CloseLeaving(now);
  const size_t closed = connections_.CloseOlderThan(now - options_.hello_timeout_ns);
  counters_.hello_timeouts.fetch_add(closed, std::memory_order_relaxed);
}

// Users of whom nothing is left. Not at once: threads may still be giving back the last of it.
void Server::ForgetUsers() {
  const int64_t now = NowNs();
  if (now < next_forgetting_ns_) return;
  next_forgetting_ns_ = now + kForgetEveryNs;
  engine_.accounts().DropUnused();
}

void Server::HandleControlEvents() {
  ControlEvent event;
  for (uint32_t i = 0; i < PerTurn(Work::kEvents) && engine_.control().TryPop(event); ++i) {
    HandleControlEvent(event);
  }
}

void Server::HandleControlEvent(const ControlEvent& event) {
  const auto found = sessions_.find(event.session);
  if (found == sessions_.end()) return;
  Session& session = *found->second;
  switch (event.type) {
    case ControlEvent::Type::kSessionReleased:
      if (--session.releases_due == 0) Release(session);
      return;
    case ControlEvent::Type::kQueueReleased:
      session.queues[event.handle] = {};
      --session.queue_count;
      session.account->Release(Resource::kQueues);
      summaries_.Update(session);
      return;
    case ControlEvent::Type::kBufferReleased:
      if (session.state == Session::State::kOpen) FinishBuffer(session, event.handle);
      return;
    case ControlEvent::Type::kSessionBroken:
      if (session.state != Session::State::kOpen) return;
      counters_.broken.fetch_add(1, std::memory_order_relaxed);
      if (options_.on_broken) options_.on_broken(session, event.failure);
      Close(session, event.failure);
      return;
    case ControlEvent::Type::kRace:
      if (options_.on_fault) options_.on_fault(session, event.failure);
      return;
    case ControlEvent::Type::kProgramStalled:
      if (options_.on_fault) options_.on_fault(session, event.failure);
      summaries_.SetWhyNoStep(session.id, event.handle, "a run of it stalled");
      return;
  }
}

// Nobody waits here for a dispatcher that reads nothing: it may hang in a call of its GPU's driver,
// and other sessions go on. At most this is late: kMostLate messages that tell of something new
// (MayBegin), what tells of sessions, and an end for each session, queue, buffer and membership
// that is there. All of those are charged to their users, and but for memberships until the
// dispatcher has answered.
void Server::Tell(int gpu, const DispatcherMessage& message) {
  engine_.dispatcher(gpu).Announce();
  to_dispatchers_[static_cast<size_t>(gpu)].Push(message);
}

absl::Status Server::MayBegin(int gpu) const {
  const size_t late = to_dispatchers_[static_cast<size_t>(gpu)].late();
  if (late < kMostLate) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("GPU ", gpu, ": the dispatcher leaves ", kDispatcherMailboxCapacity + late,
                   " messages unread; try again, and if that lasts, the GPU's driver may hang"));
}

// Whether something is late still.
bool Server::SendLate() {
  to_issuer_.Send();
  bool late = to_issuer_.late() > 0;
  for (Outbox<DispatcherMessage>& box : to_dispatchers_) {
    box.Send();
    late |= box.late() > 0;
  }
  return late;
}

}  // namespace concert::daemon
