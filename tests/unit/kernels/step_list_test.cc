// Stages give what the ops give that they are made of, in every order that their waits allow: plans
// of random programs, followed on the CPU. CONCERT_TEST_REPETITIONS says how many.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "kernels/cpu_element.h"
#include "kernels/op_table.h"
#include "kernels/step/step_plan.h"
#include "tests/support/repetitions.h"
#include "tests/support/seed.h"
#include "tests/unit/kernels/random_step.h"

namespace concert::kernels {
namespace {

float Activated(float x, Activation activation) {
  return activation == Activation::kSilu ? x / (1 + std::exp(-x)) : x;
}

// Follows stages as the step kernel's blocks do, one unit after the other.
class Follower {
 public:
  Follower(const StepPlan& plan, std::span<const Address> bindings)
      : plan_(plan), bindings_(bindings), exchange_(plan.exchange_bytes / 2, kNotThere) {}

  void Run(size_t index) {
    const PlannedStage& stage = plan_.stages[index];
    switch (stage.kind) {
      case StageKind::kCopy:
        Copy(stage.copy);
        if (index == kTablesStage) ReadCachesAhead();
        return;
      case StageKind::kGemm:
        return Multiply(stage.gemm);
      case StageKind::kAttention:
        return Attend(index);
      case StageKind::kRows:
        Compute(stage.op);
    }
  }

 private:
  // Keys and values of a cache, from its first page to its last.
  struct Cache {
    std::vector<uint16_t> keys, values;
  };

  Address Exchange(Address planned) {
    return planned - kExchangeBase + reinterpret_cast<Address>(exchange_.data());
  }

  void Copy(const StepCopy& copy) {
    for (uint32_t i = 0; i < copy.count; ++i) {
      const StepCopy::Piece& piece = copy.pieces[i];
      const Address from = piece.from_binding < 0 ? piece.from : bindings_[piece.from_binding];
      const Address to = piece.to_binding < 0 ? piece.to : bindings_[piece.to_binding];
      std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), piece.bytes);
    }
  }

  static void Compute(const Op& op) {
    const Op* const part = &op;
    FindOpKind(op.kind)->compute({&part, 1});
  }

  // What the plan says may be read at any time is read as early as can be.
  void ReadCachesAhead() {
    for (size_t i = 0; i < plan_.stages.size(); ++i) {
      if (!plan_.stages[i].heads_from.has_value()) continue;
      const KvCacheArgs& cache = plan_.stages[i].op.attention_decode.cache;
      const auto* keys = reinterpret_cast<const uint16_t*>(cache.k);
      const auto* values = reinterpret_cast<const uint16_t*>(cache.v);
      const uint64_t elements = cache.pages * cache.page_stride;
      read_ahead_[i] = {{keys, keys + elements}, {values, values + elements}};
    }
  }

  void Attend(size_t index) {
    const PlannedStage& stage = plan_.stages[index];
    Op op = stage.op;
    AttentionDecodeArgs& attention = op.attention_decode;
    if (stage.exchanges) attention.out = Exchange(attention.out);
    if (stage.heads_from.has_value()) {
      attention.q = Exchange(attention.q);
      Cache& cache = read_ahead_[index];
      TakeAppended(attention, plan_.stages[*stage.heads_from].gemm.rope, cache);
      attention.cache.k = reinterpret_cast<Address>(cache.keys.data());
      attention.cache.v = reinterpret_cast<Address>(cache.values.data());
    }
    Compute(op);
  }

  static void TakeAppended(const AttentionDecodeArgs& op, const RopeAppendArgs& rope,
                           Cache& cache) {
    for (uint32_t row = 0; row < rope.rows; ++row) {
      const int64_t index = LoadIndex(rope.slots, row, rope.slot_type);
      if (index < 0) continue;
      const uint64_t slot = Clamped(index, rope.cache.tokens());
      const uint64_t at = op.cache.TokenAt(slot / op.cache.page_size, slot % op.cache.page_size);
      const auto* heads = reinterpret_cast<const uint16_t*>(op.q) + row * op.q_stride;
      for (uint32_t head = 0; head < op.kv_heads; ++head) {
        const uint16_t* key = heads + (op.q_heads + head) * op.head_dim;
        const uint64_t to = at + head * op.cache.head_stride;
        std::copy_n(key, op.head_dim, cache.keys.data() + to);
        std::copy_n(key + op.kv_heads * op.head_dim, op.head_dim, cache.values.data() + to);
      }
    }
  }

  // A is read anew for each unit, as blocks read it each at its own time: what one unit writes must
  // be nothing that another reads.
  void Multiply(const StepGemm& gemm) {
    std::vector<float> a(gemm.k);
    std::vector<uint32_t> made(gemm.n);  // how often, by column of W's product
    for (uint32_t unit = 0; unit < gemm.units(); ++unit) {
      for (uint32_t row = 0; row < gemm.m; ++row) {
        LoadRow(gemm, row, a.data());
        for (uint32_t pair = 0; pair < kStepTile / 2; ++pair) {
          const auto [first, second, apart, rotates, head] = gemm.PairOf(unit, pair);
          const auto [upper, lower] = gemm.HalvesOf(unit);
          ASSERT_EQ(first, upper + (apart ? pair : 2 * pair));
          ASSERT_EQ(second, apart ? lower + pair : first + 1);
          ASSERT_TRUE(apart || lower == upper + kStepTile / 2);
          if (first >= gemm.n) continue;
          ++made[first];
          if (second < gemm.n) ++made[second];
          Finish(gemm, unit, row, first, second, ValueOf(gemm, a.data(), row, first),
                 second < gemm.n ? ValueOf(gemm, a.data(), row, second) : 0);
        }
      }
    }
    ASSERT_EQ(made, std::vector<uint32_t>(gemm.n, gemm.m));
  }

  void LoadRow(const StepGemm& gemm, uint32_t row, float* to) {
    const Address a = gemm.a_exchanged ? Exchange(gemm.a) : gemm.a;
    double squares = 0;
    for (uint32_t k = 0; k < gemm.k; ++k) {
      if (gemm.a_exchanged) {
        EXPECT_NE(reinterpret_cast<const uint16_t*>(a)[uint64_t{row} * gemm.lda + k], kNotThere);
      }
      to[k] = Load(a, uint64_t{row} * gemm.lda + k);
      squares += double{to[k]} * to[k];
    }
    if (gemm.gain == 0) return;
    const double scale = 1 / std::sqrt(squares * gemm.k_inverse + gemm.epsilon);
    for (uint32_t k = 0; k < gemm.k; ++k)
      to[k] = static_cast<float>(scale * to[k] * Load(gemm.gain, k));
  }

  float ValueOf(const StepGemm& gemm, const float* a, uint32_t row, uint32_t column) {
    double sum = 0;
    for (uint32_t k = 0; k < gemm.k; ++k) sum += double{a[k]} * Load(gemm.w, column * gemm.ldw + k);
    float value = static_cast<float>(gemm.alpha * sum);
    if (gemm.c != 0 && gemm.beta != 0) {
      const Address c = gemm.c_exchanged ? Exchange(gemm.c) : gemm.c;
      value += gemm.beta * Load(c, uint64_t{row} * gemm.ldc + column);
    }
    return gemm.bias != 0 ? value + Load(gemm.bias, column) : value;
  }

  void Finish(const StepGemm& gemm, uint32_t unit, uint32_t row, uint32_t first, uint32_t second,
              float x, float y) {
    const uint32_t columns = gemm.epilogue == StepEpilogue::kStore ? gemm.n : gemm.n / 2;
    switch (gemm.epilogue) {
      case StepEpilogue::kStore:
        Put(gemm, row, first, columns, Activated(x, gemm.activation));
        if (second < columns) Put(gemm, row, second, columns, Activated(y, gemm.activation));
        return;
      case StepEpilogue::kGated:
        return Put(gemm, row, first, columns, Activated(x, gemm.activation) * y);
      case StepEpilogue::kGatedNeighbours:
        return Put(gemm, row, first / 2, columns, Activated(x, gemm.activation) * y);
      case StepEpilogue::kRope:
        return PutHead(gemm, unit, row, first, second, x, y);
    }
  }

  void Put(const StepGemm& gemm, uint32_t row, uint32_t column, uint32_t columns, float value) {
    if (gemm.stores_d) Store(gemm.d, uint64_t{row} * gemm.ldd + column, value);
    if (gemm.stores_exchanged)
      Store(Exchange(gemm.exchanged), uint64_t{row} * columns + column, value);
  }

  void PutHead(const StepGemm& gemm, uint32_t unit, uint32_t row, uint32_t first, uint32_t second,
               float x, float y) {
    const RopeAppendArgs& rope = gemm.rope;
    const uint32_t head = gemm.HeadOf(unit), begin = head * rope.head_dim;
    Rotate(gemm, unit, row, first - begin, x, y);
    if (gemm.stores_exchanged) {
      Store(Exchange(gemm.exchanged), uint64_t{row} * gemm.n + first, x);
      Store(Exchange(gemm.exchanged), uint64_t{row} * gemm.n + second, y);
    }
    Address target = gemm.d;
    uint64_t at = uint64_t{row} * gemm.ldd + begin;
    if (head < rope.q_heads) {
      if (!gemm.stores_d) return;
    } else {
      const int64_t index = LoadIndex(rope.slots, row, rope.slot_type);
      if (index < 0) return;
      const uint64_t slot = Clamped(index, rope.cache.tokens()), page = slot / rope.cache.page_size;
      const bool is_k = head < uint32_t{rope.q_heads} + rope.kv_heads;
      target = is_k ? rope.cache.k : rope.cache.v;
      at = rope.cache.TokenAt(page, slot % rope.cache.page_size) +
           uint64_t{head - rope.q_heads - (is_k ? 0u : rope.kv_heads)} * rope.cache.head_stride;
    }
    Store(target, at + first - begin, x);
    Store(target, at + second - begin, y);
  }
  static void Rotate(const StepGemm& gemm, uint32_t unit, uint32_t row, uint32_t element, float& x,
                     float& y) {
    if (!gemm.PairOf(unit, 0).rotates) return;
    const RopeAppendArgs& rope = gemm.rope;
    const uint64_t position =
        Clamped(LoadIndex(rope.positions, row, rope.position_type), rope.positions_max);
    const uint32_t pair = rope.interleaved ? element / 2 : element;
    const auto* table = reinterpret_cast<const float*>(rope.cos_sin) + position * rope.rotary_dim;
    const float cosine = table[pair], sine = table[rope.rotary_dim / 2 + pair], before = x;
    x = before * cosine - y * sine;
    y = y * cosine + before * sine;
  }

  const StepPlan& plan_;
  const std::span<const Address> bindings_;
  std::vector<uint16_t> exchange_;
  std::map<size_t, Cache> read_ahead_;  // by attention's stage
};

// Whether each block waits for what the stage waits for, however many there are.
bool AllBlocksWait(const PlannedStage& stage) {
  if (stage.kind == StageKind::kGemm) return stage.gemm.units() >= kMaxStepBlocks;
  return stage.kind != StageKind::kRows;
}

// A random order of the stages in which each comes behind those that it waits for, those whose
// results it looks for, and those that its blocks have waited for before.
std::vector<size_t> RandomOrder(const StepPlan& plan, std::mt19937& random) {
  std::vector<size_t> order;
  std::vector<bool> done(plan.stages.size());
  // As blocks go through the list in order.
  std::vector<std::vector<uint32_t>> before(plan.stages.size());
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const PlannedStage& stage = plan.stages[i];
    before[i].insert(before[i].end(), stage.waits.begin(), stage.waits.end());
    for (size_t j = i + 1; j < plan.stages.size() && AllBlocksWait(stage); ++j)
      before[j].insert(before[j].end(), stage.waits.begin(), stage.waits.end());
    before[i].insert(before[i].end(), stage.looks_for.begin(), stage.looks_for.end());
  }
  while (order.size() < plan.stages.size()) {
    std::vector<size_t> ready;
    for (size_t i = 0; i < plan.stages.size(); ++i) {
      const auto is_done = [&](uint32_t stage) { return done[stage]; };
      if (!done[i] && std::all_of(before[i].begin(), before[i].end(), is_done)) ready.push_back(i);
    }
    const size_t next = ready[random() % ready.size()];
    done[next] = true;
    order.push_back(next);
  }
  return order;
}

TEST(StepListTest, StagesGiveWhatTheirOpsGiveInEveryOrderThatTheyAllow) {
  std::mt19937 random(test::Seed());
  SCOPED_TRACE(testing::Message() << "seed " << test::Seed());
  const uint32_t rounds = test::Repetitions(16);
  for (uint32_t round = 0; round < rounds; ++round) {
    StepModel model = RandomModel(random);
    model.advances_slots = random() % 2 == 0;
    StepMemory initial(random), by_ops = initial, by_stages = initial;
    const uint32_t seed = random();
    RunRandom(model, by_ops, seed, ComputeOps);
    RunRandom(model, by_stages, seed, [&](const ProgramArgs& args) {
      const uint64_t exchange_bytes_max = round % 3 == 0 ? 0 : kMiB;
      const absl::StatusOr<StepPlan> plan = PlanStep(*args.program, exchange_bytes_max);
      ASSERT_TRUE(plan.ok()) << plan.status();
      Follower follower(*plan, args.bindings);
      for (const size_t stage : RandomOrder(*plan, random)) follower.Run(stage);
    });
    ASSERT_LT(Distance(by_stages.bindings, by_ops.bindings), 2e-2) << "round " << round;
    ASSERT_LT(Distance(by_stages.cache, by_ops.cache), 2e-2) << "round " << round;
  }
}

}  // namespace
}  // namespace concert::kernels
