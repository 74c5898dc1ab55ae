// Finds the best variant of every problem on its own, on part of the SMs and in co-run sets, and
// writes it to the store as soon as it is known.
#ifndef CONCERT_DAEMON_TUNING_TUNER_H_
#define CONCERT_DAEMON_TUNING_TUNER_H_

#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/tuning/halving.h"
#include "daemon/tuning/measure.h"
#include "daemon/tuning/store.h"

namespace concert::daemon {

struct TuningItem {
  policies::Problem problem;
  uint64_t count = 1;  // how often it occurs: what is frequent and long comes first
};

struct TunerOptions {
  policies::DeviceModel device;
  bool force = false;  // measure again what the store has enough samples of
  uint64_t seed = 1;   // of mixed sets
  int64_t measured_at_s = 0;
};

struct TuningProgress {
  uint32_t total_rows = 0;    // of the whole task
  uint32_t skipped_rows = 0;  // in the store already
  uint32_t written_rows = 0;
  uint32_t kept_rows = 0;    // measured, but what the store has is as good
  uint32_t failed_rows = 0;  // no candidate could run
  std::string current;       // what is being measured, for people
};

// A row measured again.
struct VerifiedRow {
  policies::TunedRow row;
  float median_us = 0, spread_us = 0;  // now, of one GEMM
  bool drifted = false;
};

// The work is done in this order, so that whatever ends it early leaves a usable store: every
// problem on its own on the whole GPU; then co-run sets of 8, 2, 4 and 16; then on the SMs that
// `auto` leaves to a class beside another (policies::ClassBudgetsOf).
//
// In a set of n a candidate is judged by the set's time. All candidates, those for a half
// and a quarter of the SMs among them, run in equal sets: n copies of one problem. The
// finalists also run in similar sets, whose other members are the problems after this one in
// the list, and in mixed ones, drawn from the list; the best mean of the three (geometric, relative
// to the default) wins. What a row says is the time of the equal set.
class Tuner {
 public:
  // All outlive the tuner.
  Tuner(Bench& bench, Store& store, const Environment& environment, const TunerOptions& options)
      : bench_(bench),
        store_(store),
        environment_(environment),
        options_(options),
        random_(options.seed) {}

  // `on_progress` is called whenever something has changed. OK: everything is done. CANCELLED:
  // the bench was told to stop, or its time is over; what is in the store is valid, and the next
  // run goes on where this one stopped. Else: the device's failure.
  absl::Status Run(std::span<const TuningItem> items,
                   const std::function<void(const TuningProgress&)>& on_progress);

  // Measures at most `count` rows that are not stale again, drawn at random, and marks those stale
  // that have drifted: by more than both spreads together and by more than 5 %.
  absl::Status Verify(int count, const std::function<void(const VerifiedRow&)>& on_row);

  const TuningProgress& progress() const { return progress_; }

 private:
  struct Task {
    size_t item;
    policies::TunedKey key;
  };

  std::vector<Task> Tasks() const;
  bool Skips(const policies::TunedKey& key);
  absl::Status RunTask(const Task& task);
  std::vector<policies::Variant> CandidatesFor(const policies::TunedKey& key);
  std::vector<Candidate> EqualSet(const policies::TunedKey& key,
                                  const policies::Variant& variant) const;
  // A set whose first member is the task's problem with `variant`.
  std::vector<Candidate> SetOf(const Task& task, const policies::Variant& variant,
                               std::span<const size_t> others);
  absl::Status JudgeInOtherSets(const Task& task, std::span<const policies::Variant> candidates,
                                std::vector<Finalist>& finalists);
  policies::Variant BestKnown(const policies::Problem& problem, const policies::TunedKey& like);

  Bench& bench_;
  Store& store_;
  const Environment environment_;
  const TunerOptions options_;
  std::mt19937_64 random_;
  std::vector<TuningItem> items_;
  TuningProgress progress_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TUNING_TUNER_H_
