// The default: what is ready goes out in the form and the co-run set that is predicted fastest.
//
// GEMMs of the highest ready class are split into launches by LaunchSplitter, whose header has the
// do-no-harm rules. Groups of a class share one lane, so that launch follows launch without waits
// between lanes. On devices without the group kernel, and for ops that it cannot carry, GEMMs go
// out side by side on streams or one by one.
//
// Classes. A plan has GEMMs of one class. Nothing that runs can be interrupted, so SMs are what
// keeps a higher class from waiting:
//   - While a higher class is active (seen within kActiveNs), launches of lower ones leave it a
//     reserve of ReserveOf(sm_count) SMs.
//   - Launches of a higher class beside running work of a lower one take at most that reserve,
//     unless waiting for that work and then using all that is free is predicted to end earlier.
//     Work that is overdue is taken to run on: a launch on all SMs beside it would wait for it on
//     most of them, or take several rounds on the reserve.
//   - Library kernels do not keep to a budget. Beside running work of a higher class they go out
//     only if both get all the SMs and bandwidth they want.
//   - Launches of any class leave a running collective the SMs that are reserved for it, if any
//     are (Snapshot::reserved_sms), and one whose last ranks are on their way as many.
//   - No class starves: when its first GEMM has waited kMaxHeldNs and no plan was its for as long,
//     the next plan is, out of turn, on the SMs that the reserve leaves.
// Without the group kernel no budget holds, so there only the last two count.
#ifndef CONCERT_POLICIES_AUTO_AUTO_H_
#define CONCERT_POLICIES_AUTO_AUTO_H_

#include <algorithm>
#include <memory>

#include "policies/seam/policy.h"

namespace concert::policies {

// Longer than the gaps in the work of a session that is at it: 0.01 to 0.3 ms between ops handed
// over by one process to the next, 0.6 to 1 ms for a whole decode step.
inline constexpr Time kActiveNs = 5'000'000;
// With plans of at most about 0.2 ms, a class that is always outranked keeps a tenth of the GPU.
inline constexpr Time kMaxHeldNs = 2'000'000;

// Half, in whole groups of 8 where there are that many: 64 of 132. On a quarter small GEMMs of the
// higher class take two rounds (ADR 13, "Classes"). The price: while a higher class is active, a
// lower one that could use all SMs takes up to twice as long.
constexpr int ReserveOf(int sm_count) {
  const int half = sm_count / 2;
  return half >= 8 ? half / 8 * 8 : std::max(1, half);
}

std::unique_ptr<Policy> MakeAuto(const PolicyInputs& inputs);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_AUTO_AUTO_H_
