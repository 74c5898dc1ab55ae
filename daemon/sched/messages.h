// What the daemon's threads tell each other: control -> dispatchers and issuer, dispatchers <->
// issuer, and dispatchers -> control. Plain data; pointers name who owns what they point at.
#ifndef CONCERT_DAEMON_SCHED_MESSAGES_H_
#define CONCERT_DAEMON_SCHED_MESSAGES_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "daemon/device/device.h"
#include "daemon/quota/account.h"
#include "daemon/sched/collective_report.h"
#include "daemon/sched/coordinator.h"
#include "daemon/sched/lease_holder.h"
#include "daemon/sched/mailbox.h"
#include "daemon/sched/op_pool.h"
#include "daemon/session/session_memory.h"
#include "kernels/failure.h"
#include "kernels/op_table.h"
#include "policies/seam/policy.h"

namespace concert::daemon {

// A session as a dispatcher knows it. `memory` is the control thread's and stays valid until every
// dispatcher has answered kRemoveSession with kSessionReleased.
struct SessionLink {
  uint32_t session = 0;
  uint32_t uid = 0;
  Account* account = nullptr;     // the user's; outlives the session
  int32_t ring = -1;              // of this dispatcher's GPU in the session's layout; -1: none
  int32_t event_fd = -1;          // rung by the client when the dispatcher sleeps
  Address timelines_address = 0;  // device address of memory->timelines()
  SessionMemory* memory = nullptr;
};

// A rank's membership of a communicator. The handle a client uses is communicator << 8 | rank.
struct Membership {
  uint32_t handle = 0;
  uint32_t communicator = 0;
  uint32_t rank = 0;
  uint32_t ranks = 0;
};

// What a dispatcher is to use from now on. Whoever sends it owns it and keeps it until `done`: what
// was in use comes back in it, so that the dispatcher frees nothing, and a message that nobody
// reads leaves nothing behind.
struct Replacement {
  std::unique_ptr<policies::Policy> policy;           // kSetPolicy
  std::shared_ptr<const policies::TunedTable> tuned;  // kUseTuned: of the policy and the device
  std::shared_ptr<const policies::TunedTable> former_tuned;  // kept here until nobody uses it
  policies::TransportCurves curves;                          // IssuerMessage::kUseCurves
  // Release, by the reader, after its last access; pairs with the owner's acquire.
  std::atomic<bool> done{false};
};

struct DispatcherMessage {
  enum class Type : uint8_t {
    kAddSession,
    kRemoveSession,  // cancel what is not launched; answer kSessionReleased when nothing is left
    kAddQueue,
    kRemoveQueue,  // answer kQueueReleased when its ops are done
    kAddBuffer,
    kReleaseBuffer,  // answer kBufferReleased when no op uses it
    kAddMembership,
    kRemoveMembership,
    kPartLaunched,
    kPartFailed,
    kRanksThere,  // news of an offered part; lost where the mailbox has little room
    kGiveUpPass,  // no program is of `pass` any more
    kSetPolicy,   // `replacement`: decide with its policy
    kUseTuned,    // `replacement`: plan and pick variants by its table
    kLease,       // `lease_holder` gets turns until it wants no more; one at a time
    kDrain,       // refuse new ops
    kFailAll,     // `failure`: end everything that does not run yet
    kWake,        // nothing; ends a sleep
  };
  Type type;
  uint32_t session = 0;
  union {
    SessionLink link;
    struct {
      uint32_t queue;
      policies::Priority priority;
      uint64_t next_ticket;
    } queue;
    struct {
      uint32_t handle;
      kernels::BufferRange range;
    } buffer;
    Membership membership;
    struct {
      OpId op;
      kernels::Failure failure;    // of kPartFailed and kFailAll
      policies::Time launched_at;  // of kPartLaunched: when its launch began
      Reservation reservation;     // of kPartLaunched
    } part;
    struct {
      OpId op;
      uint8_t ranks_there;
      policies::Time since;  // when the last of them came
    } news;                  // kRanksThere
    const kernels::Pass* pass;
    Replacement* replacement;
    LeaseHolder* lease_holder;
  };
  DispatcherMessage() : type(Type::kDrain), link{} {}
  explicit DispatcherMessage(Type t, uint32_t s = 0) : type(t), session(s), link{} {}
};

// Dispatchers -> control thread.
struct ControlEvent {
  enum class Type : uint8_t {
    kSessionReleased,
    kQueueReleased,
    kBufferReleased,
    kSessionBroken,
    kRace,            // of two ops of the session, to be logged
    kProgramStalled,  // one of its runs did, for the first time
  };
  Type type;
  uint32_t session = 0;
  uint32_t handle = 0;       // queue index, buffer or program
  kernels::Failure failure;  // kSessionBroken: what the client did; else what is to be logged
};

// To the collective issuer: from dispatchers (parts) and the control thread (communicators).
struct IssuerMessage {
  enum class Type : uint8_t {
    kPart,       // a part is ready; answered by kPartLaunched or kPartFailed
    kRefuse,     // a rank's part failed before it was ready
    kJoin,       // a rank joined
    kLeave,      // a rank left: parts that need it fail
    kFailAll,    // `failure`: give back every part
    kUseCurves,  // `curves`: choose transports of the GPU by them
    kLease,      // `lease_holder` gets turns until it wants no more; one at a time
    kReport,     // `report` is filled in
    kWake,       // nothing; ends a sleep
  };
  Type type;
  uint32_t communicator = 0;
  uint32_t rank = 0;
  union {
    RankPart part;
    struct {
      uint32_t ranks;
      Account* account;  // charged with the membership, which kLeave releases
      uint32_t session;
      int gpu;
    } join;
    struct {
      int gpu;
      Replacement* replacement;
    } curves;
    CollectiveLeaseHolder* lease_holder;
    CollectiveReport* report;
    uint64_t refused_sequence;
    kernels::Failure failure;
  };
  IssuerMessage() : type(Type::kFailAll), failure{} {}
  explicit IssuerMessage(Type t) : type(t), failure{} {}
};

// What of the issuer's mailbox is kept for parts, which must always fit: all that users may have
// offered together (Resource::kParts), and slack for senders that look at the room at one time.
inline constexpr uint32_t kRoomForParts = 16'384 + 64;

// What news leaves of a dispatcher's mailbox to all that must arrive: half of it.
inline constexpr uint32_t kDispatcherMailboxCapacity = 8192;
inline constexpr uint32_t kRoomWithoutNews = kDispatcherMailboxCapacity / 2;

using DispatcherMailbox = Mailbox<DispatcherMessage>;
using ControlMailbox = Mailbox<ControlEvent>;
using IssuerMailbox = Mailbox<IssuerMessage>;

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_MESSAGES_H_
