// How launches of the step kernel share a GPU's SMs.
#ifndef CONCERT_KERNELS_STEP_STEP_SMS_H_
#define CONCERT_KERNELS_STEP_STEP_SMS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda_api/driver.h"
#include "kernels/step/step_args.h"

namespace concert::kernels::cuda {

// Blocks of a launch wait for each other, so all of a launch's must find an SM: launches that may
// be on the GPU at once have no more blocks than it has SMs, together. One that would make it more
// is put behind others, whose place it takes. A session that is alone has all SMs; several that are
// at work share them equally.
//
// The dispatcher's.
class StepSms {
 public:
  static constexpr size_t kMaxSessions = 8;   // that share the SMs
  static constexpr size_t kMaxLaunches = 32;  // that have not ended

  StepSms() = default;
  StepSms(const StepSms&) = delete;
  StepSms& operator=(const StepSms&) = delete;
  ~StepSms();

  // `shared`: sessions that are at work at the same time share the SMs. REQUIRES: the GPU's context
  // is current, here and below.
  absl::Status Open(const Driver& driver, int gpu, int sm_count, bool shared);
  // Whether it was opened.
  bool usable() const { return driver_ != nullptr; }
  StepReport* report() const { return report_; }

  // The GPU is given an op of this session, whatever it is.
  void See(uint32_t session);
  // Whether the step kernel is to run programs: beside others' work it would hold SMs for as long
  // as a whole step takes.
  bool wanted() const { return shared_ || at_work_ == 1; }
  // How many blocks the next launch of `program` gets on `stream`, which is behind those launches
  // by then that it must be behind: the program's own, whose memory is its as well, and those whose
  // SMs it takes. `most`: blocks at most; 0: no bound. 0: too many launches have not ended; then
  // the stream is as it was.
  absl::StatusOr<int> Take(const void* program, CUstream stream, int most);
  // The launch that was taken for has been enqueued.
  absl::Status Launched(const void* program, int blocks, CUstream stream);

 private:
  using Launches = uint32_t;  // bits, by place
  static_assert(kMaxLaunches <= 32);

  struct Launch {
    CUevent end = nullptr;
    const void* program = nullptr;
    CUstream stream = nullptr;
    int blocks = 0;       // 0: none, or it has ended
    uint64_t order = 0;   // among all
    Launches behind = 0;  // that it starts after for certain
  };

  void ForgetEnded();
  // All that have not ended but those in `launches`: the blocks of all, and the oldest, -1: none.
  int BlocksBut(Launches launches) const;
  int OldestBut(Launches launches) const;
  // The stream's next launch is behind this one, and so behind what that is behind.
  absl::Status GoBehind(int launch, CUstream stream, Launches& behind);

  const Driver* driver_ = nullptr;
  int gpu_ = 0;
  int sm_count_ = 0;
  bool shared_ = false;
  int at_work_ = 1;               // sessions
  StepReport* report_ = nullptr;  // pinned
  std::array<Launch, kMaxLaunches> launches_;
  uint64_t order_ = 0;
  Launches taken_behind_ = 0;  // of the launch that was taken for
  // Sessions that have been seen lately, and as which of all that were.
  struct Recent {
    uint32_t session = 0;
    uint64_t order = 0;  // 0: none
  };
  std::array<Recent, kMaxSessions> recent_;
  uint64_t seen_ = 0;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_STEP_SMS_H_
