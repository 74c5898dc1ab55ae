// Which engine runs programs while several clients are at work: the one under which more of their
// work gets done, as measured with just these clients.
//
// How well launches of the step kernel share the SMs, and graphs the rest of the GPU, depends on
// all that run beside each other (one H100, `program_engine` step against graph: two programs of
// hidden 1024 1.6 times as many steps, eight with a row each 1.24, six of GQA 1536 0.83), so it is
// all of them that change.
#ifndef CONCERT_KERNELS_STEP_ENGINE_CONTEST_H_
#define CONCERT_KERNELS_STEP_ENGINE_CONTEST_H_

#include <array>
#include <cstdint>

namespace concert::kernels::cuda {

// One thread at a time. Pure: what it says follows from what it was asked.
class EngineContest {
 public:
  static constexpr int kCompanies = 8;  // whose results are kept
  // Of a contest, rounds with each engine, in each of which every client has had a run: first those
  // whose neighbours still have the other engine, then those that count.
  static constexpr int kSettlingRounds = 2, kCountedRounds = 8;
  static constexpr int kRounds = kSettlingRounds + kCountedRounds;
  // So few that count will do where the graph is so much slower: each of its runs is one of a
  // client's slowest (eight of Qwen 0.5B on an H200: 1.4 times as long, ten of 700, which was the
  // p99).
  static constexpr int kClearRounds = 2;
  static constexpr double kClearMargin = 1.25;
  // A contest takes one run in 400, so that no p99 shows it: caches grow, and clients change what
  // they do.
  static constexpr int kRunsBetween = 399;  // for each of a contest's
  // The graph must be so much faster: clients that do not keep the GPU busy get as much done with
  // either engine, and the step kernel's latency is the lower one.
  static constexpr double kGraphMargin = 1.05;

  // A run that is about to be launched.
  struct Run {
    uint64_t company = 0;       // a number of the clients at work, which differs from others'
    int clients = 1;            // of them
    uint64_t longest_away = 0;  // runs since the one of them came that has not come for longest
    double work = 0;            // in whatever is the same for all, as bytes
    int64_t now_ns = 0;
  };
  // Whether the step kernel is to run it. One client alone has it always.
  bool StepWanted(const Run& run);

 private:
  enum class Phase : uint8_t { kStep, kGraph, kDecided };

  struct Trial {
    uint64_t company = 0;
    uint64_t asked = 0;  // when it was last asked about, as which of all; 0: never
    Phase phase = Phase::kStep;
    bool step_won = true;
    int64_t rounds = 0, runs = 0;  // of this phase
    uint64_t runs_of_round = 0;    // that is not over
    int64_t step_runs = 0;         // of phase kStep
    int64_t runs_left = 0;         // until the next contest
    // Of the rounds that count.
    int64_t begin_ns = 0, last_ns = 0;
    int64_t longest_gap_ns = 0;  // which may be a pause of the clients and so does not count
    double work = 0;
    double step_rate = 0;  // work a ns
  };

  Trial& TrialOf(uint64_t company);
  static void BeginPhase(Phase phase, Trial& trial);
  // Counts a run. Whether a round is over.
  static bool Count(const Run& run, Trial& trial);
  // Whether the phase is, behind a round. `rate`: work a ns in the rounds that count.
  static bool IsOver(const Trial& trial, double rate);

  std::array<Trial, kCompanies> trials_;
  uint64_t asked_ = 0;
  uint64_t last_company_ = 0;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_ENGINE_CONTEST_H_
