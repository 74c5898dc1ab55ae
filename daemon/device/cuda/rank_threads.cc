#include "daemon/device/cuda/rank_threads.h"

#include <pthread.h>

#include <string>
#include <utility>

#include "daemon/check.h"
#include "daemon/clock.h"

namespace concert::daemon::cuda {

RankThreads::RankThreads(size_t ranks, int64_t spin_ns) : spin_ns_(spin_ns) {
  for (size_t rank = 1; rank < ranks; ++rank) {
    Worker& worker = *workers_.emplace_back(std::make_unique<Worker>());
    worker.thread = std::thread([this, &worker, rank] { Run(worker, rank); });
  }
}

RankThreads::~RankThreads() {
  for (const std::unique_ptr<Worker>& worker : workers_) {
    worker->state.store(State::kStopping, std::memory_order_release);
    worker->state.notify_one();
    worker->thread.join();
  }
}

absl::Status RankThreads::ForEach(size_t ranks, Call call) {
  CONCERT_CHECK(ranks >= 1 && ranks <= workers_.size() + 1);
  for (size_t i = 0; i + 1 < ranks; ++i) Post(*workers_[i], call);
  absl::Status status = call(0);
  for (size_t i = 0; i + 1 < ranks; ++i) {
    Worker& worker = *workers_[i];
    if (worker.call == nullptr) {
      status.Update(call(i + 1));
      continue;
    }
    // Acquire: pairs with Run's release, behind what the call has done. It is a driver's call and
    // takes as long as it would here.
    while (worker.state.load(std::memory_order_acquire) == State::kCalling) CpuRelax();
    status.Update(std::exchange(worker.status, absl::OkStatus()));
  }
  return status;
}

// Leaves worker.call null where the thread sleeps, and wakes it.
void RankThreads::Post(Worker& worker, const Call& call) {
  worker.call = &call;
  State state = State::kSpinning;
  // Release: pairs with Run's acquire, before it reads `call`.
  if (worker.state.compare_exchange_strong(state, State::kCalling, std::memory_order_release,
                                           std::memory_order_relaxed)) {
    return;
  }
  worker.call = nullptr;
  worker.state.store(State::kSpinning, std::memory_order_relaxed);
  worker.state.notify_one();
}

void RankThreads::Run(Worker& worker, size_t rank) const {
  pthread_setname_np(pthread_self(), ("rank" + std::to_string(rank)).c_str());
  int64_t idle_since = NowNs();
  for (;;) {
    State state = worker.state.load(std::memory_order_acquire);
    switch (state) {
      case State::kCalling:
        worker.status = (*worker.call)(rank);
        worker.state.store(State::kSpinning, std::memory_order_release);
        idle_since = NowNs();
        continue;
      case State::kSpinning:
        if (NowNs() - idle_since <= spin_ns_) {
          CpuRelax();
          continue;
        }
        worker.state.compare_exchange_strong(state, State::kAsleep, std::memory_order_relaxed);
        continue;
      case State::kAsleep:
        worker.state.wait(State::kAsleep, std::memory_order_relaxed);
        idle_since = NowNs();
        continue;
      case State::kStopping:
        return;
    }
  }
}

}  // namespace concert::daemon::cuda
