// Decides what all GPUs of a collective must agree on, when the last rank's part is there: how its
// bytes move, and how many SMs of every GPU it holds meanwhile. Each GPU's dispatcher is told what
// concerns it as a reservation, around which its policy plans. Pure; not thread-safe.
#ifndef CONCERT_DAEMON_SCHED_COORDINATOR_H_
#define CONCERT_DAEMON_SCHED_COORDINATOR_H_

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/device/device.h"
#include "policies/seam/work.h"

namespace concert::daemon {

// How a collective moves bytes.
enum class Transport : uint8_t {
  kLibrary,  // the device's: NCCL between GPUs, the local kernel on one, a model on the simulator
};

// Of one GPU, from the launch of a collective on, while it runs.
struct Reservation {
  uint16_t sms = 0;           // that others leave free; 0: none, it takes what it gets
  policies::Time run_ns = 0;  // predicted
};

struct CollectivePlan {
  Transport transport = Transport::kLibrary;
  Reservation reservation;  // on every GPU
};

class Coordinator {
 public:
  // Models of all GPUs of the node, by index.
  explicit Coordinator(std::vector<policies::DeviceModel> models) : models_(std::move(models)) {}

  // REQUIRES: parts of one collective on GPUs of the node, in rank order; at least one.
  CollectivePlan Decide(std::span<const RankPart> parts) const;

 private:
  const std::vector<policies::DeviceModel> models_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_COORDINATOR_H_
