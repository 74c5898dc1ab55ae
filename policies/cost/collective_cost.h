// What a collective takes by each transport, and which is chosen. Pure.
#ifndef CONCERT_POLICIES_COST_COLLECTIVE_COST_H_
#define CONCERT_POLICIES_COST_COLLECTIVE_COST_H_

#include <array>
#include <cstddef>
#include <iterator>

#include "policies/cost/tuned_table.h"
#include "policies/seam/transport.h"
#include "policies/seam/work.h"

namespace concert::policies {

// Blocks of our own kernels that are worth a look: four leave nearly all SMs to GEMMs; all-gather
// reaches the links' limit with eight, all-reduce with twelve, the others with sixteen (two H200s).
inline constexpr int kPeerSms[] = {4, 8, 12, 16};
inline constexpr size_t kPeerSmsCount = std::size(kPeerSms);

// What a GEMM takes, by the cost model: alone on all SMs, and how much longer without as many as
// peer kernels hold (kPeerSms). Rounds of tiles: 2048x4096x8192 takes 175 us on 128 SMs, 240 on 124
// (H200).
struct GemmTimes {
  float us = 0;
  bool memory_bound = false;  // then fewer SMs cost it nothing
  std::array<float, kPeerSmsCount> longer_us = {};
};
GemmTimes GemmTimesOf(const DeviceModel& device, const Work& gemm);

// GEMMs that are to run on a GPU while its rank's part of a collective does, one after the other.
struct Beside {
  float us = 0;               // alone on all SMs
  float memory_bound_us = 0;  // of that, what memory-bound ones take
  float longest_us = 0;       // of them
  std::array<float, kPeerSmsCount> longer_us = {};

  void Add(const GemmTimes& gemm);
};

// What `tuned` says of the node's transports; null, or nothing in it: the constants.
inline TransportCurves CurvesOf(const TunedTable* tuned) {
  if (tuned != nullptr && tuned->curves()) return *tuned->curves();
  return kTransportCurves;
}

// From the start of the last rank's part to the end, if nothing else runs. `block_bytes`: what a
// rank's blocks store where kernels of ours carry it (kernels::BlockBytes).
double TransportUs(const DeviceModel& device, const Work& work, uint64_t block_bytes,
                   const TransportChoice& choice);

// Of that, what the links alone would take.
double LinksUs(const DeviceModel& device, const Work& work, const TransportChoice& choice);

// And what blocks take for what the rank copies to itself beside copy engines.
double OwnCopyUs(const DeviceModel& device, const Work& work, const TransportChoice& choice);

// What a rank sends by it. What it keeps goes to a neighbour and back where no blocks copy it.
uint64_t SentBytes(const Work& work, const TransportChoice& choice);

// What a GPU's memory reads and writes for it. What a rank keeps by way of a neighbour is read and
// written there, too, unless it is what the neighbour is sent.
uint64_t HbmBytes(const Work& work, const TransportChoice& choice);

// TransportUs beside GEMMs. Nothing is left to NCCL where it takes what SMs it likes, so that it
// waits for a GEMM that was there before.
double RunUs(const DeviceModel& device, const Work& work, uint64_t block_bytes,
             const TransportChoice& choice, const Beside& beside);

// SMs that it holds while it runs.
int HeldSms(const DeviceModel& device, const TransportChoice& choice);

// From the start of both to the end of both, if the GEMMs keep to the SMs that the collective
// leaves while it runs, and take all before and after. They lose the share of the SMs that it holds
// or, where they end before it does, the rounds that they take longer without those. Memory-bound
// ones lose nothing to that: beside 40 of 64x8192x8192 an all-reduce of 768 MiB by the hybrid is
// over after 3349 us on 16 SMs, 3636 on 12 (two H100s).
double TogetherUs(const DeviceModel& device, const Work& work, uint64_t block_bytes,
                  const TransportChoice& choice, const Beside& beside);

// The way by which it and what runs beside it are predicted to be over first. Where nothing is
// known to run beside it: the fastest or, of those that are hardly slower, the one that leaves
// GEMMs the most SMs. Beside GEMMs, what is small goes by kernels of ours on the fewest SMs. NCCL
// if work.transports and the device have nothing else in common.
TransportChoice ChooseTransport(const DeviceModel& device, const Work& work, uint64_t block_bytes,
                                const Beside& beside = {});

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_COST_COLLECTIVE_COST_H_
