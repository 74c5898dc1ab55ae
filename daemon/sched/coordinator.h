// Decides what all GPUs of a collective must agree on, when the last rank's part is there: how its
// bytes move, and how many SMs of every GPU it holds meanwhile. Each GPU's dispatcher is told what
// concerns it as a reservation, around which its policy plans. Remembers what it decided, which
// changes nothing; not thread-safe.
#ifndef CONCERT_DAEMON_SCHED_COORDINATOR_H_
#define CONCERT_DAEMON_SCHED_COORDINATOR_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "daemon/device/device.h"
#include "policies/cost/memo.h"
#include "policies/seam/transport.h"
#include "policies/seam/work.h"

namespace concert::daemon {

// Of one GPU, from the launch of a collective on, while it runs.
struct Reservation {
  uint16_t sms = 0;           // that others leave free; 0: none, it takes what it gets
  policies::Time run_ns = 0;  // predicted
  policies::Transport transport = policies::Transport::kNccl;  // by which it goes
};

struct CollectivePlan {
  policies::TransportChoice choice;
  Reservation reservation;  // on every GPU
};

class Coordinator {
 public:
  // Models of all GPUs of the node, by index. `only`: the one transport that collectives take if
  // they can; none: the one that is best.
  explicit Coordinator(std::vector<policies::DeviceModel> models,
                       std::optional<policies::Transport> only = std::nullopt);

  // From now on times of the GPU's collectives are these.
  void UseCurves(int gpu, const policies::TransportCurves& curves) {
    models_[static_cast<size_t>(gpu)].transport_curves = curves;
    alone_.Clear();
  }

  // REQUIRES: parts of one collective on GPUs of the node, in rank order; at least one.
  CollectivePlan Decide(std::span<const RankPart> parts);

 private:
  // What a collective is to these GPUs, without what runs beside it.
  struct Question {
    policies::Work work;
    uint64_t gpus;  // a bit each
    friend bool operator==(const Question&, const Question&) = default;
  };

  std::vector<policies::DeviceModel> models_;
  // With nothing beside: to choose takes 0.6 us, of a small collective's 19 (two H100s).
  policies::Memo<Question, policies::TransportChoice, 64> alone_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_COORDINATOR_H_
