#include "policies/plan_cache.h"

#include <gtest/gtest.h>

#include <memory>

#include "policies/cost_memo.h"
#include "tests/unit/policies/works.h"

namespace concert::policies {
namespace {

Signature Of(const Work& gemm) {
  Signature signature;
  signature.Clear();
  signature.AddGemm(gemm, HashWork(gemm));
  return signature;
}

TEST(PlanCacheTest, FindsWhatWasInserted) {
  const auto cache = std::make_unique<PlanCache>();
  const Signature signature = Of(Gemm(64, 64, 64));
  EXPECT_FALSE(cache->Find(signature));
  const Choice choice{.form = Form::kStreams, .count = 3};
  cache->Insert(signature, choice);
  EXPECT_EQ(cache->Find(signature), choice);
}

TEST(PlanCacheTest, EqualHashesOfDifferentSignaturesAreNoHit) {
  const auto cache = std::make_unique<PlanCache>();
  Signature first = Of(Gemm(64, 64, 64)), second = Of(Gemm(64, 64, 128));
  first.hash = second.hash = 7;
  cache->Insert(first, {});
  EXPECT_FALSE(cache->Find(second));
  EXPECT_TRUE(cache->Find(first));
  cache->Insert(second, {});
  EXPECT_FALSE(cache->Find(first));
}

TEST(PlanCacheTest, EveryPartOfTheSignatureCounts) {
  const Work small = Gemm(16, 64, 64), large = Gemm(64, 64, 64);
  Signature a = Of(small), b = Of(small), c = Of(small), d = Of(large);
  b.AddFront(large, -1);
  c.AddFront(large, 0);
  EXPECT_FALSE(a == b);
  EXPECT_FALSE(b == c);
  EXPECT_FALSE(a == d);
  EXPECT_NE(a.hash, b.hash);
  EXPECT_NE(b.hash, c.hash);
  EXPECT_NE(a.hash, d.hash);
}

}  // namespace
}  // namespace concert::policies
