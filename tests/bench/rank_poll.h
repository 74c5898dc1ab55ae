// How a rank waits for the ends of a run, whoever computes it.
#ifndef CONCERT_TESTS_BENCH_RANK_POLL_H_
#define CONCERT_TESTS_BENCH_RANK_POLL_H_

#include <cstdint>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/clock.h"
#include "tests/bench/rank_board.h"
#include "tests/bench/shared_word.h"

namespace concert::bench {

// No run takes this long, not even on the simulator's CPU.
constexpr uint64_t kRunLimitNs = 20'000'000'000;

// Polls until what was wanted is done, as `gemms_done()` and `collective_done()` say: when each was
// seen so, since `start_ns`. DEADLINE_EXCEEDED after kRunLimitNs.
template <typename GemmsDone, typename CollectiveDone>
absl::StatusOr<RunEnds> PollEnds(uint64_t start_ns, bool gemms, bool collective,
                                 const GemmsDone& gemms_done,
                                 const CollectiveDone& collective_done) {
  // Where there are fewer CPUs than threads that poll, the daemon needs them, too.
  constexpr int kPollsPerYield = 256;
  constexpr int kPollsPerClockRead = 1 << 16;
  RunEnds ends;
  const auto ended = [&](bool wanted, const auto& done, uint64_t& end_ns) {
    if (wanted && end_ns == 0 && done()) end_ns = NowNs() - start_ns;
    return !wanted || end_ns != 0;
  };
  for (int polls = 1;; ++polls) {
    const bool collective_ended = ended(collective, collective_done, ends.collective_ns);
    const bool gemms_ended = ended(gemms, gemms_done, ends.gemms_ns);
    if (collective_ended && gemms_ended) return ends;
    if (polls % kPollsPerYield == 0) std::this_thread::yield();
    if (polls % kPollsPerClockRead == 0 && NowNs() > start_ns + kRunLimitNs)
      return absl::DeadlineExceededError("a run did not end in 20 s");
    daemon::CpuRelax();
  }
}

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_RANK_POLL_H_
