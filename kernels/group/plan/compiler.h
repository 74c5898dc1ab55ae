// Compiles work lists of group launches: a tile for every problem, which tiles are split along K,
// and which block computes what, in which order.
#ifndef CONCERT_KERNELS_GROUP_PLAN_COMPILER_H_
#define CONCERT_KERNELS_GROUP_PLAN_COMPILER_H_

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/group/plan/cost.h"
#include "kernels/group/plan/work_list.h"
#include "policies/seam/work_list.h"

namespace concert::kernels {

// Owns the lists compiled lately, in fixed memory. Not thread-safe.
class GroupCompiler final : public policies::WorkListCompiler {
 public:
  explicit GroupCompiler(const policies::DeviceModel& device);
  ~GroupCompiler() override;

  void Reclaim() override;
  // Null if it has more than kMaxGroupItems items, or lists that are handed out are in its way.
  // Target: 20 us for 8 problems not seen before, 150 us for 64; a lookup for known ones.
  // REQUIRES: 1 to kMaxGroupProblems problems, all of which a group launch can carry
  // (GroupRepackBytes).
  const GroupWorkList* Compile(std::span<const policies::Problem> problems, policies::SmSet sms,
                               policies::GroupGoal goal = policies::GroupGoal::kLatency) override;

  // 0.2 us per problem of a shape met lately. On random problems it is off by 1 % (64 of them), 2 %
  // (8) or 3 % (4) on average, and by 50 % at most: it searches less than Compile().
  float PredictUs(std::span<const policies::Problem> problems, policies::SmSet sms,
                  policies::GroupGoal goal = policies::GroupGoal::kLatency) const override;

  float RepackUs(uint64_t bytes) const override { return GroupRepackUs(bytes); }
  uint64_t max_repack_bytes() const override { return kGroupRepackBytes; }

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// For policies::PolicyInputs.
std::unique_ptr<policies::WorkListCompiler> MakeGroupCompiler(const policies::DeviceModel& device);

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_GROUP_PLAN_COMPILER_H_
