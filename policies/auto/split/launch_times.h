// What launches take at a site: as measured, else as predicted.
#ifndef CONCERT_POLICIES_AUTO_SPLIT_LAUNCH_TIMES_H_
#define CONCERT_POLICIES_AUTO_SPLIT_LAUNCH_TIMES_H_

#include <cstdint>
#include <optional>
#include <span>

#include "policies/auto/split/launch_split.h"
#include "policies/auto/split/site.h"
#include "policies/cost/corrections.h"
#include "policies/cost/cost_model.h"
#include "policies/cost/tuned_table.h"
#include "policies/seam/work_list.h"

namespace concert::policies {

// What a launch costs the thread that makes it: a cuBLASLt GEMM with its epilogue, and a group
// however many problems it has. Launches shorter than that wait for the host. What was measured:
// ADR 13, "What the constants rest on".
inline constexpr float kLibraryHostUs = 6.5f;
inline constexpr float kGroupHostUs = 3.3f;
// A library kernel is followed on its lane by the write of its timeline; the group kernel signals
// from within.
inline constexpr float kSignalUs = 1.0f;

// Times are not corrected but where it says so. Allocates nothing. Not thread-safe.
class LaunchTimes {
 public:
  // Both pointers may be null and must outlive this.
  LaunchTimes(const DeviceModel& device, const TunedTable* tuned, WorkListCompiler* compiler)
      : device_(device), tuned_(tuned), compiler_(compiler) {}

  // As the constructor's.
  void UseTuned(const TunedTable* tuned) { tuned_ = tuned; }
  // From now on of launches at `site`. `ratios`: actual over predicted time of each arrangement.
  void Start(const Site& site, const Ratios& ratios);

  const DeviceModel& device() const { return device_; }
  const Site& site() const { return site_; }
  float Ratio(Arrangement arrangement) const { return ratios_[static_cast<int>(arrangement)]; }
  bool has_groups() const { return compiler_ != nullptr; }
  // Of the ops of one group launch.
  uint64_t max_repack_bytes() const {
    return compiler_ != nullptr ? compiler_->max_repack_bytes() : 0;
  }
  // Problems whose time in a group was predicted since Start, at up to 0.1 us each.
  int predicted() const { return predicted_; }

  // The time of a co-run set in `form` if all of `problems` have been measured in one of that size:
  // what each took of the set's time, added up. Nothing if that is too short to say anything here.
  std::optional<float> TunedUs(std::span<const Problem> problems, Form form) const;
  // Of one group launch. `tuned`: whether it was measured. This and what follows: REQUIRES:
  // has_groups().
  float GroupUs(std::span<const Problem> problems, uint64_t repack_bytes, bool& tuned);
  // Gives a group step its work list at `site`, whatever Start was told; null: there is no room for
  // one.
  void CompileList(std::span<const Problem> problems, const Site& site, Step& step) const;
  // Of a step with a work list that was not measured. Corrected by `ratio`.
  float ListedUs(const Step& step, float ratio) const {
    return (step.work_list->predicted_us + compiler_->RepackUs(step.repack_bytes)) * ratio;
  }

 private:
  const DeviceModel device_;
  const TunedTable* tuned_;
  WorkListCompiler* const compiler_;  // null: no group launches
  Site site_;
  Ratios ratios_{};
  int predicted_ = 0;
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_AUTO_SPLIT_LAUNCH_TIMES_H_
