#include "policies/cost/collective_cost.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <span>

#include "policies/cost/cost_model.h"

namespace concert::policies {
namespace {

constexpr size_t kMaxCandidates = 2 + 3 * std::size(kPeerSms);
// Of two ways, how much slower the one with fewer SMs may be. Where nothing runs beside, what comes
// later may want them, but nobody waits for that.
constexpr double kWorthSms = 1.02;
// The same where GEMMs do without them for longer than a small collective runs.
constexpr double kWorthSmsOfGemms = 1.15;
// What its own time counts beside GEMMs that take longer: its dependents wait for it, and times are
// predicted to some per cent.
constexpr double kRunShare = 0.05;
// Of their rate: beside whatever is measured, GEMMs go on.
constexpr double kMostLost = 0.9;

double Us(uint64_t bytes, double bytes_per_s) {
  return 1e6 * static_cast<double>(bytes) / bytes_per_s;
}

// By a rank to all its peers, if it is small: whole, where link_bytes are those of a reduction in
// two halves.
uint64_t SentWhole(const Work& work) {
  return work.collective == CollectiveKind::kAllReduce ? work.link_bytes * work.ranks / 2
                                                       : work.link_bytes;
}

bool IsSmall(const TransportCurve& curve, const Work& work) {
  return SentWhole(work) <= curve.small_bytes && curve.small_bytes > 0;
}

// What a rank's links carry: words that carry their tags are twice their bytes.
uint64_t CrossingBytes(const TransportCurve& curve, const Work& work,
                       const TransportChoice& choice) {
  return IsSmall(curve, work) ? 2 * SentWhole(work) : SentBytes(work, choice);
}

// The longer of two, or 9 % more where they are equal: 8 blocks that load 768 MiB to reduce them
// take 2657 us, as would the links, and 12 take 2415 (two H200s, ADR 23).
double Rounded(double a, double b) {
  const auto pow8 = [](double x) { return x * x * x * x * x * x * x * x; };
  const double longer = std::max(a, b), share = std::min(a, b) / std::max(longer, 1e-9);
  return longer * std::sqrt(std::sqrt(std::sqrt(1 + pow8(share))));
}

// What a copy of a rank's own adds to copies by engines: another launch, and two more events to
// wait for. 39 us for an all-to-all of 64 KiB, 24 for an all-gather in place (two H200s, ADR 23).
constexpr double kOwnCopyUs = 14;

// A message, if the rank copies one to itself.
uint64_t KeptBytes(const Work& work) {
  return work.keeps ? work.link_bytes / std::max<uint64_t>(1, work.ranks - 1u) : 0;
}

// How often that crosses the links where no blocks copy it: a neighbour fetches it and sends it
// back. Of an all-to-all: what others are sent they have in any case.
int KeptCrossings(const Work& work, const TransportChoice& choice) {
  if (choice.transport != Transport::kCopyEngine || choice.sms > 0 || !work.keeps) return 0;
  return work.collective == CollectiveKind::kAllToAll ? 2 : 1;
}

// The share of their rate that GEMMs lose which leave so many SMs to it for `run_us`.
double LostToSms(const DeviceModel& device, const Beside& beside, int held, double run_us) {
  const double bound_by_sms = beside.us > 0 ? 1 - beside.memory_bound_us / beside.us : 1;
  const double share = bound_by_sms * held / device.sm_count;
  if (held == 0 || beside.longest_us > run_us) return share;  // the last blocks begin late
  const auto* const as_many = std::ranges::lower_bound(kPeerSms, held);
  if (as_many == std::end(kPeerSms)) return share;
  const double longer_us = beside.longer_us[static_cast<size_t>(as_many - kPeerSms)];
  return std::max(share, longer_us / (beside.us + longer_us));
}

// Through inboxes, for which copy engines would take three times as long. A GEMM that starts with
// it does without its SMs to the end, so they are few.
TransportChoice ChooseSmallBesideGemms(const DeviceModel& device, const Work& work,
                                       uint64_t block_bytes) {
  const int most = device.collective_sms > 0 ? device.collective_sms : *std::rbegin(kPeerSms);
  const auto on = [&](int sms) {
    return TransportChoice{.transport = Transport::kPeer,
                           .sms = static_cast<uint16_t>(std::min(sms, most))};
  };
  const double fastest_us = TransportUs(device, work, block_bytes, on(most));
  const auto enough = [&](int sms) {
    return TransportUs(device, work, block_bytes, on(sms)) <= kWorthSmsOfGemms * fastest_us;
  };
  const auto* const least = std::ranges::find_if(kPeerSms, enough);
  return on(least == std::end(kPeerSms) ? most : *least);
}

}  // namespace

GemmTimes GemmTimesOf(const DeviceModel& device, const Work& gemm) {
  GemmTimes times{.us = static_cast<float>(SoloUs(device, gemm))};
  // Nearer to what memory takes than to twice that.
  times.memory_bound = 1.5 * CostOf(device, gemm).hbm_us > times.us;
  if (times.memory_bound) return times;
  for (size_t i = 0; i < kPeerSmsCount; ++i) {
    const int left = std::max(1, device.sm_count - kPeerSms[i]);
    times.longer_us[i] = std::max(0.0f, static_cast<float>(SoloUs(device, gemm, left)) - times.us);
  }
  return times;
}

void Beside::Add(const GemmTimes& gemm) {
  us += gemm.us;
  if (gemm.memory_bound) memory_bound_us += gemm.us;
  longest_us = std::max(longest_us, gemm.us);
  for (size_t i = 0; i < kPeerSmsCount; ++i) longer_us[i] += gemm.longer_us[i];
}

uint64_t SentBytes(const Work& work, const TransportChoice& choice) {
  return work.link_bytes + KeptBytes(work) * static_cast<uint64_t>(KeptCrossings(work, choice));
}

uint64_t HbmBytes(const Work& work, const TransportChoice& choice) {
  const int crossings = KeptCrossings(work, choice);
  return work.hbm_bytes + (crossings > 1 ? 2 * KeptBytes(work) : 0);
}

double OwnCopyUs(const DeviceModel& device, const Work& work, const TransportChoice& choice) {
  const TransportCurve& curve = device.transport_curves.Of(choice.transport, work.ranks);
  if (choice.transport != Transport::kCopyEngine || curve.bytes_per_s_per_sm == 0) return 0;
  return choice.sms == 0 ? 0 : Us(KeptBytes(work), choice.sms * curve.bytes_per_s_per_sm);
}

double LinksUs(const DeviceModel& device, const Work& work, const TransportChoice& choice) {
  const TransportCurve& curve = device.transport_curves.Of(choice.transport, work.ranks);
  const double share = curve.link_share[static_cast<size_t>(work.collective)];
  return Us(CrossingBytes(curve, work, choice), share * device.link_bytes_per_s);
}

double TransportUs(const DeviceModel& device, const Work& work, uint64_t block_bytes,
                   const TransportChoice& choice) {
  const TransportCurve& curve = device.transport_curves.Of(choice.transport, work.ranks);
  const bool small = IsSmall(curve, work);
  if (small) block_bytes = CrossingBytes(curve, work, choice);
  double moving_us =
      std::max(LinksUs(device, work, choice), Us(HbmBytes(work, choice), device.hbm_bytes_per_s));
  const double sm_bytes_per_s = choice.sms * curve.bytes_per_s_per_sm;
  if (choice.transport == Transport::kCopyEngine) {
    moving_us = Rounded(moving_us, OwnCopyUs(device, work, choice));
  } else if (choice.transport == Transport::kHybrid && sm_bytes_per_s > 0) {
    // Each half of it has the links for itself. In the first blocks load all and store a share.
    const double half_us = moving_us / 2;
    moving_us = half_us + Rounded(half_us, Us(StoresLike(block_bytes), sm_bytes_per_s));
  } else if (sm_bytes_per_s > 0) {
    moving_us = Rounded(moving_us, Us(block_bytes, sm_bytes_per_s));
  }
  const bool copies_own = choice.transport == Transport::kCopyEngine && work.keeps;
  const double floor_us = small ? curve.small_floor_us : curve.floor_us;
  return floor_us + (copies_own ? kOwnCopyUs : 0) + moving_us;
}

int HeldSms(const DeviceModel& device, const TransportChoice& choice) {
  return choice.sms == 0 && choice.transport == Transport::kNccl ? CollectiveSms(device)
                                                                 : choice.sms;
}

double RunUs(const DeviceModel& device, const Work& work, uint64_t block_bytes,
             const TransportChoice& choice, const Beside& beside) {
  const TransportCurve& curve = device.transport_curves.Of(choice.transport, work.ranks);
  const double alone_us = TransportUs(device, work, block_bytes, choice);
  const double wait_us =
      choice.transport == Transport::kNccl && choice.sms == 0 ? beside.longest_us : 0;
  return wait_us + alone_us + (curve.beside_gemm - 1) * std::min<double>(alone_us, beside.us);
}

double TogetherUs(const DeviceModel& device, const Work& work, uint64_t block_bytes,
                  const TransportChoice& choice, const Beside& beside) {
  const TransportCurve& curve = device.transport_curves.Of(choice.transport, work.ranks);
  const double run_us = RunUs(device, work, block_bytes, choice, beside);
  // What GEMMs do later because of the rate they lose: of what runs until the collective has ended.
  const auto late_us = [&](double lost) {
    const double share = std::min(lost, kMostLost);
    return std::min(run_us * share, beside.us * share / (1 - share));
  };
  const double held = LostToSms(device, beside, HeldSms(device, choice), run_us);
  const double moved = Us(SentBytes(work, choice), device.link_bytes_per_s) / run_us;
  return std::max(run_us, beside.us + late_us(curve.gemm_per_sms * held) +
                              late_us(curve.gemm_per_link * moved));
}

TransportChoice ChooseTransport(const DeviceModel& device, const Work& work, uint64_t block_bytes,
                                const Beside& beside) {
  struct Candidate {
    TransportChoice choice;
    int held;  // SMs
    double us;
  };
  std::array<Candidate, kMaxCandidates> candidates;
  size_t count = 0;
  const TransportSet there = device.transports & work.transports;
  if (beside.us > 0 && there.Has(Transport::kPeer) &&
      IsSmall(device.transport_curves.Of(Transport::kPeer, work.ranks), work)) {
    return ChooseSmallBesideGemms(device, work, block_bytes);
  }
  const auto add = [&](Transport transport, int sms) {
    const TransportChoice choice = {.transport = transport, .sms = static_cast<uint16_t>(sms)};
    const double run_us = RunUs(device, work, block_bytes, choice, beside);
    candidates[count++] = {choice, HeldSms(device, choice),
                           beside.us == 0 ? run_us
                                          : TogetherUs(device, work, block_bytes, choice, beside) +
                                                kRunShare * run_us};
  };
  if (there.Has(Transport::kNccl) || there == TransportSet()) {
    add(Transport::kNccl, device.collective_sms);
  }
  if (there.Has(Transport::kCopyEngine)) add(Transport::kCopyEngine, 0);
  for (const Transport transport : {Transport::kPeer, Transport::kHybrid, Transport::kCopyEngine}) {
    if (!there.Has(transport) || (transport == Transport::kCopyEngine && !work.keeps)) continue;
    for (const int sms : kPeerSms) {
      if (device.collective_sms == 0 || sms <= device.collective_sms) add(transport, sms);
    }
  }
  const auto all = std::span(candidates).first(count);
  const double fastest_us = std::ranges::min(all, {}, &Candidate::us).us;
  const double worth_sms = beside.us == 0 ? kWorthSms : 1;
  const auto better = [&](const Candidate& a, const Candidate& b) {
    const double bound_us = worth_sms * fastest_us;
    if ((a.us <= bound_us) != (b.us <= bound_us)) return a.us <= bound_us;
    return a.held != b.held ? a.held < b.held : a.us < b.us;
  };
  return std::ranges::min(all, better).choice;
}

}  // namespace concert::policies
