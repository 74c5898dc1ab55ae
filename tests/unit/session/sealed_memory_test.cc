#include "daemon/session/sealed_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/digest/digest.h"
#include "tests/bench/null_device.h"

namespace concert::daemon {
namespace {

constexpr uint64_t kRounding = 4096;

// Host memory. A test can say what digests are, and act before a copy.
class MemoryDevice final : public bench::NullDevice {
 public:
  absl::StatusOr<Allocation> Allocate(uint64_t bytes) override {
    if (full) return absl::ResourceExhaustedError("GPU 0 is full");
    const uint64_t rounded = (bytes + kRounding - 1) / kRounding * kRounding;
    auto memory = std::make_unique<char[]>(rounded);
    const auto address = reinterpret_cast<Address>(memory.get());
    memory_.emplace(address, std::move(memory));
    return Allocation{.address = address, .bytes = rounded, .gpu = gpu};
  }
  void Free(const Allocation& allocation) override {
    EXPECT_EQ(memory_.erase(allocation.address), 1u);
  }
  absl::StatusOr<uint64_t> Digest(Address data, uint64_t bytes) override {
    if (!digest_error.ok()) return digest_error;
    return digest ? *digest : kernels::DigestOf(reinterpret_cast<const void*>(data), bytes);
  }
  absl::StatusOr<bool> Same(Address a, Address b, uint64_t bytes) override {
    ++compared;
    if (before_compare) before_compare();
    return std::memcmp(reinterpret_cast<void*>(a), reinterpret_cast<void*>(b), bytes) == 0;
  }
  absl::Status Copy(Address to, Address from, uint64_t bytes) override {
    if (before_copy) before_copy();
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
    return copy_error;
  }

  size_t allocations() const { return memory_.size(); }

  int gpu = 0, compared = 0;
  bool full = false;
  std::optional<uint64_t> digest;
  absl::Status digest_error, copy_error;
  std::function<void()> before_copy, before_compare;

 private:
  std::map<Address, std::unique_ptr<char[]>> memory_;
};

class TwoGpus final : public Node {
 public:
  TwoGpus() { gpus[1].gpu = 1; }
  int gpu_count() const override { return 2; }
  MemoryDevice& gpu(int index) override { return gpus[index]; }
  absl::StatusOr<Address> RegisterHostMemory(void*, uint64_t) override { return 0; }
  void UnregisterHostMemory(void*) override {}
  absl::Status Connect(std::span<const int>) override { return absl::OkStatus(); }
  absl::Status LaunchCollective(std::span<const RankPart>,
                                const policies::TransportChoice&) override {
    return absl::OkStatus();
  }

  MemoryDevice gpus[2];
};

class SealedMemoryTest : public testing::Test {
 protected:
  static constexpr uint64_t kBytes = 100;
  static constexpr uint32_t kSession = 7;

  static Limits MakeLimits() {
    Limits limits;
    limits[Resource::kBufferBytes].per_user = 200 * kRounding;
    limits[Resource::kMappings].per_user = 200;
    return limits;
  }
  // The first `kBytes` of a client's buffer.
  static Allocation BufferOf(std::string& text, int gpu = 0) {
    text.resize(kBytes, '.');
    return {.address = reinterpret_cast<Address>(text.data()), .bytes = text.size(), .gpu = gpu};
  }
  SealedMemory::Holding Seal(std::string text, uint32_t uid = 1000, int gpu = 0,
                             uint32_t session = kSession) {
    const auto kept = sealed_.Keep(accounts_.Of(uid), BufferOf(text, gpu), kBytes);
    EXPECT_TRUE(kept.ok()) << kept.status();
    return sealed_.Hold(*kept, session);
  }
  static std::string TextOf(const SealedMemory::Holding& holding) {
    const std::string text(reinterpret_cast<const char*>(holding.allocation().address), kBytes);
    return text.substr(0, text.find('.'));
  }
  uint64_t used(Resource resource, uint32_t uid = 1000) {
    return accounts_.Of(uid).own().of(resource);
  }
  void ExpectUsed(uint64_t entries, uint32_t uid = 1000) {
    EXPECT_EQ(used(Resource::kBufferBytes, uid), entries * kRounding);
    EXPECT_EQ(used(Resource::kMappings, uid), entries);
    EXPECT_EQ(used(Resource::kBuffers, uid), 0u);
  }

  TwoGpus node_;
  MemoryDevice& gpu_ = node_.gpus[0];
  Accounts accounts_{MakeLimits()};
  SealedMemory sealed_{node_};
};

TEST_F(SealedMemoryTest, EqualContentsAreKeptOnceUntilTheLastHolderIsGone) {
  const auto first = Seal("weights"), other = Seal("others"), second = Seal("weights");
  EXPECT_EQ(first.allocation().address, second.allocation().address);
  EXPECT_NE(first.allocation().address, other.allocation().address);
  EXPECT_FALSE(first.shared());
  EXPECT_FALSE(other.shared());
  EXPECT_TRUE(second.shared());
  EXPECT_EQ(TextOf(second), "weights");
  EXPECT_EQ(TextOf(other), "others");
  ExpectUsed(2);
  sealed_.Release(first);  // whoever came first
  ExpectUsed(2);
  EXPECT_EQ(TextOf(second), "weights");
  sealed_.Release(second);
  ExpectUsed(1);
  const auto again = Seal("weights");
  EXPECT_FALSE(again.shared());
  sealed_.Release(other);
  sealed_.Release(again);
  ExpectUsed(0);
  EXPECT_EQ(gpu_.allocations(), 0u);
  EXPECT_EQ(sealed_.size(), 0u);
}

TEST_F(SealedMemoryTest, AllHoldersButTheFirstOfThoseThatAreThereShare) {
  const auto held_by = [&](uint32_t session) { return Seal("weights", 1000, 0, session); };
  const auto a = held_by(1), b = held_by(2), c = held_by(3), b_again = held_by(2);
  EXPECT_FALSE(a.shared());
  for (const auto& later : {b, c, b_again}) EXPECT_TRUE(later.shared());
  EXPECT_EQ(sealed_.Release(c), std::nullopt);  // it shared: nobody else does more or less
  EXPECT_EQ(sealed_.Release(a), 2u);
  EXPECT_FALSE(b.shared());
  EXPECT_TRUE(b_again.shared());
  EXPECT_EQ(sealed_.Release(b), 2u);  // of the same session
  EXPECT_FALSE(b_again.shared());
  const auto d = held_by(4);
  EXPECT_TRUE(d.shared());
  EXPECT_EQ(sealed_.Release(b_again), 4u);
  EXPECT_FALSE(d.shared());
  EXPECT_EQ(sealed_.Release(d), std::nullopt);
  EXPECT_EQ(sealed_.size(), 0u);
}

TEST_F(SealedMemoryTest, BytesOfAGpuAreWhatItHoldsAndWhatSharingSaves) {
  const auto expect_entries = [&](int gpu, uint64_t held, uint64_t saved) {
    EXPECT_EQ(sealed_.bytes(gpu).held, held * kRounding) << "GPU " << gpu;
    EXPECT_EQ(sealed_.bytes(gpu).saved, saved * kRounding) << "GPU " << gpu;
  };
  const auto first = Seal("weights"), second = Seal("weights"), third = Seal("weights");
  const auto others = Seal("weights", 1001), elsewhere = Seal("weights", 1000, 1);
  expect_entries(0, 2, 2);
  expect_entries(1, 1, 0);
  sealed_.Release(first);
  expect_entries(0, 2, 1);
  sealed_.Release(third);
  sealed_.Release(others);
  expect_entries(0, 1, 0);
  sealed_.Release(second);
  expect_entries(0, 0, 0);
  expect_entries(1, 1, 0);
  sealed_.Release(elsewhere);
  expect_entries(1, 0, 0);
}

TEST_F(SealedMemoryTest, UsersGpusAndSizesShareNothing) {
  std::string text = "weights";
  const Allocation buffer = BufferOf(text);
  std::vector<SealedMemory::Holding> holdings = {Seal("weights"), Seal("weights", 1001),
                                                 Seal("weights", 1000, 1)};
  holdings.push_back(sealed_.Hold(*sealed_.Keep(accounts_.Of(1000), buffer, kBytes - 1), kSession));
  for (const auto& holding : holdings) EXPECT_FALSE(holding.shared());
  EXPECT_EQ(holdings[2].allocation().gpu, 1);
  EXPECT_EQ(node_.gpus[1].allocations(), 1u);
  ExpectUsed(3, 1000);
  ExpectUsed(1, 1001);
}

TEST_F(SealedMemoryTest, AnEqualDigestAloneProvesNothing) {
  gpu_.digest = 7;
  const auto first = Seal("one"), second = Seal("two"), third = Seal("two");
  EXPECT_EQ(TextOf(first), "one");
  EXPECT_EQ(TextOf(second), "two");
  EXPECT_TRUE(third.shared());
  EXPECT_EQ(third.allocation().address, second.allocation().address);
}

TEST_F(SealedMemoryTest, WhoMakesEqualDigestsIsComparedSoOftenOnly) {
  gpu_.digest = 7;
  for (int i = 0; i < SealedMemory::kMaxCompared + 10; ++i) Seal(std::to_string(i));
  gpu_.compared = 0;
  EXPECT_FALSE(Seal("another").shared());
  EXPECT_EQ(gpu_.compared, SealedMemory::kMaxCompared);
  EXPECT_TRUE(Seal("0").shared());
}

// What the client writes meanwhile changes which contents it gets and nobody else's.
TEST_F(SealedMemoryTest, TheDigestThatIsKeptIsThatOfTheCopy) {
  std::string text = "before";
  const Allocation buffer = BufferOf(text);
  gpu_.before_copy = [&] { text.replace(0, 6, "meanwh"); };
  const auto kept = sealed_.Keep(accounts_.Of(1000), buffer, kBytes);
  ASSERT_TRUE(kept.ok());
  const SealedMemory::Holding raced = sealed_.Hold(*kept, kSession);
  gpu_.before_copy = nullptr;
  EXPECT_EQ(TextOf(raced), "meanwh");
  EXPECT_FALSE(Seal("before").shared());
  const auto equal = Seal("meanwh");
  EXPECT_TRUE(equal.shared());
  text.replace(0, 6, "behind");
  EXPECT_EQ(TextOf(equal), "meanwh");
}

// The last holder may go while its memory is compared, and before who finds it equal holds it.
TEST_F(SealedMemoryTest, WhatIsKeptStaysWithoutHolders) {
  const auto first = Seal("weights");
  bool is_held = true;
  gpu_.before_compare = [&] {
    if (std::exchange(is_held, false)) sealed_.Release(first);
  };
  std::string text = "weights";
  const auto kept = sealed_.Keep(accounts_.Of(1000), BufferOf(text), kBytes);
  ASSERT_TRUE(kept.ok());
  ASSERT_FALSE(is_held);
  EXPECT_EQ(sealed_.bytes(0).held, 0u);
  ExpectUsed(1);
  const auto second = sealed_.Hold(*kept, kSession);
  EXPECT_FALSE(second.shared());
  EXPECT_EQ(TextOf(second), "weights");
  sealed_.Release(second);
  ExpectUsed(0);
}

TEST_F(SealedMemoryTest, WhatIsComparedInVainMayGoMeanwhile) {
  gpu_.digest = 7;
  std::vector<SealedMemory::Holding> held = {Seal("one"), Seal("two")};
  gpu_.before_compare = [&] {
    for (const auto& holding : std::exchange(held, {})) sealed_.Release(holding);
  };
  std::string text = "three";
  const auto kept = sealed_.Keep(accounts_.Of(1000), BufferOf(text), kBytes);
  ASSERT_TRUE(kept.ok());
  EXPECT_TRUE(held.empty());
  EXPECT_EQ(gpu_.allocations(), 1u);
  sealed_.GiveUp(*kept);
  ExpectUsed(0);
  EXPECT_EQ(gpu_.allocations(), 0u);
}

TEST_F(SealedMemoryTest, AFailureLeavesNothing) {
  std::string text = "weights";
  const Allocation buffer = BufferOf(text);
  const auto code = [&] {
    return sealed_.Keep(accounts_.Of(1000), buffer, kBytes).status().code();
  };
  gpu_.full = true;
  EXPECT_EQ(code(), absl::StatusCode::kResourceExhausted);
  gpu_.full = false;
  gpu_.copy_error = absl::InternalError("copy");
  EXPECT_EQ(code(), absl::StatusCode::kInternal);
  gpu_.copy_error = absl::OkStatus();
  gpu_.digest_error = absl::InternalError("digest");
  EXPECT_EQ(code(), absl::StatusCode::kInternal);
  gpu_.digest_error = absl::OkStatus();
  ExpectUsed(0);
  EXPECT_EQ(gpu_.allocations(), 0u);
  EXPECT_EQ(sealed_.size(), 0u);
}

TEST_F(SealedMemoryTest, AnEntryCountsAgainstTheQuotaAndAnotherHolderDoesNot) {
  const uint64_t room = 200 * kRounding;
  Account& account = accounts_.Of(1000);
  // Not even for the bytes, and for them but not for what they are rounded up to.
  for (const uint64_t left : {kBytes - 1, kRounding - 1}) {
    ASSERT_TRUE(account.TryCharge(Resource::kBufferBytes, room - left));
    std::string text = "weights";
    const absl::Status status = sealed_.Keep(account, BufferOf(text), kBytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_NE(status.message().find("buffer_bytes"), std::string::npos) << status;
    account.Release(Resource::kBufferBytes, room - left);
    ExpectUsed(0);
    EXPECT_EQ(gpu_.allocations(), 0u);
  }
  ASSERT_TRUE(account.TryCharge(Resource::kBufferBytes, room - kRounding));
  const auto first = Seal("weights");
  EXPECT_TRUE(Seal("weights").shared());
  sealed_.Release(first);
  EXPECT_EQ(used(Resource::kBufferBytes), room);
}

}  // namespace
}  // namespace concert::daemon
