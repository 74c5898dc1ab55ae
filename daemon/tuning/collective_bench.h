// Measures collectives between GPUs of this daemon, through the same Node::LaunchCollective as
// clients' work: alone, and beside GEMMs.
//
// Alone: one collective on GPUs where clients have nothing to do, from its launch until the host
// (or, where there is a model, its clock) has seen every rank's end. The issuer launches it and
// polls, turn by turn (CollectiveLeaseHolder), so that clients' parts are served meanwhile. A
// sample that clients' work disturbed does not count.
//
// Beside: every GPU's dispatcher is lent (LeaseHolder) to enqueue a row of GEMMs on the SMs that
// the collective leaves; once all rows run, the issuer launches the collective. It ends before they
// do, or the rows were too short and the next ones are longer.
#ifndef CONCERT_DAEMON_TUNING_COLLECTIVE_BENCH_H_
#define CONCERT_DAEMON_TUNING_COLLECTIVE_BENCH_H_

#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "daemon/sched/engine.h"
#include "daemon/tuning/curve_fit.h"
#include "daemon/tuning/lease.h"

namespace concert::daemon {

struct CollectiveBenchOptions {
  uint64_t tensor_bytes = 0;  // the largest; each GPU lends twice as many, and gemm_bytes
  bool beside_gemms = false;  // GEMMs are of use here
  // Of a row beside a collective: at most some milliseconds, for which a client's op then waits.
  int least_row_gemms = 4, most_row_gemms = 64;
  // True: measure nothing any more. Called by the issuer's and dispatchers' threads too.
  std::function<bool()> stop;
  // Whether a client has unfinished ops on a GPU. Called by the issuer's thread.
  std::function<bool(int gpu)> busy;
};

// What suits a node: 256 MiB or a sixteenth of a GPU's memory. The simulator computes numbers on
// the CPU: 4 MiB, and no GEMMs.
CollectiveBenchOptions SuitableCollectiveBenchOptions(const DeviceInfo& device);

// A collective of the first `ranks` GPUs, of bf16, in place where the kind allows that.
struct CollectiveCase {
  uint16_t kind = CONCERT_OP_ALL_REDUCE;
  int ranks = 2;
  uint64_t tensor_bytes = 0;  // of the whole: what a rank has of it depends on the kind
  policies::TransportChoice choice;
};

// One thread, which is none of the engine's: it waits for them.
class CollectiveBench {
 public:
  // The engine outlives the bench and runs until it is destroyed. RESOURCE_EXHAUSTED: a GPU has not
  // even room for a small tensor. Halves options.tensor_bytes as often as needed.
  static absl::StatusOr<std::unique_ptr<CollectiveBench>> Create(
      Engine& engine, const CollectiveBenchOptions& options);
  ~CollectiveBench();

  uint64_t tensor_bytes() const { return options_.tensor_bytes; }
  bool measures_beside() const { return options_.beside_gemms; }

  // Whether the GPUs and the transport can carry it.
  bool Carries(const CollectiveCase& test);
  // A sample. INVALID_ARGUMENT: it cannot be launched; CANCELLED: told to stop; else the device's.
  // One that was disturbed is taken again.
  absl::StatusOr<CurvePoint> TimeAlone(const CollectiveCase& test);
  // `alone_us`: what TimeAlone has found. NOT_FOUND: no row of GEMMs is long enough.
  absl::StatusOr<BesidePoint> TimeBeside(const CollectiveCase& test, double alone_us);

 private:
  class GemmRow;
  class Run;

  CollectiveBench(Engine& engine, const CollectiveBenchOptions& options)
      : engine_(engine), options_(options) {}
  absl::Status Init();
  absl::Status Allocate();
  absl::StatusOr<std::vector<Op>> MakeOps(const CollectiveCase& test) const;
  absl::StatusOr<Op> MakeGemm(int gpu) const;
  // The times of one run of `row_gemms` GEMMs on each GPU on `sms` SMs (0: none) and, if
  // `collective`, of it beside them.
  struct Times {
    double collective_us = 0, row_us = 0;
    bool overlapped = true;  // the rows were longer
  };
  absl::StatusOr<Times> RunOnce(const CollectiveCase& test, bool collective, int row_gemms,
                                int sms);
  absl::StatusOr<Times> RunUndisturbed(const CollectiveCase& test, bool collective, int row_gemms,
                                       int sms);
  absl::StatusOr<Times> MedianBeside(const CollectiveCase& test, int row_gemms, int sms);
  absl::StatusOr<double> MedianRowUs(const CollectiveCase& test, int row_gemms, int sms);

  uint64_t* WordOf(int word) const;
  Address AddressOf(int word) const;

  struct FreeDeleter {
    void operator()(void* data) const { std::free(data); }
  };

  Engine& engine_;
  CollectiveBenchOptions options_;
  std::vector<Allocation> memory_;  // by GPU
  // Registered: three timeline words for each GPU, on lines of their own.
  std::unique_ptr<uint8_t, FreeDeleter> host_;
  Address host_address_ = 0;
  std::vector<uint64_t> row_signals_;  // by GPU: the last value written to its row's words
  uint64_t signals_ = 0;               // to all ranks' words
  bool hung_ = false;                  // something may still run: the memory must stay
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TUNING_COLLECTIVE_BENCH_H_
