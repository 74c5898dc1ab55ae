// Threads that make the driver's calls for the ranks of a collective side by side. A launch keeps a
// CPU for 4 to 5 us (one H100), and the last of eight ranks would wait for seven of them while the
// others' kernels wait for it.
#ifndef CONCERT_DAEMON_DEVICE_CUDA_RANK_THREADS_H_
#define CONCERT_DAEMON_DEVICE_CUDA_RANK_THREADS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace concert::daemon::cuda {

class RankThreads {
 public:
  // For up to `ranks` ranks: a thread for each but the first. They spin for `spin_ns` after what
  // they did last, then sleep.
  RankThreads(size_t ranks, int64_t spin_ns);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  // call(rank) once for each of `ranks`; returns after the last of them, with the first rank's
  // error. Rank 0's is the caller's, and so are those whose threads sleep: they are woken for the
  // next time. One caller at a time.
  absl::Status ForEach(size_t ranks, absl::FunctionRef<absl::Status(size_t rank)> call);

 private:
  using Call = absl::FunctionRef<absl::Status(size_t rank)>;
  enum class State : uint32_t { kSpinning, kCalling, kAsleep, kStopping };

  // The caller owns `call` and `status` but while `state` is kCalling; then the thread does.
  struct Worker {
    std::atomic<State> state{State::kSpinning};
    const Call* call = nullptr;
    absl::Status status;
    std::thread thread;
  };

  static void Post(Worker& worker, const Call& call);
  void Run(Worker& worker, size_t rank) const;

  const int64_t spin_ns_;
  std::vector<std::unique_ptr<Worker>> workers_;  // of rank i + 1
};

}  // namespace concert::daemon::cuda

#endif  // CONCERT_DAEMON_DEVICE_CUDA_RANK_THREADS_H_
