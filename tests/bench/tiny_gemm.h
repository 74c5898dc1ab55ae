// The smallest GEMM that is a real op, launched in the two ways that the overhead suite compares.
#ifndef CONCERT_TESTS_BENCH_TINY_GEMM_H_
#define CONCERT_TESTS_BENCH_TINY_GEMM_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace concert {
class Session;
}

namespace concert::bench {

inline constexpr uint32_t kTinyExtent = 16;                    // m, n and k
inline constexpr uint64_t kTinyOperandBytes = 4096;            // each operand on a page of its own
inline constexpr uint64_t kTinyBytes = 3 * kTinyOperandBytes;  // A, W, D

class TinyGemm {
 public:
  virtual ~TinyGemm() = default;
  // Launches one and polls until the host sees that it is done. DEADLINE_EXCEEDED after 10 s.
  virtual absl::Status LaunchAndWait() = 0;
  // How it is launched ("group", "single"); empty: not known to this process.
  virtual std::string form() const = 0;
};

// Through the client library and the daemon. The session must outlive it.
absl::StatusOr<std::unique_ptr<TinyGemm>> MakeRingTinyGemm(const Session& session);

// On a device ("cuda" or "sim") of this process, with the call that the daemon's dispatcher makes
// under `policy`: the same kernel, which signals the timeline itself where it can.
absl::StatusOr<std::unique_ptr<TinyGemm>> MakeLocalTinyGemm(const std::string& device,
                                                            const std::string& policy);

// Polls `done` without sleeping, at most 10 s. The clock is not read before the op has taken far
// longer than it should.
template <typename Done>
absl::Status PollTinyGemm(const Done& done) {
  constexpr int kPollsPerClockRead = 1 << 16;
  std::chrono::steady_clock::time_point limit;
  for (int polls = 0; !done(); ++polls) {
    if (polls % kPollsPerClockRead != kPollsPerClockRead - 1) continue;
    const auto now = std::chrono::steady_clock::now();
    if (limit == std::chrono::steady_clock::time_point()) limit = now + std::chrono::seconds(10);
    if (now > limit) return absl::DeadlineExceededError("a tiny GEMM did not finish in 10 s");
    polls = 0;
  }
  return absl::OkStatus();
}

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_TINY_GEMM_H_
