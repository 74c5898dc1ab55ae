// What clients' requests cost the daemon in memory and copies. A program of its own because it
// counts every allocation (tests/support/heap_use.h).
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "tests/support/heap_use.h"
#include "tests/support/raw_client.h"
#include "tests/unit/sched/null_node.h"
#include "tests/unit/session/server_bed.h"

namespace concert::daemon {
namespace {

using concert::test::RawClient;

class SessionCostTest : public testing::Test {
 protected:
  // Of so many ops, which norm a row. Most of what a run reads is weights, so it may have replicas.
  static void Register(const RawClient& client, uint32_t from, uint32_t to, size_t ops = 1) {
    concert_descriptor op{};
    op.kind = CONCERT_OP_RMS_NORM;
    concert_rms_norm_body& norm = op.body.rms_norm;
    norm.rows = 1, norm.columns = 32;
    norm.x_stride = norm.out_stride = norm.columns;
    norm.epsilon = 1e-6f;
    norm.dtype = CONCERT_ABI_BF16;
    norm.x.buffer = norm.weight.buffer = from;
    norm.out.buffer = to;
    const concert_program_reply reply = client.CreateProgram({}, std::vector(ops, op));
    ASSERT_EQ(reply.reply.status, static_cast<uint32_t>(CONCERT_ABI_OK)) << reply.reply.message;
  }

  NullNode node_{1};
  std::atomic<const std::atomic<int64_t>*> bytes_of_control_{nullptr};
  ServerBed bed_{node_, {.on_open = [this](const Session&) {
                   bytes_of_control_ = &test::BytesOfThisThread();
                 }}};
};

TEST_F(SessionCostTest, ARequestCopiesNothingOfTheSessionsPrograms) {
  constexpr int kPrograms = 100, kRequests = 100;
  RawClient client(bed_.socket());
  ASSERT_TRUE(client.Hello());
  const auto allocations_of_requests = [&] {
    const int64_t before = test::Allocations();
    for (int i = 0; i < kRequests; ++i)
      EXPECT_EQ(client.ReleaseBuffer(0), static_cast<uint32_t>(CONCERT_ABI_NOT_FOUND));
    return test::Allocations() - before;
  };
  const int64_t without = allocations_of_requests();
  const uint32_t from = client.AllocateBuffer(64), to = client.AllocateBuffer(64);
  for (int i = 0; i < kPrograms; ++i) Register(client, from, to);
  EXPECT_EQ(bed_.server().Sessions().at(0).programs.size(), size_t{kPrograms});
  // Other threads allocate now and then.
  EXPECT_LT(allocations_of_requests(), without + kRequests * kPrograms / 4);
}

TEST_F(SessionCostTest, AProgramKeepsNothingOfBuffersThatItDoesNotUse) {
  constexpr int kBuffers = 4000, kPrograms = 16;
  RawClient client(bed_.socket());
  ASSERT_TRUE(client.Hello());
  std::vector<uint32_t> buffers;
  for (int i = 0; i < kBuffers; ++i) buffers.push_back(client.AllocateBuffer(64));
  for (int i = 2; i < kBuffers; ++i)
    EXPECT_EQ(client.ReleaseBuffer(buffers[i]), static_cast<uint32_t>(CONCERT_ABI_OK));
  const int64_t before = test::LiveBytes();
  for (int i = 0; i < kPrograms; ++i) Register(client, buffers[0], buffers[1]);
  EXPECT_LT(test::LiveBytes() - before, kPrograms * kBuffers * 8);
}

TEST_F(SessionCostTest, ALongProgramCostsTheControlThreadNoMoreThanAShortOne) {
  constexpr size_t kOps = 4000;
  RawClient client(bed_.socket());
  ASSERT_TRUE(client.Hello());
  const uint32_t from = client.AllocateBuffer(64), to = client.AllocateBuffer(64);
  const int64_t before = *bytes_of_control_.load();
  Register(client, from, to, kOps);
  EXPECT_LT(*bytes_of_control_.load() - before, static_cast<int64_t>(kOps));
}

}  // namespace
}  // namespace concert::daemon
