#include "kernels/step/step_sms.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

namespace concert::kernels::cuda {
StepSms::~StepSms() {
  if (driver_ == nullptr) return;
  for (const Launch& launch : launches_) {
    if (launch.end != nullptr) driver_->cuEventDestroy(launch.end);
  }
}

absl::Status StepSms::Open(const Driver& driver, int gpu, const Options& options) {
  driver_ = &driver;
  gpu_ = gpu;
  engine_ = options.engine;
  sm_count_ = std::min(options.sm_count, static_cast<int>(kMaxStepBlocks));
  low_class_sms_ = sm_count_ * options.low_class_percent / 100;
  for (Launch& launch : launches_) {
    CONCERT_RETURN_IF_DRIVER_ERROR(driver, gpu, cuEventCreate, &launch.end,
                                   CU_EVENT_DISABLE_TIMING);
  }
  return absl::OkStatus();
}

bool StepSms::Wanted(double work) {
  if (engine_ == ProgramEngine::kStep) return true;
  // Its SMs are set apart from others', whose ops wait for it anyway.
  if (at_work_.classes_differ()) return at_work_.last().high || at_work_.only_programs();
  return at_work_.only_programs() && contest_.StepWanted({.company = at_work_.company(),
                                                          .clients = at_work_.clients(),
                                                          .longest_away = at_work_.longest_away(),
                                                          .work = work,
                                                          .now_ns = at_work_.last().now_ns});
}

// Equal ones. While clients come and go there are launches of two sizes, and some SMs that none
// fits.
StepSms::Share StepSms::ShareOfLast() const {
  const bool high = at_work_.last().high;
  int all = sm_count_;
  if (at_work_.classes_differ()) {
    const int others_have = at_work_.others_compute() ? sm_count_ / 2 : low_class_sms_;
    all = high ? sm_count_ - others_have : others_have;
  }
  const int clients = high ? at_work_.high() : at_work_.clients() - at_work_.high();
  const int shares = std::clamp(clients, 1, kMaxShares);
  // On fewer SMs than an eighth a step takes so long that taking turns is better.
  return {.blocks = std::max(all / shares, std::min(all, sm_count_ / kMaxShares)), .all = all};
}

bool StepSms::HasFreePlace() const {
  return static_cast<size_t>(std::popcount(Left())) < kMaxLaunches;
}

template <typename Before>
int StepSms::FirstOf(Launches launches, Before before) const {
  int first = std::countr_zero(launches);
  for (Launches left = launches; left != 0; left &= left - 1) {
    const int launch = std::countr_zero(left);
    if (before(launches_[launch].order, launches_[first].order)) first = launch;
  }
  return first;
}

// The newest first: what was before it on its stream has ended with it. To ask costs 2 to 3 us a
// launch (one H100), so that nobody asks before it has to.
void StepSms::ForgetEnded() {
  Launches ended = 0;
  for (Launches unknown = Left(); unknown != 0;) {
    const int newest = FirstOf(unknown, std::greater<>());
    unknown &= ~(Launches{1} << newest);
    if (driver_->cuEventQuery(launches_[newest].end) != CUDA_SUCCESS) continue;
    const Launches with_it = UpTo(newest);
    ended |= with_it;
    unknown &= ~with_it;
  }
  for (Launches left = ended; left != 0; left &= left - 1)
    launches_[std::countr_zero(left)].blocks = 0;
  for (Launch& launch : launches_) launch.behind &= ~ended;  // their places are for others
}

// What is behind the last is behind those before it. For others they all end with it, which is
// later than they do: only where places run out.
void StepSms::JoinFollowing() {
  for (Launch& before : launches_) {
    const auto follows = [&](const Launch& after) {
      return after.blocks != 0 && after.order > before.order && after.stream == before.stream &&
             after.program == before.program && after.high == before.high;
    };
    const auto after = std::find_if(launches_.begin(), launches_.end(), follows);
    if (before.blocks == 0 || after == launches_.end()) continue;
    after->blocks = std::max(after->blocks, before.blocks);
    after->class_blocks = std::max(after->class_blocks, before.class_blocks);
    before.blocks = 0;
    const Launches gone = Launches{1} << (&before - launches_.data());
    for (Launch& launch : launches_) launch.behind &= ~gone;  // its place is for others
  }
}

StepSms::Launches StepSms::UpTo(int launch) const {
  Launches launches = 0;
  for (Launches left = Left(); left != 0; left &= left - 1) {
    const Launch& other = launches_[std::countr_zero(left)];
    if (other.stream == launches_[launch].stream && other.order <= launches_[launch].order)
      launches |= left & -left;
  }
  return launches;
}

StepSms::Launches StepSms::Left() const {
  Launches launches = 0;
  for (size_t i = 0; i < kMaxLaunches; ++i) {
    if (launches_[i].blocks != 0) launches |= Launches{1} << i;
  }
  return launches;
}

StepSms::Launches StepSms::OfClass(bool high) const {
  Launches launches = 0;
  for (Launches left = Left(); left != 0; left &= left - 1) {
    if (launches_[std::countr_zero(left)].high == high) launches |= left & -left;
  }
  return launches;
}

// Of a stream one at a time, whether or not it is known which have ended.
int StepSms::BlocksOf(Launches launches) const {
  int blocks = 0;
  while (launches != 0) {
    const CUstream stream = launches_[std::countr_zero(launches)].stream;
    int most = 0;
    for (Launches left = launches; left != 0; left &= left - 1) {
      const Launch& launch = launches_[std::countr_zero(left)];
      if (launch.stream != stream) continue;
      most = std::max(most, launch.blocks);
      launches &= ~(left & -left);
    }
    blocks += most;
  }
  return blocks;
}

// Of those that are on the GPU at once the last to be made saw all others as such.
int StepSms::AtOnce(Launches launches) const {
  int most = 0;
  for (Launches left = launches; left != 0; left &= left - 1)
    most = std::max(most, launches_[std::countr_zero(left)].class_blocks);
  return std::min(most, BlocksOf(launches));
}

absl::Status StepSms::GoBehind(int launch, CUstream stream, Launches& behind) {
  const Launch& other = launches_[launch];
  behind |= Launches{1} << launch | other.behind;
  if (other.stream == stream) return absl::OkStatus();  // it is already
  return driver_->ToStatus(driver_->cuStreamWaitEvent(stream, other.end, 0), "cuStreamWaitEvent",
                           gpu_);
}

// Of launches that may be on the GPU at once the last to be taken for has seen all others as such,
// so that what holds here for it and them holds for all of them.
absl::StatusOr<int> StepSms::Take(const void* program, CUstream stream, int most) {
  if (!HasFreePlace()) ForgetEnded();
  if (!HasFreePlace()) JoinFollowing();
  if (!HasFreePlace()) return 0;
  taken_behind_ = 0;
  for (Launches left = Left(); left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    if (launches_[i].program != program && launches_[i].stream != stream) continue;
    const absl::Status status = GoBehind(i, stream, taken_behind_);
    if (!status.ok()) return status;
  }
  const Share share = ShareOfLast();
  const int blocks = most > 0 ? std::min(share.blocks, most) : share.blocks;
  const bool high = at_work_.last().high;
  const auto of_class = [&](bool one) { return OfClass(one) & ~taken_behind_; };
  for (bool asked = false;;) {
    const int in_class = BlocksOf(of_class(high)) + blocks;
    const bool too_many = in_class > share.all;
    if (!too_many && in_class + AtOnce(of_class(!high)) <= sm_count_) break;
    if (!std::exchange(asked, true)) {
      ForgetEnded();
      taken_behind_ &= Left();
      continue;
    }
    const absl::Status status =
        GoBehind(FirstOf(of_class(too_many ? high : !high), std::less<>()), stream, taken_behind_);
    if (!status.ok()) return status;
  }
  taken_class_blocks_ = share.all;
  return blocks;
}

absl::Status StepSms::Launched(const void* program, int blocks, CUstream stream) {
  Launch& launch = *std::find_if(launches_.begin(), launches_.end(),
                                 [](const Launch& one) { return one.blocks == 0; });
  launch.program = program;
  launch.stream = stream;
  launch.blocks = blocks;
  launch.high = at_work_.last().high;
  launch.class_blocks = taken_class_blocks_;
  launch.order = ++order_;
  launch.behind = taken_behind_;
  CONCERT_RETURN_IF_DRIVER_ERROR(*driver_, gpu_, cuEventRecord, launch.end, stream);
  return absl::OkStatus();
}

}  // namespace concert::kernels::cuda
