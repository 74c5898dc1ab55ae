#include "kernels/group/batched_library.h"

#include <bit>

#include "kernels/gemm/gemm_cache.h"
#include "kernels/gemm/gemm_planner.h"

namespace concert::kernels::cuda {
namespace {

constexpr int kArrays = 4;  // W, A, C, D
static_assert(kArrays * kMaxGroupProblems <= PointerRing::kSlotPointers);

// Bits, so that NaN equals itself and nothing else.
bool SameBits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

bool AreEqual(const GemmArgs& x, const GemmArgs& y) {
  return x.m == y.m && x.n == y.n && x.k == y.k && x.lda == y.lda && x.ldw == y.ldw &&
         x.ldd == y.ldd && (x.beta == 0.0f || x.ldc == y.ldc) && SameBits(x.alpha, y.alpha) &&
         SameBits(x.beta, y.beta) && x.dtype == y.dtype && x.d_dtype == y.d_dtype &&
         x.activation == y.activation && x.allow_tf32 == y.allow_tf32;
}

// The batch as one op. An address is the union of all ops' bits: aligned as the worst of them.
GemmKey KeyOf(std::span<const Op* const> ops, const LaunchContext& context) {
  GemmArgs args = ops.front()->gemm;
  for (const Op* op : ops) {
    args.a |= op->gemm.a, args.w |= op->gemm.w, args.c |= op->gemm.c, args.d |= op->gemm.d;
  }
  args.bias = 0;
  args.stride_a = args.stride_w = args.stride_c = args.stride_d = 0;
  args.batch = static_cast<uint32_t>(ops.size());
  GemmKey key = GemmKey::Of(args, context.sm_budget, context.workspace_bytes);
  key.pointer_array = true;
  return key;
}

}  // namespace

bool AreOneBatch(std::span<const Op* const> ops) {
  if (ops.size() < 2 || ops.size() > kMaxGroupProblems) return false;
  const GemmArgs& first = ops.front()->gemm;
  if (ops.front()->kind != CONCERT_OP_GEMM || first.activation == Activation::kSilu ||
      first.dtype == Dtype::kFp8E4m3 || !first.EndsPlainly()) {
    return false;
  }
  for (const Op* op : ops) {
    if (op->kind != CONCERT_OP_GEMM || op->gemm.batch != 1 || op->gemm.bias != 0 ||
        !op->gemm.EndsPlainly() || !AreEqual(op->gemm, first)) {
      return false;
    }
  }
  return true;
}

absl::StatusOr<bool> BatchedLibrary::TryLaunch(LaunchContext& context, policies::Lane lane,
                                               std::span<const Op* const> ops) {
  if (!AreOneBatch(ops)) return false;
  GemmEntry& entry = context.gemm_cache.Find(KeyOf(ops, context));
  if (entry.path == GemmPath::kFallback) return false;
  const std::optional<PointerRing::Slot> slot = pointers_.Take(lane);
  if (!slot.has_value()) return false;
  const size_t count = ops.size();
  const auto array = [&](size_t index) { return slot->device + index * count * sizeof(Address); };
  const GemmArgs& args = ops.front()->gemm;
  const MatmulOperands operands = {.w = array(0),
                                   .a = array(1),
                                   .c = array(2),
                                   .d = array(3),
                                   .bias = 0,
                                   .a_scales = 0,
                                   .w_scales = 0,
                                   .alpha = args.alpha,
                                   .beta = args.beta};
  if (entry.path == GemmPath::kUnplanned) PlanGemm(context, operands, entry);
  if (entry.path != GemmPath::kFused) {
    entry.path = GemmPath::kFallback;  // an epilogue kernel per op is no gain over a launch per op
    return false;
  }
  for (size_t i = 0; i < count; ++i) {
    const MatmulOperands each = MatmulOperands::Of(ops[i]->gemm);
    slot->host[i] = each.w, slot->host[count + i] = each.a;
    slot->host[2 * count + i] = each.c, slot->host[3 * count + i] = each.d;
  }
  const int pointers = kArrays * static_cast<int>(count);
  if (absl::Status status = pointers_.Upload(lane, *slot, pointers, context.stream); !status.ok()) {
    return status;
  }
  const cublasStatus_t status = EnqueueMatmul(context, operands, entry, context.stream);
  if (status == CUBLAS_STATUS_SUCCESS) {
    launches_.store(launches() + 1, std::memory_order_relaxed);
    return true;
  }
  if (!IsRefusal(status)) {
    return context.api.cublaslt.ToStatus(status, "cublasLtMatmul", context.gpu);
  }
  entry.path = GemmPath::kFallback;
  return false;
}

}  // namespace concert::kernels::cuda
