#include "daemon/sched/collective_issuer.h"

#include <poll.h>
#include <pthread.h>

#include <algorithm>

#include "daemon/check.h"
#include "daemon/clock.h"
#include "daemon/quota/budget.h"

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

std::vector<policies::DeviceModel> ModelsOf(Node& node) {
  std::vector<policies::DeviceModel> models;
  models.reserve(static_cast<size_t>(node.gpu_count()));
  for (int gpu = 0; gpu < node.gpu_count(); ++gpu) models.push_back(node.gpu(gpu).info().model);
  return models;
}

}  // namespace

CollectiveIssuer::CollectiveIssuer(const Options& options, Node& node)
    : options_(options),
      node_(node),
      mailbox_(kIssuerMailboxCapacity),
      rendezvous_(options.rendezvous),
      coordinator_(ModelsOf(node), options.transport),
      launched_(node.gpu_count()) {}

CollectiveIssuer::~CollectiveIssuer() { Stop(); }

void CollectiveIssuer::Start(std::vector<DispatcherMailbox*> dispatchers,
                             std::vector<const CollectiveEnds*> ends) {
  dispatchers_ = std::move(dispatchers);
  launched_.Watch(std::move(ends));
  for (DispatcherMailbox* mailbox : dispatchers_) answers_.emplace_back(*mailbox);
  thread_ = std::thread(&CollectiveIssuer::Run, this);
}

void CollectiveIssuer::Stop() {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_release);
  // Ends its sleep. Where there is no room for this, the thread has messages to read, so that it
  // does not sleep, and sees stop_ after a turn.
  mailbox_.TryPush(IssuerMessage(IssuerMessage::Type::kWake));
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
      poll(&wait, 1, rendezvous_.waiting() || AnswersAreLate() ? kWaitingSleepMs : kIdleSleepMs);
    }
    mailbox_.FinishSleep();
  }
}

bool CollectiveIssuer::Turn(policies::Time now) {
  IssuerMessage message;
  bool progress = false;
  for (Outbox<DispatcherMessage>& answers : answers_) progress |= answers.Send();
  outcomes_.Clear();
  for (uint32_t i = 0; i < PerTurn(Work::kIssuerMessages) && mailbox_.TryPop(message); ++i) {
    Handle(message, now);
    progress = true;
  }
  if (rendezvous_.waiting() && now >= next_expiry_) {
    const bool more = rendezvous_.Expire(now, PerTurn(Work::kExpiries), outcomes_);
    next_expiry_ = more ? now : now + kExpiryPeriodNs;
    progress |= more;
  }
  progress |= rendezvous_.LetGo(PerTurn(Work::kEndings), outcomes_);
  for (const Rendezvous::Failed& failed : outcomes_.failed) {
    Fail(failed.part, failed.failure);
  }
  for (const Rendezvous::Matched& matched : outcomes_.matched) Launch(matched);
  TellNews(now);  // nobody waits for it
  if (lease_holder_ != nullptr) {
    const bool idle = !progress && !rendezvous_.waiting();
    if (!lease_holder_->Turn(node_, idle)) lease_holder_ = nullptr;
    progress = true;
  }
  return progress;
}

void CollectiveIssuer::Handle(const IssuerMessage& message, policies::Time now) {
  using Type = IssuerMessage::Type;
  switch (message.type) {
    case Type::kPart:
      rendezvous_.Arrive(message.communicator, message.rank, message.part, now, outcomes_);
      return;
    case Type::kRefuse:
      rendezvous_.Refuse(message.communicator, message.rank, message.refused_sequence, now,
                         outcomes_);
      return;
    case Type::kJoin:
      rendezvous_.Join(message.communicator, message.rank, message.join.ranks,
                       *message.join.account,
                       {.session = message.join.session, .gpu = message.join.gpu});
      return;
    case Type::kLeave:
      rendezvous_.Leave(message.communicator, message.rank);
      return;
    case Type::kFailAll:
      rendezvous_.FailAll(message.failure);
      return;
    case Type::kUseCurves:
      coordinator_.UseCurves(message.curves.gpu, message.curves.replacement->curves);
      message.curves.replacement->done.store(true, std::memory_order_release);
      return;
    case Type::kLease:
      CONCERT_CHECK(lease_holder_ == nullptr);  // the tuner waits for one before it sends another
      lease_holder_ = message.lease_holder;
      return;
    case Type::kReport:
      Report(*message.report, now);
      return;
    case Type::kWake:
      return;
  }
}

void CollectiveIssuer::Report(CollectiveReport& report, policies::Time now) {
  report.taken_at = now;
  rendezvous_.Report(report);
  launched_.Report(report);
  // Release: pairs with the asker's acquire, whose the report is from here.
  report.done.store(true, std::memory_order_release);
}

void CollectiveIssuer::Launch(const Rendezvous::Matched& matched) {
  const std::span<const RankPart> parts = outcomes_.PartsOf(matched);
  const CollectivePlan plan = coordinator_.Decide(parts);
  const policies::Time launched_at = NowNs();
  const absl::Status status = node_.LaunchCollective(parts, plan.choice);
  if (status.ok()) launched_.Add(parts, plan, matched.uid, launched_at);
  for (const RankPart& part : parts) {
    if (status.ok()) {
      DispatcherMessage message(DispatcherMessage::Type::kPartLaunched);
      message.part = {.op = part.id,
                      .failure = {},
                      .launched_at = launched_at,
                      .reservation = plan.reservation};
      Answer(part.gpu, message);
    } else {
      Fail(part, {CONCERT_ABI_INTERNAL,
                  CONCERT_MESSAGE_DEVICE_ERROR,
                  {static_cast<uint64_t>(part.gpu), part.op->kind,
                   static_cast<uint64_t>(status.raw_code())}});
    }
  }
}

void CollectiveIssuer::Fail(const RankPart& part, const Failure& failure) {
  DispatcherMessage message(DispatcherMessage::Type::kPartFailed);
  message.part = {.op = part.id, .failure = failure, .launched_at = 0};
  Answer(part.gpu, message);
}

// What a policy plans by and nothing depends on: so a mailbox that is half full, and a dispatcher
// that sleeps, are spared it, and what has no room is lost. A part's news comes before its answer,
// since after that there is none.
void CollectiveIssuer::TellNews(policies::Time now) {
  rendezvous_.TellNews(outcomes_);
  for (const Rendezvous::News& news : outcomes_.news) {
    DispatcherMailbox& mailbox = *dispatchers_[news.part.gpu];
    if (!mailbox.HasRoom(kRoomWithoutNews)) continue;
    DispatcherMessage message(DispatcherMessage::Type::kRanksThere);
    message.news = {.op = news.part.id, .ranks_there = news.ranks_there, .since = now};
    mailbox.TryPushQuietly(message);
  }
}

// Nobody waits here for a dispatcher that has no room: it may be in a call of its GPU's driver, and
// the other GPUs' collectives go on. Every part is answered once, so that at most
// PlanBook::kMaxCollectives answers of a GPU are late.
void CollectiveIssuer::Answer(int gpu, const DispatcherMessage& message) {
  answers_[gpu].Push(message);
}

bool CollectiveIssuer::AnswersAreLate() const {
  return std::any_of(answers_.begin(), answers_.end(),
                     [](const auto& answers) { return answers.late() > 0; });
}

}  // namespace concert::daemon
