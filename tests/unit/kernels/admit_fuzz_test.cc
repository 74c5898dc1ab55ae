// Random descriptors: none crashes admission, and none that it accepts reaches out of its buffers.
// The oracle redoes the arithmetic in 128 bits, where nothing here can overflow.
#include <gtest/gtest.h>

#include <cstring>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "tests/support/seed.h"
#include "tests/unit/kernels/admit_fixture.h"

namespace concert::kernels {
namespace {

using Wide = unsigned __int128;

class Fuzzer {
 public:
  explicit Fuzzer(uint64_t seed) : random_(seed) {}

  uint64_t Below(uint64_t n) { return random_() % n; }

  // Mostly small, sometimes at an edge of some type, sometimes anything.
  uint64_t Number() {
    switch (Below(8)) {
      case 0:
        return random_();
      case 1:
        return (uint64_t{1} << Below(64)) + Below(3) - 1;
      case 2:
        return UINT64_MAX / (1 + Below(70000));
      default:
        return Below(70);
    }
  }

  // A good descriptor with a few 8-byte words, fields or bytes replaced.
  concert_descriptor Descriptor() {
    const uint16_t kind = static_cast<uint16_t>(1 + Below(CONCERT_OP_KIND_COUNT));
    concert_descriptor descriptor = Good(kind);
    const uint64_t words = NumberWords(kind);
    for (uint64_t i = Below(5); i-- > 0;) {
      uint8_t* word = descriptor.body.raw + 8 * Below(words);
      const uint64_t number = Number();
      const uint32_t half = static_cast<uint32_t>(number);
      if (Below(2) == 0) {
        std::memcpy(word, &number, 8);
      } else {
        std::memcpy(word + 4 * Below(2), &half, 4);
      }
    }
    if (kind == CONCERT_OP_GEMM && Below(3) == 0) {
      concert_gemm_body& body = descriptor.body.gemm;
      body.batch = static_cast<uint32_t>(Below(9));
      body.stride_d = Below(3000);
      body.ldd = Below(400);
    }
    if (Below(50) == 0) descriptor.body.raw[Below(192)] = static_cast<uint8_t>(random_());
    return descriptor;
  }

 private:
  concert_descriptor Good(uint16_t kind) {
    switch (kind) {
      case CONCERT_OP_GEMM:
        return GoodOf(
            {GoodGemm(), GoodFp8Gemm(), GoodScaledGemm(), GoodResidualGemm(), GoodGatedGemm()});
      case CONCERT_OP_COPY:
        return GoodCopy();
      case CONCERT_OP_RMS_NORM:
        return GoodRmsNorm();
      case CONCERT_OP_GATED_ACTIVATION:
        return GoodGatedActivation();
      case CONCERT_OP_EMBEDDING:
        return GoodEmbedding();
      case CONCERT_OP_ARGMAX:
        return GoodArgmax();
      case CONCERT_OP_ROPE_APPEND:
        return Below(2) == 0 ? GoodRopeAppend() : WithFp8Cache(GoodRopeAppend());
      case CONCERT_OP_ATTENTION_DECODE:
        return Below(2) == 0 ? GoodAttentionDecode() : WithFp8Cache(GoodAttentionDecode());
      case CONCERT_OP_ATTENTION_PREFILL:
        return Below(2) == 0 ? GoodAttentionPrefill() : WithFp8Cache(GoodAttentionPrefill());
      case CONCERT_OP_LAYER_NORM:
        return GoodLayerNorm();
      case CONCERT_OP_ELEMENTWISE:
        return GoodElementwise();
      case CONCERT_OP_ADVANCE:
        return GoodAdvance();
      case CONCERT_OP_QUANTIZE:
        return GoodQuantize();
      case CONCERT_OP_SAMPLE:
        return GoodSample();
      case CONCERT_OP_PROGRAM:
        return GoodRun();
      default:
        return GoodCollective(kind);
    }
  }
  concert_descriptor GoodOf(std::initializer_list<concert_descriptor> all) {
    return *(all.begin() + Below(all.size()));
  }
  // The words of a body that hold numbers; the rest is reserved and mostly leads to a refusal.
  static uint64_t NumberWords(uint16_t kind) {
    switch (kind) {
      case CONCERT_OP_GEMM:
        return 24;
      case CONCERT_OP_COPY:
        return 5;
      case CONCERT_OP_RMS_NORM:
        return 13;
      case CONCERT_OP_EMBEDDING:
        return 11;
      case CONCERT_OP_ROPE_APPEND:
        return 24;
      case CONCERT_OP_ATTENTION_DECODE:
        return 20;
      case CONCERT_OP_ATTENTION_PREFILL:
        return 23;
      case CONCERT_OP_LAYER_NORM:
        return 15;
      case CONCERT_OP_ELEMENTWISE:
        return 11;
      case CONCERT_OP_SAMPLE:
        return 19;
      case CONCERT_OP_PROGRAM:
        return 6;
      default:
        return 8;
    }
  }

  std::mt19937_64 random_;
};

// `elements` of `element_bytes` at `address` lie in the buffer.
void CheckInside(const concert_operand& operand, Address address, Wide elements,
                 Wide element_bytes) {
  ASSERT_LT(operand.buffer, kBuffers.size());
  const BufferRange& buffer = kBuffers[operand.buffer];
  ASSERT_GT(buffer.bytes, 0u);
  ASSERT_TRUE(buffer.gpu == 0 || buffer.pool);
  EXPECT_EQ(Wide{address}, Wide{buffer.address} + operand.offset);
  EXPECT_EQ(address % static_cast<uint64_t>(element_bytes), 0u);
  EXPECT_TRUE(Wide{operand.offset} + elements * element_bytes <= Wide{buffer.bytes});
}

Wide Span(Wide rows, Wide columns, Wide row_stride, Wide batch, Wide batch_stride) {
  return (batch - 1) * batch_stride + (rows - 1) * row_stride + columns;
}

bool Disjoint(Address a, Wide a_bytes, Address b, Wide b_bytes) {
  return Wide{a} + a_bytes <= Wide{b} || Wide{b} + b_bytes <= Wide{a};
}

void CheckGemm(const concert_gemm_body& body, const GemmArgs& args) {
  const Wide element = DtypeBytes(args.dtype), d_element = DtypeBytes(args.d_dtype);
  const Wide a = Span(args.m, args.k, args.lda, args.batch, args.stride_a);
  const Wide w = Span(args.n, args.k, args.ldw, args.batch, args.stride_w);
  const Wide c = Span(args.m, args.n, args.ldc, args.batch, args.stride_c);
  const uint32_t d_columns = args.gated ? args.n / 2 : args.n;
  const Wide d = Span(args.m, d_columns, args.ldd, args.batch, args.stride_d);
  CheckInside(body.a, args.a, a, element);
  CheckInside(body.w, args.w, w, element);
  CheckInside(body.d, args.d, d, d_element);
  EXPECT_TRUE(Disjoint(args.d, d * d_element, args.a, a * element));
  EXPECT_TRUE(Disjoint(args.d, d * d_element, args.w, w * element));
  EXPECT_EQ(args.c != 0, body.beta != 0);
  if (args.c != 0) {
    CheckInside(body.c, args.c, c, d_element);
    EXPECT_TRUE(Disjoint(args.d, d * d_element, args.c, c * d_element) ||
                (args.c == args.d && args.ldc == args.ldd));
  }
  EXPECT_TRUE(!args.residual || (args.c != 0 && args.activation != Activation::kNone));
  EXPECT_TRUE(!args.gated || (args.c == 0 && args.n % 2 == 0 && !args.residual));
  EXPECT_TRUE(!args.interleaved || args.gated);
  if (args.bias != 0) CheckInside(body.bias, args.bias, args.n, d_element);
  const bool fp8 = args.dtype == Dtype::kFp8E4m3;
  EXPECT_TRUE(fp8 ? DtypeBytes(args.d_dtype) == 2 : args.d_dtype == args.dtype);
  EXPECT_TRUE(fp8 || args.w_scales == 0);
  EXPECT_TRUE(fp8 || (args.a_scales != 0) == args.a_scales_per_row);
  const auto check_scales = [&](uint32_t buffer, uint64_t offset, Address scales, Wide count) {
    if (scales == 0) return;
    CheckInside({buffer, 0, offset}, scales, count, 4);
    EXPECT_TRUE(Disjoint(args.d, d * d_element, scales, count * 4));
  };
  check_scales(body.a.scales, body.a_scales_offset, args.a_scales,
               args.a_scales_per_row ? args.m : 1);
  check_scales(body.w.scales, body.w_scales_offset, args.w_scales,
               args.w_scales_per_row ? args.n : 1);
  // No element of D is written twice, the slow way.
  EXPECT_GE(args.ldd, d_columns);
  if (args.batch == 1) return;
  std::vector<bool> written(static_cast<size_t>(d));
  for (uint64_t b = 0; b < args.batch; ++b) {
    for (uint64_t i = 0; i < args.m; ++i) {
      for (uint64_t j = 0; j < d_columns; ++j) {
        auto element_written = written[b * args.stride_d + i * args.ldd + j];
        ASSERT_FALSE(element_written);
        element_written = true;
      }
    }
  }
}

void CheckCollective(uint16_t kind, const concert_collective_body& body, const CollectiveArgs& args,
                     Wide ranks) {
  if (kind == CONCERT_OP_BARRIER) return;
  const bool wide_src = kind == CONCERT_OP_REDUCE_SCATTER || kind == CONCERT_OP_ALL_TO_ALL;
  const bool wide_dst = kind == CONCERT_OP_ALL_GATHER || kind == CONCERT_OP_ALL_TO_ALL;
  const Wide element = DtypeBytes(args.dtype);
  CheckInside(body.src, args.src, Wide{args.count} * (wide_src ? ranks : 1), element);
  CheckInside(body.dst, args.dst, Wide{args.count} * (wide_dst ? ranks : 1), element);
  EXPECT_LT(args.root, static_cast<uint32_t>(ranks));
}

// out may be x or y, where the kind says that it is read, too. Of other kinds their checks below
// say what may be the same.
bool MayShare(const Op& op, const Access& written, const Access& other) {
  if (op.work.carrier != policies::Carrier::kRows && op.kind != CONCERT_OP_ATTENTION_DECODE &&
      op.kind != CONCERT_OP_ATTENTION_PREFILL) {
    return true;
  }
  const bool input = other.field == CONCERT_FIELD_INPUT || other.field == CONCERT_FIELD_Y;
  return written.field == CONCERT_FIELD_OUT && input && written.mode == AccessMode::kReadWrite &&
         written.memory == other.memory;
}

void CheckNothingIsShared(const Op& op, std::span<const Access> accesses) {
  for (const Access& written : accesses) {
    for (const Access& other : accesses) {
      if (!written.writes() || &written == &other || MayShare(op, written, other)) continue;
      int pieces_left = 1 << 20;
      EXPECT_FALSE(Meet(written.memory, other.memory, pieces_left));
      EXPECT_GT(pieces_left, 0);
    }
  }
}

// What it is said to touch lies in the buffer that is named.
void CheckAccesses(const Op& op) {
  const Accesses accesses = FindOpKind(op.kind)->accesses(op);
  EXPECT_EQ(accesses.list().size(), op.buffers.size());
  CheckNothingIsShared(op, accesses.list());
  for (const Access& access : accesses.list()) {
    if (access.field == CONCERT_FIELD_PROGRAM) continue;  // its arena, which is no client's
    const BufferRange& buffer = kBuffers[access.buffer];
    const ByteRange bounds = access.memory.Bounds();
    EXPECT_TRUE(bounds.begin >= buffer.address && bounds.end > bounds.begin &&
                bounds.end <= buffer.address + buffer.bytes);
    int pieces_left = 2;
    EXPECT_TRUE(Meet(access.memory, access.memory, pieces_left) || access.memory.level_count == 2);
  }
}

void CheckOp(const concert_descriptor& descriptor, const Op& op, uint32_t ranks) {
  switch (op.kind) {
    case CONCERT_OP_GEMM:
      return CheckGemm(descriptor.body.gemm, op.gemm);
    case CONCERT_OP_COPY:
      CheckInside(descriptor.body.copy.src, op.copy.src, op.copy.bytes, 1);
      CheckInside(descriptor.body.copy.dst, op.copy.dst, op.copy.bytes, 1);
      EXPECT_TRUE(Disjoint(op.copy.src, op.copy.bytes, op.copy.dst, op.copy.bytes));
      return;
    default:
      // Of row ops and attention CheckAccesses says it all.
      if (FindOpKind(op.kind)->collective) {
        CheckCollective(op.kind, descriptor.body.collective, op.collective, ranks);
      }
  }
}

TEST(AdmitFuzzTest, AcceptedOpsStayInTheirBuffers) {
  constexpr uint64_t kRounds = 400000;
  SCOPED_TRACE("seed " + std::to_string(test::Seed()));
  Fuzzer fuzzer(test::Seed());
  std::array<uint64_t, CONCERT_OP_KIND_COUNT + 1> accepted{}, refused{};
  for (uint64_t round = 0; round < kRounds && !testing::Test::HasFailure(); ++round) {
    const concert_descriptor descriptor = fuzzer.Descriptor();
    const uint32_t ranks = static_cast<uint32_t>(1 + fuzzer.Below(16));
    Op op;
    const Failure failure = Admit(descriptor, op, ranks);
    if (!failure.ok()) {
      ++refused[descriptor.kind];
      EXPECT_NE(failure.message, CONCERT_MESSAGE_NONE);
      continue;
    }
    ++accepted[descriptor.kind];
    SCOPED_TRACE("round " + std::to_string(round));
    EXPECT_EQ(op.kind, descriptor.kind);
    CheckAccesses(op);
    CheckOp(descriptor, op, ranks);
  }
  for (uint16_t kind = 1; kind <= CONCERT_OP_KIND_COUNT; ++kind) {
    EXPECT_GT(accepted[kind], 1000u)
        << "the fuzzer hardly reaches the accepting paths of kind " << kind;
    EXPECT_GT(refused[kind], 1000u) << kind;
  }
}

}  // namespace
}  // namespace concert::kernels
