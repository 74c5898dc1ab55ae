// What a block knows of earlier stages when it takes part in one. Pure.
//
// A stage that has ended has been waited for in full: some block that took part in it waited for
// all it needs. Whoever has read a whole result from the exchange knows as much, but for what is
// visible; and whoever has read some of it, as every item of attention reads q, knows what its
// makers knew. What every block has waited for it need not wait for again.
#ifndef CONCERT_KERNELS_STEP_STAGE_ORDER_H_
#define CONCERT_KERNELS_STEP_STAGE_ORDER_H_

#include <cstddef>
#include <vector>

#include "kernels/step/step_plan.h"

namespace concert::kernels {

// Of a list's stages, one after the other: Begin, Wait for each of its waits, End. `stage`: as far
// as it is planned, but for its waits.
class StageOrder {
 public:
  explicit StageOrder(size_t stages)
      : done_(stages), visible_(stages), done_for_all_(stages), visible_to_all_(stages) {}

  void Begin(size_t i, const PlannedStage& stage);
  void Wait(size_t i, size_t j);
  void End(size_t i, const PlannedStage& stage);

  // Of stage j, before stage i: that it has read all it reads; that all it has written is there for
  // whoever takes part in stage i.
  bool IsDone(size_t i, size_t j) const { return done_[i][j]; }
  bool IsVisible(size_t i, size_t j) const { return visible_[i][j]; }

 private:
  using Stages = std::vector<bool>;

  static void Add(Stages& stages, const Stages& others, size_t another);
  static void AddWith(Stages& stages, const Stages& others, size_t another);

  std::vector<Stages> done_, visible_;    // [stage][stage before it]
  Stages done_for_all_, visible_to_all_;  // by what every block has waited for
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_STEP_STAGE_ORDER_H_
