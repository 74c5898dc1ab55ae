#include "decode_reference.h"

#include <algorithm>
#include <cmath>

#include "bf16.h"

namespace demo {
namespace {

constexpr float kEpsilon = 1e-6f;  // of concert::RmsNormOp

// Of `count` products, eight sums at a time, which compilers add side by side.
float Dot(const float* a, const float* b, size_t count) {
  float sums[8] = {};
  for (size_t i = 0; i < count; i += 8) {
    for (size_t lane = 0; lane < 8; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  float sum = 0;
  for (const float part : sums) sum += part;
  return sum;
}

// A row for each token.
struct Matrix {
  Matrix(size_t rows, size_t columns) : rows(rows), columns(columns), values(rows * columns) {}
  float* operator[](size_t row) { return &values[row * columns]; }
  const float* operator[](size_t row) const { return &values[row * columns]; }

  size_t rows, columns;
  std::vector<float> values;
};

// x * w^T.
Matrix Multiply(const Matrix& x, const std::vector<uint16_t>& w) {
  std::vector<float> weights(w.size());
  std::transform(w.begin(), w.end(), weights.begin(), FromBf16);
  Matrix product(x.rows, w.size() / x.columns);
  for (size_t n = 0; n < product.columns; ++n) {
    for (size_t row = 0; row < x.rows; ++row) {
      product[row][n] = Dot(x[row], &weights[n * x.columns], x.columns);
    }
  }
  return product;
}

Matrix Normalise(const Matrix& x, const std::vector<uint16_t>& gains) {
  Matrix normed = x;
  for (size_t row = 0; row < x.rows; ++row) {
    const float mean = Dot(x[row], x[row], x.columns) / static_cast<float>(x.columns);
    for (size_t i = 0; i < x.columns; ++i) {
      normed[row][i] *= FromBf16(gains[i]) / std::sqrt(mean + kEpsilon);
    }
  }
  return normed;
}

void Rotate(float* head, size_t position) {
  constexpr size_t kHalf = kHeadDim / 2;
  for (size_t i = 0; i < kHalf; ++i) {
    const double angle = static_cast<double>(position) / std::pow(kTheta, double(i) / kHalf);
    const auto cosine = static_cast<float>(std::cos(angle));
    const auto sine = static_cast<float>(std::sin(angle));
    const float a = head[i], b = head[i + kHalf];
    head[i] = a * cosine - b * sine;
    head[i + kHalf] = b * cosine + a * sine;
  }
}

// softmax(q * K^T / sqrt(kHeadDim)) * V of one head over the first `length` tokens. k and v: where
// the first token's are, in a row of `qkv`.
void AttendHead(const Matrix& qkv, size_t length, const float* q, size_t k, size_t v, float* out) {
  std::vector<float> scores(length);
  for (size_t token = 0; token < length; ++token) {
    scores[token] = Dot(q, qkv[token] + k, kHeadDim) / std::sqrt(float{kHeadDim});
  }
  const float largest = *std::max_element(scores.begin(), scores.end());
  float sum = 0;
  for (float& score : scores) sum += score = std::exp(score - largest);
  for (size_t token = 0; token < length; ++token) {
    for (size_t i = 0; i < kHeadDim; ++i) out[i] += scores[token] / sum * (qkv[token] + v)[i];
  }
}

Matrix Attend(Matrix qkv) {
  Matrix attended(qkv.rows, kQColumns);
  for (size_t row = 0; row < qkv.rows; ++row) {
    for (size_t head = 0; head < kHeads + kKvHeads; ++head) {
      Rotate(qkv[row] + head * kHeadDim, row);
    }
    for (size_t head = 0; head < kHeads; ++head) {
      const size_t k = kQColumns + head * kKvHeads / kHeads * kHeadDim;
      AttendHead(qkv, row + 1, qkv[row] + head * kHeadDim, k, k + kKvColumns,
                 attended[row] + head * kHeadDim);
    }
  }
  return attended;
}

Matrix Gate(const Matrix& gate_up) {
  Matrix inner(gate_up.rows, kInner);
  for (size_t row = 0; row < inner.rows; ++row) {
    for (size_t i = 0; i < kInner; ++i) {
      const float gate = gate_up[row][i];
      inner[row][i] = gate / (1 + std::exp(-gate)) * gate_up[row][kInner + i];
    }
  }
  return inner;
}

void Add(Matrix& x, const Matrix& update) {
  for (size_t i = 0; i < x.values.size(); ++i) x.values[i] += update.values[i];
}

}  // namespace

std::vector<float> ReferenceLogits(const Weights& weights, const std::vector<int32_t>& tokens) {
  Matrix x(tokens.size(), kHidden);
  for (size_t row = 0; row < tokens.size(); ++row) {
    const uint16_t* embedding = &weights.table[static_cast<size_t>(tokens[row]) * kHidden];
    std::transform(embedding, embedding + kHidden, x[row], FromBf16);
  }
  for (const auto& layer : weights.layers) {
    const Matrix qkv = Multiply(Normalise(x, layer.norm), layer.qkv);
    Add(x, Multiply(Attend(qkv), layer.out));
    const Matrix gate_up = Multiply(Normalise(x, layer.mlp_norm), layer.gate_up);
    Add(x, Multiply(Gate(gate_up), layer.down));
  }
  Matrix last(1, kHidden);
  std::copy_n(x[x.rows - 1], kHidden, last[0]);
  return Multiply(Normalise(last, weights.norm), weights.head).values;
}

double RelativeError(const uint16_t* actual, const std::vector<float>& expected) {
  double error = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double difference = double{FromBf16(actual[i])} - expected[i];
    error += difference * difference;
    size += double{expected[i]} * expected[i];
  }
  return std::sqrt(error / size);
}

}  // namespace demo
