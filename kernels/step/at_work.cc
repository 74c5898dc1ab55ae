#include "kernels/step/at_work.h"

#include <algorithm>

namespace concert::kernels::cuda {
namespace {

// Of splitmix64: sums of what it makes of different clients differ.
uint64_t Mixed(uint64_t client) {
  client += 0x9e3779b97f4a7c15;
  client = (client ^ client >> 30) * 0xbf58476d1ce4e5b9;
  client = (client ^ client >> 27) * 0x94d049bb133111eb;
  return client ^ client >> 31;
}

}  // namespace

void AtWork::See(const SeenOp& op) {
  last_ = op;
  ++seen_;
  Recent* its = std::find_if(recent_.begin(), recent_.end(), [&](const Recent& recent) {
    return recent.order != 0 && recent.op.client == op.client;
  });
  if (its == recent_.end()) {
    its = std::min_element(recent_.begin(), recent_.end(),
                           [](const Recent& a, const Recent& b) { return a.order < b.order; });
  }
  if (op.program) now_ns_ = op.now_ns;
  Keep(op, *its);
  CountRecent();
}

// A long interval counts for some runs more: they may come in bunches.
void AtWork::Keep(const SeenOp& op, Recent& its) {
  int64_t interval_ns = 0;
  if (its.order != 0 && its.op.client == op.client && its.op.program && op.program)
    interval_ns = std::max(op.now_ns - its.came_ns, its.interval_ns - its.interval_ns / 8);
  its = {.op = op, .order = seen_, .came_ns = op.now_ns, .interval_ns = interval_ns};
}

bool AtWork::IsAtWork(const Recent& recent) const {
  if (recent.order == 0 || recent.order + kIdleAfter <= seen_) return false;
  return recent.came_ns == 0 ||
         now_ns_ - recent.came_ns <= kIdleNs + kIdleIntervals * recent.interval_ns;
}

void AtWork::CountRecent() {
  high_ = others_ = 0;
  only_programs_ = true;
  others_compute_ = false;
  company_ = longest_away_ = 0;
  for (Recent& recent : recent_) {
    if (recent.came_ns == 0) recent.came_ns = last_.now_ns;
    if (!IsAtWork(recent)) continue;
    ++(recent.op.high ? high_ : others_);
    only_programs_ = only_programs_ && recent.op.program;
    others_compute_ = others_compute_ || (!recent.op.high && recent.op.arithmetic);
    company_ += Mixed(recent.op.client);
    longest_away_ = std::max(longest_away_, seen_ - recent.order);
  }
}

}  // namespace concert::kernels::cuda
