// `auto` with the group kernel's compiler, decision by decision.
#ifndef CONCERT_TESTS_UNIT_POLICIES_AUTO_FIXTURE_H_
#define CONCERT_TESTS_UNIT_POLICIES_AUTO_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>

#include "kernels/group/plan/compiler.h"
#include "policies/auto/auto.h"
#include "policies/seam/policy.h"
#include "tests/unit/policies/works.h"

namespace concert::policies::auto_test {

inline const Work kDecode = Groupable(8, 4096, 4096);
inline const Work kSmall = Groupable(64, 1536, 4096);
inline const Work kLarge = Groupable(4096, 4096, 4096);
inline const Work kTiny = Groupable(16, 512, 512);

class AutoTest : public testing::Test {
 protected:
  AutoTest() { scene_.device.group_kernel = true; }

  const Plan& Decide() {
    if (policy_ == nullptr) policy_ = MakeAuto({scene_.device, tuned_, kernels::MakeGroupCompiler});
    policy_->Reclaim();
    policy_->Reclaim();
    policy_->Decide(scene_.Get(), plan_);
    return plan_;
  }
  // The launch that has the op.
  int LaunchOf(int ready_index) const {
    for (int i = 0; i < plan_.launch_count; ++i) {
      for (const uint16_t op : plan_.OpsOf(plan_.launches[i])) {
        if (op == ready_index) return i;
      }
    }
    return -1;
  }
  void Clear() {
    scene_.ready.clear();
    scene_.running.clear();
    scene_.waiting.clear();
    scene_.window.Clear();
  }
  Scene& Later(Time ns) {
    scene_.now += ns;
    Clear();
    return scene_;
  }
  // Every op of the last plan took `factor` times what was predicted.
  void Learn(float factor) {
    policy_->Learn({.tag = plan_.tag,
                    .predicted_us = plan_.predicted_us,
                    .actual_us = plan_.predicted_us * factor});
  }

  Scene scene_;
  std::shared_ptr<const TunedTable> tuned_;
  std::unique_ptr<Policy> policy_;
  Plan plan_;
};

}  // namespace concert::policies::auto_test

#endif  // CONCERT_TESTS_UNIT_POLICIES_AUTO_FIXTURE_H_
