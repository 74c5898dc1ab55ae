#include "policies/plan_cache.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/unit/policies/works.h"

namespace concert::policies {
namespace {

Signature Of(const Work& gemm) {
  Signature signature;
  signature.AddGemm(gemm);
  return signature;
}

TEST(PlanCacheTest, FindsWhatWasInserted) {
  const auto cache = std::make_unique<PlanCache>();
  const Signature signature = Of(Gemm(64, 64, 64));
  const uint64_t hash = HashSignature(signature);
  EXPECT_FALSE(cache->Find(signature, hash));
  const Choice choice{.form = Form::kStreams, .count = 3};
  cache->Insert(signature, hash, choice);
  EXPECT_EQ(cache->Find(signature, hash), choice);
}

TEST(PlanCacheTest, EqualHashesOfDifferentSignaturesAreNoHit) {
  const auto cache = std::make_unique<PlanCache>();
  const Signature first = Of(Gemm(64, 64, 64)), second = Of(Gemm(64, 64, 128));
  cache->Insert(first, 7, {});
  EXPECT_FALSE(cache->Find(second, 7));
  EXPECT_TRUE(cache->Find(first, 7));
  cache->Insert(second, 7, {});
  EXPECT_FALSE(cache->Find(first, 7));
}

TEST(PlanCacheTest, EveryPartOfTheSignatureCounts) {
  const Work small = Gemm(16, 64, 64), large = Gemm(64, 64, 64);
  Signature a = Of(small), b = Of(small), c = Of(small), d = Of(large);
  b.AddFront(large, -1);
  c.AddFront(large, 0);
  EXPECT_FALSE(a == b);
  EXPECT_FALSE(b == c);
  EXPECT_FALSE(a == d);
  EXPECT_NE(HashSignature(a), HashSignature(b));
  EXPECT_NE(HashSignature(b), HashSignature(c));
  EXPECT_NE(HashSignature(a), HashSignature(d));
}

}  // namespace
}  // namespace concert::policies
