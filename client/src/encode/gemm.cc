#include "client/src/encode/fields.h"
#include "client/src/encode/submit.h"
#include "client/src/failure.h"

namespace concert::client {
namespace {

// concert.h: 0 is "without gaps", CONCERT_STRIDE_SHARED is the ABI's 0. One matrix has no stride.
uint64_t BatchStride(uint64_t stride, uint32_t batch, uint64_t rows, uint64_t ld) {
  if (stride == CONCERT_STRIDE_SHARED || batch <= 1) return 0;
  return OrTight(stride, rows * ld);
}

// What the daemon must know of, beyond GEMMs of before.
void EncodeNeeds(const concert_gemm_body& body, EncodedOp* to) {
  if (body.dtype == CONCERT_FP8_E4M3) {
    to->features |= CONCERT_FEATURE_FP8;
    to->needs = "dtype is fp8_e4m3";
  }
  if ((body.flags & CONCERT_GEMM_RESIDUAL) != 0) {
    to->features |= CONCERT_FEATURE_GEMM_EPILOGUES;
    to->needs = "C is a residual";
  } else if ((body.flags & (CONCERT_GEMM_GATED | CONCERT_GEMM_GATE_INTERLEAVED)) != 0) {
    to->features |= CONCERT_FEATURE_GEMM_EPILOGUES;
    to->needs = "the product is gated";
  } else if (body.a.scales != 0 && body.dtype != CONCERT_FP8_E4M3) {
    to->features |= CONCERT_FEATURE_GEMM_EPILOGUES;
    to->needs = "rows of A have scales";
  }
}

void Encode(const concert_gemm& op, EncodedOp* to) {
  // Nobody multiplies to throw the product away: alpha was forgotten.
  if (op.alpha == 0 && op.beta == 0) {
    to->refused =
        Fail(to->error, CONCERT_INVALID_ARGUMENT,
             "alpha and beta are 0, so D would depend on none of A, W and C; set alpha to 1, as "
             "CONCERT_GEMM_INIT does");
    return;
  }
  to->descriptor.kind = CONCERT_OP_GEMM;
  concert_gemm_body& body = to->descriptor.body.gemm;
  body.m = op.m;
  body.n = op.n;
  body.k = op.k;
  body.batch = op.batch == 0 ? 1 : op.batch;
  body.a = Operand("a", op.a, to);
  body.w = Operand("w", op.w, to);
  body.c = Operand("c", op.c, to);
  body.d = Operand("d", op.d, to);
  body.bias = Operand("bias", op.bias, to);
  body.lda = OrTight(op.lda, op.k);
  body.ldw = OrTight(op.ldw, op.k);
  body.ldc = OrTight(op.ldc, op.n);
  body.ldd = OrTight(op.ldd, (op.flags & CONCERT_GEMM_GATED) != 0 ? op.n / 2 : op.n);
  body.stride_a = BatchStride(op.stride_a, op.batch, op.m, body.lda);
  body.stride_w = BatchStride(op.stride_w, op.batch, op.n, body.ldw);
  body.stride_c = BatchStride(op.stride_c, op.batch, op.m, body.ldc);
  body.stride_d = BatchStride(op.stride_d, op.batch, op.m, body.ldd);
  body.alpha = op.alpha;
  body.beta = op.beta;
  body.dtype = Narrow8(op.dtype);
  body.activation = Narrow8(op.activation);
  body.flags = Narrow16(op.flags);
  body.d_dtype = Narrow8(op.d_dtype);
  const concert_operand a_scales = Operand("a_scales", op.a_scales, to);
  const concert_operand w_scales = Operand("w_scales", op.w_scales, to);
  body.a.scales = a_scales.buffer;
  body.w.scales = w_scales.buffer;
  body.a_scales_offset = a_scales.offset;
  body.w_scales_offset = w_scales.offset;
  EncodeNeeds(body, to);
}

}  // namespace
}  // namespace concert::client

int concert_submit_gemm(concert_queue* queue, const concert_gemm* op,
                        const concert_submit_options* options, concert_ticket* ticket,
                        concert_error* error) {
  return concert::client::Submit(queue, op, "concert_gemm", concert::client::Encode, options,
                                 ticket, error);
}
