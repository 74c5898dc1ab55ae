#include "policies/auto/plan_cache.h"

#include <gtest/gtest.h>

#include <vector>

#include "policies/cost/cost_memo.h"
#include "tests/unit/policies/works.h"

namespace concert::policies {
namespace {

// A signature of works that it keeps.
class Key {
 public:
  explicit Key(uint32_t context = 0) : context_(context) {}
  Key& Add(const Work& work, uint8_t tag = 0) { return AddHashed(work, HashWork(work), tag); }
  Key& AddHashed(const Work& work, uint64_t hash, uint8_t tag = 0) {
    ops_.push_back({work, hash, tag});
    return *this;
  }
  Signature get() const {
    Signature signature;
    signature.Start(context_);
    for (const Op& op : ops_) signature.Add(op.work, op.hash, op.tag);
    return signature;
  }

 private:
  struct Op {
    Work work;
    uint64_t hash;
    uint8_t tag;
  };
  uint32_t context_;
  std::vector<Op> ops_;
};

LaunchSplit Marked(uint16_t mark) {
  LaunchSplit split;
  split.tuned = mark;
  return split;
}

TEST(PlanCacheTest, FindsWhatWasInserted) {
  PlanCache cache;
  const Key key = Key().Add(Gemm(64, 64, 64));
  EXPECT_EQ(cache.Find(key.get()), nullptr);
  cache.Insert(key.get(), Marked(3));
  ASSERT_NE(cache.Find(key.get()), nullptr);
  EXPECT_EQ(cache.Find(key.get())->tuned, 3);
  cache.Drop(key.get().hash());
  EXPECT_EQ(cache.Find(key.get()), nullptr);
}

TEST(PlanCacheTest, EqualHashesOfDifferentSignaturesAreNoHit) {
  PlanCache cache;
  const Key first = Key().AddHashed(Gemm(64, 64, 64), 7);
  const Key second = Key().AddHashed(Gemm(64, 64, 128), 7);
  ASSERT_EQ(first.get().hash(), second.get().hash());
  cache.Insert(first.get(), Marked(1));
  EXPECT_EQ(cache.Find(second.get()), nullptr);
  EXPECT_NE(cache.Find(first.get()), nullptr);
  cache.Insert(second.get(), Marked(2));
  EXPECT_EQ(cache.Find(first.get()), nullptr);
}

TEST(PlanCacheTest, EveryPartOfTheSignatureCounts) {
  const Work small = Gemm(16, 64, 64), large = Gemm(64, 64, 64);
  const Key key = Key().Add(small).Add(large);
  PlanCache cache;
  cache.Insert(key.get(), Marked(1));
  for (const Key& other :
       {Key().Add(large).Add(small), Key().Add(small), Key().Add(small).Add(large, 1),
        Key(1).Add(small).Add(large), Key().Add(small).Add(large).Add(large)}) {
    EXPECT_NE(key.get().hash(), other.get().hash());
    EXPECT_EQ(cache.Find(other.get()), nullptr);
  }
}

// The ring of keys comes round before the slots are used up: what it has overwritten is not found,
// rather than found wrong.
TEST(PlanCacheTest, OverwrittenKeysAreForgotten) {
  PlanCache cache;
  const auto key_of = [](uint32_t i) {
    Key key;
    for (uint32_t op = 0; op < kMaxReady; ++op) key.Add(Gemm(1 + i, 64, 64 + op));
    return key;
  };
  constexpr uint16_t kInserted = 400;
  for (uint16_t i = 0; i < kInserted; ++i) cache.Insert(key_of(i).get(), Marked(i));
  int found = 0;
  for (uint16_t i = 0; i < kInserted; ++i) {
    const LaunchSplit* split = cache.Find(key_of(i).get());
    if (split == nullptr) continue;
    EXPECT_EQ(split->tuned, i);
    ++found;
  }
  EXPECT_GT(found, 50);
  EXPECT_LE(found, 128);
}

}  // namespace
}  // namespace concert::policies
