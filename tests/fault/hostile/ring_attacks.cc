// Attacks through the ring. All run as fast as the daemon lets them.
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "tests/fault/hostile/hostile_session.h"
#include "tests/fault/hostile/mode.h"

namespace concert::test {
namespace {

constexpr uint16_t kNoKind = 0x7fff;
constexpr uint16_t kFirstUnknownKind = 64;
// Ops staged for a session before the next one has its turn.
constexpr uint64_t kOpsPerVisit = 256;
constexpr useconds_t kPause_us = 100;

// Fills the rings of all sessions again and again, with what next(session) gives.
int FillRings(const Orders& orders, const HostileSessions& sessions,
              const std::function<concert_descriptor(size_t session)>& next) {
  SayReady();
  uint64_t ops = 0;
  while (!orders.Over()) {
    bool any = false;
    for (size_t i = 0; i < sessions.size(); ++i) {
      HostileSession& session = *sessions[i];
      const uint64_t room = std::min(session.Room(), kOpsPerVisit);
      if (room == 0 || session.Closed()) continue;
      any = true;
      for (uint64_t op = 0; op < room; ++op)
        session.Stage(static_cast<int>(ops++ % session.queue_count()), next(i));
      session.Publish();
    }
    if (!any) usleep(kPause_us);
  }
  return 0;
}

concert_descriptor OfKind(uint16_t kind) {
  concert_descriptor op{};
  op.kind = kind;
  return op;
}

// Stays as it is until the time is over.
int Idle(const Orders& orders) {
  SayReady();
  while (!orders.Over()) usleep(10'000);
  return 0;
}

}  // namespace

int Refuse(const Orders& orders) {
  return FillRings(orders, OpenSessions(orders, 1), [](size_t) { return OfKind(kNoKind); });
}

int Kinds(const Orders& orders) {
  return FillRings(orders, OpenSessions(orders, 1), [kind = kFirstUnknownKind](size_t) mutable {
    return OfKind(kind = std::max<uint16_t>(kFirstUnknownKind, kind + 1));  // wraps
  });
}

int Flood(const Orders& orders) {
  HostileSessions sessions = OpenSessions(orders, 1);
  std::vector<concert_descriptor> copies;
  for (const auto& session : sessions) {
    const std::vector<uint32_t> buffers = session->Allocate(1, 4096);
    if (buffers.empty()) break;
    copies.push_back(MakeCopy(buffers[0]));
  }
  sessions.resize(copies.size());
  return FillRings(orders, sessions, [&](size_t session) { return copies[session]; });
}

int Wakes(const Orders& orders) {
  const HostileSessions sessions = OpenSessions(orders, 8);
  for (const auto& session : sessions) {
    for (uint32_t queue = 0; queue < session->client().layout().max_queues; ++queue) {
      session->client().SetWaiters(queue, 1);
    }
  }
  return FillRings(orders, sessions, [](size_t) { return OfKind(kNoKind); });
}

int Offers(const Orders& orders) {
  constexpr int kQueues = 8;
  constexpr uint64_t kAhead = 2;
  struct Lonely {
    uint32_t communicator;
    uint64_t sequence = 0;
  };
  const HostileSessions sessions = OpenSessions(orders, kQueues);
  std::vector<std::vector<Lonely>> lonely(sessions.size());
  for (size_t i = 0; i < sessions.size(); ++i) {
    for (const uint32_t handle : sessions[i]->JoinAlone(sessions[i]->queue_count(), 2)) {
      lonely[i].push_back({handle});
    }
  }
  SayReady();
  while (!orders.Over()) {
    for (size_t i = 0; i < sessions.size(); ++i) {
      HostileSession& session = *sessions[i];
      for (size_t queue = 0; queue < lonely[i].size(); ++queue) {
        while (session.Room() > 0 && session.Unfinished(static_cast<int>(queue)) < kAhead) {
          Lonely& part = lonely[i][queue];
          session.Stage(static_cast<int>(queue), MakePart(part.communicator, part.sequence++));
        }
      }
      session.Publish();
    }
    usleep(2'000);
  }
  return 0;
}

int Opens(const Orders& orders) {
  constexpr int kCommunicators = 4;
  constexpr uint32_t kRanks = 255;
  // What the issuer takes in a millisecond: a part that finds its mailbox full is forgotten.
  constexpr int kPartsPerPause = 64;
  constexpr useconds_t kPause = 1'000;
  const HostileSessions sessions = OpenSessions(orders, 1);
  std::vector<std::vector<uint32_t>> handles;
  for (const auto& session : sessions) {
    handles.push_back(session->JoinAlone(kCommunicators, kRanks));
  }
  SayReady();
  uint64_t parts = 0;
  for (uint64_t sequence = 0; !orders.Over(); ++sequence) {
    for (size_t i = 0; i < sessions.size() && !orders.Over(); ++i) {
      for (const uint32_t handle : handles[i]) {
        if (sessions[i]->Room() == 0) continue;
        concert_descriptor bad = MakePart(handle, sequence);
        bad.flags = 1;  // collectives have none
        sessions[i]->Stage(0, bad);
        if (++parts % kPartsPerPause == 0) usleep(kPause);
      }
      sessions[i]->Publish();
    }
  }
  return 0;
}

int Blocked(const Orders& orders) {
  const HostileSessions sessions = OpenSessions(orders, CONCERT_MAX_QUEUES);
  for (const auto& session : sessions) {
    const std::vector<uint32_t> buffers = session->Allocate(1, 4096);
    if (buffers.empty()) continue;
    concert_descriptor copy = MakeCopy(buffers[0]);
    copy.wait_count = CONCERT_MAX_WAITS;
    for (uint32_t i = 0; i < CONCERT_MAX_WAITS; ++i) {
      copy.waits[i] = {CONCERT_TIMELINE_ID(session->id(), CONCERT_TIMELINE_USER | i), 1};
    }
    for (int queue = 0; queue < session->queue_count() && session->Room() > 0; ++queue) {
      session->Stage(queue, copy);
    }
    session->Publish();
  }
  return Idle(orders);
}

}  // namespace concert::test
