// The decode step of client/examples/decode.h, a program, against its reference: what the demo
// checks of it, over more steps, and that its check tells wrong results from right ones.
#include "client/examples/decode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "client/examples/bf16.h"
#include "client/examples/decode_reference.h"
#include "tests/support/seed.h"
#include "tests/support/test_daemon.h"

namespace concert::test {
namespace {

constexpr uint32_t kSequences = 3, kSteps = 36;  // three pages of the longest
constexpr uint32_t kStepsBetweenJoins = 5;

// Three sequences of random tokens, each beginning five steps after the one before. The second
// rests at every seventh step.
class DecodeTest : public testing::Test {
 protected:
  void Step() {
    tokens_.assign(kSequences, -1);
    for (uint32_t row = 0; row < kSequences; ++row) {
      if (steps_ < row * kStepsBetweenJoins || (row == 1 && steps_ % 7 == 6)) continue;
      tokens_[row] = static_cast<int32_t>(random_() % demo::kVocabulary);
      contexts_[row].push_back(tokens_[row]);
    }
    following_ = tokens_;
    decoder_.Step(following_).Check();
    logits_ = decoder_.Logits();
    ++steps_;
  }

  double Error(const std::vector<int32_t>& context, size_t row) const {
    return demo::RelativeError(&logits_[row * demo::kVocabulary],
                               demo::ReferenceLogits(weights_, context));
  }

  int64_t Largest(size_t row) const {
    const auto less = [](uint16_t a, uint16_t b) { return demo::FromBf16(a) < demo::FromBf16(b); };
    const uint16_t* own = &logits_[row * demo::kVocabulary];
    return std::max_element(own, own + demo::kVocabulary, less) - own;
  }

  const uint32_t seed_ = test::Seed();
  const testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
  std::mt19937 random_{seed_};
  TestDaemon daemon_{{.gpus = 1}};
  const Session session_ = daemon_.Connect("decode");
  const demo::Weights weights_ = demo::RandomWeights(seed_);
  demo::Decoder decoder_{session_, weights_, 0, kSequences, kSteps};
  std::vector<std::vector<int32_t>> contexts_ = std::vector<std::vector<int32_t>>(kSequences);
  uint32_t steps_ = 0;
  std::vector<int32_t> tokens_, following_;  // of the last step
  std::vector<uint16_t> logits_;
};

TEST_F(DecodeTest, ContextsThatGrowGiveWhatAPrefillGives) {
  while (steps_ < kSteps) {
    Step();
    for (size_t row = 0; row < kSequences; ++row) {
      if (tokens_[row] < 0) continue;
      ASSERT_EQ(following_[row], Largest(row));
      const size_t length = contexts_[row].size();
      // The first token, those around the ends of pages, and the last.
      if (length > 1 && length % 16 > 1 && steps_ < kSteps) continue;
      ASSERT_LE(Error(contexts_[row], row), demo::kLogitsTolerance)
          << "sequence " << row << ", " << length << " tokens";
    }
  }
}

TEST_F(DecodeTest, AnotherTokenAnywhereIsMoreThanTheToleranceLetsPass) {
  while (steps_ < kSteps) Step();
  for (size_t row = 0; row < kSequences; ++row) {
    const size_t length = contexts_[row].size();
    for (const size_t token : {size_t{0}, random_() % length, length - 1}) {
      std::vector<int32_t> other = contexts_[row];
      other[token] = (other[token] + 1) % demo::kVocabulary;
      EXPECT_GT(Error(other, row), demo::kLogitsTolerance)
          << "sequence " << row << ", token " << token << " of " << length;
    }
  }
}

}  // namespace
}  // namespace concert::test
