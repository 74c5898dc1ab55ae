// Rows of a table by token ids: see concert_embedding_body.
#ifndef CONCERT_KERNELS_EMBEDDING_EMBEDDING_OP_H_
#define CONCERT_KERNELS_EMBEDDING_EMBEDDING_OP_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/failure.h"
#include "kernels/op.h"
#include "kernels/op_table.h"

namespace concert::kernels {

// Rules beyond bounds:
// - rows, columns and vocabulary are 1 to kMaxRows, kMaxRowColumns and kMaxRows; dtype is bf16,
//   fp16 or fp32; index_dtype is int32 or int64.
// - A row stride is at least the row.
// - out may not overlap ids or the table.
Failure AdmitEmbedding(const concert_descriptor& descriptor, const AdmitContext& context, Op& op);

// It may read the table early.
Accesses AccessesOfEmbedding(const Op& op);

// One part.
void ComputeEmbedding(std::span<const Op* const> parts);

inline constexpr uint8_t kEmbeddingOperands[] = {
    offsetof(concert_embedding_body, ids), offsetof(concert_embedding_body, table),
    offsetof(concert_embedding_body, out)};  // OpKind::row_operands

namespace cuda {
struct RowTask;  // kernels/rows/row_args.h

// In builds with CUDA: what the row kernel needs of it, but for its place in a chain. Returns how
// many blocks could work on it.
uint64_t LowerEmbedding(const Op& op, RowTask& task);
}  // namespace cuda

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_EMBEDDING_EMBEDDING_OP_H_
