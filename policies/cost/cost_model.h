// Predicted times from first principles: roofline, waves of tiles, latency floors. Of what runs by
// libraries' kernels; whose the other times are says ADR 24. Pure functions of the device model and
// the work. All results in microseconds.
#ifndef CONCERT_POLICIES_COST_COST_MODEL_H_
#define CONCERT_POLICIES_COST_COST_MODEL_H_

#include <span>

#include "policies/seam/work.h"

namespace concert::policies {

// FLOP/s of the whole GPU for the work's dtype.
double PeakFlops(const DeviceModel& device, const Work& work);

// SMs that a collective's kernel holds, here and in the simulator. Between two H200s, of 132 SMs,
// NCCL takes more than 16: it moves 287 GB/s, and 236 when it is held to those. On smaller GPUs a
// fifth, so that one per collective lane always fit beside each other and none waits for SMs that
// another holds.
int CollectiveSms(const DeviceModel& device);

// Lower bound of any implementation: max(FLOPs / peak, bytes / bandwidth).
double RooflineUs(const DeviceModel& device, const Work& work);

// One op alone on `sm_count` SMs (0: all), from its start to its end.
double SoloUs(const DeviceModel& device, const Work& work, int sm_count = 0);

// All of `works` launched side by side on lanes of their own, from the first start to the last end.
// At least the longest of them alone; more than all of them one after the other when that loses.
double CoRunUs(const DeviceModel& device, std::span<const Work* const> works);

// What one op takes of the GPU while it runs: all that CoRunUs needs to know of it.
struct OpCost {
  double solo_us = 0;    // alone, as SoloUs
  double busy_us = 0;    // solo_us without the kernel floor
  double hbm_us = 0;     // its share of the memory's time
  double hbm_share = 0;  // share of the memory's bandwidth it draws while busy, 0 to 1
  double sm_share = 0;   // mean share of the SMs it holds while busy, 0 to 1
  double crowding = 0;   // extra busy_us per unit of sm_share when another GEMM wants the same SMs
  double wave_us = 0;    // of one wave of a GEMM that takes several
  bool tuned = false;    // solo_us was measured
};

OpCost CostOf(const DeviceModel& device, const Work& work, int sm_count = 0);

// Sums up ops one at a time, so that a policy can judge every prefix of a list in one pass.
class CoRunSet {
 public:
  explicit CoRunSet(const DeviceModel& device)
      : floor_us_(device.kernel_floor_us), issue_us_(device.costs.issue_us) {}

  void Add(const OpCost& cost);
  double CoRunUs() const;                           // all side by side
  double SerialUs() const { return serial_us_; }    // one after the other
  double LongestUs() const { return longest_us_; }  // the longest alone

 private:
  double floor_us_;
  double issue_us_;
  int count_ = 0;
  double serial_us_ = 0;
  double longest_us_ = 0;
  double sm_us_ = 0;
  double hbm_us_ = 0;
  double crowding_us_ = 0;
  double gemm_share_ = 0, largest_gemm_share_ = 0;
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_COST_COST_MODEL_H_
