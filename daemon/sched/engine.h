// The scheduling core of a node: one dispatcher per GPU, the collective issuer and their boxes. No
// globals and no sockets, so that it can also be linked into a single process.
#ifndef CONCERT_DAEMON_SCHED_ENGINE_H_
#define CONCERT_DAEMON_SCHED_ENGINE_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "daemon/device/device.h"
#include "daemon/quota/account.h"
#include "daemon/sched/collective_issuer.h"
#include "daemon/sched/dispatcher.h"
#include "daemon/sched/messages.h"
#include "daemon/telemetry/record_ring.h"

namespace concert::daemon {

struct EngineOptions {
  std::string policy = "auto";
  DispatcherOptions dispatcher;  // the same for every GPU; scheduler.gpu is filled in
  CollectiveIssuer::Options issuer;
  Limits limits;  // of what clients may hold
};

class Engine {
 public:
  // INVALID_ARGUMENT for an unknown policy, listing those there are. `node` and `records`, one ring
  // per GPU, outlive the engine.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options, Node& node,
                                                        std::span<RecordRing* const> records);
  ~Engine();

  void Start();
  void Stop();

  Node& node() { return node_; }
  int gpu_count() const { return static_cast<int>(dispatchers_.size()); }
  Dispatcher& dispatcher(int gpu) { return *dispatchers_[static_cast<size_t>(gpu)]; }
  IssuerMailbox& issuer() { return issuer_.mailbox(); }
  ControlMailbox& control() { return control_; }
  Accounts& accounts() { return accounts_; }

  // These return DEADLINE_EXCEEDED, naming the GPU, where a dispatcher takes no messages (Post);
  // the other GPUs' have theirs then.
  //
  // Any thread. Takes effect at each GPU's next decision.
  absl::Status SetPolicy(std::string_view name);
  // Any thread. From the GPU's next decision on, policy and device know what was tuned, and so does
  // who chooses transports. Null: nothing. The policy keeps what else it has learned.
  absl::Status SetTuned(int gpu, std::shared_ptr<const policies::TunedTable> tuned);
  // As Post, below.
  absl::Status PostToIssuer(const IssuerMessage& message);
  // What waits for ranks and what runs. Any thread that may wait, 2 s at most. RESOURCE_EXHAUSTED:
  // too many threads do.
  absl::StatusOr<std::shared_ptr<const CollectiveReport>> ReadCollectives();
  // Any thread. New ops are refused from here on; accepted ones go on.
  absl::Status BeginDrain();
  // Any thread. Ends every op with `failure`, now and from here on, but for those that a GPU runs:
  // nothing can call them back, and their memory must stay until they end.
  absl::Status FailAll(const kernels::Failure& failure);
  // Any thread; now and then. Frees the policies and tables that dispatchers have stopped using,
  // tens of megabytes, which no dispatcher should do itself.
  void FreeReplaced();
  // Any thread. Whether, after BeginDrain, what clients had published before has ended.
  bool drained() const;

 private:
  Engine(const EngineOptions& options, Node& node, std::span<RecordRing* const> records);

  absl::Status Replace(int gpu, DispatcherMessage::Type type,
                       std::unique_ptr<Replacement> replacement)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static constexpr size_t kMaxReports = 16;

  Node& node_;
  Accounts accounts_;  // before all threads that charge
  absl::Mutex mutex_;
  const policies::PolicyInfo* policy_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<const policies::TunedTable>> tuned_
      ABSL_GUARDED_BY(mutex_);  // by GPU
  // What dispatchers were sent and have not been seen to be done with.
  std::vector<std::unique_ptr<Replacement>> replacements_ ABSL_GUARDED_BY(mutex_);
  // That the issuer has been asked for.
  absl::Mutex reports_mutex_;
  std::vector<std::shared_ptr<CollectiveReport>> reports_ ABSL_GUARDED_BY(reports_mutex_);
  ControlMailbox control_;
  CollectiveIssuer issuer_;
  std::vector<std::unique_ptr<Dispatcher>> dispatchers_;
};

// Pushes. While the mailbox is full it waits, 2 s at most: a dispatcher empties its mailbox every
// turn, and a turn takes milliseconds unless it hangs in the GPU's driver. DEADLINE_EXCEEDED: the
// mailbox was full all that time, and nothing was sent. For threads that no dispatcher waits for.
absl::Status Post(DispatcherMailbox& mailbox, const DispatcherMessage& message);

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_ENGINE_H_
