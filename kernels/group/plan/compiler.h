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

  // Whether a group launch can carry this GEMM: batch 1, a dtype the kernel has, tiles and k within
  // what a GroupItem can name. Work::groupable says the same and knows the operands too.
  static bool Supports(const policies::Problem& problem);

  // Null if there is no room for its items (kMaxGroupItems). The result stays valid until
  // kWorkListSlots - 1 more have been compiled, or lists with kGroupArenaItems less kMaxGroupItems
  // items (those of one list lie in a row).
  // Target: 20 us for 8 problems not seen before, 150 us for 64; a lookup for known ones.
  // REQUIRES: 1 to kMaxGroupProblems problems, all of which are Supported.
  const GroupWorkList* Compile(std::span<const policies::Problem> problems, int sm_budget,
                               policies::GroupGoal goal = policies::GroupGoal::kLatency) override;

  // 0.2 us per problem of a shape met lately. On random problems it is off by 1 % (64 of them), 2 %
  // (8) or 3 % (4) on average, and by 50 % at most: it searches less than Compile().
  float PredictUs(std::span<const policies::Problem> problems, int sm_budget,
                  policies::GroupGoal goal = policies::GroupGoal::kLatency) const override;

  float RepackUs(uint64_t bytes) const override { return GroupRepackUs(bytes); }
  uint64_t max_repack_bytes() const override { return kGroupRepackBytes; }

  Epoch epoch() const override { return epoch_; }
  // The first quarter of the time for which lists are kept is for plans, the rest for launches that
  // are in flight. Every list that was asked for counts as a new one, so this errs to asking again.
  bool Valid(const Epoch& epoch) const override {
    return epoch_.lists - epoch.lists < kWorkListSlots / 4 &&
           epoch_.items - epoch.items < kGroupArenaItems / 4;
  }

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
  Epoch epoch_;
};

// For policies::PolicyInputs.
std::unique_ptr<policies::WorkListCompiler> MakeGroupCompiler(const policies::DeviceModel& device);

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_GROUP_PLAN_COMPILER_H_
