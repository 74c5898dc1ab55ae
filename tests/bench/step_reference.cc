#include "tests/bench/step_reference.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "Eigen/Core"
#include "tests/bench/random_numbers.h"
#include "tests/support/bf16.h"

namespace concert::bench {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Row = Eigen::Map<const Eigen::VectorXf>;

constexpr float kEpsilon = 1e-6f;  // of RmsNormOp
constexpr uint64_t kBlockRows = StepData::kRowsAtOnce;
constexpr uint32_t kCheckedRows = 64;  // of all sequences, where that are enough for each
constexpr double kRoundingsOfLayer = 8, kLayersOfEnds = 2;

Matrix ToMatrix(const std::vector<uint16_t>& bits, uint64_t columns) {
  Matrix matrix(bits.size() / columns, columns);
  std::ranges::transform(bits, matrix.data(), test::FromBf16);
  return matrix;
}

class Reference {
 public:
  Reference(const StepData& data, std::span<const LayerCache> cache)
      : data_(data),
        model_(data.model()),
        cache_(cache),
        cos_sin_(data.CosSin()),
        rows_(CheckedRows(data)),
        cache_errors_(data.batch()),
        cache_sizes_(data.batch()) {}

  ExpectedStep Run() {
    Matrix x = Input();
    for (uint32_t layer = 0; layer < model_.layers; ++layer) {
      x += Multiply(Attend(Norm(x, StepTensor::kNorm, layer), layer), StepTensor::kOut, layer);
      const Matrix normed = Norm(x, StepTensor::kMlpNorm, layer);
      x += Multiply(Gate(Multiply(normed, StepTensor::kGateUp, layer)), StepTensor::kDown, layer);
    }
    x = Norm(x, StepTensor::kFinalNorm, 0);
    ExpectedStep expected{.rows = rows_, .values = {}, .cache_error = CacheError()};
    if (model_.vocabulary > 0) {
      x = Multiply(LastRows(x), StepTensor::kTable, 0);
      expected.rows.resize(data_.batch());
      std::iota(expected.rows.begin(), expected.rows.end(), 0u);
    }
    expected.values.assign(x.data(), x.data() + x.size());
    return expected;
  }

 private:
  // Of each sequence, in rows_.
  uint32_t rows_of_sequence() const { return static_cast<uint32_t>(rows_.size()) / data_.batch(); }

  Matrix Input() const {
    Matrix x(rows_.size(), model_.hidden);
    const std::vector<int32_t> tokens =
        model_.vocabulary > 0 ? data_.tokens() : std::vector<int32_t>{};
    for (size_t i = 0; i < rows_.size(); ++i) {
      const auto bits = model_.vocabulary > 0
                            ? data_.Rows(StepTensor::kTable, 0, tokens[rows_[i]], 1)
                            : data_.Rows(StepTensor::kHidden, 0, rows_[i], 1);
      x.row(static_cast<Eigen::Index>(i)) = ToMatrix(bits, model_.hidden);
    }
    return x;
  }

  Matrix LastRows(const Matrix& x) const {
    Matrix last(data_.batch(), x.cols());
    for (uint32_t sequence = 0; sequence < data_.batch(); ++sequence)
      last.row(sequence) = x.row((sequence + 1) * rows_of_sequence() - 1);
    return last;
  }

  Matrix Norm(const Matrix& x, StepTensor tensor, uint32_t layer) const {
    const Matrix weight = ToMatrix(data_.Whole(tensor, layer), model_.hidden);
    Matrix normed = x;
    for (Eigen::Index row = 0; row < x.rows(); ++row) {
      const float mean = x.row(row).squaredNorm() / static_cast<float>(x.cols());
      normed.row(row) = x.row(row).cwiseProduct(weight.row(0)) / std::sqrt(mean + kEpsilon);
    }
    return normed;
  }

  // x * W^T, block of W by block.
  Matrix Multiply(const Matrix& x, StepTensor tensor, uint32_t layer) const {
    const StepExtent extent = data_.extent(tensor);
    Matrix product(x.rows(), extent.rows);
    ForEach(static_cast<int>((extent.rows + kBlockRows - 1) / kBlockRows), [&](int block) {
      const uint64_t first = block * kBlockRows;
      const uint64_t count = std::min(kBlockRows, extent.rows - first);
      const Matrix w = ToMatrix(data_.Rows(tensor, layer, first, count), extent.columns);
      product.middleCols(static_cast<Eigen::Index>(first), static_cast<Eigen::Index>(count))
          .noalias() = x * w.transpose();
    });
    return product;
  }

  Matrix Gate(const Matrix& gate_up) const {
    Matrix inner(gate_up.rows(), model_.ffn);
    for (Eigen::Index row = 0; row < inner.rows(); ++row) {
      for (Eigen::Index i = 0; i < inner.cols(); ++i) {
        const float gate = gate_up(row, i);
        inner(row, i) = gate / (1 + std::exp(-gate)) * gate_up(row, i + inner.cols());
      }
    }
    return inner;
  }

  Matrix Attend(const Matrix& normed, uint32_t layer) {
    Matrix qkv = Multiply(normed, StepTensor::kQkv, layer);
    Matrix attended(qkv.rows(), model_.q_columns());
    ForEach(static_cast<int>(data_.batch()),
            [&](int sequence) { AttendSequence(sequence, layer, qkv, attended); });
    return attended;
  }

  void AttendSequence(uint32_t sequence, uint32_t layer, Matrix& qkv, Matrix& attended) {
    Matrix keys = Cached(sequence, layer, StepTensor::kKeys);
    Matrix values = Cached(sequence, layer, StepTensor::kValues);
    const uint32_t first = sequence * rows_of_sequence();
    for (uint32_t i = first; i < first + rows_of_sequence(); ++i) {
      const uint32_t position = data_.PositionOf(rows_[i]);
      Rotate(position, &qkv(i, 0));
      const auto fresh = qkv.row(i).tail(2 * model_.kv_columns());
      Append(sequence, fresh.head(model_.kv_columns()), keys.row(position));
      Append(sequence, fresh.tail(model_.kv_columns()), values.row(position));
    }
    ForEach(static_cast<int>(rows_of_sequence()), [&](int i) {
      const uint32_t row = first + i;
      AttendRow(data_.PositionOf(rows_[row]) + 1, keys, values, qkv.row(row), attended.row(row));
    });
  }

  // The heads of q and k.
  void Rotate(uint32_t position, float* value) const {
    const uint32_t half = model_.head_dim / 2;
    const float* cosine = &cos_sin_[uint64_t{position} * model_.head_dim];
    for (uint32_t head = 0; head < model_.heads + model_.kv_heads; ++head) {
      for (uint32_t i = 0; i < half; ++i) {
        const float a = value[i], b = value[i + half];
        value[i] = a * cosine[i] - b * cosine[half + i];
        value[i + half] = b * cosine[i] + a * cosine[half + i];
      }
      value += model_.head_dim;
    }
  }

  // Keys or values of a sequence's tokens, [token][column]: new ones as the step has left them, or
  // NaN, for which then come those of checked rows.
  Matrix Cached(uint32_t sequence, uint32_t layer, StepTensor tensor) const {
    const uint32_t length = data_.client().lengths[sequence], columns = model_.kv_columns();
    const uint32_t old = length - data_.client().new_tokens();
    Matrix cached = Matrix::Constant(length, columns, NAN);
    for (uint32_t token = 0; token < old; token += StepData::kPageSize) {
      const uint32_t count = std::min(StepData::kPageSize, old - token);
      cached.middleRows(token, count) =
          ToMatrix(data_.Rows(tensor, layer, data_.SlotOf(sequence, token), count), columns);
    }
    if (cache_.empty()) return cached;
    const auto& left = tensor == StepTensor::kKeys ? cache_[layer].keys : cache_[layer].values;
    for (uint32_t token = old; token < length; ++token) {
      const uint16_t* const row = &left[data_.SlotOf(sequence, token) * columns];
      std::transform(row, row + columns, cached.row(token).data(), test::FromBf16);
    }
    return cached;
  }

  // Puts a checked row's key or value where what the step has left is.
  void Append(uint32_t sequence, const Eigen::Ref<const Eigen::RowVectorXf>& fresh,
              Eigen::Ref<Eigen::RowVectorXf> cached) {
    cache_errors_[sequence] += (fresh - cached).squaredNorm();
    cache_sizes_[sequence] += fresh.squaredNorm();
    cached = fresh;
  }

  double CacheError() const {
    if (cache_.empty()) return 0;
    return std::sqrt(std::reduce(cache_errors_.begin(), cache_errors_.end()) /
                     std::reduce(cache_sizes_.begin(), cache_sizes_.end()));
  }

  void AttendRow(uint32_t length, const Matrix& keys, const Matrix& values,
                 const Eigen::Ref<const Eigen::RowVectorXf>& qkv,
                 Eigen::Ref<Eigen::RowVectorXf> attended) const {
    const uint32_t dim = model_.head_dim, group = model_.heads / model_.kv_heads;
    for (uint32_t head = 0; head < model_.heads; ++head) {
      const uint32_t column = head / group * dim;
      const Row q(qkv.data() + uint64_t{head} * dim, dim);
      Eigen::VectorXf scores =
          keys.block(0, column, length, dim) * q / std::sqrt(static_cast<float>(dim));
      scores = (scores.array() - scores.maxCoeff()).exp();
      scores /= scores.sum();
      attended.segment(uint64_t{head} * dim, dim) =
          scores.transpose() * values.block(0, column, length, dim);
    }
  }

  const StepData& data_;
  const StepModel& model_;
  const std::span<const LayerCache> cache_;
  const std::vector<float> cos_sin_;
  const std::vector<uint32_t> rows_;
  std::vector<double> cache_errors_, cache_sizes_;  // [sequence], of squares
};

}  // namespace

std::vector<uint32_t> CheckedRows(const StepData& data) {
  const uint32_t chunk = data.client().new_tokens();
  const uint32_t count = std::min(chunk, std::max(kCheckedRows / data.batch(), 2u));
  const uint32_t first = count == chunk ? count : count / 2, others = count - first;
  std::vector<uint32_t> rows;
  for (uint32_t begin = 0; begin < data.rows(); begin += chunk) {
    for (uint32_t i = 0; i < first; ++i) rows.push_back(begin + i);
    for (uint64_t i = 1; i <= others; ++i)
      rows.push_back(begin + first + static_cast<uint32_t>(i * (chunk - first) / others) - 1);
  }
  return rows;
}

bool ChecksAllRows(const StepData& data) { return CheckedRows(data).size() == data.rows(); }

ExpectedStep ReferenceStep(const StepData& data, std::span<const LayerCache> cache) {
  return Reference(data, cache).Run();
}

double StepError(const ExpectedStep& expected, StepExtent extent,
                 std::span<const uint16_t> results) {
  const auto finite = [](uint16_t bits) { return std::isfinite(test::FromBf16(bits)); };
  if (!std::isfinite(expected.cache_error) || !std::ranges::all_of(results, finite)) return NAN;
  double error = 0, size = 0;
  auto right = expected.values.begin();
  for (const uint32_t row : expected.rows) {
    for (const uint16_t bits : results.subspan(row * extent.columns, extent.columns)) {
      const double difference = test::FromBf16(bits) - *right;
      error += difference * difference;
      size += double{*right} * *right;
      ++right;
    }
  }
  return std::max(std::sqrt(error / size), expected.cache_error);
}

double StepTolerance(const StepModel& model) {
  return 0x1p-9 * std::sqrt(kRoundingsOfLayer * (model.layers + kLayersOfEnds));
}

}  // namespace concert::bench
