// Which way of planning takes the GPU least time for the work at hand, found by measuring all of
// them: predictions err, and what one plan took cannot be told apart from what ran before and after
// it. What many plans of one way took can.
#ifndef CONCERT_POLICIES_AUTO_CONTEST_H_
#define CONCERT_POLICIES_AUTO_CONTEST_H_

#include <array>
#include <cstdint>

#include "policies/auto/way.h"
#include "policies/seam/snapshot.h"

namespace concert::policies {

// Windows of plans of one way each. A window's score is the time that it took over the time that
// its work would take at the roofline, so that windows with other work can be compared. The next
// window is of the way whose score might be the least: its mean less what the mean of so many
// windows may be off (a bandit with discounted confidence bounds: Garivier and Moulines, "On
// Upper-Confidence Bound Policies for Switching Bandit Problems", 2011). So a way that is much
// slower is tried once and then seldom, and one that is as fast has its share.
//
// What was measured is of a regime: of work with these weights. Work with others has another, and
// finds what was measured when it had its turn before.
//
// Fixed memory; allocates nothing; not thread-safe.
class Contest {
 public:
  explicit Contest(const DeviceModel& device) : device_(device) {}

  // The way of this decision's plan. `apart`: its time cannot be compared, as when another class is
  // active; such plans are as predicted.
  Way Next(const Snapshot& snapshot, bool apart);
  // What was planned in that way.
  void Planned(const Snapshot& snapshot, const Effort& effort);

  // Of the regime at hand; 0: not measured.
  double ScoreOf(Way way) const { return regime().ways[static_cast<int>(way)].mean; }
  uint64_t windows() const { return windows_; }

 private:
  // Plans and time of a window: with fewer plans too much of the score is what was in flight at its
  // ends, and in less time clocks and hosts scatter too much.
  static constexpr int kWindowPlans = 8;
  static constexpr double kWindowUs = 1000;
  // Plans of a way that are not measured, besides all that overlap those of the way before: the
  // first ones are chosen anew, and kernels are loaded when they are first launched.
  static constexpr int kSettlePlans = 2, kFirstSettlePlans = 8;
  static constexpr int kMaxSettlePlans = 64;
  // A client that takes longer to come back is not waiting for the GPU alone: such times are no
  // way's fault.
  static constexpr double kThinkUs = 50;
  // The standard deviation of a window's score over its mean, and how a window's weight fades with
  // each later one: half of it after 138.
  static constexpr double kScatter = 0.05, kFade = 0.995;
  // More windows than that do not make a mean more certain: clocks and loads change.
  static constexpr double kMaxWeight = 16;
  // So much the way at hand may seem slower than another: windows between two ways are not
  // measured.
  static constexpr double kSwitchCost = 0.005;
  // A window that takes so much longer than the best way's mean is cut short, and its score is
  // this: what kept the host busy once must not keep a way away for ever.
  static constexpr double kHopeless = 1.3, kHopelessUs = 200;
  // Two windows in a row that are off from their way's mean by so much: the load has changed, and
  // all that was measured counts little.
  static constexpr double kChanged = 0.15, kLittle = 0.25;
  // Plans in a row most of whose weights the regime has not seen: they are of another.
  static constexpr int kStrangePlans = 3;
  static constexpr int kRegimes = 16;

  struct Measured {
    double weight = 0;  // windows, faded; 0: none
    double mean = 0;    // score
  };
  struct Regime {
    std::array<Measured, kWayCount> ways;
    uint64_t weights = 0, weights_last = 0;  // of the last two windows, and of the last
    uint64_t used = 0;                       // the number of its last window; 0: never
    int off = 0;                             // windows in a row that were off
  };
  struct Window {
    bool measuring = false;
    Time since = 0;  // when its way was taken, then when measuring began
    Time idle_ns = 0;
    int plans = 0, settle_plans = kFirstSettlePlans;
    double running_us = 0;  // at its beginning, at the roofline
    Effort effort;          // planned; only weights that are no stranger
  };
  struct Strangers {
    int plans = 0;
    uint64_t weights = 0;
  };

  Regime& regime() { return regimes_[regime_]; }
  const Regime& regime() const { return regimes_[regime_]; }
  Measured& MeasuredOf(Way way) { return regime().ways[static_cast<int>(way)]; }
  double RunningUs(const Snapshot& snapshot) const;
  double ElapsedUs(Time now) const;
  bool Settled(const Snapshot& snapshot) const;
  bool Over(Time now) const;
  void Settle(Way way, Time now);
  void Measure(const Snapshot& snapshot);
  void Close(const Snapshot& snapshot);
  void Learn(double score);
  Way Best() const;
  double IndexOf(Way way) const;
  double LeastMean() const;
  void FindRegime(uint64_t weights);

  const DeviceModel device_;
  std::array<Regime, kRegimes> regimes_;
  int regime_ = 0;
  Way way_ = Way::kPredicted;
  Window window_;
  Strangers strangers_;
  uint64_t windows_ = 0;
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_AUTO_CONTEST_H_
