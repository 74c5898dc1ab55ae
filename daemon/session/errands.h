// What would keep the control thread too long while others want to connect: calls of a device that
// take milliseconds or a second, as for memory, a program or a communicator of one client. A thread
// of their own does one errand after another, at a low priority, so that on a machine that is short
// of CPUs whatever is launched now comes first.
//
// An errand has two halves. `work` runs on that thread and touches nothing that the control thread
// owns but what is safe beside it; `finish` gets what it returned, on the control thread.
#ifndef CONCERT_DAEMON_SESSION_ERRANDS_H_
#define CONCERT_DAEMON_SESSION_ERRANDS_H_

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "proto/mutex.h"
#include "proto/unique_fd.h"

namespace concert::daemon {

// One control thread; it calls everything.
class Errands {
 public:
  Errands();
  // REQUIRES: !busy().
  ~Errands();
  Errands(const Errands&) = delete;
  Errands& operator=(const Errands&) = delete;

  // From Begin until Finish has called `finish`.
  bool busy() const { return finish_ != nullptr; }

  // REQUIRES: !busy().
  template <typename Result>
  void Begin(absl::AnyInvocable<Result()> work, absl::AnyInvocable<void(Result)> finish) {
    auto result = std::make_shared<std::optional<Result>>();
    Start([result, work = std::move(work)]() mutable { result->emplace(work()); },
          [result, finish = std::move(finish)]() mutable { finish(std::move(**result)); });
  }

  // Readable from when an errand's work has ended until Finish.
  int wake_fd() const { return wake_fd_.get(); }
  // If the errand's work has ended, its finish, which may begin another.
  void Finish();

 private:
  void Start(absl::AnyInvocable<void()> work, absl::AnyInvocable<void()> finish);
  void Run();

  UniqueFd wake_fd_;
  absl::AnyInvocable<void()> finish_;
  // Of `finish_`. Release by the thread when its work has ended; pairs with Finish's acquire.
  std::atomic<bool> ended_{false};
  Mutex mutex_;
  CondVar begun_;
  absl::AnyInvocable<void()> work_ CONCERT_GUARDED_BY(mutex_);
  bool stop_ CONCERT_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SESSION_ERRANDS_H_
