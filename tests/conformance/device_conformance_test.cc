// What every backend promises in device.h about memory, order, timelines and faults.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "kernels/digest/digest.h"
#include "tests/conformance/device_fixture.h"
#include "tests/support/seed.h"

namespace concert::daemon::conformance {
namespace {

using DeviceConformanceTest = DeviceTest;

Bytes Pattern(uint64_t bytes, uint64_t seed) {
  std::mt19937_64 random(test::Seed() + seed);
  Bytes pattern(bytes);
  for (uint8_t& byte : pattern) byte = static_cast<uint8_t>(random());
  return pattern;
}

TEST_P(DeviceConformanceTest, EveryGpuDescribesItself) {
  ASSERT_GE(node().gpu_count(), 1);
  for (int i = 0; i < node().gpu_count(); ++i) {
    const DeviceInfo& info = gpu(i).info();
    EXPECT_EQ(info.gpu, i);
    EXPECT_EQ(info.backend, GetParam().substr(0, info.backend.size()));
    EXPECT_FALSE(info.name.empty());
    EXPECT_GT(info.memory_bytes, 0u);
    EXPECT_GT(info.model.sm_count, 0);
    EXPECT_TRUE(gpu(i).healthy().ok()) << gpu(i).healthy();
  }
}

TEST_P(DeviceConformanceTest, ListsVariantsThatDescribeThemselves) {
  const policies::Problem problem = {.m = 64, .n = 256, .k = 128};
  for (const int sm_budget : {0, gpu().info().model.sm_count / 2}) {
    const std::vector<policies::Variant> variants = gpu().Variants(problem, sm_budget);
    EXPECT_FALSE(variants.empty());
    for (size_t i = 0; i < variants.size(); ++i) {
      EXPECT_NE(variants[i].source, policies::Variant::Source::kNone);
      EXPECT_EQ(variants[i].dtype, problem.dtype);
      if (sm_budget != 0) {
        EXPECT_EQ(variants[i].sm_budget, sm_budget);
      }
      EXPECT_EQ(std::count(variants.begin(), variants.end(), variants[i]), 1);
    }
  }
}

TEST_P(DeviceConformanceTest, AllocationsAreZeroedAndRoundedUp) {
  // Memory that is freed dirty comes back clean.
  for (int round = 0; round < 3; ++round) {
    absl::StatusOr<Allocation> allocation = gpu().Allocate(100001);
    ASSERT_TRUE(allocation.ok()) << allocation.status();
    EXPECT_GE(allocation->bytes, 100001u);
    EXPECT_TRUE(allocation->pool);
    Bytes content(allocation->bytes);
    backend_->Read(0, content.data(), allocation->address, content.size());
    EXPECT_EQ(content, Bytes(content.size(), 0));
    backend_->Write(0, allocation->address, Pattern(content.size(), 1).data(), content.size());
    close(allocation->export_fd);
    gpu().Free(*allocation);
  }
}

TEST_P(DeviceConformanceTest, RefusesImpossibleAllocations) {
  EXPECT_EQ(gpu().Allocate(0).status().code(), absl::StatusCode::kInvalidArgument);
  for (const uint64_t bytes : {uint64_t{1} << 50, std::numeric_limits<uint64_t>::max()}) {
    EXPECT_EQ(gpu().Allocate(bytes).status().code(), absl::StatusCode::kResourceExhausted) << bytes;
  }
}

TEST_P(DeviceConformanceTest, AnExportedAllocationCanBeImported) {
  absl::StatusOr<Allocation> own = gpu().Allocate(1 << 20);
  ASSERT_TRUE(own.ok()) << own.status();
  ASSERT_GE(own->export_fd, 0);
  const ImportRequest request{.kind = backend_->export_kind(),
                              .fd = own->export_fd,
                              .offset = 4096,
                              .bytes = 8192,
                              .allocation_bytes = own->bytes};
  absl::StatusOr<Allocation> imported = gpu().Import(request);
  close(own->export_fd);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->bytes, 8192u);
  const Bytes pattern = Pattern(8192, 2);
  backend_->Write(0, own->address + 4096, pattern.data(), pattern.size());
  Bytes seen(8192);
  backend_->Read(0, seen.data(), imported->address, seen.size());
  EXPECT_EQ(seen, pattern);
  gpu().Free(*imported);
  gpu().Free(*own);
}

TEST_P(DeviceConformanceTest, RefusesImportsThatDoNotFit) {
  absl::StatusOr<Allocation> own = gpu().Allocate(1 << 20);
  ASSERT_TRUE(own.ok()) << own.status();
  const ImportRequest good{.kind = backend_->export_kind(),
                           .fd = own->export_fd,
                           .bytes = 4096,
                           .allocation_bytes = own->bytes};
  ImportRequest bad = good;
  bad.kind = 99;
  EXPECT_EQ(gpu().Import(bad).status().code(), absl::StatusCode::kInvalidArgument);
  bad = good;
  bad.offset = own->bytes;
  EXPECT_EQ(gpu().Import(bad).status().code(), absl::StatusCode::kInvalidArgument);
  bad = good;
  bad.offset = std::numeric_limits<uint64_t>::max() - 4095;
  EXPECT_EQ(gpu().Import(bad).status().code(), absl::StatusCode::kInvalidArgument);
  bad = good;
  bad.bytes = 0;
  EXPECT_EQ(gpu().Import(bad).status().code(), absl::StatusCode::kInvalidArgument);
  bad = good;
  bad.fd = -1;
  EXPECT_EQ(gpu().Import(bad).status().code(), absl::StatusCode::kInvalidArgument);
  close(own->export_fd);
  gpu().Free(*own);
}

// Around the sizes of what kernels read at a time, at addresses that fit and that do not.
TEST_P(DeviceConformanceTest, DigestsAreThoseOfTheContents) {
  for (const uint64_t bytes : {1, 7, 8, 9, 16, 4097, 65536, 65537, 65544, 131083, 1000003}) {
    const Bytes pattern = Pattern(bytes + 16, 6);
    const uint32_t buffer = NewBuffer(pattern);
    for (const uint64_t offset : {0, 1, 8, 16}) {
      const absl::StatusOr<uint64_t> digest = gpu().Digest(AddressOf(buffer) + offset, bytes);
      ASSERT_TRUE(digest.ok()) << digest.status();
      EXPECT_EQ(*digest, kernels::DigestOf(pattern.data() + offset, bytes))
          << bytes << " bytes at offset " << offset;
    }
  }
}

TEST_P(DeviceConformanceTest, ContentsAreTheSameOrDifferInAnyByte) {
  std::mt19937_64 random(test::Seed());
  for (const uint64_t bytes : {1, 7, 8, 13, 65536, 65539, 400009}) {
    const Bytes pattern = Pattern(bytes + 1, 7);
    const uint32_t a = NewBuffer(pattern), b = NewBuffer(bytes + 1), c = NewBuffer(bytes + 1);
    ASSERT_TRUE(gpu().Copy(AddressOf(b), AddressOf(a), bytes).ok());
    ASSERT_TRUE(gpu().Copy(AddressOf(c) + 1, AddressOf(a), bytes).ok());
    EXPECT_EQ(Read(b, bytes + 1), [&] {
      Bytes copied = pattern;
      copied.back() = 0;  // behind what was copied
      return copied;
    }());
    EXPECT_TRUE(gpu().Same(AddressOf(a), AddressOf(b), bytes).value());
    EXPECT_TRUE(gpu().Same(AddressOf(a), AddressOf(c) + 1, bytes).value());
    for (const uint64_t at : {uint64_t{0}, bytes / 2, bytes - 1, random() % bytes}) {
      Bytes other = pattern;
      other[at] ^= static_cast<uint8_t>(1u << random() % 8);
      Write(b, other);
      EXPECT_FALSE(gpu().Same(AddressOf(a), AddressOf(b), bytes).value()) << at << " of " << bytes;
      EXPECT_FALSE(gpu().Same(AddressOf(b), AddressOf(c) + 1, bytes).value());
      // What lies behind the range does not count.
      if (at > 0) {
        EXPECT_TRUE(gpu().Same(AddressOf(a), AddressOf(b), at).value());
      }
    }
  }
}

TEST_P(DeviceConformanceTest, CopiesAndThenSignals) {
  const Bytes pattern = Pattern(1000003, 3);
  const uint32_t src = NewBuffer(pattern), dst = NewPoisoned(pattern.size());
  const Op op = Copy(src, dst, pattern.size() - 5, 5);
  Run(op);
  EXPECT_EQ(Read(dst, pattern.size() - 5), Bytes(pattern.begin() + 5, pattern.end()));
  EXPECT_EQ(Read(dst, 5, pattern.size() - 5), Bytes(5, kPoison));
}

TEST_P(DeviceConformanceTest, EveryLaneRunsInOrder) {
  constexpr int kRounds = 20;
  const uint32_t a = NewBuffer(Pattern(4096, 4)), b = NewBuffer(4096);
  const Op there = Copy(a, b, 4096);
  for (int round = 1; round <= kRounds; ++round) {
    for (Lane lane = 0; lane < policies::kCollectiveLane; ++lane) {
      Launch(lane, {&there});
      Signal(lane, lane, static_cast<uint64_t>(round));
    }
  }
  for (Lane lane = 0; lane < policies::kCollectiveLane; ++lane) {
    WaitFor(lane, kRounds);
    EXPECT_EQ(Word(lane), static_cast<uint64_t>(kRounds));
  }
}

TEST_P(DeviceConformanceTest, OneSignalWritesSeveralTimelines) {
  const std::vector<TimelineWrite> writes = {
      {WordAddress(0), 7}, {WordAddress(1), 8}, {WordAddress(2), 9}};
  ASSERT_TRUE(gpu().Signal(0, writes).ok());
  WaitFor(0, 7);
  WaitFor(1, 8);
  WaitFor(2, 9);
}

// The second copy is far shorter than the first and would overtake it.
TEST_P(DeviceConformanceTest, OrderHoldsBackAnotherLane) {
  constexpr uint64_t kLong = 32 << 20, kShort = 4096;
  const Bytes pattern = Pattern(kLong, 5);
  const uint32_t a = NewBuffer(pattern), b = NewBuffer(kLong), c = NewPoisoned(kShort);
  const Op first = Copy(a, b, kLong), second = Copy(b, c, kShort, kLong - kShort);
  const Lane before = 0, after = policies::kFirstHighLane;
  Launch(before, {&first});
  ASSERT_TRUE(gpu().Order(after, before).ok());
  Launch(after, {&second});
  Signal(after, 0, 1);
  WaitFor(0, 1);
  EXPECT_EQ(Read(c, kShort), Bytes(pattern.end() - kShort, pattern.end()));
}

TEST_P(DeviceConformanceTest, AFaultedGpuSaysSoAndRefusesWork) {
  const uint32_t a = NewBuffer(4096), b = NewBuffer(4096);
  const Op op = Copy(a, b, 4096);
  if (!backend_->Fault(0)) GTEST_SKIP() << "no way to make this GPU fault";
  EXPECT_FALSE(gpu().healthy().ok());
  EXPECT_EQ(gpu().Allocate(4096).status(), gpu().healthy());
  EXPECT_EQ(gpu().Import({}).status(), gpu().healthy());
  const Op* ops[] = {&op};
  EXPECT_FALSE(gpu().Launch({.ops = ops}).ok());
  EXPECT_FALSE(gpu().Digest(AddressOf(a), 4096).ok());
  EXPECT_FALSE(gpu().Same(AddressOf(a), AddressOf(b), 4096).ok());
  EXPECT_FALSE(gpu().Copy(AddressOf(b), AddressOf(a), 4096).ok());
  const TimelineWrite write{WordAddress(0), 1};
  EXPECT_FALSE(gpu().Signal(0, {&write, 1}).ok());
  EXPECT_EQ(Word(0), 0u);
}

CONCERT_INSTANTIATE_FOR_ALL_BACKENDS(DeviceConformanceTest);

}  // namespace
}  // namespace concert::daemon::conformance
