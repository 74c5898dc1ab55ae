#include "daemon/sched/engine.h"

#include <sched.h>

#include <algorithm>
#include <string>

namespace concert::daemon {
namespace {

constexpr uint32_t kControlMailboxCapacity = 1 << 14;

absl::Status UnknownPolicy(std::string_view name) {
  std::string message = "policy is '" + std::string(name) + "'; use one of";
  for (const policies::PolicyInfo& info : policies::AllPolicies())
    message += " " + std::string(info.name);
  return absl::InvalidArgumentError(message);
}

}  // namespace

void Post(DispatcherMailbox& box, const DispatcherMessage& message) {
  while (!box.TryPush(message)) sched_yield();
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options, Node& node,
                                                       std::span<RecordRing* const> records) {
  if (policies::FindPolicy(options.policy) == nullptr) return UnknownPolicy(options.policy);
  return std::unique_ptr<Engine>(new Engine(options, node, records));
}

Engine::Engine(const EngineOptions& options, Node& node, std::span<RecordRing* const> records)
    : node_(node),
      policy_(policies::FindPolicy(options.policy)),
      tuned_(static_cast<size_t>(node.gpu_count())),
      control_(kControlMailboxCapacity),
      issuer_(options.issuer, node) {
  for (int gpu = 0; gpu < node.gpu_count(); ++gpu) {
    DispatcherOptions dispatcher = options.dispatcher;
    dispatcher.scheduler.gpu = static_cast<uint8_t>(gpu);
    dispatchers_.push_back(std::make_unique<Dispatcher>(
        dispatcher, node.gpu(gpu),
        policy_->make({.device = node.gpu(gpu).info().model, .tuned = nullptr}), control_,
        issuer_.mailbox(), *records[static_cast<size_t>(gpu)]));
  }
}

Engine::~Engine() { Stop(); }

void Engine::Start() {
  std::vector<DispatcherMailbox*> boxes;
  for (const auto& dispatcher : dispatchers_) boxes.push_back(&dispatcher->mailbox());
  issuer_.Start(std::move(boxes));
  for (const auto& dispatcher : dispatchers_) dispatcher->Start();
}

void Engine::Stop() {
  // The issuer first: it waits for room in the dispatchers' boxes, which they make only while they
  // run.
  issuer_.Stop();
  for (const auto& dispatcher : dispatchers_) dispatcher->Stop();
}

absl::Status Engine::SetPolicy(std::string_view name) {
  const policies::PolicyInfo* info = policies::FindPolicy(name);
  if (info == nullptr) return UnknownPolicy(name);
  const absl::MutexLock lock(&mutex_);
  policy_ = info;
  for (int gpu = 0; gpu < gpu_count(); ++gpu) SendPolicy(gpu);
  return absl::OkStatus();
}

void Engine::SetTuned(int gpu, std::shared_ptr<const policies::TunedTable> tuned) {
  const absl::MutexLock lock(&mutex_);
  tuned_[static_cast<size_t>(gpu)] = tuned;
  DispatcherMessage message(DispatcherMessage::Type::kUseTuned);
  message.tuned = new std::shared_ptr<const policies::TunedTable>(std::move(tuned));
  Post(dispatcher(gpu).mailbox(), message);
  SendPolicy(gpu);
}

void Engine::SendPolicy(int gpu) {
  DispatcherMessage message(DispatcherMessage::Type::kSetPolicy);
  message.policy =
      policy_
          ->make({.device = node_.gpu(gpu).info().model, .tuned = tuned_[static_cast<size_t>(gpu)]})
          .release();
  Post(dispatcher(gpu).mailbox(), message);
}

void Engine::BeginDrain() {
  for (const auto& dispatcher : dispatchers_) {
    Post(dispatcher->mailbox(), DispatcherMessage(DispatcherMessage::Type::kDrain));
  }
}

void Engine::FailAll(const kernels::Failure& failure) {
  IssuerMessage parts(IssuerMessage::Type::kFailAll);
  parts.failure = failure;
  while (!issuer_.mailbox().TryPush(parts)) sched_yield();
  for (const auto& dispatcher : dispatchers_) {
    DispatcherMessage message(DispatcherMessage::Type::kFailAll);
    message.part = {.op = kNone, .failure = failure};
    Post(dispatcher->mailbox(), message);
  }
}

bool Engine::drained() const {
  return std::all_of(dispatchers_.begin(), dispatchers_.end(), [](const auto& dispatcher) {
    const DispatcherGauges& gauges = dispatcher->gauges();
    return gauges.drained.load(std::memory_order_relaxed);
  });
}

}  // namespace concert::daemon
