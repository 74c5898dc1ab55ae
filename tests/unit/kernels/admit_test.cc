// Every kind of bad input, and the sentence that it gets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "kernels/group/group_operand.h"
#include "kernels/validate.h"
#include "tests/unit/kernels/admit_fixture.h"

namespace concert::kernels {
namespace {

struct BadCase {
  const char* name;
  concert_descriptor good;
  std::function<void(concert_descriptor&)> spoil;
  std::string sentence;
};

using D = concert_descriptor;

std::string Overlap(const std::string& output, const std::string& input) {
  return output + " overlaps " + input + "; give " + output +
         " memory of its own (d may be c, out of a norm x, of an elementwise op x or y, and dst of "
         "a collective src, each in the same place)";
}

std::vector<BadCase> BadGemms() {
  const D good = GoodGemm();
  const std::string reserved =
      "a reserved field or flag of the gemm descriptor is not zero; set it to zero or check the "
      "daemon's feature bits";
  return {
      {"dtype", good, [](D& d) { d.body.gemm.dtype = 5; },
       "dtype is 5, which is not one of its values; the highest is 4"},
      {"no_dtype", good, [](D& d) { d.body.gemm.dtype = 0; },
       "dtype is 0, which is not one of its values; the highest is 4"},
      {"activation", good, [](D& d) { d.body.gemm.activation = 9; },
       "activation is 9, which is not one of its values; the highest is 3"},
      {"flags", good, [](D& d) { d.body.gemm.flags = 65; },
       "flags is 65, which is not one of its values; the highest is 63"},
      {"zero_m", good, [](D& d) { d.body.gemm.m = 0; },
       "m is 0; it must be between 1 and 16777216"},
      {"huge_n", good, [](D& d) { d.body.gemm.n = UINT32_MAX; },
       "n is 4294967295; it must be between 1 and 16777216"},
      {"zero_k", good, [](D& d) { d.body.gemm.k = 0; },
       "k is 0; it must be between 1 and 16777216"},
      {"huge_batch", good, [](D& d) { d.body.gemm.batch = 65537; },
       "batch is 65537; it must be between 1 and 65536"},
      {"lda", good, [](D& d) { d.body.gemm.lda = 15; },
       "lda is 15; a row holds 16 elements, so it must be at least that"},
      {"ldw", good, [](D& d) { d.body.gemm.ldw = 0; },
       "ldw is 0; a row holds 16 elements, so it must be at least that"},
      {"ldc", good, [](D& d) { d.body.gemm.ldc = 31; },
       "ldc is 31; a row holds 32 elements, so it must be at least that"},
      {"ldd", good, [](D& d) { d.body.gemm.ldd = 31; },
       "ldd is 31; a row holds 32 elements, so it must be at least that"},
      {"past_the_end", good, [](D& d) { d.body.gemm.d.offset = kMiB - 4094; },
       "d needs 4096 bytes at offset 1044482, but buffer 3 has only 1048576 bytes"},
      {"offset_overflows", good, [](D& d) { d.body.gemm.a.offset = kHuge - 1; },
       "the extent of a does not fit in 64 bits; check sizes and strides"},
      {"stride_overflows", good, [](D& d) { d.body.gemm.lda = kHuge / 4; },
       "the extent of a does not fit in 64 bits; check sizes and strides"},
      {"batch_overflows", good,
       [](D& d) {
         d.body.gemm.batch = 2;
         d.body.gemm.stride_d = 2048;
         d.body.gemm.stride_w = kHuge;
       },
       "the extent of w does not fit in 64 bits; check sizes and strides"},
      {"bytes_overflow", good,
       [](D& d) {
         d.body.gemm.batch = 2;
         d.body.gemm.stride_d = 2048;
         d.body.gemm.stride_w = kHuge / 2;
       },
       "the extent of w does not fit in 64 bits; check sizes and strides"},
      {"misaligned", good, [](D& d) { d.body.gemm.w.offset = 65537; },
       "w.offset 65537 is not a multiple of 2 bytes"},
      {"misaligned_base", good,
       [](D& d) {
         d.body.gemm.bias = {7, 0, 0};
       },
       "bias.offset 0 is not a multiple of 2 bytes"},
      {"no_a", good, [](D& d) { d.body.gemm.a.buffer = 0; },
       "a is required for this op but its buffer is 0"},
      {"no_d", good, [](D& d) { d.body.gemm.d.buffer = 0; },
       "d is required for this op but its buffer is 0"},
      {"beta_without_c", good, [](D& d) { d.body.gemm.c.buffer = 0; },
       "c is required for this op but its buffer is 0"},
      {"nan_beta_without_c", good,
       [](D& d) {
         d.body.gemm.c.buffer = 0;
         d.body.gemm.beta = NAN;
       },
       "c is required for this op but its buffer is 0"},
      {"foreign_handle", good, [](D& d) { d.body.gemm.a.buffer = 77; },
       "a.buffer is 77, which is not a buffer of this session; register it first"},
      {"freed_handle", good, [](D& d) { d.body.gemm.w.buffer = 4; },
       "w.buffer is 4, which is not a buffer of this session; register it first"},
      {"wrong_gpu", good, [](D& d) { d.body.gemm.a.buffer = 5; },
       "a lies on GPU 1, but the queue is on GPU 0; allocate it there or use pool memory"},
      {"d_overlaps_a", good,
       [](D& d) {
         d.body.gemm.d = {1, 0, 2046};
       },
       Overlap("d", "a")},
      {"d_is_a", good, [](D& d) { d.body.gemm.d = d.body.gemm.a; }, Overlap("d", "a")},
      {"d_overlaps_w", good,
       [](D& d) {
         d.body.gemm.d = {1, 0, 65536 - 4094};
       },
       Overlap("d", "w")},
      {"d_overlaps_bias", good, [](D& d) { d.body.gemm.d = d.body.gemm.bias; },
       Overlap("d", "bias")},
      {"d_overlaps_c", good,
       [](D& d) {
         d.body.gemm.d = {2, 0, 64};
       },
       Overlap("d", "c")},
      {"c_in_place_other_stride", good,
       [](D& d) {
         d.body.gemm.d = d.body.gemm.c;
         d.body.gemm.ldc = 33;
       },
       Overlap("d", "c")},
      {"batch_of_d_overlaps", good,
       [](D& d) {
         d.body.gemm.batch = 2;
         d.body.gemm.stride_d = 2047;
       },
       "stride_d is 2047, so matrices of the batch share elements of d; one spans 2048 elements"},
      {"reserved", good, [](D& d) { d.body.gemm.reserved0[2] = 1; }, reserved},
      {"reserved_of_c", good, [](D& d) { d.body.gemm.c.scales = 1; }, reserved},
      {"reserved_of_d", good, [](D& d) { d.body.gemm.d.scales = 1; }, reserved},
      {"reserved_of_bias", good, [](D& d) { d.body.gemm.bias.scales = 1; }, reserved},
      {"reserved_of_header", good, [](D& d) { d.reserved1[2] = 1; }, reserved},
      {"header_flags", good, [](D& d) { d.flags = 2; }, reserved},
  };
}

std::vector<BadCase> BadFp8Gemms() {
  const D good = GoodGemm(), fp8 = GoodFp8Gemm();
  const std::string of_bf16 =
      " are given, but dtype is bf16; other operands than those in fp8_e4m3 have no scales but one "
      "for each row of A, with flag 2";
  return {
      {"no_d_dtype", fp8, [](D& d) { d.body.gemm.d_dtype = 0; },
       "d_dtype is 0; D of a GEMM in fp8_e4m3 must be bf16 (1) or fp16 (2)"},
      {"fp32_d", fp8, [](D& d) { d.body.gemm.d_dtype = CONCERT_ABI_FP32; },
       "d_dtype is 3; D of a GEMM in fp8_e4m3 must be bf16 (1) or fp16 (2)"},
      {"fp8_d", fp8, [](D& d) { d.body.gemm.d_dtype = CONCERT_ABI_FP8_E4M3; },
       "d_dtype is 4; D of a GEMM in fp8_e4m3 must be bf16 (1) or fp16 (2)"},
      {"other_d_dtype", good, [](D& d) { d.body.gemm.d_dtype = CONCERT_ABI_FP16; },
       "d_dtype is 2; D of a GEMM in bf16 has that dtype too, so it must be 0 or 1"},
      {"bf16_with_scales", good, [](D& d) { d.body.gemm.a.scales = 2; }, "a_scales" + of_bf16},
      {"bf16_with_scales_offset", good, [](D& d) { d.body.gemm.w_scales_offset = 4; },
       "w_scales" + of_bf16},
      {"bf16_with_scale_flag", good,
       [](D& d) { d.body.gemm.flags = CONCERT_GEMM_W_SCALES_PER_ROW; }, "w_scales" + of_bf16},
      {"rows_without_scales", fp8, [](D& d) { d.body.gemm.a.scales = 0; },
       "flags say that there is one scale per row, but the buffer of a_scales is 0"},
      {"foreign_scales", fp8, [](D& d) { d.body.gemm.w.scales = 77; },
       "w_scales.buffer is 77, which is not a buffer of this session; register it first"},
      {"scales_elsewhere", fp8, [](D& d) { d.body.gemm.a.scales = 5; },
       "a_scales lies on GPU 1, but the queue is on GPU 0; allocate it there or use pool memory"},
      {"misaligned_scales", fp8, [](D& d) { d.body.gemm.a_scales_offset += 2; },
       "a_scales.offset 131074 is not a multiple of 4 bytes"},
      {"scales_past_the_end", fp8, [](D& d) { d.body.gemm.a_scales_offset = kMiB - 252; },
       "a_scales needs 256 bytes at offset 1048324, but buffer 2 has only 1048576 bytes"},
      {"scale_past_the_end", fp8, [](D& d) { d.body.gemm.w_scales_offset = kMiB; },
       "w_scales needs 4 bytes at offset 1048576, but buffer 2 has only 1048576 bytes"},
      {"scales_overflow", fp8, [](D& d) { d.body.gemm.w_scales_offset = kHuge - 3; },
       "the extent of w_scales does not fit in 64 bits; check sizes and strides"},
      {"d_overlaps_a_scales", fp8,
       [](D& d) {
         d.body.gemm.d = {2, 0, 131072 + 254};
       },
       Overlap("d", "a_scales")},
      {"d_overlaps_w_scales", fp8,
       [](D& d) {
         d.body.gemm.d = {2, 0, 131072 + 258};
       },
       Overlap("d", "w_scales")},
      {"misaligned_d", fp8, [](D& d) { d.body.gemm.d.offset = 1; },
       "d.offset 1 is not a multiple of 2 bytes"},
      {"d_past_the_end", fp8, [](D& d) { d.body.gemm.d.offset = kMiB - 4094; },
       "d needs 4096 bytes at offset 1044482, but buffer 3 has only 1048576 bytes"},
      {"a_past_the_end", fp8, [](D& d) { d.body.gemm.a.offset = kMiB - 1023; },
       "a needs 1024 bytes at offset 1047553, but buffer 1 has only 1048576 bytes"},
  };
}

std::vector<BadCase> BadOthers() {
  const D reduce = GoodCollective(CONCERT_OP_ALL_REDUCE),
          gather = GoodCollective(CONCERT_OP_ALL_GATHER);
  const D broadcast = GoodCollective(CONCERT_OP_BROADCAST),
          barrier = GoodCollective(CONCERT_OP_BARRIER);
  const D exchange = GoodCollective(CONCERT_OP_ALL_TO_ALL), copy = GoodCopy();
  const std::string overlap = Overlap("dst", "src");
  return {
      {"copy_zero", copy, [](D& d) { d.body.copy.bytes = 0; },
       "bytes is 0; it must be between 1 and 1099511627776"},
      {"copy_past_end", copy, [](D& d) { d.body.copy.bytes = kMiB - 4; },
       "dst needs 1048572 bytes at offset 5, but buffer 2 has only 1048576 bytes"},
      {"copy_overlap", copy,
       [](D& d) {
         d.body.copy.dst = {1, 0, 1003};
       },
       overlap},
      {"copy_reserved_of_operand", copy, [](D& d) { d.body.copy.dst.scales = 1; },
       "a reserved field or flag of the copy descriptor is not zero; set it to zero or check the "
       "daemon's feature bits"},
      {"fp8_collective", reduce, [](D& d) { d.body.collective.dtype = CONCERT_ABI_FP8_E4M3; },
       "dtype is 4, which is not one of its values; the highest is 3"},
      {"reserved_of_src", reduce, [](D& d) { d.body.collective.src.scales = 1; },
       "a reserved field or flag of the all_reduce descriptor is not zero; set it to zero or check "
       "the daemon's feature bits"},
      {"copy_reserved", copy, [](D& d) { d.body.copy.reserved[18] = 1; },
       "a reserved field or flag of the copy descriptor is not zero; set it to zero or check the "
       "daemon's feature bits"},
      {"count_zero", reduce, [](D& d) { d.body.collective.count = 0; },
       "count is 0; it must be between 1 and 1099511627776"},
      {"count_huge", reduce, [](D& d) { d.body.collective.count = kHuge; },
       "count is 18446744073709551615; it must be between 1 and 1099511627776"},
      {"reduction", reduce, [](D& d) { d.body.collective.reduction = 3; },
       "reduction is 3, which is not one of its values; the highest is 2"},
      {"gather_reduction", gather, [](D& d) { d.body.collective.reduction = 1; },
       "reduction is 1, which is not one of its values; the highest is 0"},
      {"gather_dst_short", gather, [](D& d) { d.body.collective.count = 65537; },
       "dst needs 1048592 bytes at offset 0, but buffer 2 has only 1048576 bytes"},
      {"gather_not_a_slot", gather,
       [](D& d) {
         d.body.collective.src = {2, 0, 2000};
       },
       overlap},
      {"reduce_shifted", reduce,
       [](D& d) {
         d.body.collective.dst = {1, 0, 4};
       },
       overlap},
      {"exchange_in_place", exchange, [](D& d) { d.body.collective.dst = d.body.collective.src; },
       overlap},
      {"root", broadcast, [](D& d) { d.body.collective.root = 4; },
       "root is 4; it must be between 0 and 3"},
      {"root_of_reduce", reduce, [](D& d) { d.body.collective.root = 1; },
       "root is 1; it must be between 0 and 0"},
      {"broadcast_no_src", broadcast, [](D& d) { d.body.collective.src.buffer = 0; },
       "src is required for this op but its buffer is 0"},
      {"misaligned", reduce, [](D& d) { d.body.collective.src.offset = 2; },
       "src.offset 2 is not a multiple of 4 bytes"},
      {"dtype", reduce, [](D& d) { d.body.collective.dtype = 200; },
       "dtype is 200, which is not one of its values; the highest is 3"},
      {"barrier_count", barrier, [](D& d) { d.body.collective.count = 1; },
       "count is 1; it must be between 0 and 0"},
      {"barrier_operand", barrier, [](D& d) { d.body.collective.src.buffer = 1; },
       "src is 1; it must be between 0 and 0"},
      {"reserved", reduce, [](D& d) { d.body.collective.reserved0[5] = 1; },
       "a reserved field or flag of the all_reduce descriptor is not zero; set it to zero or check "
       "the daemon's feature bits"},
  };
}

TEST(AdmitTest, BadInputGetsItsSentence) {
  for (const auto& cases : {BadGemms(), BadFp8Gemms(), BadOthers()}) {
    for (const BadCase& bad : cases) {
      SCOPED_TRACE(bad.name);
      Op op;
      EXPECT_TRUE(Admit(bad.good, op).ok()) << Admit(bad.good, op).ToString();
      concert_descriptor descriptor = bad.good;
      bad.spoil(descriptor);
      const Failure failure = Admit(descriptor, op);
      EXPECT_EQ(failure.ToString(), bad.sentence);
      EXPECT_EQ(failure.status, failure.message == CONCERT_MESSAGE_NO_BUFFER
                                    ? CONCERT_ABI_NOT_FOUND
                                    : CONCERT_ABI_INVALID_ARGUMENT);
    }
  }
}

// Another's slot is what the others write or read while the rank reads or writes it.
TEST(AdmitTest, ACollectiveIsInPlaceInTheRanksOwnSlotAlone) {
  constexpr uint32_t kRanks = 4;
  D gather = GoodCollective(CONCERT_OP_ALL_GATHER),
    scatter = GoodCollective(CONCERT_OP_REDUCE_SCATTER);
  const uint64_t slot_bytes = gather.body.collective.count * 4;
  Op op;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    for (uint32_t slot = 0; slot < kRanks; ++slot) {
      gather.body.collective.src = {2, 0, 4096 + slot * slot_bytes};
      gather.body.collective.dst = {2, 0, 4096};
      scatter.body.collective.src = gather.body.collective.dst;
      scatter.body.collective.dst = gather.body.collective.src;
      const std::string want = slot == rank ? "no message" : Overlap("dst", "src");
      EXPECT_EQ(Admit(gather, op, kRanks, rank).ToString(), want) << rank << ", " << slot;
      EXPECT_EQ(Admit(scatter, op, kRanks, rank).ToString(), want) << rank << ", " << slot;
    }
    D reduce = GoodCollective(CONCERT_OP_ALL_REDUCE);
    reduce.body.collective.dst = reduce.body.collective.src;
    EXPECT_TRUE(Admit(reduce, op, kRanks, rank).ok()) << "it has no slots";
  }
}

TEST(AdmitTest, UnknownCommunicatorIsNotFound) {
  Op op;
  concert_descriptor descriptor = GoodCollective(CONCERT_OP_ALL_REDUCE);
  descriptor.body.collective.communicator = 12;
  const Failure failure = Admit(descriptor, op, /*ranks=*/0);
  EXPECT_EQ(failure.status, CONCERT_ABI_NOT_FOUND);
  EXPECT_EQ(failure.ToString(), "communicator 12 is not one this session has joined");
}

TEST(AdmitTest, FillsInAGemm) {
  Op op;
  concert_descriptor descriptor = GoodGemm();
  descriptor.body.gemm.alpha = NAN;
  ASSERT_TRUE(Admit(descriptor, op).ok());
  EXPECT_EQ(op.kind, CONCERT_OP_GEMM);
  EXPECT_EQ(op.gemm.w, 0x10000000u + 65536);
  EXPECT_EQ(op.gemm.bias, 0x20000000u + 65536);
  EXPECT_EQ(op.work.flops, 2u * 64 * 32 * 16);
  EXPECT_EQ(op.work.hbm_bytes, 2u * (64 * 16 + 32 * 16 + 2 * 64 * 32 + 32));
  EXPECT_THAT(op.buffers, testing::ElementsAre(1, 1, 3, 2, 2));
}

TEST(AdmitTest, FillsInAnFp8Gemm) {
  Op op;
  ASSERT_TRUE(Admit(GoodFp8Gemm(), op).ok()) << Admit(GoodFp8Gemm(), op).ToString();
  EXPECT_EQ(op.gemm.dtype, Dtype::kFp8E4m3);
  EXPECT_EQ(op.gemm.d_dtype, Dtype::kBf16);
  EXPECT_EQ(op.gemm.a_scales, 0x20000000u + 131072);
  EXPECT_EQ(op.gemm.w_scales, 0x20000000u + 131072 + 64 * 4);
  EXPECT_TRUE(op.gemm.a_scales_per_row);
  EXPECT_FALSE(op.gemm.w_scales_per_row);
  EXPECT_EQ(op.work.dtype, Dtype::kFp8E4m3);
  EXPECT_EQ(op.work.hbm_bytes, 64u * 16 + 32 * 16 + 2 * (2 * 64 * 32 + 32) + 4 * (64 + 1));
  EXPECT_THAT(op.buffers, testing::ElementsAre(1, 1, 3, 2, 2, 2, 2));
}

TEST(AdmitTest, DtypesWithoutScalesSayWhatDIs) {
  Op op;
  concert_descriptor descriptor = GoodGemm();
  ASSERT_TRUE(Admit(descriptor, op).ok());
  EXPECT_EQ(op.gemm.d_dtype, Dtype::kBf16);
  EXPECT_EQ(op.gemm.a_scales | op.gemm.w_scales, 0u);
  descriptor.body.gemm.d_dtype = CONCERT_ABI_BF16;
  EXPECT_TRUE(Admit(descriptor, op).ok()) << Admit(descriptor, op).ToString();
  // Without scales they are 1, wherever they would lie.
  descriptor = GoodFp8Gemm();
  descriptor.body.gemm.d_dtype = CONCERT_ABI_FP16;
  descriptor.body.gemm.flags = 0;
  descriptor.body.gemm.a.scales = descriptor.body.gemm.w.scales = 0;
  descriptor.body.gemm.a_scales_offset = kHuge;
  ASSERT_TRUE(Admit(descriptor, op).ok()) << Admit(descriptor, op).ToString();
  EXPECT_EQ(op.gemm.d_dtype, Dtype::kFp16);
  EXPECT_EQ(op.gemm.a_scales | op.gemm.w_scales, 0u);
  EXPECT_EQ(op.buffers.size(), 5u);
}

// A and W may lie anywhere, if there is room for copies in rows of 128 bytes, and D wherever.
TEST(AdmitTest, AGroupLaunchCarriesGemmsWhoseCopiesFit) {
  struct Case {
    const char* name;
    D descriptor;
    std::function<void(concert_gemm_body&)> change;
    bool groupable;
    uint32_t repack_bytes = 0;
  };
  const D bf16 = GoodGemm(), fp8 = GoodFp8Gemm();
  const Case cases[] = {
      {"bf16", bf16, [](auto&) {}, true},
      {"fp8", fp8, [](auto&) {}, true},
      {"fp16", bf16, [](auto& b) { b.dtype = CONCERT_ABI_FP16; }, true},
      {"fp32", bf16, [](auto& b) { b.dtype = CONCERT_ABI_FP32; }, false},
      {"batch", bf16, [](auto& b) { b.batch = 2, b.stride_d = 2048; }, false},
      {"one_by_one", bf16, [](auto& b) { b.m = b.n = b.k = 1; }, true},
      {"tails", bf16, [](auto& b) { b.m = 63, b.n = 31, b.k = 15; }, true},
      {"epilogue", bf16, [](auto& b) { b.activation = CONCERT_ABI_ACT_SILU, b.alpha = 3; }, true},
      {"c_and_bias_anywhere", bf16, [](auto& b) { b.c.offset = 2, b.bias.offset += 2; }, true},
      {"ldc_anything", bf16, [](auto& b) { b.ldc = 33; }, true},
      {"scales_anywhere", fp8, [](auto& b) { b.a_scales_offset -= 4; }, true},
      {"a_address", bf16, [](auto& b) { b.a.offset = 8; }, true, 64 * 128},
      {"w_address", bf16, [](auto& b) { b.w.offset += 8; }, true, 32 * 128},
      {"d_address", bf16, [](auto& b) { b.d.offset = 8; }, true},
      {"lda", bf16, [](auto& b) { b.lda = 17; }, true, 64 * 128},
      {"lda_of_8", bf16, [](auto& b) { b.lda = 24; }, true},
      {"fp8_lda_of_8", fp8, [](auto& b) { b.lda = 24; }, true, 64 * 128},
      {"fp8_ldw_of_8", fp8, [](auto& b) { b.ldw = 24; }, true, 32 * 128},
      {"fp8_ldd_of_8", fp8, [](auto& b) { b.ldd = 40; }, true},
      {"ldd", fp8, [](auto& b) { b.ldd = 36; }, true},
      {"endless_row", bf16, [](auto& b) { b.m = 1, b.lda = uint64_t{1} << 62; }, true, 128},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    concert_descriptor descriptor = c.descriptor;
    c.change(descriptor.body.gemm);
    Op op;
    ASSERT_TRUE(Admit(descriptor, op).ok()) << Admit(descriptor, op).ToString();
    EXPECT_EQ(op.work.groupable(), c.groupable);
    EXPECT_EQ(op.work.repack_bytes, c.repack_bytes);
  }
}

TEST(AdmitTest, AGroupLaunchCarriesNoLongerRowsThanItsItemsCanName) {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp8E4m3}) {
    GemmArgs gemm{.m = 1, .n = 1, .k = kGroupMaxKBytes / DtypeBytes(dtype), .batch = 1};
    gemm.dtype = dtype;
    gemm.lda = gemm.ldw = 1 << 24;
    EXPECT_TRUE(GroupRepackBytes(gemm).has_value());
    ++gemm.k;
    EXPECT_FALSE(GroupRepackBytes(gemm).has_value());
  }
}

TEST(AdmitTest, ZeroBetaIgnoresC) {
  Op op;
  concert_descriptor descriptor = GoodGemm();
  descriptor.body.gemm.beta = 0;
  descriptor.body.gemm.c = {99, 0, kHuge};
  descriptor.body.gemm.ldc = 0;
  descriptor.body.gemm.bias = {};
  ASSERT_TRUE(Admit(descriptor, op).ok()) << Admit(descriptor, op).ToString();
  EXPECT_EQ(op.gemm.c, 0u);
  EXPECT_EQ(op.buffers.size(), 3u);
}

TEST(AdmitTest, AcceptsInPlaceInterleavedBatchesAndPoolOfOtherGpus) {
  Op op;
  concert_descriptor descriptor = GoodGemm();
  descriptor.body.gemm.d = descriptor.body.gemm.c;
  EXPECT_TRUE(Admit(descriptor, op).ok()) << Admit(descriptor, op).ToString();
  descriptor = GoodGemm();
  descriptor.body.gemm.batch = 4;
  descriptor.body.gemm.stride_d = 32;
  descriptor.body.gemm.ldd = 128;
  EXPECT_TRUE(Admit(descriptor, op).ok()) << Admit(descriptor, op).ToString();
  descriptor = GoodGemm();
  descriptor.body.gemm.a.buffer = 6;
  EXPECT_TRUE(Admit(descriptor, op).ok()) << Admit(descriptor, op).ToString();
  descriptor = GoodCollective(CONCERT_OP_ALL_GATHER);
  descriptor.body.collective.src = {2, 0, 4000};
  EXPECT_TRUE(Admit(descriptor, op, /*ranks=*/4, /*rank=*/1).ok());
}

TEST(AdmitTest, ACopyKnowsWhatItMovesAcrossLinks) {
  Op op;
  concert_descriptor descriptor = GoodCopy();
  ASSERT_TRUE(Admit(descriptor, op).ok());
  EXPECT_EQ(op.work.hbm_bytes, 2002u);
  EXPECT_EQ(op.work.link_bytes, 0u);
  constexpr uint32_t kElsewhere = 6;
  descriptor.body.copy.src.buffer = kElsewhere;
  ASSERT_TRUE(Admit(descriptor, op).ok());
  EXPECT_EQ(op.work.link_bytes, 1001u);
  descriptor = GoodCopy();
  descriptor.body.copy.dst.buffer = kElsewhere;
  ASSERT_TRUE(Admit(descriptor, op).ok());
  EXPECT_EQ(op.work.link_bytes, 1001u);
}

TEST(AdmitTest, CollectivesKnowWhatTheyMove) {
  Op op;
  ASSERT_TRUE(Admit(GoodCollective(CONCERT_OP_ALL_REDUCE), op).ok());
  EXPECT_EQ(op.work.runs_on, policies::RunsOn::kLinks);
  EXPECT_EQ(op.work.link_bytes, 6000u) << "2 * 3 / 4 of 4000 bytes";
  ASSERT_TRUE(Admit(GoodCollective(CONCERT_OP_ALL_GATHER), op).ok());
  EXPECT_EQ(op.work.link_bytes, 12000u);
  EXPECT_EQ(op.collective.dst_bytes, 16000u);
  ASSERT_TRUE(Admit(GoodCollective(CONCERT_OP_BARRIER), op).ok());
  EXPECT_EQ(op.work.runs_on, policies::RunsOn::kLinks) << "it meets its ranks, too";
  EXPECT_EQ(op.work.hbm_bytes + op.work.link_bytes, 0u);
  EXPECT_TRUE(op.buffers.empty());
}

TEST(AdmitTest, AnOperandTooManyIsRefusedAndNothingIsWrittenPastTheOthers) {
  Op op;
  const AdmitContext context = Context();
  OperandResolver resolver(context, op);
  ByteRange range;
  for (size_t i = 0; i < kMaxOperands; ++i) {
    ASSERT_TRUE(resolver.Resolve(CONCERT_FIELD_A, {1, 0, 0}, 1, 4, range).ok());
  }
  const Failure failure = resolver.Resolve(CONCERT_FIELD_W, {1, 0, 0}, 1, 4, range);
  EXPECT_EQ(failure.message, CONCERT_MESSAGE_UNSUPPORTED);
  EXPECT_EQ(op.buffers.size(), kMaxOperands);
}

TEST(OpTableTest, KindsAreFoundByNumber) {
  EXPECT_EQ(FindOpKind(0), nullptr);
  EXPECT_EQ(FindOpKind(CONCERT_OP_KIND_COUNT + 1), nullptr);
  EXPECT_EQ(FindOpKind(UINT16_MAX), nullptr);
  for (const OpKind& kind : AllOpKinds()) {
    EXPECT_EQ(FindOpKind(kind.kind), &kind);
    EXPECT_STRNE(concert_op_kind_name(kind.kind), "unknown");
  }
}

}  // namespace
}  // namespace concert::kernels
