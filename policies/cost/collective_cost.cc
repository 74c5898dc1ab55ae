#include "policies/cost/collective_cost.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>

#include "policies/cost/cost_model.h"

namespace concert::policies {
namespace {

// Blocks of our own kernels that are worth a look: four leave nearly all SMs to GEMMs; all-gather
// reaches the links' limit with eight, all-reduce with twelve, the others with sixteen (two H200s).
constexpr int kPeerSms[] = {4, 8, 12, 16};
constexpr size_t kMaxCandidates = 2 + 2 * std::size(kPeerSms);
// Of two ways, how much slower the one with fewer SMs may be.
constexpr double kWorthSms = 1.05;

bool IsSmall(const TransportCurve& curve, const Work& work) {
  const uint64_t peers = std::max<uint64_t>(1, work.ranks - 1u);
  return work.link_bytes / peers <= curve.small_bytes && curve.small_bytes > 0;
}

}  // namespace

double TransportUs(const DeviceModel& device, const Work& work, uint64_t loaded_bytes,
                   const TransportChoice& choice) {
  const TransportCurve& curve = device.transport_curves[static_cast<size_t>(choice.transport)];
  const auto us = [](uint64_t bytes, double bytes_per_s) {
    return 1e6 * static_cast<double>(bytes) / bytes_per_s;
  };
  double moving_us = std::max(us(work.link_bytes, curve.link_share * device.link_bytes_per_s),
                              us(work.hbm_bytes, device.hbm_bytes_per_s));
  if (choice.sms > 0 && curve.bytes_per_s_per_sm > 0) {
    moving_us = std::max(moving_us, us(loaded_bytes, choice.sms * curve.bytes_per_s_per_sm));
  }
  return (IsSmall(curve, work) ? curve.small_floor_us : curve.floor_us) + moving_us;
}

TransportChoice ChooseTransport(const DeviceModel& device, const Work& work,
                                uint64_t loaded_bytes) {
  struct Candidate {
    TransportChoice choice;
    int held;  // SMs
    double us;
  };
  std::array<Candidate, kMaxCandidates> candidates;
  size_t count = 0;
  const auto add = [&](Transport transport, int sms, int held) {
    const TransportChoice choice = {.transport = transport, .sms = static_cast<uint16_t>(sms)};
    candidates[count++] = {choice, held, TransportUs(device, work, loaded_bytes, choice)};
  };
  add(Transport::kNccl, device.collective_sms, CollectiveSms(device));
  const TransportSet there = device.transports & work.transports;
  if (there.Has(Transport::kCopyEngine)) add(Transport::kCopyEngine, 0, 0);
  for (const Transport transport : {Transport::kPeer, Transport::kHybrid}) {
    if (!there.Has(transport)) continue;
    for (const int sms : kPeerSms) {
      if (device.collective_sms == 0 || sms <= device.collective_sms) add(transport, sms, sms);
    }
  }
  const auto all = std::span(candidates).first(count);
  const double fastest_us = std::ranges::min(all, {}, &Candidate::us).us;
  const auto better = [&](const Candidate& a, const Candidate& b) {
    const double bound_us = kWorthSms * fastest_us;
    if ((a.us <= bound_us) != (b.us <= bound_us)) return a.us <= bound_us;
    return a.held != b.held ? a.held < b.held : a.us < b.us;
  };
  return std::ranges::min(all, better).choice;
}

}  // namespace concert::policies
