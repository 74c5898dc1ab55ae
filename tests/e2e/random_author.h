// How random programs are written.
#ifndef CONCERT_TESTS_E2E_RANDOM_AUTHOR_H_
#define CONCERT_TESTS_E2E_RANDOM_AUTHOR_H_

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "tests/conformance/numbers.h"
#include "tests/e2e/random_program.h"

namespace concert::test {

inline constexpr uint8_t kGuard = 0xa5;
inline constexpr uint64_t kAlignment = 256, kGuardBytes = 64;
inline constexpr uint32_t kUnit = 16;  // columns are multiples of it, as fp8 and attention want

inline uint64_t BytesOf(Dtype dtype) {
  if (dtype == kFp8E4m3) return 1;
  if (dtype == kInt64) return 8;
  return dtype == kFp32 || dtype == kInt32 ? 4 : 2;
}

// From `offset` bytes in a piece.
struct At {
  static constexpr size_t kNowhere = ~size_t{0};
  size_t piece = kNowhere;
  uint64_t offset = 0;
};

inline Slice Of(const RandomProgram::Memory& memory, const At& at) {
  if (at.piece == At::kNowhere) return {};
  Slice slice = memory(at.piece);
  slice.offset += at.offset;
  return slice;
}

// Rows of numbers that an op reads or writes.
struct Matrix {
  At at;
  uint32_t rows = 0, columns = 0, stride = 0;
  Dtype dtype = kBf16;

  At Column(uint32_t column) const { return {at.piece, at.offset + column * BytesOf(dtype)}; }
  bool contiguous() const { return stride == columns; }
};

// A number for each row.
struct Indices {
  At at;
  Dtype dtype = kInt32;
};

// Writes one. What ops it has is the business of random_program.cc and random_attention.cc.
class Author {
 public:
  explicit Author(uint32_t seed) : random_(seed) {
    long_ = Sometimes(48);
    rows_ = long_ ? OneOf({1, 2, 3}) : OneOf({1, 2, 3, 5, 8, 16, 17, 32, 32, 33, 64});
    dtype_ = static_cast<Dtype>(OneOf({kBf16, kBf16, kBf16, kBf16, kFp16, kFp32}));
    listed_ = Sometimes(3);
    if (listed_) rows_ = std::min(rows_, 32u), dtype_ = kBf16;
  }

  RandomProgram Write();

 private:
  using Memory = RandomProgram::Memory;

  // --- Chance ---

  uint32_t Below(size_t count) { return static_cast<uint32_t>(random_() % count); }
  bool Sometimes(uint32_t one_in) { return Below(one_in) == 0; }
  uint32_t OneOf(std::initializer_list<uint32_t> choices) {
    return *(choices.begin() + Below(choices.size()));
  }
  template <typename T>
  const T& OneOf(const std::vector<T>& choices) {
    return choices[Below(choices.size())];
  }
  uint32_t Width() {
    return listed_ ? OneOf({64, 64, 128, 192}) : OneOf({16, 32, 48, 64, 64, 64, 96, 128});
  }
  uint32_t Unit() const { return listed_ ? 64 : kUnit; }
  Dtype IndexDtype() { return Sometimes(2) ? kInt32 : kInt64; }

  // --- Memory ---

  size_t AddPiece(Place place, uint64_t bytes, Dtype dtype) {
    std::vector<uint8_t>& image = program_.images[static_cast<size_t>(place)];
    const uint64_t offset = (image.size() + kGuardBytes + kAlignment - 1) & ~(kAlignment - 1);
    image.resize(offset, kGuard);
    image.resize(offset + bytes, daemon::conformance::kPoison);
    if (place == Place::kBinding) ++bindings_;
    program_.pieces.push_back({place, offset, bytes, dtype});
    return program_.pieces.size() - 1;
  }
  Piece& PieceOf(const At& at) { return program_.pieces[at.piece]; }
  template <typename T>
  void Fill(const At& at, const std::vector<T>& values) {
    const Piece& piece = PieceOf(at);
    std::memcpy(&program_.images[static_cast<size_t>(piece.place)][piece.offset + at.offset],
                values.data(), values.size() * sizeof(T));
  }
  std::vector<uint8_t> Numbers(Dtype dtype, size_t count, float least, float most) {
    std::uniform_real_distribution<float> uniform(least, most);
    std::vector<double> values(count);
    for (double& value : values) value = static_cast<double>(uniform(random_));
    return daemon::conformance::Encode(static_cast<policies::Dtype>(dtype), values);
  }

  // Where what a run finds or leaves can lie.
  Place StateOrBinding() {
    return bindings_ < CONCERT_BINDINGS_MAX && Sometimes(2) ? Place::kBinding : Place::kState;
  }
  Matrix NewMatrix(Place place, uint32_t rows, uint32_t columns, Dtype dtype) {
    const uint32_t stride = columns + (Sometimes(4) ? kUnit * (1 + Below(3)) : 0);
    const uint64_t bytes = uint64_t{rows} * stride * BytesOf(dtype);
    return {{AddPiece(place, bytes, dtype)}, rows, columns, stride, dtype};
  }
  Matrix Filled(Place place, uint32_t rows, uint32_t columns, Dtype dtype, float reach) {
    const Matrix matrix = NewMatrix(place, rows, columns, dtype);
    Fill(matrix.at, Numbers(dtype, size_t{rows} * matrix.stride, -reach, reach));
    return matrix;
  }
  // Weights of a GEMM: what comes out is about as large as what goes in. Some a run brings, as an
  // adapter's.
  Matrix Weights(uint32_t rows, uint32_t columns, Dtype dtype) {
    const Place place = !listed_ && Sometimes(6) ? StateOrBinding() : Place::kWeights;
    return Filled(place, rows, columns, dtype, std::sqrt(3.f / float(columns)));
  }
  At Vector(uint32_t count, Dtype dtype, float least = -1, float most = 1) {
    const At at{AddPiece(Place::kWeights, count * BytesOf(dtype), dtype)};
    Fill(at, Numbers(dtype, count, least, most));
    return at;
  }
  Matrix Input(uint32_t columns, Dtype dtype) {
    return Filled(StateOrBinding(), rows_, columns, dtype, 1);
  }
  template <typename Value>
  At Table(Place place, Dtype dtype, uint32_t count, const Value& value) {
    const At at{AddPiece(place, count * BytesOf(dtype), dtype)};
    std::vector<int64_t> wide(count);
    for (uint32_t i = 0; i < count; ++i) wide[i] = value(i);
    if (dtype == kInt64) {
      Fill(at, wide);
    } else {
      Fill(at, std::vector<int32_t>(wide.begin(), wide.end()));
    }
    return at;
  }
  // Most of them between 0 and `count`, of some programs a few anywhere.
  At IndexTable(Dtype dtype, uint32_t entries, uint32_t count) {
    const bool hostile = Sometimes(8);
    return Table(Sometimes(2) ? Place::kWeights : StateOrBinding(), dtype, entries, [&](uint32_t) {
      if (hostile && Sometimes(4)) return int64_t{static_cast<int32_t>(random_())};
      return int64_t{Below(count)};
    });
  }

  // --- What ops read and write ---

  bool Writable(const Matrix& matrix) { return PieceOf(matrix.at).place != Place::kWeights; }
  Matrix Any() {
    Matrix matrix = OneOf(values_);
    if (matrix.columns % (2 * Unit()) == 0 && Sometimes(6)) {
      matrix.columns /= 2;
      if (Sometimes(2)) matrix.at = matrix.Column(matrix.columns);
    }
    return matrix;
  }
  // One with such rows, in none of these pieces.
  std::optional<Matrix> Like(uint32_t columns, Dtype dtype, std::initializer_list<At> others,
                             bool written) {
    std::vector<Matrix> fitting;
    for (const Matrix& value : values_) {
      const bool other = std::none_of(others.begin(), others.end(),
                                      [&](const At& at) { return at.piece == value.at.piece; });
      if (value.columns == columns && value.dtype == dtype && other &&
          (!written || Writable(value))) {
        fitting.push_back(value);
      }
    }
    if (fitting.empty()) return std::nullopt;
    return OneOf(fitting);
  }
  // Where an op that reads these leaves its rows: memory of its own, or over what was there.
  Matrix Out(uint32_t columns, Dtype dtype, std::initializer_list<At> inputs) {
    if (Sometimes(5)) {
      if (const auto old = Like(columns, dtype, inputs, /*written=*/true)) return *old;
    }
    return NewMatrix(Sometimes(4) ? StateOrBinding() : Place::kArena, rows_, columns, dtype);
  }
  Indices OutIndices(Dtype dtype) {
    const Place place = Sometimes(2) ? StateOrBinding() : Place::kArena;
    const Indices indices{{AddPiece(place, rows_ * BytesOf(dtype), dtype)}, dtype};
    PieceOf(indices.at).drawn = true;
    return indices;
  }

  // An op that wrote `out` of these inputs.
  void Add(const char* kind, std::initializer_list<At> outs, std::initializer_list<At> inputs,
           RandomProgram::Submit submit) {
    for (const At& in : inputs) {
      if (in.piece == At::kNowhere || !PieceOf(in).drawn) continue;
      for (const At& out : outs) PieceOf(out).drawn = true;
    }
    program_.ops.push_back(std::move(submit));
    program_.kinds.push_back(kind);
  }
  void Keep(const Matrix& matrix) { values_.push_back(matrix); }

  // --- Steps: an op each, or a few that belong together ---

  void WriteStep();
  void Multiply();
  void MultiplyQuantized();
  void Copy();
  void RmsNorm();
  void LayerNorm();
  void Gate();
  void Embed();
  void Largest();
  void Head();
  void Elementwise();
  void Advance();
  void Sample();
  void Append();
  void Attend();
  void Finish();

  // A GEMM of these rows with weights of its own.
  Matrix Product(const Matrix& a, uint32_t n);
  void PickLargest(const Matrix& x);
  // What norms have in common: add(x, residual or none, out).
  template <typename AddIt>
  void Norm(const AddIt& add);
  template <typename Op>
  void AddNorm(const char* kind, const Matrix& x, const Matrix& residual, const Matrix& out,
               std::function<void(Op&, const Memory&)> finish);

  // Keys and values of some sequences.
  struct Cache {
    At k, v, table;  // table: of pages, or none
    KvCache shape;
    uint32_t kv_heads = 1, q_heads = 1, head_dim = 64;
    uint32_t table_stride = 0, length_max = 0;
    KvCache In(const Memory& memory) const {
      KvCache cache = shape;
      cache.k = Of(memory, k), cache.v = Of(memory, v);
      return cache;
    }
    uint32_t tokens() const { return shape.pages * shape.page_size; }
  };
  Cache MakeCache(uint32_t sequences);
  // Of each row another slot, or none.
  At MakeSlots(const Cache& cache, Dtype dtype);
  // Heads of q, k and v, of which those of k and v are in the cache.
  Matrix AppendTo(const Cache& cache, const Matrix& x);
  // Of chunks that hold all rows, some perhaps none.
  void AddPrefill(const AttentionDecodeOp& op, const Cache& cache, const Matrix& q,
                  const At& lengths, const Matrix& out, uint32_t sequences);

  std::mt19937 random_;
  bool long_ = false;    // it has a context of thousands of tokens, and few rows
  bool listed_ = false;  // it is of what the step kernel knows, which so has a list of it
  uint32_t rows_ = 0;
  Dtype dtype_ = kBf16;
  uint32_t bindings_ = 0;
  RandomProgram program_;
  std::vector<Matrix> values_;    // that ops may read
  std::vector<Indices> indices_;  // the same, of numbers that name rows
};

}  // namespace concert::test

#endif  // CONCERT_TESTS_E2E_RANDOM_AUTHOR_H_
