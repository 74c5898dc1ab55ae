// What sets of large GEMMs, of sizes that are no multiples of tiles, take back to back in every
// form: for policies/training/data/h200_large.jsonl, against which
// tests/unit/kernels/group/large_gemms_test.cc holds the models.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/group/group_operand.h"
#include "tests/gpu/group_run.h"

namespace concert::test {
namespace {

using daemon::TimelineWrite;
using policies::Variant;

struct Set {
  std::vector<Problem> problems;

  double flops() const {
    double sum = 0;
    for (const Problem& p : problems) sum += 2.0 * p.m * p.n * p.k;
    return sum;
  }
};

// Tiles of one shape for all problems, in bands of `band` tiles of W that are walked along A, dealt
// to the blocks in turn.
class BandList {
 public:
  BandList(std::span<const Problem> problems, GroupTile tile, uint32_t band, uint32_t blocks) {
    std::vector<GroupItem> items;
    for (size_t i = 0; i < problems.size(); ++i) AddProblem(problems[i], i, tile, band, items);
    blocks = std::min<uint32_t>(blocks, items.size());
    const uint32_t steps = (items.size() + blocks - 1) / blocks + 1;
    GroupItem end = {};
    end.problem = GroupItem::kEnd;
    items.resize(uint64_t{steps} * blocks, end);
    items_ = std::move(items);
    tiles_.assign(problems.size(), tile);
    work_list_.blocks = static_cast<uint16_t>(blocks);
    work_list_.problem_count = static_cast<uint16_t>(problems.size());
    work_list_.item_count = static_cast<uint32_t>(items_.size());
    work_list_.items = items_.data();
    work_list_.tiles = tiles_.data();
    static uint64_t stores = 0;
    work_list_.id = ((kFirstStore + stores++) << kernels::kGroupStoreShift) + 1;
  }

  bool fits() const { return items_.size() <= kernels::kMaxGroupItems; }
  const GroupWorkList& get() const { return work_list_; }

 private:
  static constexpr uint64_t kFirstStore = 1 << 22;  // apart from compilers' and HandList's

  static void AddProblem(const Problem& problem, size_t index, GroupTile tile, uint32_t band,
                         std::vector<GroupItem>& items) {
    const uint32_t w_tiles = (problem.n + tile.w_rows - 1) / tile.w_rows;
    const uint32_t a_tiles = (problem.m + tile.a_rows - 1) / tile.a_rows;
    const uint32_t k_bytes = problem.k * DtypeBytes(problem.dtype);
    for (uint32_t begin = 0; begin < w_tiles; begin += band) {
      for (uint32_t a = 0; a < a_tiles; ++a) {
        for (uint32_t w = begin; w < std::min(begin + band, w_tiles); ++w) {
          items.push_back(
              {.problem = static_cast<uint16_t>(index),
               .w_rows_div_64 = static_cast<uint8_t>(tile.w_rows / 64),
               .tail_rows_div_16 = 0,
               .a_rows_div_16 = static_cast<uint8_t>(tile.a_rows / 16),
               .w_tile = static_cast<uint16_t>(w),
               .a_tile = static_cast<uint16_t>(a),
               .k_begin = 0,
               .k_end = static_cast<uint16_t>((k_bytes + kernels::kGroupBlockKBytes - 1) /
                                              static_cast<uint32_t>(kernels::kGroupBlockKBytes)),
               .splits = 1,
               .split = 0,
               .split_tile = 0});
        }
      }
    }
  }

  std::vector<GroupItem> items_;
  std::vector<GroupTile> tiles_;
  GroupWorkList work_list_;
};

class GpuLargeMeasure : public GpuGroupTestBase {
 protected:
  static constexpr int kRounds = 4, kWarmUp = 2, kAhead = 3;
  static constexpr double kTurnUs = 4000;
  static constexpr int kMinLaunches = 6, kMaxLaunches = 60;
  static constexpr uint64_t kRandomBytes = uint64_t{256} << 20, kCopies = 6;
  static constexpr uint64_t kOutputBytes = uint64_t{2} << 30;

  void SetUp() override {
    GpuGroupTestBase::SetUp();
    if (IsSkipped()) return;
    const char* const path = std::getenv("CONCERT_MEASURE_LARGE");
    if (path == nullptr) GTEST_SKIP() << "CONCERT_MEASURE_LARGE names no file to write to";
    file_ = std::fopen(path, "w");
    ASSERT_NE(file_, nullptr) << path;
    bf16_ = Operands(Dtype::kBf16);
    fp8_ = Operands(Dtype::kFp8E4m3);
    outputs_ = Take(kOutputBytes);
  }
  void TearDown() override {
    if (file_ != nullptr) std::fclose(file_);
    for (const Allocation& allocation : allocations_) device().Free(allocation);
  }

  // Log-uniform from 1000 to 8000, n and k multiples of `unit`.
  static Problem RandomProblem(std::mt19937_64& random, Dtype dtype, uint32_t unit) {
    const auto extent = [&](uint32_t of) {
      const double uniform = static_cast<double>(random() >> 11) * 0x1p-53;
      return static_cast<uint32_t>(std::lround(1000 * std::pow(8.0, uniform) / of)) * of;
    };
    return {.m = extent(1), .n = extent(unit), .k = extent(unit), .batch = 1, .dtype = dtype};
  }

  // One way to run a set: `run(turn, writes)` makes its launches; the last value of each write says
  // that it is done.
  struct Entrant {
    std::string form;  // JSON members
    std::function<void(int, std::vector<TimelineWrite>&)> run;
    int launches = kMinLaunches;
    std::vector<double> us;
  };

  void Add(std::string form, std::function<void(int, std::vector<TimelineWrite>&)> run) {
    entrants_.push_back({std::move(form), std::move(run), kMinLaunches, {}});
  }

  void MeasureAll(const Set& set) {
    for (Entrant& entrant : entrants_) {
      const double us = Time(set, entrant);
      if (HasFatalFailure()) return;
      entrant.launches =
          static_cast<int>(std::clamp<double>(kTurnUs / us, kMinLaunches, kMaxLaunches));
    }
    for (int round = 0; round < kRounds; ++round) {
      for (size_t i = 0; i < entrants_.size(); ++i) {
        Entrant& entrant = entrants_[(i * 7 + round) % entrants_.size()];
        entrant.us.push_back(Time(set, entrant));
        if (HasFatalFailure()) return;
      }
    }
    for (Entrant& entrant : entrants_) {
      if (entrant.us.empty()) continue;
      std::sort(entrant.us.begin(), entrant.us.end());
      std::fprintf(file_, "{\"set\":%d,\"gemms\":[", set_number_);
      for (size_t i = 0; i < set.problems.size(); ++i) {
        const Problem& p = set.problems[i];
        std::fprintf(file_, "%s[%u,%u,%u]", i > 0 ? "," : "", p.m, p.n, p.k);
      }
      std::fprintf(file_, "],\"dtype\":\"%s\",%s,\"us\":%.2f,\"least\":%.2f}\n",
                   set.problems[0].dtype == Dtype::kBf16 ? "bf16" : "fp8", entrant.form.c_str(),
                   entrant.us[entrant.us.size() / 2], entrant.us.front());
    }
    std::fflush(file_);
    ++set_number_;
    entrants_.clear();
  }

  // --- Forms ---

  void Single(const Set& set, size_t i, const Variant* variant, int turn, policies::Lane lane,
              std::vector<TimelineWrite>& writes) {
    const Op op = OpOf(set, i, turn);
    const Op* ops[] = {&op};
    ASSERT_OK(device().Launch(
        {.planned = {.lane = lane}, .ops = ops, .writes = {&writes[i], 1}, .variant = variant}));
    ++writes[i].value;
  }

  void AddSingles(const Set& set, const std::vector<Variant>& best) {
    Add("\"form\":\"single\"", [this, &set](int turn, std::vector<TimelineWrite>& writes) {
      for (size_t i = 0; i < set.problems.size(); ++i) Single(set, i, nullptr, turn, kLane, writes);
    });
    Add("\"form\":\"single_tuned\"",
        [this, &set, best](int turn, std::vector<TimelineWrite>& writes) {
          for (size_t i = 0; i < set.problems.size(); ++i) {
            Single(set, i, best.empty() ? nullptr : &best[i], turn, kLane, writes);
          }
        });
    if (set.problems.size() == 1) return;
    Add("\"form\":\"streams\"", [this, &set](int turn, std::vector<TimelineWrite>& writes) {
      for (size_t i = 0; i < set.problems.size(); ++i) {
        Single(set, i, nullptr, turn, static_cast<policies::Lane>(i % policies::kNormalLaneCount),
               writes);
      }
    });
  }

  void Group(const Set& set, const GroupWorkList* work_list, int turn,
             std::vector<TimelineWrite>& writes) {
    std::vector<Op> made;
    for (size_t i = 0; i < set.problems.size(); ++i) made.push_back(OpOf(set, i, turn));
    std::vector<const Op*> ops;
    for (const Op& op : made) ops.push_back(&op);
    ASSERT_OK(device().Launch(
        {.planned = {.form = policies::Form::kGroup, .lane = kLane, .work_list = work_list},
         .ops = ops,
         .writes = writes,
         .inputs_ready = true,
         .weights_ready = true}));
    for (TimelineWrite& write : writes) ++write.value;
  }

  void AddPlanned(const Set& set) {
    const std::pair<const char*, GroupGoal> goals[] = {{"latency", GroupGoal::kLatency},
                                                       {"throughput", GroupGoal::kThroughput}};
    for (const auto& [name, goal] : goals) {
      compiler_->Reclaim();
      const GroupWorkList* work_list = compiler_->Compile(set.problems, 0, goal);
      if (work_list == nullptr) continue;
      std::string tiles;
      for (size_t i = 0; i < set.problems.size(); ++i) {
        tiles += (i > 0 ? ",[" : "[") + std::to_string(work_list->tiles[i].w_rows) + "," +
                 std::to_string(work_list->tiles[i].a_rows) + "]";
      }
      Add("\"form\":\"group\",\"goal\":\"" + std::string(name) + "\",\"tiles\":[" + tiles +
              "],\"blocks\":" + std::to_string(work_list->blocks) +
              ",\"splits\":" + std::to_string(work_list->max_splits) +
              ",\"predicted\":" + std::to_string(work_list->predicted_us),
          [this, &set, work_list](int turn, std::vector<TimelineWrite>& writes) {
            Group(set, work_list, turn, writes);
          });
    }
  }

  void AddBand(const Set& set, GroupTile tile, uint32_t band, const std::string& name) {
    bands_.push_back(
        std::make_unique<BandList>(set.problems, tile, band, device().info().model.sm_count));
    if (!bands_.back()->fits()) return;
    Add("\"form\":\"tile\",\"tile\":[" + std::to_string(tile.w_rows) + "," +
            std::to_string(tile.a_rows) + "],\"band\":" + name,
        [this, &set, work_list = &bands_.back()->get()](
            int turn, std::vector<TimelineWrite>& writes) { Group(set, work_list, turn, writes); });
  }

  // The fastest of what the device offers, alone, as a user would tune.
  std::vector<Variant> TuneAlone(const Set& set) {
    std::vector<Variant> best;
    for (const Problem& problem : set.problems) {
      const Set alone{{problem}};
      double best_us = 0;
      Variant fastest;
      for (const Variant& variant : device().Variants(problem, 0)) {
        if (variant.source != Variant::Source::kCublasLt) continue;
        Entrant entrant{"",
                        [&](int turn, std::vector<TimelineWrite>& writes) {
                          Single(alone, 0, &variant, turn, kLane, writes);
                        },
                        4,
                        {}};
        const double us = Time(alone, entrant);
        if (best_us == 0 || us < best_us) best_us = us, fastest = variant;
      }
      if (best_us == 0) return {};
      best.push_back(fastest);
    }
    return best;
  }

  int set_number_ = 0;

 private:
  Address Take(uint64_t bytes) {
    const absl::StatusOr<Allocation> memory = device().Allocate(bytes);
    EXPECT_TRUE(memory.ok()) << memory.status();
    if (!memory.ok()) return 0;
    close(memory->export_fd);
    allocations_.push_back(*memory);
    return memory->address;
  }

  // Random numbers, since zeros draw less power.
  Address Operands(Dtype dtype) {
    const Address address = Take(kRandomBytes * kCopies);
    std::vector<uint8_t> bytes(kRandomBytes);
    std::mt19937 random(17);
    std::vector<uint8_t> pattern(1 << 22);
    for (size_t at = 0; at < pattern.size(); at += DtypeBytes(dtype)) {
      const float uniform = static_cast<float>(random()) * 0x1p-31f - 1;
      ElementFromFloat(dtype, dtype == Dtype::kBf16 ? uniform : 448 * uniform, &pattern[at]);
    }
    // At odd places, so that rows of no GEMM repeat.
    for (size_t at = 0; at < bytes.size();) {
      const size_t from = random() % (pattern.size() / 2) & ~size_t{15};
      const size_t count = std::min(pattern.size() - from, bytes.size() - at);
      std::copy_n(&pattern[from], count, &bytes[at]);
      at += count;
    }
    for (uint64_t copy = 0; copy < kCopies; ++copy) {
      EXPECT_TRUE(
          device().CopyToDevice(address + copy * kRandomBytes, bytes.data(), bytes.size()).ok());
    }
    return address;
  }

  Op OpOf(const Set& set, size_t i, int turn) const {
    const Problem& p = set.problems[i];
    const Address base = p.dtype == Dtype::kBf16 ? bf16_ : fp8_;
    const uint64_t element = DtypeBytes(p.dtype), pool = kRandomBytes * kCopies;
    const auto place = [&](uint64_t which, uint64_t bytes) {
      const uint64_t slot = (static_cast<uint64_t>(turn) * set.problems.size() + i) * 2 + which;
      return slot * (uint64_t{97} << 20) % (pool - bytes) & ~uint64_t{255};
    };
    Op op;
    op.kind = CONCERT_OP_GEMM;
    GemmArgs& gemm = op.gemm;
    gemm.m = p.m, gemm.n = p.n, gemm.k = p.k, gemm.batch = 1;
    gemm.lda = gemm.ldw = p.k, gemm.ldc = gemm.ldd = p.n;
    gemm.a = base + place(0, p.m * element * p.k), gemm.w = base + place(1, p.n * element * p.k);
    const uint64_t d_bytes = uint64_t{p.m} * p.n * 2;
    gemm.d = outputs_ + ((i + (turn % 2) * set.problems.size()) * (uint64_t{131} << 20) %
                             (kOutputBytes - d_bytes) &
                         ~uint64_t{255});
    gemm.alpha = 1;
    gemm.dtype = p.dtype, gemm.d_dtype = Dtype::kBf16;
    op.work = {.runs_on = policies::RunsOn::kSms,
               .dtype = p.dtype,
               .m = p.m,
               .n = p.n,
               .k = p.k,
               .batch = 1};
    const auto repack_bytes = kernels::GroupRepackBytes(gemm);
    if (repack_bytes.has_value()) op.work.carrier = policies::Carrier::kGroup;
    op.work.repack_bytes = repack_bytes.value_or(0);
    return op;
  }

  // Microseconds a turn, back to back: from the end of the last turn that does not count.
  double Time(const Set& set, Entrant& entrant) {
    std::vector<TimelineWrite> writes = NextWrites(set.problems.size());
    const std::vector<TimelineWrite> first = writes;
    const auto wait_for = [&](int turn) {
      for (size_t i = 0; i < first.size(); ++i) {
        EXPECT_TRUE(WaitFor(kFirstTimeline + static_cast<int>(i), first[i].value + turn))
            << device().healthy();
      }
    };
    std::chrono::steady_clock::time_point start;
    const int turns = kWarmUp + entrant.launches;
    for (int turn = 0; turn < turns; ++turn) {
      entrant.run(turn, writes);
      if (HasFatalFailure()) return 1e9;
      if (turn < kAhead) continue;
      wait_for(turn - kAhead);
      if (turn - kAhead == kWarmUp - 1) start = std::chrono::steady_clock::now();
    }
    wait_for(turns - 1);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    return took.count() / entrant.launches;
  }

  FILE* file_ = nullptr;
  std::vector<Allocation> allocations_;
  Address bf16_ = 0, fp8_ = 0, outputs_ = 0;
  std::vector<Entrant> entrants_;
  std::vector<std::unique_ptr<BandList>> bands_;
};

// One GEMM after itself: cuBLASLt's kernels against ours in every large tile, and the order of
// tiles.
TEST_F(GpuLargeMeasure, EachAlone) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 24; ++i) {
    const Dtype dtype = i % 3 == 2 ? Dtype::kFp8E4m3 : Dtype::kBf16;
    const Set set{{RandomProblem(random, dtype, dtype == Dtype::kBf16 ? 8 : 16)}};
    if (set.flops() > 5e11) continue;
    AddSingles(set, TuneAlone(set));
    AddPlanned(set);
    for (const GroupTile tile :
         {GroupTile{128, 256}, GroupTile{128, 192}, GroupTile{128, 128}, GroupTile{64, 256}}) {
      const double square = std::sqrt(132.0 * tile.a_rows / tile.w_rows);
      AddBand(set, tile, static_cast<uint32_t>(square), std::to_string(static_cast<int>(square)));
      if (tile.a_rows == 256 && tile.w_rows == 128) {
        for (const int band : {4, 8, 32}) AddBand(set, tile, band, std::to_string(band));
      }
    }
    MeasureAll(set);
    if (HasFailure()) return;
  }
}

// Sets of two to six, equal ones, of one layer and of different layers.
TEST_F(GpuLargeMeasure, Sets) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 40; ++i) {
    const Dtype dtype = i % 3 == 2 ? Dtype::kFp8E4m3 : Dtype::kBf16;
    const uint32_t unit = dtype == Dtype::kBf16 ? 8 : 16;
    Set set;
    const int count = 2 + static_cast<int>(random() % 5);
    for (int g = 0; g < count; ++g) {
      Problem problem = RandomProblem(random, dtype, unit);
      if (g > 0 && i % 4 != 3) {
        const Problem& first = set.problems.front();
        problem = {i % 4 == 1 ? problem.m : first.m, first.n, first.k, 1, dtype};
      }
      set.problems.push_back(problem);
    }
    if (set.flops() > 8e11) continue;
    set_number_ = 100 + i;
    AddSingles(set, TuneAlone(set));
    AddPlanned(set);
    MeasureAll(set);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace concert::test
