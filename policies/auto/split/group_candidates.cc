#include "policies/auto/split/group_candidates.h"

#include <algorithm>

namespace concert::policies {
namespace {

// Sizes that differ less are not worth launches of their own.
constexpr float kSizeClassRatio = 1.5f;

enum class Mark : uint8_t { kShort, kLong, kAlone };

// A step of one op, to which others may be added; kLater if there is no room.
uint8_t AddOne(const Offer& offer, int op, Candidate& candidate) {
  uint8_t& step = candidate.step_of[op];
  step = Candidate::kLater;
  if (candidate.step_count == LaunchSplit::kMaxSteps) return step;
  const Offer::Item& item = offer.item(op);
  step = static_cast<uint8_t>(candidate.step_count++);
  Step& added = candidate.steps[step] = {};
  added.form = item.alone_form;
  added.count = 1;
  added.predicted_us = item.alone_us;
  added.serial_us = item.serial_us;
  added.repack_bytes = offer.op(op).work->repack_bytes;
  added.tuned = item.tuned;
  added.rows = item.carrier == Carrier::kRows;
  return step;
}

// The op becomes part of the step, which is one launch.
void Join(const Offer& offer, int op, uint8_t place, Candidate& candidate) {
  Step& step = candidate.steps[place];
  candidate.step_of[op] = place;
  step.form = Form::kGroup;
  step.serial_us += offer.item(op).serial_us;
  ++step.count;
}

// One group for each dtype, and the next when it has enough work or all it can repack.
void AddGroups(const Offer& offer, std::span<const Mark> marks, Mark mark, bool urgent,
               uint64_t max_repack_bytes, Candidate& candidate) {
  std::array<uint8_t, 256> open;  // step by dtype
  open.fill(Candidate::kLater);
  for (int i = 0; i < offer.count(); ++i) {
    const Offer::Item& item = offer.item(i);
    if (marks[i] != mark || item.urgent != urgent) continue;
    const Work& work = *offer.op(i).work;
    uint8_t& place = open[static_cast<uint8_t>(work.dtype)];
    if (place == Candidate::kLater ||
        candidate.steps[place].serial_us + item.serial_us > kMaxGroupUs ||
        candidate.steps[place].repack_bytes + work.repack_bytes > max_repack_bytes) {
      place = AddOne(offer, i, candidate);
      continue;
    }
    Join(offer, i, place, candidate);
    candidate.steps[place].repack_bytes += work.repack_bytes;
  }
}

void AddAlone(const Offer& offer, std::span<const Mark> marks, bool urgent, bool join_rows,
              Candidate& candidate) {
  uint8_t rows = Candidate::kLater;  // the step that row ops join
  for (int i = 0; i < offer.count(); ++i) {
    const Offer::Item& item = offer.item(i);
    if (marks[i] != Mark::kAlone || item.urgent != urgent) continue;
    const bool joins = item.carrier == Carrier::kRows && rows != Candidate::kLater &&
                       candidate.steps[rows].count < kMaxRowOps;
    if (joins) {
      Join(offer, i, rows, candidate);
      continue;
    }
    const uint8_t step = AddOne(offer, i, candidate);
    if (item.carrier == Carrier::kRows && join_rows) rows = step;
  }
}

}  // namespace

Groupings::Groupings(const Offer& offer) {
  const std::span<const uint16_t> by_time = offer.by_time();
  const int n = static_cast<int>(by_time.size());
  if (n < 2) return;
  Add({0, n});
  // Where sizes jump most, and where half of the work is.
  int gap = 0, half = 0;
  float widest = kSizeClassRatio, total_us = 0;
  const auto time_us = [&](int i) { return offer.item(by_time[i]).serial_us; };
  for (int i = 0; i < n; ++i) total_us += time_us(i);
  for (float sum_us = time_us(0); half < n - 1 && 2 * sum_us < total_us;) sum_us += time_us(++half);
  for (int i = 1; i < n; ++i) {
    if (time_us(i) < widest * time_us(i - 1)) continue;
    widest = time_us(i) / time_us(i - 1);
    gap = i;
  }
  if (gap > 0) {
    Add({gap, n});
    Add({gap, gap});
  }
  const bool varied = time_us(n - 1) >= kSizeClassRatio * time_us(0);
  if (varied && half > 0 && half != gap) Add({half, n});
  for (const int alone : {1, 2, 4}) {
    if (alone < n - 1) Add({0, n - alone});
  }
}

void BuildCandidate(const Offer& offer, Grouping grouping, bool join_rows,
                    uint64_t max_repack_bytes, Candidate& candidate) {
  candidate.step_count = 0;
  std::array<Mark, kMaxReady> marks;
  std::fill_n(marks.begin(), offer.count(), Mark::kAlone);
  for (int i = 0; i < grouping.alone_from; ++i) {
    marks[offer.by_time()[i]] = i < grouping.long_from ? Mark::kShort : Mark::kLong;
  }
  for (const bool urgent : {true, false}) {
    AddGroups(offer, marks, Mark::kShort, urgent, max_repack_bytes, candidate);
    AddGroups(offer, marks, Mark::kLong, urgent, max_repack_bytes, candidate);
    AddAlone(offer, marks, urgent, join_rows, candidate);
  }
}

void UseLibrary(const Offer& offer, Candidate& candidate) {
  for (int i = 0; i < offer.count(); ++i) {
    if (candidate.step_of[i] == Candidate::kLater) continue;
    Step& step = candidate.steps[candidate.step_of[i]];
    const Offer::Item& item = offer.item(i);
    step.predicted_us = step.rows ? item.alone_us : item.library_us;
    step.form = Form::kSingle;
    step.tuned = false;
    step.repack_bytes = 0;
  }
}

}  // namespace concert::policies
