#include "tests/bench/tenant_job.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/bench/shared_word.h"

namespace concert::bench {
namespace {

// How much of a run from `before` to `after` lies in the lap's window.
double ShareWithin(uint64_t before, uint64_t after, const TenantJob::Lap& lap) {
  const uint64_t first = std::max(before, lap.begin_ns), last = std::min(after, lap.end_ns);
  return last <= first ? 0
                       : static_cast<double>(last - first) / static_cast<double>(after - before);
}

}  // namespace

absl::Status ClosedLoop::RunLap(const Lap& lap, std::span<TenantSlot> slots, size_t) {
  TenantSlot& slot = slots.front();
  slot.runs = 0;
  slot.latency_count = 0;
  for (uint64_t before = NowNs(); before < lap.end_ns;) {
    if (absl::Status ran = RunOnce(); !ran.ok()) return ran;
    const uint64_t after = NowNs();
    slot.runs += ShareWithin(before, after, lap);
    if (after >= lap.begin_ns && after < lap.end_ns && slot.latency_count < kMaxLatencies)
      slot.latencies_us[slot.latency_count++] = static_cast<float>(after - before) / 1000;
    before = after;
  }
  return absl::OkStatus();
}

absl::StatusOr<double> WithinTolerance(double error, double tolerance) {
  if (error <= tolerance) return error;
  return absl::DataLossError(
      absl::StrCat("wrong results: relative error ", error, ", at most ", tolerance, " allowed"));
}

}  // namespace concert::bench
