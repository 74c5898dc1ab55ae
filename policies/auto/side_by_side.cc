#include "policies/auto/side_by_side.h"

#include <algorithm>

#include "policies/auto/fair_turns.h"

namespace concert::policies {
namespace {

float RatioOf(const Ratios& ratios, Form form) { return ratios[static_cast<int>(form)]; }

// The earliest of the bounds of the sessions of `gemms`, all of which end at once.
float EarliestBoundUs(std::span<const SideBySideOp> gemms) {
  FairTurns turns;
  turns.Clear();
  for (const SideBySideOp& gemm : gemms) {
    turns.Add(static_cast<float>(gemm.cost.solo_us), gemm.same_session);
  }
  turns.FindBounds();
  float earliest_us = turns.BoundUs(0);
  for (int i = 1; i <= turns.last_session(); ++i) {
    earliest_us = std::min(earliest_us, turns.BoundUs(i));
  }
  return earliest_us;
}

CoRunSet Running(const DeviceModel& device, std::span<const Tail> tails, int count) {
  CoRunSet running(device);
  for (const Tail& tail : tails) {
    const bool followed = tail.follower >= 0 && tail.follower < count;
    if (!followed) running.Add(tail.cost);
  }
  return running;
}

}  // namespace

void ChooseSideBySide(const DeviceModel& device, std::span<const SideBySideOp> gemms,
                      std::span<const Tail> tails, const Ratios& ratios, LaunchSplit& result) {
  const double streams = RatioOf(ratios, Form::kStreams), serial = RatioOf(ratios, Form::kSingle);
  const auto first_us = static_cast<float>(gemms[0].cost.solo_us * serial);
  Part best{.count = 1, .predicted_us = first_us, .serial_us = first_us};
  double best_gain = 1;
  CoRunSet alone(device);
  for (int count = 1; count <= static_cast<int>(gemms.size()); ++count) {
    alone.Add(gemms[count - 1].cost);
    const CoRunSet running = Running(device, tails, count);
    CoRunSet together = running;
    for (int i = 0; i < count; ++i) together.Add(gemms[i].cost);
    const double together_us = together.CoRunUs() * streams;
    const double apart_us = (running.CoRunUs() + alone.SerialUs()) * serial;
    const double predicted_us = alone.CoRunUs() * (count == 1 ? serial : streams);
    const double serial_us = alone.SerialUs() * serial;
    if (predicted_us > serial_us || together_us >= best_gain * apart_us) continue;
    if (predicted_us > EarliestBoundUs(gemms.first(count)) * serial) continue;
    best_gain = together_us / apart_us;
    best = {.form = Form::kStreams,
            .count = static_cast<uint16_t>(count),
            .predicted_us = static_cast<float>(predicted_us),
            .serial_us = static_cast<float>(serial_us)};
  }
  result.op_count = best.count;
  result.part_count = 1;
  result.parts[0] = best;
  result.form = best.form;
  result.arrangement = ArrangementOf(best.form);
  result.tuned = 0;
  for (int i = 0; i < best.count; ++i) {
    result.order[i] = static_cast<uint8_t>(i);
    result.tuned += gemms[i].cost.tuned;
  }
}

}  // namespace concert::policies
