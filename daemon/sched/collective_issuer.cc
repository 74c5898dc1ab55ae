#include "daemon/sched/collective_issuer.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>

#include "daemon/clock.h"

namespace concert::daemon {
namespace {

using kernels::Failure;

// Room for every part that the dispatchers of a full node may have offered, and for control
// messages beside.
constexpr uint32_t kIssuerMailboxCapacity = 1 << 15;
static_assert(kIssuerMailboxCapacity > kRoomForParts);
constexpr policies::Time kExpiryPeriodNs = 10'000'000;
constexpr int kIdleSleepMs = 500;
constexpr int kWaitingSleepMs = 10;

}  // namespace

CollectiveIssuer::CollectiveIssuer(const Options& options, Node& node)
    : options_(options),
      node_(node),
      mailbox_(kIssuerMailboxCapacity),
      rendezvous_(options.rendezvous) {
  rank_parts_.reserve(CONCERT_MAX_RINGS);
}

CollectiveIssuer::~CollectiveIssuer() { Stop(); }

void CollectiveIssuer::Start(std::vector<DispatcherMailbox*> dispatchers) {
  dispatchers_ = std::move(dispatchers);
  thread_ = std::thread(&CollectiveIssuer::Run, this);
}

void CollectiveIssuer::Stop() {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_release);
  IssuerMessage wake(IssuerMessage::Type::kWake);
  while (!mailbox_.TryPush(wake)) sched_yield();
  thread_.join();
}

void CollectiveIssuer::Run() {
  pthread_setname_np(pthread_self(), "collectives");
  policies::Time idle_since = NowNs();
  while (!stop_.load(std::memory_order_acquire)) {
    const policies::Time now = NowNs();
    if (Turn(now)) {
      idle_since = now;
      continue;
    }
    if (now - idle_since < options_.spin_ns) {
      CpuRelax();
      continue;
    }
    mailbox_.PrepareSleep();
    if (mailbox_.empty()) {
      pollfd wait{.fd = mailbox_.wake_fd(), .events = POLLIN, .revents = 0};
      poll(&wait, 1, rendezvous_.waiting() ? kWaitingSleepMs : kIdleSleepMs);
    }
    mailbox_.FinishSleep();
  }
}

bool CollectiveIssuer::Turn(policies::Time now) {
  IssuerMessage message;
  bool progress = false;
  outcomes_.Clear();
  while (mailbox_.TryPop(message)) {
    Handle(message, now);
    progress = true;
  }
  if (rendezvous_.waiting() && now >= next_expiry_) {
    next_expiry_ = now + kExpiryPeriodNs;
    rendezvous_.Expire(now, outcomes_);
  }
  for (const Rendezvous::Failed& failed : outcomes_.failed) {
    Answer(failed.part, DispatcherMessage::Type::kPartFailed, failed.failure);
  }
  for (const Rendezvous::Matched& matched : outcomes_.matched) Launch(outcomes_.PartsOf(matched));
  return progress;
}

void CollectiveIssuer::Handle(const IssuerMessage& message, policies::Time now) {
  using Type = IssuerMessage::Type;
  switch (message.type) {
    case Type::kPart:
      rendezvous_.Arrive(message.communicator, message.rank,
                         {.op = message.part.op,
                          .id = message.part.id,
                          .gpu = message.part.gpu,
                          .lane = message.part.lane,
                          .signal = message.part.signal},
                         now, outcomes_);
      return;
    case Type::kRefuse:
      rendezvous_.Refuse(message.communicator, message.rank, message.refused_sequence, now,
                         outcomes_);
      return;
    case Type::kJoin:
      rendezvous_.Join(message.communicator, message.rank, message.ranks);
      return;
    case Type::kLeave:
      rendezvous_.Leave(message.communicator, message.rank, outcomes_);
      return;
    case Type::kFailAll:
      rendezvous_.FailAll(message.failure, outcomes_);
      return;
    case Type::kWake:
      return;
  }
}

void CollectiveIssuer::Launch(std::span<const Rendezvous::Part> parts) {
  rank_parts_.clear();
  for (const Rendezvous::Part& part : parts) {
    rank_parts_.push_back(
        {.gpu = part.gpu, .lane = part.lane, .op = part.op, .signal = part.signal});
  }
  const absl::Status status = node_.LaunchCollective(rank_parts_);
  for (const Rendezvous::Part& part : parts) {
    if (status.ok()) {
      Answer(part, DispatcherMessage::Type::kPartLaunched, {});
    } else {
      Answer(part, DispatcherMessage::Type::kPartFailed,
             {CONCERT_ABI_INTERNAL,
              CONCERT_MESSAGE_DEVICE_ERROR,
              {part.gpu, part.op->kind, static_cast<uint64_t>(status.raw_code())}});
    }
  }
}

void CollectiveIssuer::Answer(const Rendezvous::Part& part, DispatcherMessage::Type type,
                              const Failure& failure) {
  DispatcherMessage message(type);
  message.part = {.op = part.id, .failure = failure};
  // A dispatcher never waits for this thread, so it empties its box.
  while (!dispatchers_[part.gpu]->TryPush(message)) sched_yield();
}

}  // namespace concert::daemon
