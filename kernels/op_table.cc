#include "kernels/op_table.h"

#include <array>

#include "kernels/advance/advance_op.h"
#include "kernels/argmax/argmax_op.h"
#include "kernels/attention_decode/attention_chunks.h"
#include "kernels/attention_decode/attention_decode_op.h"
#include "kernels/attention_prefill/attention_prefill_op.h"
#include "kernels/comm/collective_op.h"
#include "kernels/copy/copy_op.h"
#include "kernels/elementwise/elementwise_op.h"
#include "kernels/embedding/embedding_op.h"
#include "kernels/gated_activation/gated_activation_op.h"
#include "kernels/gemm/gemm_op.h"
#include "kernels/layer_norm/layer_norm_op.h"
#include "kernels/program/program_op.h"
#include "kernels/quantize/quantize_op.h"
#include "kernels/rms_norm/rms_norm_op.h"
#include "kernels/rope_append/rope_append_op.h"
#include "kernels/rows/row_ops.h"
#include "kernels/sample/sample_op.h"

namespace concert::kernels {
namespace {

#ifdef CONCERT_WITH_CUDA
#define CONCERT_LAUNCHER(name) &cuda::name
#else
#define CONCERT_LAUNCHER(name) nullptr
#endif

constexpr OpKind Collective(uint16_t kind) {
  return {.kind = kind,
          .noun = nullptr,
          .collective = true,
          .admit = AdmitCollective,
          .accesses = AccessesOfCollective,
          .compute = ComputeCollective,
          .launch = nullptr,
          .launch_collective = CONCERT_LAUNCHER(LaunchCollective)};
}

// A kind that the row kernel carries.
constexpr OpKind Row(uint16_t kind, decltype(OpKind::admit) admit,
                     decltype(OpKind::accesses) accesses, decltype(OpKind::compute) compute,
                     std::span<const uint8_t> row_operands = {}) {
  return {.kind = kind,
          .noun = nullptr,
          .collective = false,
          .admit = admit,
          .accesses = accesses,
          .compute = compute,
          .launch = CONCERT_LAUNCHER(LaunchRow),
          .launch_collective = nullptr,
          .launch_together = CONCERT_LAUNCHER(LaunchRows),
          .launches_overlap = true,
          .row_operands = row_operands};
}

// Row i is kind i + 1.
constexpr std::array kOpKinds = {
    OpKind{CONCERT_OP_GEMM, "GEMM", false, AdmitGemm, AccessesOfGemm, ComputeGemm,
           CONCERT_LAUNCHER(LaunchGemm), nullptr, nullptr, nullptr, false, kGemmOperands,
           RowCount{}, WorkspaceBytesOfGemm},
    OpKind{.kind = CONCERT_OP_COPY,
           .noun = nullptr,
           .collective = false,
           .admit = AdmitCopy,
           .accesses = AccessesOfCopy,
           .compute = ComputeCopy,
           .launch = CONCERT_LAUNCHER(LaunchCopy),
           .launch_collective = nullptr,
           .row_operands = kCopyOperands,
           .row_count = kCopyRowCount},
    Collective(CONCERT_OP_ALL_REDUCE),
    Collective(CONCERT_OP_ALL_GATHER),
    Collective(CONCERT_OP_REDUCE_SCATTER),
    Collective(CONCERT_OP_ALL_TO_ALL),
    Collective(CONCERT_OP_BROADCAST),
    Collective(CONCERT_OP_BARRIER),
    Row(CONCERT_OP_RMS_NORM, AdmitRmsNorm, AccessesOfRmsNorm, ComputeRmsNorm, kRmsNormOperands),
    Row(CONCERT_OP_GATED_ACTIVATION, AdmitGatedActivation, AccessesOfGatedActivation,
        ComputeGatedActivation, kGatedActivationOperands),
    Row(CONCERT_OP_EMBEDDING, AdmitEmbedding, AccessesOfEmbedding, ComputeEmbedding,
        kEmbeddingOperands),
    Row(CONCERT_OP_ARGMAX, AdmitArgmax, AccessesOfArgmax, ComputeArgmax, kArgmaxOperands),
    Row(CONCERT_OP_ROPE_APPEND, AdmitRopeAppend, AccessesOfRopeAppend, ComputeRopeAppend),
    OpKind{.kind = CONCERT_OP_ATTENTION_DECODE,
           .noun = nullptr,
           .collective = false,
           .admit = AdmitAttentionDecode,
           .accesses = AccessesOfAttentionDecode,
           .compute = ComputeAttentionDecode,
           .launch = CONCERT_LAUNCHER(LaunchAttentionDecode),
           .launch_collective = nullptr,
           .launch_together = CONCERT_LAUNCHER(LaunchAttentionDecodes),
           .goes_with = AttentionDecodeGoesWith,
           .launches_overlap = true,
           .workspace_bytes = WorkspaceBytesOfAttentionDecode},
    Row(CONCERT_OP_LAYER_NORM, AdmitLayerNorm, AccessesOfLayerNorm, ComputeLayerNorm,
        kLayerNormOperands),
    Row(CONCERT_OP_ELEMENTWISE, AdmitElementwise, AccessesOfElementwise, ComputeElementwise,
        kElementwiseOperands),
    Row(CONCERT_OP_ADVANCE, AdmitAdvance, AccessesOfAdvance, ComputeAdvance, kAdvanceOperands),
    Row(CONCERT_OP_QUANTIZE, AdmitQuantize, AccessesOfQuantize, ComputeQuantize, kQuantizeOperands),
    Row(CONCERT_OP_SAMPLE, AdmitSample, AccessesOfSample, ComputeSample),
    OpKind{CONCERT_OP_PROGRAM, nullptr, false, AdmitProgram, AccessesOfProgram, ComputeProgram,
           CONCERT_LAUNCHER(LaunchProgram), nullptr},
    OpKind{.kind = CONCERT_OP_ATTENTION_PREFILL,
           .noun = nullptr,
           .collective = false,
           .admit = AdmitAttentionPrefill,
           .accesses = AccessesOfAttentionPrefill,
           .compute = ComputeAttentionPrefill,
           .launch = CONCERT_LAUNCHER(LaunchAttentionPrefill),
           .launch_collective = nullptr,
           .launches_overlap = true},
};

constexpr bool RowsAreInOrder() {
  for (size_t i = 0; i < kOpKinds.size(); ++i) {
    if (kOpKinds[i].kind != i + 1) return false;
  }
  return true;
}
static_assert(RowsAreInOrder(), "FindOpKind indexes by kind");
static_assert(kOpKinds.size() == CONCERT_OP_KIND_COUNT);

}  // namespace

std::span<const OpKind> AllOpKinds() { return kOpKinds; }

const OpKind* FindOpKind(uint16_t kind) {
  return kind >= 1 && kind <= kOpKinds.size() ? &kOpKinds[kind - 1] : nullptr;
}

bool IsCollective(uint16_t kind) {
  const OpKind* known = FindOpKind(kind);
  return known != nullptr && known->collective;
}

bool ProgramsHold(uint16_t kind) {
  const OpKind* known = FindOpKind(kind);
  return known != nullptr && !known->collective && kind != CONCERT_OP_PROGRAM;
}

Failure UnknownKind(uint16_t kind) {
  return InvalidArgument(CONCERT_MESSAGE_UNKNOWN_KIND, kind, kOpKinds.back().kind);
}

Accesses AccessesOf(const Op& op) {
  const OpKind* kind = FindOpKind(op.kind);
  return kind == nullptr ? Accesses() : kind->accesses(op);
}

}  // namespace concert::kernels
