// Who a GPU works for.
#ifndef CONCERT_KERNELS_STEP_AT_WORK_H_
#define CONCERT_KERNELS_STEP_AT_WORK_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace concert::kernels::cuda {

// What is about to be launched.
struct SeenOp {
  uint64_t client = 0;      // whose it is: a session, or programs that make passes, which are one
  bool program = false;     // a run of one
  bool high = false;        // on a lane of the high class
  bool arithmetic = false;  // bound by it, so that it is as fast as it has SMs
  int64_t now_ns = 0;       // of a run; only ever compared with others'
};

// Clients whose ops a GPU was given lately. One thread at a time.
class AtWork {
 public:
  static constexpr size_t kMaxClients = 16;  // more are taken for so many
  // A client that has not been seen while others were, so many times, is no longer at work: steps
  // of one model may take several times as long as another's.
  static constexpr uint64_t kIdleAfter = 3 * kMaxClients;
  // Nor is one that has not come for so long and so many times its interval: where others have
  // stopped, 48 runs on an eighth of the SMs, or as graphs, are 50 to 70 ms of decode steps.
  static constexpr int64_t kIdleNs = 5'000'000, kIdleIntervals = 4;

  void See(const SeenOp& op);

  const SeenOp& last() const { return last_; }
  // That are at work, the last one's among them: at least 1 once there was one.
  int clients() const { return high_ + others_; }
  int high() const { return high_; }  // whose last op was of the high class
  bool classes_differ() const { return high_ > 0 && others_ > 0; }
  bool others_compute() const { return others_compute_; }  // of the other classes, by arithmetic
  bool only_programs() const { return only_programs_; }    // of each the last op was a run
  // A number of these clients, which differs from others'.
  uint64_t company() const { return company_; }
  // Ops that were seen since that of whichever of them has not been seen for longest.
  uint64_t longest_away() const { return longest_away_; }

 private:
  struct Recent {
    SeenOp op;
    uint64_t order = 0;  // among all that were seen; 0: none
    // When it came, or the first run behind it, since only runs say when they come; 0: not known.
    int64_t came_ns = 0;
    int64_t interval_ns = 0;  // between its last runs; 0: not known
  };
  void Keep(const SeenOp& op, Recent& its);
  bool IsAtWork(const Recent& recent) const;
  void CountRecent();

  std::array<Recent, kMaxClients> recent_;
  uint64_t seen_ = 0;
  int64_t now_ns_ = 0;  // of the last run; 0: there was none
  SeenOp last_;
  int high_ = 0, others_ = 0;
  bool only_programs_ = true, others_compute_ = false;
  uint64_t company_ = 0, longest_away_ = 0;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_AT_WORK_H_
