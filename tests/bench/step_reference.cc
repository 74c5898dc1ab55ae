#include "tests/bench/step_reference.h"

#include <algorithm>
#include <cmath>

#include "Eigen/Core"
#include "tests/bench/random_numbers.h"

namespace concert::bench {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Row = Eigen::Map<const Eigen::VectorXf>;

constexpr float kEpsilon = 1e-6f;  // of RmsNormOp
constexpr uint64_t kBlockRows = StepData::kRowsAtOnce;
constexpr double kRoundingsOfLayer = 8, kLayersOfEnds = 2;

Matrix ToMatrix(const std::vector<uint16_t>& bits, uint64_t columns) {
  Matrix matrix(bits.size() / columns, columns);
  std::ranges::transform(bits, matrix.data(), FromBf16);
  return matrix;
}

class Reference {
 public:
  explicit Reference(const StepData& data)
      : data_(data), model_(data.model()), cos_sin_(data.CosSin()) {}

  Matrix Run() const {
    Matrix x = Input();
    for (uint32_t layer = 0; layer < model_.layers; ++layer) {
      x += Multiply(Attend(Norm(x, StepTensor::kNorm, layer), layer), StepTensor::kOut, layer);
      const Matrix normed = Norm(x, StepTensor::kMlpNorm, layer);
      x += Multiply(Gate(Multiply(normed, StepTensor::kGateUp, layer)), StepTensor::kDown, layer);
    }
    x = Norm(x, StepTensor::kFinalNorm, 0);
    return model_.vocabulary == 0 ? x : Multiply(x, StepTensor::kTable, 0);
  }

 private:
  Matrix Input() const {
    if (model_.vocabulary == 0) return ToMatrix(data_.Whole(StepTensor::kHidden, 0), model_.hidden);
    Matrix x(data_.batch(), model_.hidden);
    const std::vector<int32_t> tokens = data_.tokens();
    for (uint32_t row = 0; row < data_.batch(); ++row)
      x.row(row) = ToMatrix(data_.Rows(StepTensor::kTable, 0, tokens[row], 1), model_.hidden);
    return x;
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

  Matrix Attend(const Matrix& normed, uint32_t layer) const {
    Matrix qkv = Multiply(normed, StepTensor::kQkv, layer);
    Matrix attended(data_.batch(), model_.q_columns());
    ForEach(static_cast<int>(data_.batch()), [&](int row) {
      Rotate(row, qkv);
      AttendRow(row, layer, qkv.row(row), attended);
    });
    return attended;
  }

  // The heads of q and k by the position of the row's newest token.
  void Rotate(uint32_t row, Matrix& qkv) const {
    const uint32_t half = model_.head_dim / 2;
    const float* cosine = &cos_sin_[uint64_t{data_.client().lengths[row] - 1} * model_.head_dim];
    for (uint32_t head = 0; head < model_.heads + model_.kv_heads; ++head) {
      float* value = &qkv(row, uint64_t{head} * model_.head_dim);
      for (uint32_t i = 0; i < half; ++i) {
        const float a = value[i], b = value[i + half];
        value[i] = a * cosine[i] - b * cosine[half + i];
        value[i + half] = b * cosine[i] + a * cosine[half + i];
      }
    }
  }

  // Keys or values of the row's tokens, the newest from `fresh`: [token][column].
  Matrix Cached(uint32_t row, uint32_t layer, StepTensor tensor, const float* fresh) const {
    const uint32_t length = data_.client().lengths[row], columns = model_.kv_columns();
    Matrix cached(length, columns);
    for (uint32_t token = 0; token < length; token += StepData::kPageSize) {
      const uint32_t count = std::min(StepData::kPageSize, length - token);
      cached.middleRows(token, count) =
          ToMatrix(data_.Rows(tensor, layer, data_.SlotOf(row, token), count), columns);
    }
    cached.row(length - 1) = Row(fresh, columns).transpose();
    return cached;
  }

  void AttendRow(uint32_t row, uint32_t layer, const Eigen::RowVectorXf& qkv,
                 Matrix& attended) const {
    const uint32_t dim = model_.head_dim, group = model_.heads / model_.kv_heads;
    const float* fresh = qkv.data() + model_.q_columns();
    const Matrix keys = Cached(row, layer, StepTensor::kKeys, fresh);
    const Matrix values = Cached(row, layer, StepTensor::kValues, fresh + model_.kv_columns());
    for (uint32_t head = 0; head < model_.heads; ++head) {
      const uint32_t column = head / group * dim;
      const Row q(qkv.data() + uint64_t{head} * dim, dim);
      Eigen::VectorXf scores =
          keys.middleCols(column, dim) * q / std::sqrt(static_cast<float>(dim));
      scores = (scores.array() - scores.maxCoeff()).exp();
      scores /= scores.sum();
      attended.row(row).segment(uint64_t{head} * dim, dim) =
          scores.transpose() * values.middleCols(column, dim);
    }
  }

  const StepData& data_;
  const StepModel& model_;
  const std::vector<float> cos_sin_;
};

}  // namespace

std::vector<float> ReferenceStep(const StepData& data) {
  const Matrix result = Reference(data).Run();
  return {result.data(), result.data() + result.size()};
}

double StepError(std::span<const float> reference, std::span<const uint16_t> results) {
  double error = 0, size = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double right = reference[i], difference = FromBf16(results[i]) - right;
    error += difference * difference;
    size += right * right;
  }
  return std::sqrt(error / size);
}

double StepTolerance(const StepModel& model) {
  return 0x1p-9 * std::sqrt(kRoundingsOfLayer * (model.layers + kLayersOfEnds));
}

}  // namespace concert::bench
