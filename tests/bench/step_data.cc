#include "tests/bench/step_data.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/bench/random_numbers.h"
#include "tests/support/bf16.h"

namespace concert::bench {
namespace {

constexpr uint64_t kDataSeed = 20261125;
constexpr double kTheta = 10'000;
// Of q * k / sqrt(head_dim) in standard deviations: some tokens count, not one alone.
constexpr float kScoreScale = 2;

// Four numbers of 16 bits from each random one: uniform in [middle - reach, middle + reach).
void FillRow(uint64_t seed, float middle, float reach, uint16_t* out, uint64_t count) {
  Random random(seed);
  for (uint64_t i = 0; i < count; i += 4) {
    uint64_t bits = random.Next();
    for (uint64_t j = i; j < std::min(i + 4, count); ++j, bits >>= 16) {
      const auto number = static_cast<float>(static_cast<int16_t>(bits & 0xFFFF));
      out[j] = test::ToBf16(middle + reach * 0x1p-15f * number);
    }
  }
}

bool IsNorm(StepTensor tensor) {
  return tensor == StepTensor::kFinalNorm || tensor == StepTensor::kNorm ||
         tensor == StepTensor::kMlpNorm;
}

// Of uniform numbers around 0, how far they reach: those with a standard deviation of 1, and for
// weight matrices that which gives outputs as large as inputs. What is added to the residual is
// smaller the more layers add to it (as GPT-2 and Megatron begin).
float ReachOf(StepTensor tensor, const StepModel& model, uint64_t columns) {
  const float unit = std::sqrt(3.0f), weight = unit / std::sqrt(static_cast<float>(columns));
  switch (tensor) {
    case StepTensor::kFinalNorm:
    case StepTensor::kNorm:
    case StepTensor::kMlpNorm:
      return 0.5f;
    case StepTensor::kQkv:
    case StepTensor::kGateUp:
      return weight;
    case StepTensor::kOut:
    case StepTensor::kDown:
      return weight / std::sqrt(2.0f * static_cast<float>(model.layers));
    default:
      return unit;
  }
}

// Seeds whatever their neighbours are.
uint64_t Mix(uint64_t a, uint64_t b) { return Random(a ^ Random(b).Next()).Next(); }

}  // namespace

std::vector<uint16_t> SwapInPages(const std::vector<uint16_t>& pages, uint32_t slow, uint32_t fast,
                                  uint32_t head_dim) {
  std::vector<uint16_t> swapped(pages.size());
  const size_t page_size = size_t{slow} * fast * head_dim;
  for (size_t page = 0; page < pages.size(); page += page_size) {
    for (size_t i = 0; i < slow; ++i) {
      for (size_t j = 0; j < fast; ++j) {
        std::copy_n(&pages[page + (i * fast + j) * head_dim], head_dim,
                    &swapped[page + (j * slow + i) * head_dim]);
      }
    }
  }
  return swapped;
}

StepData::StepData(const StepScenario::Client& client, uint64_t place)
    : client_(client), place_(place) {
  for (const uint32_t length : client_.lengths) pages_ += (length - 1) / kPageSize + 1;
  pages_of_sequence_ = (client_.longest() - 1) / kPageSize + 1;
  ShufflePages();
}

void StepData::ShufflePages() {
  std::vector<int32_t> order(pages_);
  std::iota(order.begin(), order.end(), 0);
  Random random(Mix(kDataSeed, place_));
  for (uint32_t i = pages_; i > 1; --i) std::swap(order[i - 1], order[random.Next() % i]);
  page_table_.assign(uint64_t{batch()} * pages_of_sequence_, 0);
  auto next = order.begin();
  for (uint32_t sequence = 0; sequence < batch(); ++sequence) {
    const uint32_t pages = (client_.lengths[sequence] - 1) / kPageSize + 1;
    std::copy_n(next, pages, page_table_.begin() + uint64_t{sequence} * pages_of_sequence_);
    next += pages;
  }
}

uint32_t StepData::PositionOf(uint32_t row) const {
  const uint32_t count = client_.new_tokens();
  return client_.lengths[SequenceOf(row)] - count + row % count;
}

StepExtent StepData::results() const {
  if (model().vocabulary > 0) return {batch(), model().vocabulary};
  return {rows(), model().hidden};
}

StepExtent StepData::extent(StepTensor tensor) const {
  const StepModel& model = client_.model;
  switch (tensor) {
    case StepTensor::kTable:
      return {model.vocabulary, model.hidden};
    case StepTensor::kFinalNorm:
    case StepTensor::kNorm:
    case StepTensor::kMlpNorm:
      return {1, model.hidden};
    case StepTensor::kHidden:
      return {rows(), model.hidden};
    case StepTensor::kQkv:
      return {model.qkv_columns(), model.hidden};
    case StepTensor::kOut:
      return {model.hidden, model.q_columns()};
    case StepTensor::kGateUp:
      return {2 * uint64_t{model.ffn}, model.hidden};
    case StepTensor::kDown:
      return {model.hidden, model.ffn};
    case StepTensor::kKeys:
    case StepTensor::kValues:
      return {uint64_t{pages_} * kPageSize, model.kv_columns()};
  }
  return {};
}

bool StepData::IsWeight(StepTensor tensor) {
  return tensor != StepTensor::kHidden && tensor != StepTensor::kKeys &&
         tensor != StepTensor::kValues;
}

uint64_t StepData::SeedOf(StepTensor tensor, uint32_t layer) const {
  const uint64_t owner = IsWeight(tensor) ? Mix(2, client_.weights_seed) : Mix(1, place_);
  return Mix(owner, Mix(kDataSeed + static_cast<uint64_t>(tensor), layer));
}

std::vector<uint16_t> StepData::Rows(StepTensor tensor, uint32_t layer, uint64_t first,
                                     uint64_t count) const {
  const uint64_t columns = extent(tensor).columns, seed = SeedOf(tensor, layer);
  const float reach = ReachOf(tensor, client_.model, columns);
  std::vector<uint16_t> rows(count * columns);
  for (uint64_t i = 0; i < count; ++i) {
    const bool is_query = tensor == StepTensor::kQkv && first + i < client_.model.q_columns();
    FillRow(Mix(seed, first + i), IsNorm(tensor) ? 1.0f : 0.0f,
            is_query ? kScoreScale * reach : reach, rows.data() + i * columns, columns);
  }
  return rows;
}

std::vector<uint16_t> StepData::Whole(StepTensor tensor, uint32_t layer) const {
  const StepExtent whole = extent(tensor);
  std::vector<uint16_t> rows(whole.rows * whole.columns);
  ForEach(static_cast<int>((whole.rows + kRowsAtOnce - 1) / kRowsAtOnce), [&](int block) {
    const uint64_t first = block * kRowsAtOnce;
    const auto part = Rows(tensor, layer, first, std::min(kRowsAtOnce, whole.rows - first));
    std::ranges::copy(part, rows.begin() + static_cast<ptrdiff_t>(first * whole.columns));
  });
  return rows;
}

uint64_t StepData::SlotOf(uint32_t sequence, uint32_t token) const {
  const int32_t page = page_table_[uint64_t{sequence} * pages_of_sequence_ + token / kPageSize];
  return uint64_t(page) * kPageSize + token % kPageSize;
}

std::vector<int32_t> StepData::tokens() const {
  Random random(Mix(kDataSeed + 1, place_));
  std::vector<int32_t> tokens(rows());
  for (int32_t& token : tokens)
    token = static_cast<int32_t>(random.Next() % client_.model.vocabulary);
  return tokens;
}

std::vector<int32_t> StepData::positions() const {
  std::vector<int32_t> positions;
  for (uint32_t row = 0; row < rows(); ++row)
    positions.push_back(static_cast<int32_t>(PositionOf(row)));
  return positions;
}

std::vector<int32_t> StepData::slots() const {
  std::vector<int32_t> slots;
  for (uint32_t row = 0; row < rows(); ++row)
    slots.push_back(static_cast<int32_t>(SlotOf(SequenceOf(row), PositionOf(row))));
  return slots;
}

std::vector<int32_t> StepData::lengths() const {
  return {client_.lengths.begin(), client_.lengths.end()};
}

std::vector<int32_t> StepData::query_starts() const {
  std::vector<int32_t> starts;
  for (uint32_t sequence = 0; sequence <= batch(); ++sequence)
    starts.push_back(static_cast<int32_t>(sequence * client_.new_tokens()));
  return starts;
}

std::vector<int32_t> StepData::last_rows() const {
  std::vector<int32_t> last = query_starts();
  last.erase(last.begin());
  for (int32_t& row : last) --row;
  return last;
}

std::vector<float> StepData::CosSin() const {
  const uint32_t half = client_.model.head_dim / 2;
  std::vector<float> rows;
  for (uint32_t position = 0; position < client_.longest(); ++position) {
    for (const bool sine : {false, true}) {
      for (uint32_t i = 0; i < half; ++i) {
        const double angle = position / std::pow(kTheta, static_cast<double>(i) / half);
        rows.push_back(static_cast<float>(sine ? std::sin(angle) : std::cos(angle)));
      }
    }
  }
  return rows;
}

}  // namespace concert::bench
