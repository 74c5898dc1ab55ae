// The reference GEMM. Blocks of the operands are upcast to fp32 and multiplied by Eigen, so that
// the whole thing stays in cache and no operand-sized temporary exists.
#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "kernels/activation.h"
#include "kernels/gemm/e4m3.h"
#include "kernels/gemm/gemm_op.h"

namespace concert::kernels {
namespace {

// 256 x 256 of D and two 256 x 512 panels are 1.3 MB of fp32: a core's L2, and each upcast element
// is used for 256 multiply-adds.
constexpr Eigen::Index kBlockRows = 256;
constexpr Eigen::Index kBlockColumns = 256;
constexpr Eigen::Index kBlockDepth = 512;

using Panel = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <typename T>
using Matrix = Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>,
                          Eigen::Unaligned, Eigen::OuterStride<>>;

// Storage of one thread's blocks: allocated once per thread, at most 1.3 MB.
struct Scratch {
  Panel a{kBlockRows, kBlockDepth};
  Panel w{kBlockColumns, kBlockDepth};
  Panel d{kBlockRows, kBlockColumns};
};

template <typename T>
Matrix<T> MatrixAt(Address address, uint64_t first, uint64_t rows, uint64_t columns,
                   uint64_t row_stride) {
  return {reinterpret_cast<T*>(address) + first, static_cast<Eigen::Index>(rows),
          static_cast<Eigen::Index>(columns),
          Eigen::OuterStride<>(static_cast<Eigen::Index>(row_stride))};
}

// A block of A or W in fp32. T = uint8_t is e4m3.
template <typename T, typename Block, typename Panel>
void Upcast(const Block& from, Panel&& to) {
  if constexpr (std::is_same_v<T, uint8_t>) {
    to = from.unaryExpr([](uint8_t bits) { return DecodeE4m3(bits); });
  } else {
    to = from.template cast<float>();
  }
}

float ScaleOf(Address scales, bool per_row, uint64_t row) {
  return scales == 0 ? 1 : reinterpret_cast<const float*>(scales)[per_row ? row : 0];
}

// The accumulated block at (row, column) of batch member `index` becomes a block of D. Of a gated
// product its left half are sums of gates, its right half those of ups.
template <typename T, typename Block>
void StoreBlock(const GemmArgs& args, uint64_t index, Eigen::Index row, Eigen::Index column,
                const Block& sums) {
  const T* bias = reinterpret_cast<const T*>(args.bias);
  const Eigen::Index columns = args.gated ? sums.cols() / 2 : sums.cols();
  // Of the product, of a gate and of its up.
  const auto column_of = [&](Eigen::Index j, bool up) {
    const uint64_t at = static_cast<uint64_t>(column + j);
    if (!args.gated) return at;
    return args.interleaved ? 2 * at + (up ? 1 : 0) : at + (up ? args.d_columns() : 0);
  };
  for (Eigen::Index i = 0; i < sums.rows(); ++i) {
    const uint64_t r = static_cast<uint64_t>(row + i);
    const T* c = reinterpret_cast<const T*>(args.c) + index * args.stride_c + r * args.ldc;
    T* d = reinterpret_cast<T*>(args.d) + index * args.stride_d + r * args.ldd;
    const float a_scale = ScaleOf(args.a_scales, args.a_scales_per_row, r);
    const auto add_c = [&](float x, Eigen::Index j) {
      return x + args.beta * static_cast<float>(c[column + j]);
    };
    const auto before_activation = [&](Eigen::Index j, bool up) {
      const uint64_t of_product = column_of(j, up);
      const float w_scale = ScaleOf(args.w_scales, args.w_scales_per_row, of_product);
      float x = args.alpha * (sums(i, up ? columns + j : j) * a_scale * w_scale);
      if (args.c != 0 && !args.residual) x = add_c(x, j);
      return args.bias != 0 ? x + static_cast<float>(bias[of_product]) : x;
    };
    for (Eigen::Index j = 0; j < columns; ++j) {
      float x = Activate(args.activation, before_activation(j, false));
      if (args.residual) x = add_c(x, j);
      if (args.gated) x *= before_activation(j, true);
      d[column + j] = static_cast<T>(x);
    }
  }
}

// W's rows that become D's columns: all, or of a gated product gates or ups.
template <typename T>
Matrix<T> PartOfW(const GemmArgs& args, uint64_t index, bool ups) {
  const uint64_t first = !ups ? 0 : args.interleaved ? 1 : args.d_columns();
  return MatrixAt<T>(args.w, index * args.stride_w + first * args.ldw, args.d_columns(), args.k,
                     args.interleaved ? 2 * args.ldw : args.ldw);
}

// T: of A and W; Output: of C, D and bias.
template <typename T, typename Output>
void ComputeMatrix(const GemmArgs& args, uint64_t index, Scratch& scratch) {
  const Matrix<T> a = MatrixAt<T>(args.a, index * args.stride_a, args.m, args.k, args.lda);
  const std::array<Matrix<T>, 2> w = {PartOfW<T>(args, index, false),
                                      PartOfW<T>(args, index, args.gated)};
  const Eigen::Index parts = args.gated ? 2 : 1;
  for (Eigen::Index row = 0; row < a.rows(); row += kBlockRows) {
    const Eigen::Index rows = std::min(kBlockRows, a.rows() - row);
    for (Eigen::Index column = 0; column < w[0].rows(); column += kBlockColumns / parts) {
      const Eigen::Index columns = std::min(kBlockColumns / parts, w[0].rows() - column);
      auto sums = scratch.d.topLeftCorner(rows, parts * columns);
      sums.setZero();
      for (Eigen::Index depth = 0; depth < a.cols(); depth += kBlockDepth) {
        const Eigen::Index width = std::min(kBlockDepth, a.cols() - depth);
        auto a_block = scratch.a.topLeftCorner(rows, width);
        auto w_block = scratch.w.topLeftCorner(parts * columns, width);
        Upcast<T>(a.block(row, depth, rows, width), a_block);
        for (Eigen::Index part = 0; part < parts; ++part) {
          Upcast<T>(w[static_cast<size_t>(part)].block(column, depth, columns, width),
                    w_block.middleRows(part * columns, columns));
        }
        sums.noalias() += a_block * w_block.transpose();
      }
      StoreBlock<Output>(args, index, row, column, sums);
    }
  }
}

template <typename T, typename Output = T>
void ComputeBatch(const GemmArgs& args) {
  thread_local Scratch scratch;
  for (uint64_t index = 0; index < args.batch; ++index)
    ComputeMatrix<T, Output>(args, index, scratch);
}

}  // namespace

void ComputeGemm(std::span<const Op* const> parts) {
  const GemmArgs& args = parts[0]->gemm;
  switch (args.dtype) {
    case Dtype::kBf16:
      return ComputeBatch<Eigen::bfloat16>(args);
    case Dtype::kFp16:
      return ComputeBatch<Eigen::half>(args);
    case Dtype::kFp32:
      return ComputeBatch<float>(args);
    case Dtype::kFp8E4m3:
      return args.d_dtype == Dtype::kBf16 ? ComputeBatch<uint8_t, Eigen::bfloat16>(args)
                                          : ComputeBatch<uint8_t, Eigen::half>(args);
  }
}

}  // namespace concert::kernels
