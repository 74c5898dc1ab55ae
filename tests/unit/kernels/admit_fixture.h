// Buffers that do not exist, and good descriptors to spoil. Admission reads no operand.
#ifndef CONCERT_TESTS_UNIT_KERNELS_ADMIT_FIXTURE_H_
#define CONCERT_TESTS_UNIT_KERNELS_ADMIT_FIXTURE_H_

#include <array>
#include <cstdint>

#include "kernels/op_table.h"
#include "kernels/program/program.h"

namespace concert::kernels {

// Handles: 1, 2, 3: 1 MiB each on GPU 0. 4: freed. 5: imported on GPU 1. 6: pool on GPU 1. 7: base
// address that is odd, 1 KiB. 8: a program with bindings of 256 bytes and, written, 1 KiB.
inline constexpr uint64_t kMiB = 1 << 20;
inline constexpr uint64_t kHuge = UINT64_MAX;
inline const Program& TheProgram() {
  static const Program* const program = [] {
    auto* made = new Program;
    made->arena = {0x80000000, 0x80000000 + kMiB};
    made->bindings = {{0x80000000, 256, false}, {0x80000100, 1024, true}};
    return made;
  }();
  return *program;
}
inline const std::array<BufferRange, 9> kBuffers = {{
    {},
    {0x10000000, kMiB, 0, true},
    {0x20000000, kMiB, 0, false},
    {0x30000000, kMiB, 0, true},
    {},
    {0x50000000, kMiB, 1, false},
    {0x60000000, kMiB, 1, true},
    {0x70000001, 1024, 0, false},
    {.address = 0x80000000, .program = &TheProgram()},
}};

inline AdmitContext Context(uint32_t ranks = 0, uint32_t rank = 0) {
  return {.gpu = 0, .buffers = kBuffers, .ranks = ranks, .rank = rank};
}

// A 64 x 32 x 16 bf16 GEMM: A and W in buffer 1, C and bias in 2, D in 3.
inline concert_descriptor GoodGemm() {
  concert_descriptor descriptor{};
  descriptor.kind = CONCERT_OP_GEMM;
  concert_gemm_body& body = descriptor.body.gemm;
  body.m = 64, body.n = 32, body.k = 16, body.batch = 1;
  body.a = {1, 0, 0};
  body.w = {1, 0, 65536};
  body.c = {2, 0, 0};
  body.d = {3, 0, 0};
  body.bias = {2, 0, 65536};
  body.lda = body.ldw = 16;
  body.ldc = body.ldd = 32;
  body.alpha = body.beta = 1;
  body.dtype = CONCERT_ABI_BF16;
  return descriptor;
}

// The same in fp8: D, C and bias in bf16; a scale per row of A and one for W, in buffer 2.
inline concert_descriptor GoodFp8Gemm() {
  concert_descriptor descriptor = GoodGemm();
  concert_gemm_body& body = descriptor.body.gemm;
  body.dtype = CONCERT_ABI_FP8_E4M3;
  body.d_dtype = CONCERT_ABI_BF16;
  body.flags = CONCERT_GEMM_A_SCALES_PER_ROW;
  body.a.scales = body.w.scales = 2;
  body.a_scales_offset = 131072;
  body.w_scales_offset = 131072 + 64 * 4;
  return descriptor;
}

// The same in bf16, with a scale per row of A.
inline concert_descriptor GoodScaledGemm() {
  concert_descriptor descriptor = GoodGemm();
  concert_gemm_body& body = descriptor.body.gemm;
  body.flags = CONCERT_GEMM_A_SCALES_PER_ROW;
  body.a.scales = 2;
  body.a_scales_offset = 131072;
  return descriptor;
}

// The same without scales, with silu, to which C is added.
inline concert_descriptor GoodResidualGemm() {
  concert_descriptor descriptor = GoodGemm();
  descriptor.body.gemm.activation = CONCERT_ABI_ACT_SILU;
  descriptor.body.gemm.flags = CONCERT_GEMM_RESIDUAL;
  return descriptor;
}

// The same gated instead, so that D has 16 columns.
inline concert_descriptor GoodGatedGemm() {
  concert_descriptor descriptor = GoodResidualGemm();
  concert_gemm_body& body = descriptor.body.gemm;
  body.flags = CONCERT_GEMM_GATED;
  body.c = {}, body.ldc = 0, body.beta = 0;
  body.ldd = 16;
  return descriptor;
}

inline concert_descriptor GoodCopy() {
  concert_descriptor descriptor{};
  descriptor.kind = CONCERT_OP_COPY;
  descriptor.body.copy.src = {1, 0, 3};
  descriptor.body.copy.dst = {2, 0, 5};
  descriptor.body.copy.bytes = 1001;
  return descriptor;
}

inline concert_descriptor GoodRun() {
  concert_descriptor descriptor{};
  descriptor.kind = CONCERT_OP_PROGRAM;
  concert_program_body& body = descriptor.body.program;
  body.program = 8, body.binding_count = 2;
  body.bindings[0] = {1, 0, 3};
  body.bindings[1] = {2, 0, 0};
  return descriptor;
}

inline concert_descriptor GoodCollective(uint16_t kind) {
  concert_descriptor descriptor{};
  descriptor.kind = kind;
  concert_collective_body& body = descriptor.body.collective;
  body.dtype = CONCERT_ABI_FP32;
  if (kind == CONCERT_OP_BARRIER) return descriptor;
  body.count = 1000;
  body.src = {1, 0, 0};
  body.dst = {2, 0, 0};
  return descriptor;
}

// 8 rows of 64 bf16 elements: x and the weight in buffer 1, the residual in 2, out in 3.
inline concert_descriptor GoodRmsNorm() {
  concert_descriptor descriptor{};
  descriptor.kind = CONCERT_OP_RMS_NORM;
  concert_rms_norm_body& body = descriptor.body.rms_norm;
  body.rows = 8, body.columns = 64;
  body.x = {1, 0, 0};
  body.residual = {2, 0, 0};
  body.weight = {1, 0, 65536};
  body.out = {3, 0, 0};
  body.x_stride = body.residual_stride = body.out_stride = 64;
  body.epsilon = 1e-6f;
  body.dtype = CONCERT_ABI_BF16;
  return descriptor;
}

// The same rows, with a bias in buffer 1.
inline concert_descriptor GoodLayerNorm() {
  concert_descriptor descriptor{};
  descriptor.kind = CONCERT_OP_LAYER_NORM;
  concert_layer_norm_body& body = descriptor.body.layer_norm;
  body.rows = 8, body.columns = 64;
  body.x = {1, 0, 0};
  body.residual = {2, 0, 0};
  body.weight = {1, 0, 65536};
  body.bias = {1, 0, 131072};
  body.out = {3, 0, 0};
  body.x_stride = body.residual_stride = body.out_stride = 64;
  body.epsilon = 1e-5f;
  body.dtype = CONCERT_ABI_BF16;
  return descriptor;
}

// 8 rows of 64 fp32 elements from rows of 128.
inline concert_descriptor GoodGatedActivation() {
  concert_descriptor descriptor{};
  descriptor.kind = CONCERT_OP_GATED_ACTIVATION;
  concert_gated_activation_body& body = descriptor.body.gated_activation;
  body.rows = 8, body.columns = 64;
  body.x = {1, 0, 0};
  body.out = {2, 0, 0};
  body.x_stride = 128, body.out_stride = 64;
  body.dtype = CONCERT_ABI_FP32;
  body.activation = CONCERT_ABI_ACT_SILU;
  return descriptor;
}

// 8 rows of 64 bf16 elements, x in buffer 1 plus y in 2, in fp32 to 3.
inline concert_descriptor GoodElementwise() {
  concert_descriptor descriptor{};
  descriptor.kind = CONCERT_OP_ELEMENTWISE;
  concert_elementwise_body& body = descriptor.body.elementwise;
  body.rows = 8, body.columns = 64;
  body.x = {1, 0, 0};
  body.y = {2, 0, 0};
  body.out = {3, 0, 0};
  body.x_stride = body.y_stride = body.out_stride = 64;
  body.function = CONCERT_ABI_ADD;
  body.dtype = CONCERT_ABI_BF16;
  body.out_dtype = CONCERT_ABI_FP32;
  return descriptor;
}

// 8 rows of 64 bf16 elements out of 100: ids and the table in buffer 1, out in 2.
inline concert_descriptor GoodEmbedding() {
  concert_descriptor descriptor{};
  descriptor.kind = CONCERT_OP_EMBEDDING;
  concert_embedding_body& body = descriptor.body.embedding;
  body.rows = 8, body.columns = 64, body.vocabulary = 100;
  body.ids = {1, 0, 0};
  body.table = {1, 0, 4096};
  body.out = {2, 0, 0};
  body.table_stride = body.out_stride = 64;
  body.dtype = CONCERT_ABI_BF16;
  body.index_dtype = CONCERT_ABI_INT64;
  return descriptor;
}

// Of 8 rows of 64 bf16 elements, in buffer 1, to int32 in buffer 2.
inline concert_descriptor GoodArgmax() {
  concert_descriptor descriptor{};
  descriptor.kind = CONCERT_OP_ARGMAX;
  concert_argmax_body& body = descriptor.body.argmax;
  body.rows = 8, body.columns = 64;
  body.x = {1, 0, 0};
  body.indices = {2, 0, 0};
  body.x_stride = 64;
  body.dtype = CONCERT_ABI_BF16;
  body.index_dtype = CONCERT_ABI_INT32;
  return descriptor;
}

// 8 int32 counters in buffer 1, with int64 slots behind them.
inline concert_descriptor GoodAdvance() {
  concert_descriptor descriptor{};
  descriptor.kind = CONCERT_OP_ADVANCE;
  concert_advance_body& body = descriptor.body.advance;
  body.rows = 8, body.counter_max = 100;
  body.counters = {1, 0, 0};
  body.slots = {1, 0, 32};
  body.counter_dtype = CONCERT_ABI_INT32, body.slot_dtype = CONCERT_ABI_INT64;
  return descriptor;
}

// 8 rows of 64 bf16 elements in buffer 1, to fp8 in 2 with scales behind it.
inline concert_descriptor GoodQuantize() {
  concert_descriptor descriptor{};
  descriptor.kind = CONCERT_OP_QUANTIZE;
  concert_quantize_body& body = descriptor.body.quantize;
  body.rows = 8, body.columns = 64;
  body.x = {1, 0, 0};
  body.out = {2, 0, 0};
  body.scales = {2, 0, 4096};
  body.x_stride = body.out_stride = 64;
  body.dtype = CONCERT_ABI_BF16;
  return descriptor;
}

// Of 8 rows of 64 bf16 logits in buffer 1, to int32 in buffer 2, behind which all that rows may
// have of their own lies: each 64 bytes behind the one before.
inline concert_descriptor GoodSample() {
  concert_descriptor descriptor{};
  descriptor.kind = CONCERT_OP_SAMPLE;
  concert_sample_body& body = descriptor.body.sample;
  body.rows = 8, body.columns = 64;
  body.x = {1, 0, 0};
  body.indices = {2, 0, 0};
  body.temperatures = {2, 0, 64};
  body.top_ks = {2, 0, 128};
  body.top_ps = {2, 0, 192};
  body.seeds = {2, 0, 256};
  body.steps = {2, 0, 320};
  body.x_stride = 64;
  body.dtype = CONCERT_ABI_BF16;
  body.index_dtype = CONCERT_ABI_INT32, body.step_dtype = CONCERT_ABI_INT64;
  return descriptor;
}

// A bf16 cache of 10 pages of 16 tokens of 2 heads of 64: k in buffer 2, v in 3.
inline concert_kv_cache_abi GoodCache() {
  concert_kv_cache_abi cache{};
  cache.k = {2, 0, 0};
  cache.v = {3, 0, 0};
  cache.pages = 10, cache.page_size = 16;
  cache.head_stride = 64, cache.token_stride = 128, cache.page_stride = 16 * 128;
  return cache;
}

// 8 rows of 4 heads of q and 2 of k and of v side by side in buffer 1; behind them 100 positions,
// as int64 and as cosines and sines, and slots as int32.
inline concert_descriptor GoodRopeAppend() {
  concert_descriptor descriptor{};
  descriptor.kind = CONCERT_OP_ROPE_APPEND;
  concert_rope_append_body& body = descriptor.body.rope_append;
  body.rows = 8, body.positions_max = 100;
  body.q_heads = 4, body.kv_heads = 2, body.head_dim = 64, body.rotary_dim = 32;
  body.q = {1, 0, 0};
  body.k = {1, 0, 4 * 64 * 2};
  body.v = {1, 0, 6 * 64 * 2};
  body.q_stride = body.k_stride = body.v_stride = 8 * 64;
  body.positions = {1, 0, 16384};
  body.slots = {1, 0, 20480};
  body.cos_sin = {1, 0, 65536};
  body.cache = GoodCache();
  body.dtype = CONCERT_ABI_BF16;
  body.position_dtype = CONCERT_ABI_INT64;
  body.slot_dtype = CONCERT_ABI_INT32;
  return descriptor;
}

// 8 rows of 4 heads of 64, two to one of the cache's: q in buffer 1, with a table of 4 pages a row,
// lengths and out behind it.
inline concert_descriptor GoodAttentionDecode() {
  concert_descriptor descriptor{};
  descriptor.kind = CONCERT_OP_ATTENTION_DECODE;
  concert_attention_decode_body& body = descriptor.body.attention_decode;
  body.rows = 8, body.length_max = 60;
  body.q_heads = 4, body.kv_heads = 2, body.head_dim = 64;
  body.q = {1, 0, 0};
  body.page_table = {1, 0, 16384};
  body.lengths = {1, 0, 20480};
  body.out = {1, 0, 65536};
  body.q_stride = body.out_stride = 256;
  body.table_stride = 4;
  body.cache = GoodCache();
  body.scale = 0.125f;
  body.dtype = CONCERT_ABI_BF16;
  return descriptor;
}

// Chunks of 3 sequences in 40 rows, otherwise alike; their starts lie behind the lengths.
inline concert_descriptor GoodAttentionPrefill() {
  concert_descriptor descriptor{};
  descriptor.kind = CONCERT_OP_ATTENTION_PREFILL;
  concert_attention_prefill_body& body = descriptor.body.attention_prefill;
  body.tokens = 40, body.sequences = 3, body.length_max = 60;
  body.q_heads = 4, body.kv_heads = 2, body.head_dim = 64;
  body.q = {1, 0, 0};
  body.page_table = {1, 0, 20480};
  body.lengths = {1, 0, 24576};
  body.query_starts = {1, 0, 28672};
  body.out = {1, 0, 65536};
  body.q_stride = body.out_stride = 256;
  body.table_stride = 4;
  body.cache = GoodCache();
  body.scale = 0.125f;
  body.dtype = CONCERT_ABI_BF16;
  return descriptor;
}

// The same of one with a cache, which is in fp8 then, with scales.
inline concert_descriptor WithFp8Cache(concert_descriptor descriptor) {
  const auto set = [](auto& body) {
    body.cache_dtype = CONCERT_ABI_FP8_E4M3;
    body.cache.k.scales = 0x3e800000;  // 0.25
    body.cache.v.scales = 0x40400000;  // 3
  };
  if (descriptor.kind == CONCERT_OP_ROPE_APPEND) set(descriptor.body.rope_append);
  if (descriptor.kind == CONCERT_OP_ATTENTION_DECODE) set(descriptor.body.attention_decode);
  if (descriptor.kind == CONCERT_OP_ATTENTION_PREFILL) set(descriptor.body.attention_prefill);
  return descriptor;
}

inline Failure Admit(const concert_descriptor& descriptor, Op& op, uint32_t ranks = 4,
                     uint32_t rank = 0) {
  return FindOpKind(descriptor.kind)->admit(descriptor, Context(ranks, rank), op);
}

}  // namespace concert::kernels

#endif  // CONCERT_TESTS_UNIT_KERNELS_ADMIT_FIXTURE_H_
