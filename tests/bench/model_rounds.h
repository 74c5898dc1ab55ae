// Batches of suite `gemm` going round without a GPU: the real dispatcher, scheduler and policy, in
// a time of its own (tests/bench/timed_bed.h). What the client takes is constants, too.
#ifndef CONCERT_TESTS_BENCH_MODEL_ROUNDS_H_
#define CONCERT_TESTS_BENCH_MODEL_ROUNDS_H_

#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "policies/seam/variant.h"
#include "tests/bench/gemm_workload.h"
#include "tests/bench/timed_bed.h"

namespace concert::bench {

struct RoundsOptions {
  std::string policy = "auto";  // one that policies::FindPolicy knows
  int batches = 2000;
  int in_flight = GemmWorkload::kBatchesInFlight;
  int depth = 1;           // as concertd's
  double backlog_us = 16;  // likewise
  int sm_count = policies::DeviceModel{}.sm_count;
  HostCosts costs;
  bool keep_launches = false;  // for Rounds::launches()
};

// What came of a scenario. Times are microseconds per batch.
struct Prediction {
  double batch_us = 0, idle_us = 0, dispatcher_us = 0;
  double library_share = 0;        // of the ops
  std::map<int, double> launches;  // per batch, by ops
};

// A GEMM as the policy launched it.
struct RoundLaunch {
  int batch = 0, gemm = 0;
  policies::Lane lane = 0;
  policies::Degree degree = policies::Degree::kSolo;
  int ops = 1;  // of the launch that it was part of
};

// The client of the suite, the dispatcher and the GPU, each with a time of its own. Deterministic.
class Rounds {
 public:
  // REQUIRES: DispatcherBed::Fits(shapes). The options must outlive this.
  Rounds(const std::vector<GemmShape>& shapes, const RoundsOptions& options);

  // DEADLINE_EXCEEDED if the batches do not end, as when the policy never launches them. Once.
  absl::StatusOr<Prediction> Run();
  // In the order of the calls; empty unless the options say keep_launches.
  const std::vector<RoundLaunch>& launches() const { return launches_; }

 private:
  uint32_t QueueOf(int batch, size_t gemm) const {
    return static_cast<uint32_t>(batch % options_.in_flight * shapes_.size() + gemm);
  }
  // The client begins the next batch at `us`, if it has nothing else to do.
  void Submit(double us);
  // Puts into the ring what the client has written by now.
  void Publish();
  // What the client, which watches the oldest batch all the time, does when something ends at `us`.
  void CollectAndSubmit(double us);
  // All figures of the prediction begin anew.
  void BeginToMeasure();
  void KeepLaunch(const daemon::LaunchRequest& launch);
  Prediction Summarise();

  const RoundsOptions& options_;
  const std::vector<GemmShape> shapes_;
  TimedBed timed_;
  DispatcherBed& bed_;
  std::unordered_map<daemon::Address, uint32_t> queues_;  // by timeline
  std::vector<RoundLaunch> launches_;
  double client_free_at_us_ = 0;
  std::deque<double> on_their_way_us_;  // when batches that the client writes will be in the ring
  int published_ = 0, ended_ = 0;
  // What is measured: since when, and what has come of it.
  double begin_us_ = 0, idle_before_us_ = 0, dispatcher_us_ = 0;
  int measured_from_ = 0;
  std::map<int, int> launch_counts_;  // by ops
  int library_ops_ = 0;
};

// What `policy` launches of the workload's batches 0 to batches_per_round() - 1, in the order of
// the calls, when four batches are in flight and neither deciding nor launching takes time: in the
// middle of a run, so that it has seen the shapes and batches overlap as they will. NOT_FOUND where
// the batch is too large for the model, INVALID_ARGUMENT for a policy that makes one launch of
// several GEMMs.
absl::StatusOr<std::vector<RoundLaunch>> LaunchesOfRound(const std::string& policy,
                                                         const GemmWorkload& workload,
                                                         int sm_count);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_MODEL_ROUNDS_H_
