// Which transports a collective could go by: by its kind, alignment, ranks and memory.
#include <gtest/gtest.h>

#include <utility>

#include "kernels/comm/collective_op.h"
#include "kernels/comm/messages.h"
#include "kernels/comm/peer_args.h"
#include "tests/unit/kernels/admit_fixture.h"

namespace concert::kernels {
namespace {

// A launcher that had more ranks than peer kernels have room for would fail when some have begun.
TEST(TransportsOfTest, PeerKernelsCarryAsManyRanksAsTheyHaveRoomFor) {
  using policies::Transport;
  Op op;
  op.kind = CONCERT_OP_ALL_REDUCE;
  op.collective = {};
  op.collective.dtype = Dtype::kFp32;
  for (const uint64_t count : {uint64_t{16}, uint64_t{1} << 20}) {
    op.collective.count = count;
    const policies::TransportSet most = TransportsOf(op, cuda::kMaxPeers, /*pool=*/true);
    EXPECT_TRUE(most.Has(Transport::kPeer) && most.Has(Transport::kHybrid)) << count;
    const policies::TransportSet beyond = TransportsOf(op, cuda::kMaxPeers + 1, /*pool=*/true);
    EXPECT_EQ(beyond, policies::TransportSet().Add(Transport::kNccl)) << count;
  }
}

// What the collective `op` could go by between four ranks.
class RoutingTest : public testing::Test {
 protected:
  RoutingTest() {
    op_.kind = CONCERT_OP_ALL_REDUCE;
    op_.collective = {};
    op_.collective.count = 1 << 20;
    op_.collective.src = op_.collective.dst = 0x10000000;
    op_.collective.dtype = Dtype::kFp32;
  }
  bool Goes(policies::Transport transport, bool pool = true) const {
    return TransportsOf(op_, 4, pool).Has(transport);
  }

  Op op_;
};

TEST_F(RoutingTest, LargeMessagesInOddAddressesOrLengthsAreNotForPeerKernels) {
  using policies::Transport;
  EXPECT_TRUE(Goes(Transport::kPeer) && Goes(Transport::kHybrid));
  for (uint64_t* odd : {&op_.collective.src, &op_.collective.dst, &op_.collective.count}) {
    *odd += odd == &op_.collective.count ? 1 : 8;
    EXPECT_FALSE(Goes(Transport::kPeer) || Goes(Transport::kHybrid));
    EXPECT_TRUE(Goes(Transport::kNccl));
    *odd -= odd == &op_.collective.count ? 1 : 8;
  }
  // Shares of ranks need not be equal: 4 * (2^20 + 4) bytes are no multiple of 4 * 16.
  op_.collective.count += 4;
  EXPECT_TRUE(Goes(Transport::kPeer) && Goes(Transport::kHybrid));
  // Small ones go through inboxes, wherever they lie.
  op_.collective.count = 1003;
  op_.collective.src += 4;
  EXPECT_TRUE(Goes(Transport::kPeer));
  EXPECT_FALSE(Goes(Transport::kHybrid));
}

// Of four ranks, in messages; a block that reduces loads all of them while it could store two
// thirds.
TEST_F(RoutingTest, BlocksAreBoundByWhatTheyStoreUnlessTheyLoadFarMore) {
  const uint64_t message = 4 * op_.collective.count;
  const std::pair<uint16_t, double> messages_of[] = {{CONCERT_OP_ALL_REDUCE, 1},
                                                     {CONCERT_OP_REDUCE_SCATTER, 8.0 / 3},
                                                     {CONCERT_OP_ALL_GATHER, 3},
                                                     {CONCERT_OP_ALL_TO_ALL, 4},
                                                     {CONCERT_OP_BROADCAST, 1}};
  for (const auto& [kind, messages] : messages_of) {
    op_.kind = kind;
    EXPECT_NEAR(static_cast<double>(BlockBytes(op_, 4)), messages * static_cast<double>(message), 4)
        << kind;
  }
}

TEST_F(RoutingTest, MemoryThatPeersKernelsMayNotTouchGoesByCopyEnginesOrNccl) {
  using policies::Transport;
  EXPECT_FALSE(Goes(Transport::kPeer, /*pool=*/false));
  EXPECT_FALSE(Goes(Transport::kHybrid, /*pool=*/false));
  EXPECT_FALSE(Goes(Transport::kCopyEngine, /*pool=*/false)) << "copies reduce nothing";
  EXPECT_TRUE(Goes(Transport::kNccl, /*pool=*/false));
  op_.kind = CONCERT_OP_ALL_GATHER;
  EXPECT_FALSE(Goes(Transport::kPeer, /*pool=*/false));
  EXPECT_TRUE(Goes(Transport::kCopyEngine, /*pool=*/false));
}

// Its root would send to all peers by copies; by kernels each peer fetches a share and passes it
// on.
TEST_F(RoutingTest, ABroadcastToSeveralPeersLeavesItsRootOnce) {
  using policies::Transport;
  op_.kind = CONCERT_OP_BROADCAST;
  EXPECT_TRUE(Goes(Transport::kPeer));
  EXPECT_FALSE(Goes(Transport::kPeer, /*pool=*/false));
  EXPECT_FALSE(Goes(Transport::kCopyEngine) || Goes(Transport::kHybrid));
  EXPECT_TRUE(TransportsOf(op_, 2, /*pool=*/true).Has(Transport::kCopyEngine));
}

// The same from a descriptor: of two buffers one is imported.
TEST_F(RoutingTest, AdmissionKnowsWhichBuffersAreThePools) {
  using policies::Transport;
  concert_descriptor descriptor{};
  descriptor.kind = CONCERT_OP_ALL_GATHER;
  concert_collective_body& body = descriptor.body.collective;
  body.count = 60'000;
  body.dtype = CONCERT_ABI_FP32;
  body.src = {1, 0, 0}, body.dst = {3, 0, 0};
  const AdmitContext context = Context(4);
  const auto admit = [&] { return FindOpKind(descriptor.kind)->admit(descriptor, context, op_); };
  ASSERT_TRUE(admit().ok()) << admit().ToString();
  EXPECT_TRUE(op_.work.transports.Has(Transport::kPeer));
  EXPECT_EQ(op_.work.collective, policies::CollectiveKind::kAllGather);
  for (concert_operand* imported : {&body.src, &body.dst}) {
    const uint32_t pool = imported->buffer;
    imported->buffer = 2;
    ASSERT_TRUE(admit().ok()) << admit().ToString();
    EXPECT_FALSE(op_.work.transports.Has(Transport::kPeer));
    EXPECT_TRUE(op_.work.transports.Has(Transport::kCopyEngine));
    imported->buffer = pool;
  }
}

}  // namespace
}  // namespace concert::kernels
