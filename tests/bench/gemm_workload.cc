#include "tests/bench/gemm_workload.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "Eigen/Core"
#include "tests/bench/random_numbers.h"
#include "tests/support/e4m3.h"

namespace concert::bench {
namespace {

// Three times the 60 MB of L2 of an H200: with less, weights of a set that comes round again are
// still cached.
constexpr double kRotatedBytes = 180e6;
constexpr int kMaxSets = 64;
static_assert(kMaxSets % GemmWorkload::kBatchesInFlight == 0);
constexpr uint32_t kElementsPerPart = 1 << 20;  // a millisecond of one core
constexpr uint64_t kAlignment = 256;            // of cudaMalloc

template <typename T>
void FillRandom(uint8_t* data, uint64_t count, Random& random) {
  for (uint64_t i = 0; i < count; ++i) {
    const T value(random.Uniform());
    std::memcpy(data + i * sizeof(T), &value, sizeof(T));
  }
}

void FillRandom(Dtype dtype, uint8_t* data, uint64_t count, Random& random) {
  switch (dtype) {
    case Dtype::kBf16:
      return FillRandom<Eigen::bfloat16>(data, count, random);
    case Dtype::kFp16:
      return FillRandom<Eigen::half>(data, count, random);
    case Dtype::kFp32:
      return FillRandom<float>(data, count, random);
    case Dtype::kFp8E4m3:
      for (uint64_t i = 0; i < count; ++i)
        data[i] = test::EncodeE4m3(random.Uniform() * kernels::kMaxE4m3);
  }
}

template <typename T>
void LoadRow(const uint8_t* data, uint64_t count, double* row) {
  for (uint64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, data + i * sizeof(T), sizeof(T));
    row[i] = static_cast<double>(static_cast<float>(value));
  }
}

// One row of a matrix, upcast.
void LoadRow(Dtype dtype, const uint8_t* data, uint64_t count, double* row) {
  switch (dtype) {
    case Dtype::kBf16:
      return LoadRow<Eigen::bfloat16>(data, count, row);
    case Dtype::kFp16:
      return LoadRow<Eigen::half>(data, count, row);
    case Dtype::kFp32:
      return LoadRow<float>(data, count, row);
    case Dtype::kFp8E4m3:
      std::transform(data, data + count, row, kernels::DecodeE4m3);
  }
}

// Different in every set, so that a stale scale shows.
float ScaleOfA(int set) { return static_cast<float>(1 + set) / kernels::kMaxE4m3; }
constexpr float kScaleOfW = 1 / kernels::kMaxE4m3;

double Dot(const double* x, const double* y, uint64_t count) {
  const auto size = static_cast<Eigen::Index>(count);
  return Eigen::VectorXd::Map(x, size).dot(Eigen::VectorXd::Map(y, size));
}

// The ratio of two sums of few random squares scatters: of right results of one row, each of the
// sums of four, one in 460 would have 6 times the error of its rounding (the F distribution); with
// 32 one in 11000 has twice that.
constexpr uint32_t kMinProjections = 4, kMinProjectedRows = 32;

int ProjectionsOf(const GemmShape& shape) {
  return static_cast<int>(std::max(kMinProjections, (kMinProjectedRows + shape.m - 1) / shape.m));
}

// Of every projection the signs of D's columns, the same for the reference and the check.
std::vector<std::vector<double>> SignsOf(const GemmShape& shape, uint64_t seed) {
  std::vector<std::vector<double>> signs(ProjectionsOf(shape), std::vector<double>(shape.n));
  for (uint64_t projection = 0; projection < signs.size(); ++projection) {
    Random random(seed ^ (0xA5A5A5A5u + projection));
    for (double& sign : signs[projection]) sign = (random.Next() >> 63) != 0 ? 1.0 : -1.0;
  }
  return signs;
}

uint64_t Reserve(uint64_t& end, uint64_t bytes) {
  const uint64_t begin = end;
  end = (end + bytes + kAlignment - 1) / kAlignment * kAlignment;
  return begin;
}

}  // namespace

GemmWorkload::GemmWorkload(const GemmScenario& scenario, uint64_t seed, Layout layout)
    : scenario_(&scenario), seed_(seed), layout_(layout) {
  double set_bytes = 0;
  for (const GemmShape& shape : scenario.gemms) set_bytes += shape.bytes();
  // What runs one behind the other can do with one set.
  const int step = layout == Layout::kIndependent ? kBatchesInFlight : 1;
  const double steps = std::ceil(kRotatedBytes / set_bytes / step);
  const int sets = step * static_cast<int>(std::clamp<double>(steps, 1, kMaxSets / step));
  for (int set = 0; set < sets; ++set) {
    std::vector<GemmPlace>& places = places_.emplace_back();
    for (int gemm = 0; gemm < gemms(); ++gemm) {
      const GemmShape& s = shape(gemm);
      GemmPlace place;
      place.a = ReadsPredecessor(gemm) ? places.back().d : Reserve(bytes_, input_bytes(gemm));
      place.w = Reserve(bytes_, uint64_t{DtypeBytes(s.dtype)} * s.n * s.k);
      place.d = Reserve(bytes_, output_bytes(gemm));
      if (s.has_scales()) {
        place.a_scales = Reserve(bytes_, sizeof(float));
        place.w_scales = Reserve(bytes_, sizeof(float));
      }
      places.push_back(place);
    }
  }
}

bool GemmWorkload::ReadsPredecessor(int gemm) const {
  if (layout_ != Layout::kChained || gemm == 0) return false;
  const GemmShape& before = shape(gemm - 1);
  const GemmShape& after = shape(gemm);
  return before.m == after.m && before.n == after.k && before.d_dtype() == after.dtype;
}

uint64_t GemmWorkload::input_bytes(int gemm) const {
  return uint64_t{DtypeBytes(shape(gemm).dtype)} * shape(gemm).m * shape(gemm).k;
}

uint64_t GemmWorkload::output_bytes(int gemm) const {
  return uint64_t{DtypeBytes(shape(gemm).d_dtype())} * shape(gemm).m * shape(gemm).n;
}

int GemmWorkload::largest_output() const {
  int largest = 0;
  for (int gemm = 1; gemm < gemms(); ++gemm) {
    if (output_bytes(gemm) > output_bytes(largest)) largest = gemm;
  }
  return largest;
}

std::vector<uint8_t> GemmWorkload::MakeImage() {
  std::vector<uint8_t> image(bytes_, 0xFF);
  const bool chained = layout_ == Layout::kChained;
  if (chained) {
    projected_.assign(sets(), std::vector<Projected>(gemms()));
  } else {
    references_.assign(sets(), std::vector<Reference>(gemms()));
  }
  ForEach(sets() * gemms(), [&](int item) { MakeInputs(item / gemms(), item % gemms(), image); });
  ForEach(sets() * gemms(), [&](int item) {
    const int set = item / gemms(), gemm = item % gemms();
    Projected projected = ProjectWeights(set, gemm, image);
    if (chained) {
      projected_[set][gemm] = std::move(projected);
    } else {
      references_[set][gemm] = MakeReference(gemm, projected, image.data() + place(set, gemm).a);
    }
  });
  return image;
}

void GemmWorkload::MakeInputs(int set, int gemm, std::vector<uint8_t>& image) const {
  const GemmShape& s = shape(gemm);
  Random random(seed_ + static_cast<uint64_t>(set * gemms() + gemm) * 0x1000003u);
  if (!ReadsPredecessor(gemm)) {
    FillRandom(s.dtype, image.data() + place(set, gemm).a, uint64_t{s.m} * s.k, random);
  }
  // A sum of k products with variance sigma^2 / 3 each has variance sigma^2 again.
  if (layout_ == Layout::kChained) random.set_scale(std::sqrt(3.0f / static_cast<float>(s.k)));
  FillRandom(s.dtype, image.data() + place(set, gemm).w, uint64_t{s.n} * s.k, random);
  if (!s.has_scales()) return;
  const float a_scale = ScaleOfA(set);
  std::memcpy(image.data() + place(set, gemm).a_scales, &a_scale, sizeof(a_scale));
  std::memcpy(image.data() + place(set, gemm).w_scales, &kScaleOfW, sizeof(kScaleOfW));
}

GemmWorkload::Projected GemmWorkload::ProjectWeights(int set, int gemm,
                                                     const std::vector<uint8_t>& image) const {
  const GemmShape& s = shape(gemm);
  const uint64_t row_bytes = uint64_t{DtypeBytes(s.dtype)} * s.k;
  const int projections = ProjectionsOf(s);
  const std::vector<std::vector<double>> signs = SignsOf(s, seed_);
  std::vector<double> row(s.k);
  Projected projected(uint64_t{s.k} * projections);
  const double scale = s.has_scales() ? double{ScaleOfA(set)} * kScaleOfW : 1;
  for (uint32_t j = 0; j < s.n; ++j) {
    LoadRow(s.dtype, image.data() + place(set, gemm).w + j * row_bytes, s.k, row.data());
    for (int p = 0; p < projections; ++p) {
      double* const sums = projected.data() + uint64_t{s.k} * p;
      for (uint32_t i = 0; i < s.k; ++i) sums[i] += scale * signs[p][j] * row[i];
    }
  }
  return projected;
}

GemmWorkload::Reference GemmWorkload::MakeReference(int gemm, const Projected& projected,
                                                    const uint8_t* a) const {
  const GemmShape& s = shape(gemm);
  const uint64_t row_bytes = uint64_t{DtypeBytes(s.dtype)} * s.k;
  std::vector<double> row(s.k);
  const int projections = ProjectionsOf(s);
  Reference reference(uint64_t{s.m} * projections);
  for (uint32_t i = 0; i < s.m; ++i) {
    LoadRow(s.dtype, a + i * row_bytes, s.k, row.data());
    for (int p = 0; p < projections; ++p) {
      reference[uint64_t{s.m} * p + i] = Dot(row.data(), projected.data() + uint64_t{s.k} * p, s.k);
    }
  }
  return reference;
}

double GemmWorkload::RelativeError(int set, int gemm, std::span<const uint8_t> output) const {
  return ErrorAgainst(references_[set][gemm], gemm, output.data());
}

double GemmWorkload::RelativeError(int set, int gemm, const std::vector<uint8_t>& input,
                                   const std::vector<uint8_t>& output) const {
  return ErrorAgainst(MakeReference(gemm, projected_[set][gemm], input.data()), gemm,
                      output.data());
}

double GemmWorkload::ErrorAgainst(const Reference& reference, int gemm,
                                  const uint8_t* output) const {
  const GemmShape& s = shape(gemm);
  const uint64_t row_bytes = uint64_t{DtypeBytes(s.d_dtype())} * s.n;
  const int projections = ProjectionsOf(s);
  const std::vector<std::vector<double>> signs = SignsOf(s, seed_);

  // In parts, summed in order: a large D takes long on one core.
  const uint32_t rows = std::max<uint32_t>(1, kElementsPerPart / s.n);
  const uint32_t parts = (s.m + rows - 1) / rows;
  std::vector<double> errors(parts), norms(parts);
  ForEach(static_cast<int>(parts), [&](int part) {
    std::vector<double> row(s.n);
    const uint32_t end = std::min(s.m, (part + 1) * rows);
    for (uint32_t i = part * rows; i < end; ++i) {
      LoadRow(s.d_dtype(), output + i * row_bytes, s.n, row.data());
      for (int p = 0; p < projections; ++p) {
        const double expected = reference[uint64_t{s.m} * p + i];
        const double difference = Dot(row.data(), signs[p].data(), s.n) - expected;
        errors[part] += difference * difference;
        norms[part] += expected * expected;
      }
    }
  });
  return std::sqrt(std::accumulate(errors.begin(), errors.end(), 0.0) /
                   std::accumulate(norms.begin(), norms.end(), 0.0));
}

double GemmWorkload::Tolerance(Dtype dtype) {
  if (dtype == Dtype::kFp8E4m3) return 5e-2;
  return dtype == Dtype::kFp32 ? 1e-4 : 1e-2;
}

}  // namespace concert::bench
