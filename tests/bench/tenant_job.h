// What one process does for the clients that it runs, whatever they run.
#ifndef CONCERT_TESTS_BENCH_TENANT_JOB_H_
#define CONCERT_TESTS_BENCH_TENANT_JOB_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/tenant_board.h"

namespace concert::bench {

// Used by one thread, in the order of its functions.
class TenantJob {
 public:
  // All times are CLOCK_MONOTONIC, in nanoseconds.
  struct Lap {
    uint64_t begin_ns = 0, end_ns = 0;  // of the window that counts; the start is before
    uint64_t participants = 0;          // bit i: slot i of the board
  };

  virtual ~TenantJob() = default;
  // All that takes time and no GPU.
  virtual absl::Status Prepare() = 0;
  // Opens the GPU. One process of a crew after the other: of many that make contexts at once, a
  // driver or an MPS server may refuse some, and then nobody knows who was one too many.
  virtual absl::Status Open() = 0;
  // Runs whatever laps will run, once, with outputs that were poisoned before, and notes in the
  // process's first slot how long a program took.
  virtual absl::Status RunFirst(TenantSlot& slot) = 0;
  // The relative error of the results as they are now, the largest of all. DATA_LOSS where it is
  // more than results may have.
  virtual absl::StatusOr<double> Check() = 0;
  // Runs from now to the end of the window, which it may overrun by one run, and fills in what the
  // slots of its participants say of it. `slots` are all that the process has, `first` the place
  // of the first one on the board.
  virtual absl::Status RunLap(const Lap& lap, std::span<TenantSlot> slots, size_t first) = 0;
};

// One client that starts its next run when it has seen the end of the one before.
class ClosedLoop : public TenantJob {
 public:
  absl::Status RunLap(const Lap& lap, std::span<TenantSlot> slots, size_t first) final;

 protected:
  // One run; returns when its results are there.
  virtual absl::Status RunOnce() = 0;
};

// DATA_LOSS where `error` is NaN or more than `tolerance`, else `error`.
absl::StatusOr<double> WithinTolerance(double error, double tolerance);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_TENANT_JOB_H_
