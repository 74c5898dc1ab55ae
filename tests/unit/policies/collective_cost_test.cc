#include "policies/cost/collective_cost.h"

#include <gtest/gtest.h>

#include "tests/unit/policies/works.h"

namespace concert::policies {
namespace {

// One rank's part, of two; `bytes` go over the links.
Work Part(uint64_t bytes, TransportSet transports) {
  return {.runs_on = RunsOn::kLinks,
          .ranks = 2,
          .transports = transports,
          .hbm_bytes = 2 * bytes,
          .link_bytes = bytes};
}

// Of an all-reduce between two: blocks load what goes over the links.
TransportChoice Choose(const DeviceModel& device, const Work& work) {
  return ChooseTransport(device, work, work.link_bytes);
}
double Us(const DeviceModel& device, const Work& work, const TransportChoice& choice) {
  return TransportUs(device, work, work.link_bytes, choice);
}

TEST(CollectiveCostTest, WithoutTransportsOfOursNcclCarriesAll) {
  const DeviceModel device;
  EXPECT_EQ(Choose(device, Part(1 << 20, TransportSet::All())), TransportChoice());
  const DeviceModel capped{.transports = TransportSet::All(), .collective_sms = 6};
  const TransportChoice nccl = {.transport = Transport::kNccl, .sms = 6};
  EXPECT_EQ(Choose(capped, Part(1 << 20, TransportSet().Add(Transport::kNccl))), nccl);
}

TEST(CollectiveCostTest, SmallMessagesGoThroughInboxes) {
  const DeviceModel device{.transports = TransportSet::All()};
  for (const uint64_t bytes : {8, 4096, 65536}) {
    EXPECT_EQ(Choose(device, Part(bytes, TransportSet::All())).transport, Transport::kPeer)
        << bytes;
  }
}

// A block has its limit, and tags make messages twice as long.
TEST(CollectiveCostTest, TheLargestOfThemHaveMoreBlocks) {
  const DeviceModel device{.transports = TransportSet::All()};
  EXPECT_EQ(Choose(device, Part(16 << 10, TransportSet::All())).sms, 4);
  EXPECT_GT(Choose(device, Part(512 << 10, TransportSet::All())).sms, 4);
}

// Copy engines would hold no SMs and take longer; more blocks would hold more than they gain.
TEST(CollectiveCostTest, BesideGemmsSmallMessagesGoThroughInboxesOnFewSms) {
  DeviceModel device{.transports = TransportSet::All()};
  const Beside beside = {.us = 1'000, .longest_us = 200};
  for (const uint64_t bytes : {1 << 10, 64 << 10, 256 << 10}) {
    Work work = Part(bytes, TransportSet::All());
    work.collective = CollectiveKind::kAllGather;
    const TransportChoice few = {.transport = Transport::kPeer, .sms = 4};
    EXPECT_EQ(ChooseTransport(device, work, bytes, beside), few) << bytes;
    device.collective_sms = 2;
    EXPECT_EQ(ChooseTransport(device, work, bytes, beside).sms, 2) << bytes;
    device.collective_sms = 0;
  }
}

TEST(CollectiveCostTest, WhatReducesNothingGoesByCopiesOnceItIsLarge) {
  const DeviceModel device{.transports = TransportSet::All()};
  const TransportSet moves =
      TransportSet().Add(Transport::kNccl).Add(Transport::kPeer).Add(Transport::kCopyEngine);
  const TransportChoice copies = {.transport = Transport::kCopyEngine, .sms = 0};
  EXPECT_EQ(Choose(device, Part(256 << 20, moves)), copies);
}

// Of an all-to-all between so many; a rank keeps as much as each peer gets.
Work Exchange(uint64_t message_bytes, uint8_t ranks) {
  Work work = Part((ranks - 1) * message_bytes, TransportSet().Add(Transport::kCopyEngine));
  work.ranks = ranks;
  work.collective = CollectiveKind::kAllToAll;
  work.keeps = true;
  return work;
}

// There and back over the links it takes two messages' time more: between two ranks three times as
// long as what the peer gets, among eight a quarter longer.
TEST(CollectiveCostTest, BlocksCopyWhatARankKeepsWhereNothingElseWantsTheirSms) {
  const DeviceModel device{.transports = TransportSet::All()};
  const TransportChoice engines = {.transport = Transport::kCopyEngine, .sms = 0};
  for (const uint8_t ranks : {2, 8}) {
    const Work work = Exchange(32 << 20, ranks);
    EXPECT_GT(Choose(device, work).sms, 0);
    const double floor_us = device.transport_curves.Of(Transport::kCopyEngine, ranks).floor_us;
    EXPECT_NEAR(Us(device, work, engines) - floor_us,
                1e6 * (ranks + 1) * (32 << 20) / device.link_bytes_per_s + 14, 1);
  }
}

// They lose nothing to engines: neither a long one a few SMs, nor short ones a round of tiles each.
TEST(CollectiveCostTest, BesideGemmsThatAreLongerEnginesCarryWhatARankKeeps) {
  const DeviceModel device{.transports = TransportSet::All()};
  const TransportChoice engines = {.transport = Transport::kCopyEngine, .sms = 0};
  const auto choose = [&](uint64_t message_bytes, const Beside& beside) {
    return ChooseTransport(device, Exchange(message_bytes, 2), 2 * message_bytes, beside);
  };
  const Beside gemm = {.us = 1'500, .longest_us = 1'500};
  EXPECT_EQ(choose(32 << 20, gemm), engines);
  EXPECT_GT(choose(384 << 20, gemm).sms, 0) << "it would go on when the GEMM has long ended";
  const Beside chain = {.us = 1'400, .longest_us = 175, .longer_us = {500, 500, 500, 500}};
  EXPECT_EQ(choose(128 << 20, chain), engines);
}

// Of an all-gather a neighbour has it in any case.
TEST(CollectiveCostTest, WhatAllAreSentComesBackOnce) {
  const DeviceModel device{.transports = TransportSet::All()};
  const TransportChoice engines = {.transport = Transport::kCopyEngine, .sms = 0};
  Work work = Exchange(128 << 20, 2);
  const double all_to_all_us = Us(device, work, engines);
  const uint64_t all_to_all_bytes = HbmBytes(work, engines);
  work.collective = CollectiveKind::kAllGather;
  EXPECT_NEAR(all_to_all_us - Us(device, work, engines),
              1e6 * (128 << 20) / device.link_bytes_per_s, 1);
  EXPECT_EQ(HbmBytes(work, engines), work.hbm_bytes);
  EXPECT_EQ(all_to_all_bytes, work.hbm_bytes + (256 << 20));
}

TEST(CollectiveCostTest, OfWaysThatTakeTheSameTheOneWithFewerSmsIsChosen) {
  const DeviceModel device{.transports = TransportSet::All()};
  const TransportSet reduces = TransportSet().Add(Transport::kNccl).Add(Transport::kPeer);
  const Work work = Part(256 << 20, reduces);
  const TransportChoice choice = Choose(device, work);
  EXPECT_EQ(choice.transport, Transport::kPeer);
  const double us = Us(device, work, choice);
  for (const uint16_t sms : {4, 8, 12, 16}) {
    const double other_us = Us(device, work, {.transport = Transport::kPeer, .sms = sms});
    EXPECT_LE(us, 1.05 * other_us);
    EXPECT_TRUE(sms >= choice.sms || other_us > 1.05 * us) << sms;
  }
}

// Blocks reduce, then copies spread: both halves count, and more blocks shorten only the first.
TEST(CollectiveCostTest, TheHalvesOfAHybridFollowOneAnother) {
  const DeviceModel device{.transports = TransportSet::All()};
  const Work work = Part(256 << 20, TransportSet::All());
  const TransportCurve& curve = device.transport_curves.Of(Transport::kHybrid, 2);
  const double spread_us =
      1e6 * (128 << 20) / (curve.link_share[0] * device.link_bytes_per_s) + curve.floor_us;
  const auto reduce_us = [&](uint16_t sms) {
    return Us(device, work, {.transport = Transport::kHybrid, .sms = sms}) - spread_us;
  };
  EXPECT_NEAR(reduce_us(2), 2 * reduce_us(4), 10) << "as fast as blocks load";
  EXPECT_NEAR(reduce_us(32), spread_us - curve.floor_us, 10) << "as fast as the links";
}

TEST(CollectiveCostTest, WhatLoadsMoreTakesMoreBlocks) {
  const DeviceModel device{.transports = TransportSet::All()};
  const TransportSet reduces = TransportSet().Add(Transport::kNccl).Add(Transport::kPeer);
  const Work work = Part(128 << 20, reduces);
  EXPECT_LT(ChooseTransport(device, work, work.link_bytes).sms,
            ChooseTransport(device, work, 2 * work.link_bytes).sms);
}

TEST(CollectiveCostTest, NothingHoldsMoreSmsThanIsAllowed) {
  const DeviceModel device{.transports = TransportSet::All(), .collective_sms = 4};
  for (uint64_t bytes = 1024; bytes <= uint64_t{1} << 30; bytes *= 2) {
    EXPECT_LE(Choose(device, Part(bytes, TransportSet::All())).sms, 4) << bytes;
  }
}

TEST(CollectiveCostTest, TheOnlyTransportThatIsAllowedCarriesWhatItCan) {
  const DeviceModel only_peers{.transports = TransportSet().Add(Transport::kPeer),
                               .collective_sms = 4};
  const TransportChoice peers = {.transport = Transport::kPeer, .sms = 4};
  EXPECT_EQ(Choose(only_peers, Part(256 << 20, TransportSet::All())), peers);
  EXPECT_EQ(Choose(only_peers, Part(1 << 20, TransportSet().Add(Transport::kNccl))).transport,
            Transport::kNccl);
}

// Two H200s, NCCL held to 8 CTAs: 1937 us for an all-reduce of 256 MiB, where 8 blocks of ours take
// 986 (suite collectives).
TEST(CollectiveCostTest, NcclOnFewSmsIsSlow) {
  const DeviceModel device{.transports = TransportSet::All(), .collective_sms = 8};
  const Work work = Part(256 << 20, TransportSet().Add(Transport::kNccl).Add(Transport::kPeer));
  EXPECT_NEAR(Us(device, work, {.transport = Transport::kNccl, .sms = 8}), 1937, 250);
  EXPECT_EQ(Choose(device, work).transport, Transport::kPeer);
}

TEST(CollectiveCostTest, MoreBytesNeverTakeLess) {
  const DeviceModel device{.transports = TransportSet::All()};
  for (int transport = 0; transport < kTransportCount; ++transport) {
    const TransportChoice choice = {.transport = static_cast<Transport>(transport), .sms = 8};
    double before_us = 0;
    for (uint64_t bytes = 1024; bytes <= uint64_t{1} << 30; bytes *= 2) {
      const double us = Us(device, Part(bytes, TransportSet::All()), choice);
      EXPECT_GE(us, before_us) << kTransportNames[transport] << ", " << bytes;
      before_us = us;
    }
  }
}

TEST(CollectiveCostTest, KindsTakeTheLinksAsMeasured) {
  DeviceModel device{.transports = TransportSet::All()};
  TransportCurve& nccl = device.transport_curves.Of(Transport::kNccl, 2);
  nccl.link_share[static_cast<size_t>(CollectiveKind::kBroadcast)] = 2 * nccl.link_share[0];
  Work work = Part(256 << 20, TransportSet::All());
  const double reduce_us = Us(device, work, {}) - nccl.floor_us;
  work.collective = CollectiveKind::kBroadcast;
  TransportCurve& of_more = device.transport_curves.Of(Transport::kNccl, 4);
  of_more.link_share = AllKinds(nccl.link_share[0]);
  EXPECT_NEAR(Us(device, work, {}) - nccl.floor_us, reduce_us / 2, 1e-6);
  work.ranks = 4;
  EXPECT_NEAR(Us(device, work, {}) - of_more.floor_us, reduce_us, 1e-6) << "two ranks' curve";
}

TEST(CollectiveCostTest, WhatWasMeasuredBesideGemmsCounts) {
  DeviceModel device{.transports = TransportSet::All()};
  const Work work = Part(64 << 20, TransportSet::All());
  const TransportChoice copies = {.transport = Transport::kCopyEngine, .sms = 0};
  const double alone_us = Us(device, work, copies);
  const auto together_us = [&](float gemms_us) {
    return TogetherUs(device, work, work.link_bytes, copies, {.us = gemms_us});
  };
  const auto much_us = static_cast<float>(10 * alone_us);
  EXPECT_NEAR(together_us(much_us), much_us, 1e-3) << "copies hold no SM";
  TransportCurve& curve = device.transport_curves.Of(Transport::kCopyEngine, 2);
  curve.beside_gemm = 1.5;
  curve.gemm_per_link = 0.3;
  EXPECT_NEAR(together_us(0), alone_us, 1e-6);
  EXPECT_NEAR(together_us(static_cast<float>(alone_us)), 1.5 * alone_us, 1e-3);
  const double moved =
      1e6 * static_cast<double>(work.link_bytes) / (1.5 * alone_us * device.link_bytes_per_s);
  EXPECT_NEAR(together_us(much_us), much_us + 1.5 * alone_us * 0.3 * moved, 0.1);
}

// Two H200s: 175 us on 128 SMs and 240 on 124.
TEST(CollectiveCostTest, FourSmsLessMayCostAGemmARound) {
  const GemmTimes times = GemmTimesOf(DeviceModel(), Gemm(2048, 4096, 8192));
  EXPECT_NEAR(times.us + times.longer_us[0], 175, 15) << "on 128 SMs";
  EXPECT_NEAR(times.us + times.longer_us[1], 240, 15) << "on 124";
  for (size_t i = 1; i < kPeerSmsCount; ++i) EXPECT_GE(times.longer_us[i], times.longer_us[i - 1]);
}

Beside Chain(const Work& gemm, int count) {
  Beside beside;
  for (int i = 0; i < count; ++i) beside.Add(GemmTimesOf(DeviceModel(), gemm));
  return beside;
}

TEST(CollectiveCostTest, RoundsCountForGemmsThatEndBeforeItDoes) {
  const DeviceModel device{.transports = TransportSet::All()};
  const Work work = Part(64 << 20, TransportSet().Add(Transport::kNccl).Add(Transport::kPeer));
  const auto together_us = [&](int sms, const Beside& beside) {
    const TransportChoice choice = {.transport = Transport::kPeer,
                                    .sms = static_cast<uint16_t>(sms)};
    return TogetherUs(device, work, work.link_bytes, choice, beside);
  };
  const Beside rounds = Chain(Gemm(2048, 4096, 8192), 8);
  EXPECT_LT(together_us(4, rounds), rounds.us + 20);
  EXPECT_GT(together_us(8, rounds), rounds.us + 50) << "a round of those beside it";
  // One that outlasts it has only its last blocks late.
  const Beside longer = Chain(Gemm(8192, 8192, 8192), 1);
  EXPECT_LT(together_us(8, longer), longer.us + 25);
}

// Suite c3, 8 x 2048x4096x8192 beside an all-reduce of 64 MiB: with 4 SMs 1537 us, 1702 with 8
// to 16.
TEST(CollectiveCostTest, WhatCostsGemmsNoRoundIsChosen) {
  const DeviceModel device{.transports = TransportSet::All()};
  const Work work = Part(64 << 20, TransportSet().Add(Transport::kNccl).Add(Transport::kPeer));
  const Beside rounds = Chain(Gemm(2048, 4096, 8192), 8);
  const TransportChoice four = {.transport = Transport::kPeer, .sms = 4};
  EXPECT_EQ(ChooseTransport(device, work, work.link_bytes, rounds), four);
}

// They wait for memory on fewer SMs, too; with more of those the collective is over earlier.
TEST(CollectiveCostTest, MemoryBoundGemmsLoseNothingToSms) {
  EXPECT_TRUE(GemmTimesOf(DeviceModel(), Gemm(64, 8192, 8192)).memory_bound);
  EXPECT_FALSE(GemmTimesOf(DeviceModel(), Gemm(2048, 4096, 8192)).memory_bound);
  const DeviceModel device{.transports = TransportSet::All()};
  const Work work = Part(256 << 20, TransportSet().Add(Transport::kPeer));
  const Beside decode = Chain(Gemm(64, 8192, 8192), 40);
  const auto choose = [&](const Beside& beside) {
    return ChooseTransport(device, work, work.link_bytes, beside).sms;
  };
  EXPECT_GT(choose(decode), choose(Chain(Gemm(2048, 4096, 8192), 8)));
  const TransportChoice sixteen = {.transport = Transport::kPeer, .sms = 16};
  EXPECT_NEAR(TogetherUs(device, work, work.link_bytes, sixteen, decode), decode.us, 1e-3);
}

// Nothing is left to it, so that it begins when a GEMM on all SMs has ended.
TEST(CollectiveCostTest, NcclWithItsOwnNumberOfBlocksWaitsForAGemm) {
  const DeviceModel device{.transports = TransportSet::All()};
  const Work work = Part(64 << 20, TransportSet::All());
  const Beside beside = Chain(Gemm(8192, 8192, 8192), 2);
  EXPECT_NEAR(RunUs(device, work, work.link_bytes, {}, beside),
              beside.longest_us + Us(device, work, {}), 1);
  const TransportChoice held = {.transport = Transport::kNccl, .sms = 8};
  EXPECT_NEAR(RunUs(device, work, work.link_bytes, held, beside), Us(device, work, held), 1);
}

TEST(CollectiveCostTest, WhatWasTunedIsUsedAndElseTheConstants) {
  EXPECT_EQ(CurvesOf(nullptr).Of(Transport::kPeer, 2), kTransportCurves.Of(Transport::kPeer, 2));
  TransportCurves curves = CurvesOf(nullptr);
  curves.Of(Transport::kPeer, 2).floor_us = 1;
  const TunedTable table({}, curves), nothing;
  EXPECT_EQ(CurvesOf(&table).Of(Transport::kPeer, 2).floor_us, 1);
  EXPECT_EQ(CurvesOf(&nothing).Of(Transport::kPeer, 2), kTransportCurves.Of(Transport::kPeer, 2));
}

}  // namespace
}  // namespace concert::policies
