// The reference embedding.
#include <algorithm>

#include "kernels/cpu_element.h"
#include "kernels/embedding/embedding_op.h"

namespace concert::kernels {
namespace {

template <typename T>
void LookUp(const EmbeddingArgs& args) {
  for (uint64_t row = 0; row < args.rows; ++row) {
    const int64_t id = LoadIndex(args.ids, row, args.index_type);
    T* out = RowAt<T>(args.out, row, args.out_stride);
    if (id < 0) {
      std::fill_n(out, args.columns, static_cast<T>(0.0f));
    } else {
      std::copy_n(RowAt<T>(args.table, Clamped(id, args.vocabulary), args.table_stride),
                  args.columns, out);
    }
  }
}

}  // namespace

void ComputeEmbedding(std::span<const Op* const> parts) {
  const EmbeddingArgs& args = parts[0]->embedding;
  WithElement(args.dtype, [&](auto zero) { LookUp<decltype(zero)>(args); });
}

}  // namespace concert::kernels
