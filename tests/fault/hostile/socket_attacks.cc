// Attacks through the control socket: connections, sessions, buffers.
#include <poll.h>
#include <unistd.h>

#include <deque>

#include "tests/fault/hostile/hostile_session.h"
#include "tests/fault/hostile/mode.h"
#include "tests/fault/program_child.h"

namespace concert::test {
namespace {

constexpr uint64_t kSmallest_bytes = 4096;

// A request that is refused after the least work.
concert_release_buffer Unknown() {
  auto release = RawClient::Make<concert_release_buffer>(CONCERT_CONTROL_RELEASE_BUFFER);
  release.buffer = ~0u;
  return release;
}

}  // namespace

int Silent(const Orders& orders) {
  std::vector<std::unique_ptr<RawClient>> connections(orders.count);
  bool ready = false;
  while (!orders.Over()) {
    for (auto& connection : connections) {
      if (connection == nullptr || !connection->connected()) {
        connection = std::make_unique<RawClient>(orders.socket);
      }
    }
    if (!ready) SayReady();
    ready = true;
    std::vector<pollfd> hangups;
    for (const auto& connection : connections) {
      hangups.push_back({.fd = connection->socket(), .events = POLLIN | POLLRDHUP, .revents = 0});
    }
    if (poll(hangups.data(), hangups.size(), 1) <= 0) continue;
    for (size_t i = 0; i < connections.size(); ++i) {
      if (hangups[i].revents != 0) connections[i]->Disconnect();
    }
  }
  return 0;
}

namespace {

struct Held {
  HostileSessions sessions;
  int buffers = 0;
};

// So many buffers, or as many as the daemon grants, in sessions of 256.
Held HoldBuffers(const Orders& orders) {
  constexpr int kPerSession = 256;
  Held held;
  while (held.buffers < orders.count && !orders.Over()) {
    std::unique_ptr<HostileSession> session = HostileSession::Open(orders.socket, 0);
    if (session == nullptr) break;
    const size_t granted = session->Allocate(kPerSession, kSmallest_bytes).size();
    held.buffers += static_cast<int>(granted);
    held.sessions.push_back(std::move(session));
    if (granted < kPerSession) break;
  }
  return held;
}

}  // namespace

int Mappings(const Orders& orders) {
  const Held held = HoldBuffers(orders);
  SayReady();
  while (!orders.Over()) usleep(10'000);
  return 0;
}

int Hold(const Orders& orders) {
  constexpr int kRequests = 12;  // at once: who leaves more replies unread loses its session
  const Held held = HoldBuffers(orders);
  SayReady();
  // Whatever a request costs because so much is held, others wait for it.
  while (!orders.Over()) {
    for (const auto& session : held.sessions) {
      for (int i = 0; i < kRequests; ++i) session->client().Send(Unknown());
    }
    for (const auto& session : held.sessions) {
      for (int i = 0; i < kRequests; ++i) session->client().Receive();
    }
  }
  return 0;
}

int Handles(const Orders& orders) {
  constexpr int kAtOnce = 16;
  const HostileSessions sessions = OpenSessions(orders, 1);
  SayReady();
  while (!orders.Over()) {
    for (const auto& session : sessions) {
      const std::vector<uint32_t> granted = session->Allocate(kAtOnce, kSmallest_bytes);
      for (const uint32_t handle : granted) session->client().ReleaseBuffer(handle);
      if (orders.Over()) break;
    }
  }
  return 0;
}

int Programs(const Orders& orders) {
  RunProgramChild(orders.socket, /*seed=*/1, [&] { return !orders.Over(); });
  return 0;
}

int Churn(const Orders& orders) {
  constexpr int kOps = 16;
  std::deque<std::unique_ptr<HostileSession>> sessions;
  SayReady();
  while (!orders.Over()) {
    if (static_cast<int>(sessions.size()) >= orders.count) sessions.pop_front();
    std::unique_ptr<HostileSession> session = HostileSession::Open(orders.socket, 1);
    if (session == nullptr) {
      // Those that left are still being taken apart.
      if (!sessions.empty()) sessions.pop_front();
      continue;
    }
    const std::vector<uint32_t> buffers = session->Allocate(1, kSmallest_bytes);
    if (session->queue_count() > 0 && !buffers.empty()) {
      for (int i = 0; i < kOps; ++i) session->Stage(0, MakeCopy(buffers[0]));
      session->Publish();
    }
    sessions.push_back(std::move(session));
  }
  return 0;
}

int Exhaust(const Orders& orders) {
  std::unique_ptr<HostileSession> hog = HostileSession::Open(orders.socket, 1);
  if (hog == nullptr) return 1;
  // Ever smaller pieces, until not even the smallest fits.
  for (uint64_t bytes = uint64_t{1} << 34; bytes >= kSmallest_bytes && !orders.Over(); bytes /= 2) {
    while (!orders.Over() && !hog->Allocate(1, bytes).empty()) {
    }
  }
  SayReady();
  HostileSessions sessions;
  uint16_t kind = 64;
  for (uint64_t turn = 0; !orders.Over(); ++turn) {
    if (static_cast<int>(sessions.size()) < orders.count) {
      std::unique_ptr<HostileSession> session = HostileSession::Open(orders.socket, 64);
      if (session != nullptr && session->queue_count() > 0) {
        session->JoinAlone(16, 64);
        sessions.push_back(std::move(session));
      }
    }
    sessions.push_back(std::move(hog));  // it has ops to offer, too
    for (const auto& session : sessions) {
      for (int i = 0; i < 64 && session->Room() > 0; ++i) {
        concert_descriptor bad{};
        bad.kind = ++kind;
        session->Stage(i % session->queue_count(), bad);
      }
      session->Publish();
    }
    hog = std::move(sessions.back());
    sessions.pop_back();
    usleep(200);
  }
  return 0;
}

}  // namespace concert::test
