// How fast attention_decode reads its cache. That its results are right tests/conformance shows.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "tests/gpu/gpu_fixture.h"

namespace concert::test {
namespace {

struct AttentionShape {
  const char* name;
  uint32_t rows, q_heads, kv_heads, head_dim, length;
  uint32_t page_size = 16;
  Dtype cache = Dtype::kBf16;

  uint32_t pages_of_row() const { return (length + page_size - 1) / page_size; }
  uint32_t pages() const { return rows * pages_of_row(); }
  uint64_t page_elements() const { return uint64_t{page_size} * kv_heads * head_dim; }
  uint64_t cache_bytes() const { return DtypeBytes(cache) * pages() * page_elements(); }  // k or v
  uint64_t read_bytes() const {
    return uint64_t{2} * DtypeBytes(cache) * rows * length * kv_heads * head_dim;
  }
};

constexpr AttentionShape kShapes[] = {
    {"decode step, MHA 16 x 64", 8, 16, 16, 64, 512},
    {"decode step, GQA 32/8 x 128", 8, 32, 8, 128, 512},
    {"GQA 14/2 x 64", 8, 14, 2, 64, 2048},
    {"GQA 32/8 x 128", 32, 32, 8, 128, 2048},
    {"a pass, MHA 16 x 64", 64, 16, 16, 64, 512},
    {"a pass, MHA 32 x 128", 64, 32, 32, 128, 512},
    {"a pass, GQA 12/2 x 128", 64, 12, 2, 128, 1024},
    {"GQA 32/8 x 128, one long row", 1, 32, 8, 128, 65536},
    {"GQA 32/8 x 128, long", 8, 32, 8, 128, 16384},
    {"GQA 64/8 x 128, long", 16, 64, 8, 128, 8192},
    {"MHA 32 x 128, long", 8, 32, 32, 128, 8192},
    {"MHA 16 x 64, long", 16, 16, 16, 64, 8192},
    {"GQA 16/8 x 256, long", 8, 16, 8, 256, 8192},
    {"GQA 32/8 x 128, long, fp8", 8, 32, 8, 128, 16384, 16, Dtype::kFp8E4m3},
    {"MHA 16 x 64, long, fp8", 16, 16, 16, 64, 8192, 16, Dtype::kFp8E4m3},
    {"GQA 16/8 x 256, long, fp8", 8, 16, 8, 256, 8192, 16, Dtype::kFp8E4m3},
    {"GQA 32/8 x 128, long, pages of one token", 8, 32, 8, 128, 16384, 1},
};

class GpuAttentionTest : public GpuTest {
 protected:
  static constexpr int kLaunches = 60, kWarmUp = 6;
  static constexpr uint64_t kLeastBytes = 180'000'000;  // three times an H200's L2
  static constexpr policies::Lane kLane = 0;

  // Microseconds a launch, one behind the other, of caches that are not in L2.
  double Measure(const AttentionShape& shape, int sm_budget) {
    const uint64_t sets = 1 + kLeastBytes / (2 * shape.cache_bytes());
    HostMirror small(device(), Out(shape) + RowsBytes(shape), 0);
    FillIndices(shape, small);
    absl::StatusOr<Allocation> cache = device().Allocate(sets * 2 * shape.cache_bytes());
    EXPECT_TRUE(cache.ok()) << cache.status();
    if (!cache.ok()) return 0;
    close(cache->export_fd);
    Finish(kLane);
    std::chrono::steady_clock::time_point start;
    for (int i = 0; i < kWarmUp + kLaunches; ++i) {
      if (i == kWarmUp) {
        Finish(kLane);
        start = std::chrono::steady_clock::now();
      }
      const Op op =
          OpOf(shape, small.address(), cache->address + i % sets * 2 * shape.cache_bytes());
      const Op* const ops[] = {&op};
      const absl::Status status = device().Launch(
          {.planned = {.count = 1, .lane = kLane, .sm_budget = sm_budget}, .ops = ops});
      EXPECT_TRUE(status.ok()) << status;
    }
    Finish(kLane);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    device().Free(*cache);
    return took.count() / kLaunches;
  }

 private:
  // Places in the small buffer: q, the page table, lengths, out.
  static uint64_t RowsBytes(const AttentionShape& shape) {
    return uint64_t{2} * shape.rows * shape.q_heads * shape.head_dim;
  }
  static uint64_t Table(const AttentionShape& shape) { return RowsBytes(shape); }
  static uint64_t Lengths(const AttentionShape& shape) {
    return Table(shape) + uint64_t{4} * shape.pages();
  }
  static uint64_t Out(const AttentionShape& shape) {
    return (Lengths(shape) + uint64_t{4} * shape.rows + 255) / 256 * 256;
  }

  // Every page once, as an allocator hands them out after a while: anywhere.
  static void FillIndices(const AttentionShape& shape, HostMirror& small) {
    std::vector<int32_t> pages(shape.pages());
    for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<int32_t>(i);
    std::shuffle(pages.begin(), pages.end(), std::mt19937(20261124));
    const std::vector<int32_t> lengths(shape.rows, static_cast<int32_t>(shape.length));
    std::memcpy(&small.bytes()[Table(shape)], pages.data(), 4 * pages.size());
    std::memcpy(&small.bytes()[Lengths(shape)], lengths.data(), 4 * lengths.size());
    small.Upload();
  }

  static Op OpOf(const AttentionShape& shape, Address small, Address cache) {
    Op op;
    op.kind = CONCERT_OP_ATTENTION_DECODE;
    const uint32_t columns = shape.q_heads * shape.head_dim;
    op.attention_decode = {
        .rows = shape.rows,
        .length_max = shape.length,
        .q_heads = static_cast<uint16_t>(shape.q_heads),
        .kv_heads = static_cast<uint16_t>(shape.kv_heads),
        .head_dim = static_cast<uint16_t>(shape.head_dim),
        .q = small,
        .page_table = small + Table(shape),
        .lengths = small + Lengths(shape),
        .out = small + Out(shape),
        .cache = {.k = cache,
                  .v = cache + shape.cache_bytes(),
                  .page_stride = shape.page_elements(),
                  .pages = shape.pages(),
                  .page_size = shape.page_size,
                  .token_stride = shape.kv_heads * shape.head_dim,
                  .head_stride = shape.head_dim,
                  .dtype = shape.cache,
                  .k_scale = 1,
                  .v_scale = 1},
        .q_stride = columns,
        .out_stride = columns,
        .table_stride = shape.pages_of_row(),
        .window = 0,
        .scale = 0.1f,
        .soft_cap = 0,
    };
    return op;
  }
};

TEST_F(GpuAttentionTest, Bandwidth) {
  for (const AttentionShape& shape : kShapes) {
    for (const int sm_budget : {0, 64}) {
      const double us = Measure(shape, sm_budget);
      ASSERT_FALSE(HasFailure()) << shape.name;
      const double bytes_per_us = static_cast<double>(shape.read_bytes()) / us;
      std::printf(
          "[ MEASURED ] attention_decode, %s, %u rows of %u, budget %d: %.1f us, %.2f TB/s\n",
          shape.name, shape.rows, shape.length, sm_budget, us, bytes_per_us / 1e6);
    }
  }
}

}  // namespace
}  // namespace concert::test
