// How launches of the step kernel share a GPU's SMs.
#ifndef CONCERT_KERNELS_STEP_STEP_SMS_H_
#define CONCERT_KERNELS_STEP_STEP_SMS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda_api/driver.h"
#include "kernels/program/program_engine.h"
#include "kernels/step/at_work.h"
#include "kernels/step/engine_contest.h"
#include "kernels/step/step_args.h"

namespace concert::kernels::cuda {

// Blocks of a launch wait for each other, so all of a launch's must find an SM: launches that may
// be on the GPU at once have no more blocks than it has SMs, together. One that would make it more
// is put behind others, whose place it takes. A client that is alone has all SMs; several that are
// at work share them equally, and where some are of the high class and some are not, the others
// have a part of the SMs together, half where some of their work is bound by arithmetic: what is
// bound by memory does not get twice as much done with twice the SMs.
//
// The dispatcher's.
class StepSms {
 public:
  // That have not ended; those of one program on one stream may be one.
  static constexpr size_t kMaxLaunches = 32;
  static constexpr int kMaxShares = 8;  // an eighth of the SMs is the least that a launch gets

  struct Options {
    int sm_count;
    ProgramEngine engine;
    int low_class_percent;  // of the SMs, beside the high class
  };

  StepSms() = default;
  StepSms(const StepSms&) = delete;
  StepSms& operator=(const StepSms&) = delete;
  ~StepSms();

  // REQUIRES: the GPU's context is current, here and below.
  absl::Status Open(const Driver& driver, int gpu, const Options& options);
  // Whether it was opened.
  bool usable() const { return driver_ != nullptr; }

  // The GPU is given an op, whatever it is. What follows is about this one.
  void See(const SeenOp& op) { at_work_.See(op); }
  // Whether the step kernel is to run the program that was seen, of so much work. Never beside
  // single ops of others of its class: it holds SMs for as long as a whole step takes.
  bool Wanted(double work);
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
    int blocks = 0;     // 0: none, or it has ended
    bool high = false;  // of the high class
    // That launches of its class might have at once when it was made, its own among them: later
    // ones are behind others then.
    int class_blocks = 0;
    uint64_t order = 0;   // among all
    Launches behind = 0;  // that it starts after for certain
  };

  // What launches of the class that was seen have.
  struct Share {
    int blocks;  // one launch
    int all;     // launches of the class together
  };
  Share ShareOfLast() const;
  bool HasFreePlace() const;
  void ForgetEnded();
  // Where launches of one program follow one another on a stream, keeps the last for all of them.
  void JoinFollowing();
  // That are not known to have ended; of them those of the high class, or all others; and this one
  // with all before it on its stream.
  Launches Left() const;
  Launches OfClass(bool high) const;
  Launches UpTo(int launch) const;
  int BlocksOf(Launches launches) const;
  // How many of their blocks may be on the GPU at once, of launches of one class.
  int AtOnce(Launches launches) const;
  // By when they were made: the oldest with std::less, the newest with std::greater. REQUIRES:
  // there is one.
  template <typename Before>
  int FirstOf(Launches launches, Before before) const;
  // The stream's next launch is behind this one, and so behind what that is behind.
  absl::Status GoBehind(int launch, CUstream stream, Launches& behind);

  const Driver* driver_ = nullptr;
  int gpu_ = 0;
  int sm_count_ = 0;
  int low_class_sms_ = 0;
  ProgramEngine engine_ = ProgramEngine::kAuto;
  AtWork at_work_;
  EngineContest contest_;
  std::array<Launch, kMaxLaunches> launches_;
  uint64_t order_ = 0;
  // Of the launch that was taken for.
  Launches taken_behind_ = 0;
  int taken_class_blocks_ = 0;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_STEP_SMS_H_
