#include "daemon/sched/engine.h"

#include <time.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/clock.h"
#include "kernels/group/plan/compiler.h"
#include "policies/cost/collective_cost.h"

namespace concert::daemon {
namespace {

constexpr uint32_t kControlMailboxCapacity = 1 << 14;
constexpr policies::Time kPostLimitNs = 2'000'000'000;
constexpr timespec kFullNap{0, 100'000};  // some turns of a busy dispatcher

template <typename Message>
bool PushInTime(Mailbox<Message>& mailbox, const Message& message) {
  if (mailbox.TryPush(message)) return true;
  const policies::Time until = NowNs() + kPostLimitNs;
  while (!mailbox.TryPush(message)) {
    if (NowNs() >= until) return false;
    nanosleep(&kFullNap, nullptr);
  }
  return true;
}

// `status` of a GPU, said to be that GPU's.
absl::Status Of(int gpu, const absl::Status& status) {
  if (status.ok()) return status;
  return {status.code(), absl::StrCat("GPU ", gpu, ": ", status.message())};
}

absl::Status UnknownPolicy(std::string_view name) {
  std::string message = "policy is '" + std::string(name) + "'; use one of";
  for (const policies::PolicyInfo& info : policies::AllPolicies())
    message += " " + std::string(info.name);
  return absl::InvalidArgumentError(message);
}

}  // namespace

absl::Status Post(DispatcherMailbox& mailbox, const DispatcherMessage& message) {
  if (PushInTime(mailbox, message)) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat("the dispatcher has taken no message for ",
                                                  kPostLimitNs / 1'000'000'000,
                                                  " s; the GPU's driver may hang"));
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options, Node& node,
                                                       std::span<RecordRing* const> records) {
  if (policies::FindPolicy(options.policy) == nullptr) return UnknownPolicy(options.policy);
  return std::unique_ptr<Engine>(new Engine(options, node, records));
}

Engine::Engine(const EngineOptions& options, Node& node, std::span<RecordRing* const> records)
    : node_(node),
      accounts_(options.limits),
      policy_(policies::FindPolicy(options.policy)),
      tuned_(static_cast<size_t>(node.gpu_count())),
      control_(kControlMailboxCapacity),
      issuer_(options.issuer, node) {
  for (int gpu = 0; gpu < node.gpu_count(); ++gpu) {
    DispatcherOptions dispatcher = options.dispatcher;
    dispatcher.scheduler.gpu = static_cast<uint8_t>(gpu);
    dispatchers_.push_back(std::make_unique<Dispatcher>(
        dispatcher, node.gpu(gpu),
        policy_->make({.device = node.gpu(gpu).info().model,
                       .tuned = nullptr,
                       .make_compiler = kernels::MakeGroupCompiler}),
        control_, issuer_.mailbox(), *records[static_cast<size_t>(gpu)]));
  }
}

Engine::~Engine() { Stop(); }

void Engine::Start() {
  std::vector<DispatcherMailbox*> boxes;
  std::vector<const CollectiveEnds*> ends;
  for (const auto& dispatcher : dispatchers_) {
    boxes.push_back(&dispatcher->mailbox());
    ends.push_back(&dispatcher->gauges().collective_ends);
  }
  issuer_.Start(std::move(boxes), std::move(ends));
  for (const auto& dispatcher : dispatchers_) dispatcher->Start();
}

void Engine::Stop() {
  issuer_.Stop();
  for (const auto& dispatcher : dispatchers_) dispatcher->Stop();
}

absl::Status Engine::SetPolicy(std::string_view name) {
  const policies::PolicyInfo* info = policies::FindPolicy(name);
  if (info == nullptr) return UnknownPolicy(name);
  FreeReplaced();
  const absl::MutexLock lock(&mutex_);
  policy_ = info;
  absl::Status status;
  for (int gpu = 0; gpu < gpu_count(); ++gpu) {
    auto replacement = std::make_unique<Replacement>();
    replacement->policy = policy_->make({.device = node_.gpu(gpu).info().model,
                                         .tuned = tuned_[static_cast<size_t>(gpu)],
                                         .make_compiler = kernels::MakeGroupCompiler});
    status.Update(Replace(gpu, DispatcherMessage::Type::kSetPolicy, std::move(replacement)));
  }
  return status;
}

absl::Status Engine::SetTuned(int gpu, std::shared_ptr<const policies::TunedTable> tuned) {
  FreeReplaced();
  const absl::MutexLock lock(&mutex_);
  auto replacement = std::make_unique<Replacement>();
  replacement->tuned = tuned;
  auto for_issuer = std::make_unique<Replacement>();
  for_issuer->curves = policies::CurvesOf(tuned.get());
  replacement->former_tuned = std::exchange(tuned_[static_cast<size_t>(gpu)], std::move(tuned));
  absl::Status status = Replace(gpu, DispatcherMessage::Type::kUseTuned, std::move(replacement));
  IssuerMessage message(IssuerMessage::Type::kUseCurves);
  message.curves = {.gpu = gpu, .replacement = for_issuer.get()};
  const absl::Status posted = PostToIssuer(message);
  if (posted.ok()) replacements_.push_back(std::move(for_issuer));
  status.Update(posted);
  return status;
}

absl::Status Engine::PostToIssuer(const IssuerMessage& message) {
  if (PushInTime(issuer_.mailbox(), message)) return absl::OkStatus();
  return absl::DeadlineExceededError("the issuer of collectives has taken no message");
}

absl::StatusOr<std::shared_ptr<const CollectiveReport>> Engine::ReadCollectives() {
  auto report = std::make_shared<CollectiveReport>();
  IssuerMessage message(IssuerMessage::Type::kReport);
  message.report = report.get();
  {
    const absl::MutexLock lock(&reports_mutex_);
    std::erase_if(reports_,
                  [](const auto& it) { return it->done.load(std::memory_order_acquire); });
    if (reports_.size() >= kMaxReports) {
      return absl::ResourceExhaustedError(
          absl::StrCat(kMaxReports, " such calls wait for the issuer of collectives already"));
    }
    if (!issuer_.mailbox().TryPush(message)) {
      return absl::UnavailableError("the issuer of collectives has no room for questions");
    }
    reports_.push_back(report);  // until the issuer has let go of it
  }
  const policies::Time until = NowNs() + kPostLimitNs;
  // Acquire: pairs with the issuer's release after its last access.
  while (!report->done.load(std::memory_order_acquire)) {
    if (NowNs() >= until) {
      return absl::DeadlineExceededError("the issuer of collectives has not answered for 2 s");
    }
    nanosleep(&kFullNap, nullptr);
  }
  return report;
}

absl::Status Engine::Replace(int gpu, DispatcherMessage::Type type,
                             std::unique_ptr<Replacement> replacement) {
  DispatcherMessage message(type);
  message.replacement = replacement.get();
  absl::Status status = Of(gpu, Post(dispatcher(gpu).mailbox(), message));
  if (status.ok()) replacements_.push_back(std::move(replacement));
  return status;
}

void Engine::FreeReplaced() {
  std::vector<std::unique_ptr<Replacement>> done;  // freed when the lock is not held any more
  const absl::MutexLock lock(&mutex_);
  // Acquire: pairs with the dispatcher's release after it has put in what it used before.
  const auto first = std::partition(replacements_.begin(), replacements_.end(), [](const auto& it) {
    return !it->done.load(std::memory_order_acquire);
  });
  std::move(first, replacements_.end(), std::back_inserter(done));
  replacements_.erase(first, replacements_.end());
}

absl::Status Engine::BeginDrain() {
  absl::Status status;
  for (const auto& dispatcher : dispatchers_) {
    status.Update(Of(dispatcher->gpu(), Post(dispatcher->mailbox(),
                                             DispatcherMessage(DispatcherMessage::Type::kDrain))));
  }
  return status;
}

absl::Status Engine::FailAll(const kernels::Failure& failure) {
  absl::Status status;
  IssuerMessage parts(IssuerMessage::Type::kFailAll);
  parts.failure = failure;
  status.Update(PostToIssuer(parts));
  for (const auto& dispatcher : dispatchers_) {
    DispatcherMessage message(DispatcherMessage::Type::kFailAll);
    message.part = {.op = kNone, .failure = failure, .launched_at = 0};
    status.Update(Of(dispatcher->gpu(), Post(dispatcher->mailbox(), message)));
  }
  return status;
}

bool Engine::drained() const {
  return std::all_of(dispatchers_.begin(), dispatchers_.end(), [](const auto& dispatcher) {
    const DispatcherGauges& gauges = dispatcher->gauges();
    return gauges.drained.load(std::memory_order_relaxed);
  });
}

}  // namespace concert::daemon
