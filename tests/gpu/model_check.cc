#include "tests/gpu/model_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "tests/support/bf16.h"

namespace concert::test {
namespace {

// Of a matrix of results in the Frobenius norm: bf16 rounds some twenty times on the way through
// three layers, each time by at most 2^-9.
constexpr double kModelTolerance = 1e-2;
// How many times as much a row alone may differ, and an element relative to the mean square of its
// row or of all, whichever is larger: a row of two tokens may be four times as large as others.
constexpr double kRowSlack = 2, kElementSlackOfModel = 15;

struct Difference {
  double error = 0, norm = 0, largest = 0;  // squares

  void Add(uint16_t result, uint16_t right) {
    const double difference = test::FromBf16(result) - test::FromBf16(right);
    error += difference * difference;
    norm += double{test::FromBf16(right)} * test::FromBf16(right);
    largest = std::max(largest, difference * difference);
  }
  void Add(const Difference& other) {
    error += other.error, norm += other.norm;
    largest = std::max(largest, other.largest);
  }
  double relative() const { return norm == 0 ? std::sqrt(error) : std::sqrt(error / norm); }
};

// `columns` elements a row. NaN is never right.
void ExpectClose(const std::vector<uint16_t>& results, const std::vector<uint16_t>& right,
                 uint64_t columns, const std::string& what) {
  ASSERT_EQ(results.size(), right.size());
  std::vector<Difference> rows(right.size() / columns);
  Difference all;
  for (size_t i = 0; i < right.size(); ++i) rows[i / columns].Add(results[i], right[i]);
  for (const Difference& row : rows) all.Add(row);
  EXPECT_TRUE(all.relative() <= kModelTolerance) << what << ": error is " << all.relative();
  const double rows_norm = all.norm / static_cast<double>(std::max<size_t>(1, rows.size()));
  for (size_t i = 0; i < rows.size(); ++i) {
    const Difference& row = rows[i];
    EXPECT_TRUE(row.relative() <= kRowSlack * kModelTolerance)
        << what << ": error of row " << i << " is " << row.relative();
    const double mean = std::max(row.norm, rows_norm) / static_cast<double>(columns);
    EXPECT_LE(std::sqrt(row.largest), kElementSlackOfModel * kModelTolerance * std::sqrt(mean))
        << what << ": the largest error of an element of row " << i << ", of mean square " << mean;
  }
}

// Slots that rows append to, as the op takes them.
std::vector<uint64_t> AppendedTokens(const ModelStep& model, const std::vector<int64_t>& slots) {
  std::vector<uint64_t> tokens;
  for (const int64_t slot : slots) {
    if (slot >= 0)
      tokens.push_back(std::min(static_cast<uint64_t>(slot), model.cache_tokens() - 1));
  }
  return tokens;
}

template <typename T>
size_t FirstDifference(const std::vector<T>& a, const std::vector<T>& b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                             a.begin());
}

void ExpectInputsAsTheyWere(const ModelStep& model, const StepInputs& inputs,
                            std::vector<uint8_t> block) {
  const std::vector<uint8_t> before = model.BlockOf(inputs);
  const uint64_t out = model.OffsetOf(Binding::kOut), bytes = model.BytesOf(Binding::kOut);
  std::memcpy(&block[out], &before[out], bytes);
  EXPECT_TRUE(block == before) << "bindings differ at byte " << FirstDifference(block, before);
}

}  // namespace

void ExpectRightState(const ModelStep& model, const std::vector<int64_t>& slots,
                      const std::vector<uint8_t>& before, std::vector<uint8_t> left,
                      const std::vector<uint8_t>& reference) {
  const ModelShape& shape = model.shape();
  const uint64_t bytes = 2 * uint64_t{shape.head_dim};
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (const bool values : {false, true}) {
      std::vector<uint16_t> results, right;
      for (const uint64_t token : AppendedTokens(model, slots)) {
        for (uint32_t head = 0; head < shape.kv_heads; ++head) {
          const uint64_t at = model.CacheAt(layer, values) + 2 * model.HeadAt(token, head);
          const size_t count = results.size();
          results.resize(count + shape.head_dim), right.resize(results.size());
          std::memcpy(&results[count], &left[at], bytes);
          std::memcpy(&right[count], &reference[at], bytes);
          std::memcpy(&left[at], &before[at], bytes);
        }
      }
      ExpectClose(results, right, shape.kv_columns(),
                  std::string(values ? "values" : "keys") + " of layer " + std::to_string(layer));
    }
  }
  EXPECT_TRUE(left == before) << "the state differs at byte " << FirstDifference(left, before)
                              << ", where nothing was appended";
}

void ExpectRightBlock(const ModelStep& model, const StepInputs& inputs,
                      const std::vector<uint8_t>& block, const std::vector<uint8_t>& reference) {
  for (const bool normed : {false, true}) {
    ExpectClose(model.HiddenOf(block, normed), model.HiddenOf(reference, normed),
                model.shape().hidden, normed ? "normalised hidden states" : "hidden states");
  }
  if (model.shape().vocabulary != 0) {
    ExpectClose(model.LogitsOf(block), model.LogitsOf(reference), model.shape().vocabulary,
                "logits");
  }
  ExpectInputsAsTheyWere(model, inputs, block);
}

void ExpectRight(const ModelStep& model, const StepInputs& inputs,
                 const std::vector<uint8_t>& before, const Left& left, const Left& reference) {
  ExpectRightBlock(model, inputs, left.block, reference.block);
  ExpectRightState(model, inputs.slots, before, left.state, reference.state);
}

void ExpectGuarded(const ModelStep& model, const StepInputs& inputs,
                   const std::vector<uint8_t>& before, const Left& left) {
  std::vector<uint8_t> state = left.state;
  for (uint32_t layer = 0; layer < model.shape().layers; ++layer) {
    for (const bool values : {false, true}) {
      const uint64_t at = model.CacheAt(layer, values);
      std::memcpy(&state[at], &before[at], model.cache_bytes());
    }
  }
  EXPECT_TRUE(state == before) << "guards differ at byte " << FirstDifference(state, before);
  ExpectInputsAsTheyWere(model, inputs, left.block);
}

}  // namespace concert::test
