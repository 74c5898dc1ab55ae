#include "daemon/session/server.h"

#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/check.h"
#include "daemon/clock.h"

namespace concert::daemon {
namespace {

using kernels::Failure;

constexpr int kTickMs = 100;

// Keys of the epoll set that are not session ids, which are below 2^32.
constexpr uint64_t kListenerKey = uint64_t{1} << 32;
constexpr uint64_t kWakeKey = kListenerKey + 1;
constexpr uint64_t kControlKey = kListenerKey + 2;

absl::Status Errno(const std::string& what) {
  return absl::FailedPreconditionError(absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::StatusOr<UniqueFd> Bind(const ServerOptions& options) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (options.socket_path.empty() || options.socket_path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("socket path '", options.socket_path,
                                                   "' must have 1 to ",
                                                   sizeof(address.sun_path) - 1, " characters"));
  }
  std::memcpy(address.sun_path, options.socket_path.data(), options.socket_path.size());
  const sockaddr* name = reinterpret_cast<const sockaddr*>(&address);
  // A socket that answers belongs to a living daemon; one that does not was left behind.
  UniqueFd probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) return Errno("socket");
  if (connect(probe.get(), name, sizeof(address)) == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("another daemon already answers on ", options.socket_path));
  }
  unlink(options.socket_path.c_str());
  UniqueFd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener) return Errno("socket");
  if (bind(listener.get(), name, sizeof(address)) != 0)
    return Errno(absl::StrCat("bind ", options.socket_path));
  if (chmod(options.socket_path.c_str(), options.socket_mode) != 0)
    return Errno("chmod of the socket");
  if (listen(listener.get(), SOMAXCONN) != 0) return Errno("listen");
  return listener;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Create(const ServerOptions& options,
                                                       Engine& engine) {
  absl::StatusOr<UniqueFd> listener = Bind(options);
  if (!listener.ok()) return listener.status();
  std::unique_ptr<Server> server(new Server(options, engine, *std::move(listener)));
  if (!server->epoll_ || !server->wake_) return Errno("epoll_create1 or eventfd");
  const std::pair<int, uint64_t> watched[] = {{server->listener_.get(), kListenerKey},
                                              {server->wake_.get(), kWakeKey},
                                              {engine.control().wake_fd(), kControlKey}};
  for (const auto& [fd, key] : watched) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = key}};
    if (epoll_ctl(server->epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return Errno("epoll_ctl");
  }
  return server;
}

Server::Server(const ServerOptions& options, Engine& engine, UniqueFd listener)
    : options_(options),
      engine_(engine),
      listener_(std::move(listener)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Server::~Server() {
  Stop();
  unlink(options_.socket_path.c_str());
}

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
  bool closing_all = false;
  for (;;) {
    if (stop_.load(std::memory_order_acquire) && !closing_all) {
      closing_all = true;
      for (auto it = sessions_.begin(); it != sessions_.end();) {
        Session& session = *(it++)->second;
        if (session.state != Session::State::kClosing) {
          Close(session, {CONCERT_ABI_UNAVAILABLE, CONCERT_MESSAGE_SESSION_CLOSED, {}});
        }
      }
    }
    if (closing_all && sessions_.empty()) break;
    if (drain_.load(std::memory_order_acquire) && !draining_) {
      draining_ = true;
      for (const auto& [id, session] : sessions_) {
        if (session->state == Session::State::kOpen) session->memory->MarkDraining();
      }
    }
    std::array<epoll_event, 64> events;
    engine_.control().PrepareSleep();
    const int timeout = engine_.control().empty() && pending_events_.empty() ? kTickMs : 0;
    const int count =
        epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
    engine_.control().FinishSleep();
    for (int i = 0; i < count; ++i) {
      const uint64_t key = events[i].data.u64;
      if (key == kListenerKey) {
        Accept();
      } else if (key == kWakeKey) {
        eventfd_t ignored;
        eventfd_read(wake_.get(), &ignored);
      } else if (key != kControlKey) {
        // An earlier event of this round may have ended the session.
        const auto found = sessions_.find(static_cast<uint32_t>(key));
        if (found != sessions_.end()) HandleReadable(*found->second);
      }
    }
    HandleControlEvents();
    if (connecting_ > 0) ExpireHellos();
  }
  Publish();
}

void Server::Accept() {
  for (;;) {
    UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      // Out of descriptors: leave the rest in the backlog until a session ends, without spinning on
      // it.
      if (errno == EMFILE || errno == ENFILE) usleep(1000);
      return;
    }
    ucred credentials{};
    socklen_t length = sizeof(credentials);
    const bool known =
        getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0;
    // Closing without a word is what a client sees as "no daemon": cheap, and a flood cannot hold
    // us up.
    if (!known || stop_.load(std::memory_order_relaxed) || connecting_ >= options_.max_connecting ||
        sessions_.size() >= options_.max_sessions + options_.max_connecting) {
      counters_.refused.fetch_add(1, std::memory_order_relaxed);
      continue;
    }
    auto session = std::make_unique<Session>();
    session->id = next_session_++;
    session->uid = credentials.uid;
    session->pid = credentials.pid;
    session->connected_at_ns = NowNs();
    session->socket = std::move(socket);
    epoll_event event{.events = EPOLLIN | EPOLLRDHUP, .data = {.u64 = session->id}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, session->socket.get(), &event) != 0) continue;
    ++connecting_;
    counters_.accepted.fetch_add(1, std::memory_order_relaxed);
    sessions_.emplace(session->id, std::move(session));
  }
}

void Server::ExpireHellos() {
  const int64_t now = NowNs();
  for (auto it = sessions_.begin(); it != sessions_.end();) {
    Session& session = *(it++)->second;
    if (session.state == Session::State::kConnected &&
        now - session.connected_at_ns > options_.hello_timeout_ns) {
      counters_.hello_timeouts.fetch_add(1, std::memory_order_relaxed);
      Close(session, {});
    }
  }
}

void Server::HandleControlEvents() {
  ControlEvent event;
  while (engine_.control().TryPop(event)) pending_events_.push_back(event);
  if (pending_events_.empty()) return;
  std::vector<ControlEvent> events;
  events.swap(pending_events_);
  for (const ControlEvent& e : events) HandleControlEvent(e);
  Publish();
}

void Server::HandleControlEvent(const ControlEvent& event) {
  const auto found = sessions_.find(event.session);
  if (found == sessions_.end()) return;
  Session& session = *found->second;
  switch (event.type) {
    case ControlEvent::Type::kSessionReleased:
      if (--session.releases_due == 0) FinishClose(session);
      return;
    case ControlEvent::Type::kQueueReleased:
      session.queues[event.handle] = {};
      return;
    case ControlEvent::Type::kBufferReleased:
      if (session.state != Session::State::kClosing) FinishBuffer(session, event.handle);
      return;
    case ControlEvent::Type::kSessionBroken:
      if (session.state == Session::State::kClosing) return;
      counters_.broken.fetch_add(1, std::memory_order_relaxed);
      if (options_.on_broken) options_.on_broken(session, event.failure);
      Close(session, event.failure);
      return;
  }
}

// Ends the session: the client learns why, dispatchers and communicators let go of it, and when all
// have, its memory goes. A session that never said Hello ends here. Invalidates `session`.
void Server::Close(Session& session, const Failure& why) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, session.socket.get(), nullptr);
  if (session.state == Session::State::kConnected) {
    --connecting_;
    sessions_.erase(session.id);
    return;
  }
  session.state = Session::State::kClosing;
  if (!why.ok()) session.memory->MarkClosed(why);
  session.socket = UniqueFd();
  while (!session.memberships.empty()) {
    const auto [membership, gpu] = session.memberships.back();
    Leave(session, membership, gpu);
  }
  session.releases_due = engine_.gpu_count();
  for (int gpu = 0; gpu < engine_.gpu_count(); ++gpu) {
    Tell(gpu, DispatcherMessage(DispatcherMessage::Type::kRemoveSession, session.id));
  }
  Publish();
}

void Server::FinishClose(Session& session) {
  for (const auto& [handle, buffer] : session.buffers) {
    engine_.node().gpu(buffer.allocation.gpu).Free(buffer.allocation);
    Uncharge(session, buffer);
  }
  if (session.timelines_registered)
    engine_.node().UnregisterHostMemory(session.memory->timelines());
  if (options_.on_close) options_.on_close(session);
  Usage& usage = usage_[session.uid];
  if (--usage.sessions == 0) usage_.erase(session.uid);
  sessions_.erase(session.id);
}

void Server::Uncharge(const Session& session, const Session::Buffer& buffer) {
  Usage& usage = usage_[session.uid];
  usage.buffer_bytes -= buffer.charged_bytes;
  --usage.buffers;
}

void Server::FinishBuffer(Session& session, uint32_t handle) {
  const auto found = session.buffers.find(handle);
  CONCERT_CHECK(found != session.buffers.end());
  if (--found->second.releases_due > 0) return;
  engine_.node().gpu(found->second.allocation.gpu).Free(found->second.allocation);
  Uncharge(session, found->second);
  session.buffers.erase(found);
}

void Server::Tell(int gpu, const DispatcherMessage& message) {
  DispatcherMailbox& box = engine_.dispatcher(gpu).mailbox();
  while (!box.TryPush(message)) {
    ControlEvent event;
    while (engine_.control().TryPop(event)) pending_events_.push_back(event);
    sched_yield();
  }
}

void Server::TellIssuer(const IssuerMessage& message) {
  // The issuer waits only for dispatchers, and they, for this box, are emptied by Tell and the main
  // loop.
  while (!engine_.issuer().HasRoom(kRoomForParts) || !engine_.issuer().TryPush(message)) {
    ControlEvent event;
    while (engine_.control().TryPop(event)) pending_events_.push_back(event);
    sched_yield();
  }
}

void Server::Publish() {
  std::vector<SessionSummary> summaries;
  for (const auto& [id, session] : sessions_) {
    if (session->state == Session::State::kConnected) continue;
    SessionSummary& summary = summaries.emplace_back();
    summary.id = id;
    summary.uid = session->uid;
    summary.pid = session->pid;
    summary.name = session->name;
    summary.connected_at_ns = session->connected_at_ns;
    for (const Session::Queue& queue : session->queues) summary.queues += queue.used ? 1 : 0;
    summary.buffers = static_cast<uint32_t>(session->buffers.size());
    for (const auto& [handle, buffer] : session->buffers)
      summary.buffer_bytes += buffer.charged_bytes;
    summary.communicators = static_cast<uint32_t>(session->memberships.size());
    summary.gpus = session->gpus;
    summary.closing = session->state == Session::State::kClosing;
  }
  MutexLock lock(mutex_);
  summaries_ = std::move(summaries);
}

std::vector<SessionSummary> Server::Sessions() const {
  MutexLock lock(mutex_);
  return summaries_;
}

}  // namespace concert::daemon
