#include "kernels/access.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/unit/kernels/admit_fixture.h"

namespace concert::kernels {
namespace {

using Fields = std::map<concert_field, Access>;

// By operand. Each lies in the buffer that it is said to lie in.
Fields AccessesOf(const concert_descriptor& descriptor, uint32_t ranks = 0) {
  const OpKind& kind = *FindOpKind(descriptor.kind);
  Op op;
  op.kind = descriptor.kind;
  const Failure failure = kind.admit(descriptor, Context(ranks), op);
  EXPECT_TRUE(failure.ok()) << failure.ToString();
  Fields fields;
  const Accesses accesses = kind.accesses(op);
  EXPECT_EQ(accesses.list().size(), op.buffers.size());
  for (const Access& access : accesses.list()) {
    const BufferRange& buffer = kBuffers[access.buffer];
    EXPECT_GE(access.memory.begin, buffer.address) << concert_field_name(access.field);
    EXPECT_LE(access.memory.Bounds().end, buffer.address + buffer.bytes);
    fields.emplace(access.field, access);
  }
  EXPECT_EQ(fields.size(), accesses.list().size());
  return fields;
}

TEST(AccessTest, AGemmWritesDAndReadsTheRest) {
  const Fields fields = AccessesOf(GoodGemm());
  ASSERT_EQ(fields.size(), 5u);
  for (const auto& [field, access] : fields) EXPECT_EQ(access.writes(), field == CONCERT_FIELD_D);
  const Address a = kBuffers[1].address, d = kBuffers[3].address, c = kBuffers[2].address;
  EXPECT_EQ(fields.at(CONCERT_FIELD_A).memory.Bounds(), (ByteRange{a, a + 64 * 16 * 2}));
  EXPECT_EQ(fields.at(CONCERT_FIELD_W).memory.Bounds(),
            (ByteRange{a + 65536, a + 65536 + 32 * 16 * 2}));
  EXPECT_EQ(fields.at(CONCERT_FIELD_D).memory.Bounds(), (ByteRange{d, d + 64 * 32 * 2}));
  EXPECT_EQ(fields.at(CONCERT_FIELD_C).memory.Bounds(), (ByteRange{c, c + 64 * 32 * 2}));
  EXPECT_EQ(fields.at(CONCERT_FIELD_BIAS).memory.Bounds(),
            (ByteRange{c + 65536, c + 65536 + 32 * 2}));
}

TEST(AccessTest, AGemmMayReadItsWeightsEarlyAndNothingElse) {
  for (const concert_descriptor& descriptor : {GoodGemm(), GoodFp8Gemm()}) {
    for (const auto& [field, access] : AccessesOf(descriptor)) {
      EXPECT_EQ(access.mode == AccessMode::kReadEarly, field == CONCERT_FIELD_W);
    }
  }
}

TEST(AccessTest, ABatchReachesToItsLastMatrix) {
  concert_descriptor gemm = GoodGemm();
  gemm.body.gemm.batch = 3;
  gemm.body.gemm.ldw = 24;
  gemm.body.gemm.stride_d = 4096;
  gemm.body.gemm.stride_w = 0;
  const Fields fields = AccessesOf(gemm);
  const ByteRange d = fields.at(CONCERT_FIELD_D).memory.Bounds();
  const ByteRange w = fields.at(CONCERT_FIELD_W).memory.Bounds();
  EXPECT_EQ(d.end - d.begin, (2 * 4096 + 64 * 32) * 2u);
  EXPECT_EQ(w.end - w.begin, (31 * 24 + 16) * 2u);
}

TEST(AccessTest, AGemmReadsNoCThatItDoesNotAdd) {
  concert_descriptor gemm = GoodGemm();
  gemm.body.gemm.beta = 0;
  gemm.body.gemm.bias = {};
  EXPECT_EQ(AccessesOf(gemm).size(), 3u);
}

TEST(AccessTest, APaddedDLeavesItsNeighboursAlone) {
  concert_descriptor left = GoodGemm(), right = GoodGemm();
  left.body.gemm.ldd = right.body.gemm.ldd = 64;
  right.body.gemm.d.offset = 32 * 2;
  const StridedRange first = AccessesOf(left).at(CONCERT_FIELD_D).memory;
  const StridedRange second = AccessesOf(right).at(CONCERT_FIELD_D).memory;
  EXPECT_TRUE(first.Bounds().Overlaps(second.Bounds()));
  int pieces_left = 10;
  EXPECT_FALSE(Meet(first, second, pieces_left));
}

TEST(AccessTest, AnFp8GemmReadsItsScales) {
  const Fields fields = AccessesOf(GoodFp8Gemm());
  ASSERT_EQ(fields.size(), 7u);
  const Address scales = kBuffers[2].address + 131072;
  EXPECT_EQ(fields.at(CONCERT_FIELD_A_SCALES).memory.Bounds(), (ByteRange{scales, scales + 256}));
  EXPECT_EQ(fields.at(CONCERT_FIELD_W_SCALES).memory.Bounds(),
            (ByteRange{scales + 256, scales + 260}));
}

TEST(AccessTest, RowsOfAnyDtypeHaveScalesThatAreReadWithA) {
  const Fields fields = AccessesOf(GoodScaledGemm());
  ASSERT_EQ(fields.size(), 6u);
  const Access& scales = fields.at(CONCERT_FIELD_A_SCALES);
  const Address begin = kBuffers[2].address + 131072;
  EXPECT_EQ(scales.memory.Bounds(), (ByteRange{begin, begin + 256}));
  EXPECT_EQ(scales.mode, AccessMode::kRead);
}

TEST(AccessTest, CopiesAndCollectivesWriteDst) {
  for (const concert_descriptor& descriptor : {GoodCopy(), GoodCollective(CONCERT_OP_ALL_REDUCE)}) {
    const Fields fields = AccessesOf(descriptor, /*ranks=*/2);
    ASSERT_EQ(fields.size(), 2u);
    EXPECT_FALSE(fields.at(CONCERT_FIELD_SRC).writes());
    EXPECT_TRUE(fields.at(CONCERT_FIELD_DST).writes());
  }
}

}  // namespace
}  // namespace concert::kernels
