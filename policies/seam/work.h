// What one op costs, whatever its kind: the only view of an op that policies and the cost model
// have.
#ifndef CONCERT_POLICIES_SEAM_WORK_H_
#define CONCERT_POLICIES_SEAM_WORK_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "policies/seam/cost_constants.h"
#include "policies/seam/transport.h"

namespace concert::policies {

// Nanoseconds of CLOCK_MONOTONIC (or of the simulator's virtual clock). Policies never read a
// clock.
using Time = int64_t;

// What of a GPU an op occupies besides the bandwidth of its memory.
enum class RunsOn : uint8_t {
  kSms,
  kLinks,  // a collective: a few SMs of every GPU it touches, and their links; a barrier moves
           // nothing
  kCopyEngine,
};

// What can carry an op in a launch that is one of a chain: that may start before the launch before
// it has ended, follows what its ops depend on one by one, and signals by itself. One launch is of
// one carrier.
enum class Carrier : uint8_t {
  kNone,   // the op is a launch of its own
  kGroup,  // a group launch, as problem of a work list
  kRows,   // a launch of the row kernel
};

// Values equal those of the ring ABI.
enum class Dtype : uint8_t { kBf16 = 1, kFp16 = 2, kFp32 = 3, kFp8E4m3 = 4 };

// Bytes of one element.
constexpr uint32_t DtypeBytes(Dtype dtype) {
  if (dtype == Dtype::kFp8E4m3) return 1;
  return dtype == Dtype::kFp32 ? 4 : 2;
}

enum class Priority : int8_t { kLow = -1, kNormal = 0, kHigh = 1 };
inline constexpr int kPriorityCount = 3;
// Its place where there is something for each: the lowest is first. (To plan, the highest comes
// first: ClassOf.)
constexpr size_t IndexOf(Priority priority) {
  return static_cast<size_t>(static_cast<int>(priority) - static_cast<int>(Priority::kLow));
}
// What people call it, by IndexOf.
inline constexpr const char* kPriorityNames[kPriorityCount] = {"low", "normal", "high"};

struct Work {
  RunsOn runs_on = RunsOn::kSms;
  Dtype dtype = Dtype::kBf16;  // of a GEMM: of A and W
  bool allow_tf32 = false;
  Carrier carrier = Carrier::kNone;
  uint8_t ranks = 1;  // of a collective
  CollectiveKind collective = CollectiveKind::kAllReduce;
  TransportSet transports;    // of a collective: that could carry this rank's part
  bool keeps = false;         // of a collective: the rank copies a message to itself
  uint32_t repack_bytes = 0;  // what a group launch must copy first
  // Of a GEMM. Of an op on SMs that is none: m rows of n elements, each computed for itself; k is
  // 0.
  uint32_t m = 0, n = 0, k = 0, batch = 0;
  uint32_t steps = 1;  // kernels that follow one another within, each of them as long as one takes
  float flops_share = 1;  // of the device's peak that its kernels reach; a GEMM's is 1
  // Of a run of a program (program_cost.h): what it takes alone; m is then the SMs that it holds on
  // the average. 0: it follows from what else is here.
  float run_us = 0;
  uint64_t flops = 0;
  uint64_t hbm_bytes = 0;   // each input read once, each output written once
  uint64_t link_bytes = 0;  // over GPU links: sent by this rank, or copied from or to another GPU

  bool is_gemm() const { return k != 0; }
  bool groupable() const { return carrier == Carrier::kGroup; }
  bool chains() const { return carrier != Carrier::kNone; }
  friend bool operator==(const Work&, const Work&) = default;
};

// A GEMM as tuning tells them apart: shape and dtype, not buffers.
struct Problem {
  uint32_t m = 0, n = 0, k = 0, batch = 1;
  Dtype dtype = Dtype::kBf16;

  static Problem Of(const Work& work) { return {work.m, work.n, work.k, work.batch, work.dtype}; }
  bool is_gemm() const { return k != 0; }  // else what else Work says of m, n and k
  friend bool operator==(const Problem&, const Problem&) = default;
};

// What the cost model knows of a GPU. Rates are what real kernels reach, not the data sheet.
struct DeviceModel {
  int sm_count = 132;
  double tensor_flops = 790e12;  // bf16 and fp16, dense (docs/benchmarks: measured on an H200)
  double fp8_flops = 1580e12;
  double tf32_flops = 395e12;
  double fp32_flops = 50e12;
  double hbm_bytes_per_s = 4.2e12;
  double link_bytes_per_s = 380e9;  // one direction, to a peer
  double launch_us = 3.0;           // host time from Launch() to the kernel's start on an idle GPU
  // What the host takes for each op from its descriptor to Launch(): half of the 0.7 us that a
  // dispatcher on an H200's CPU of 2.1 GHz spends on one in all.
  double launch_op_us = 0.4;
  double kernel_floor_us = 2.2;  // shortest time of any kernel, start to visible completion
  double collective_floor_us = 12.0;
  int copy_engines = 3;
  // What transports take, and which of them the node has.
  TransportCurves transport_curves = kTransportCurves;
  TransportSet transports;
  // SMs that a collective is held to and that are left to it while it runs; 0: it takes what it
  // likes, and nothing is left to it.
  int collective_sms = 0;
  bool group_kernel = false;  // group launches have a kernel here (kernels/group)
  CostConstants costs;        // of the cost model
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_SEAM_WORK_H_
