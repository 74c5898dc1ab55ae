// Contexts that grow by a token with each of 2,000 runs of a program, which counts its positions
// and lengths itself, give what a prefill of the whole context gives that nothing was computed for
// before.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/conformance/numbers.h"
#include "tests/support/seed.h"
#include "tests/support/test_daemon.h"

namespace concert::test {
namespace {

constexpr std::chrono::seconds kTimeout{60};
constexpr uint32_t kSequences = 2, kSteps = 2000;
constexpr uint32_t kHidden = 64, kInner = 96, kVocabulary = 64, kLayers = 2;
constexpr uint32_t kQHeads = 1, kHeadDim = 64, kQColumns = kQHeads * kHeadDim;
constexpr uint32_t kQkvColumns = kQColumns + 2 * kHeadDim;  // one head of keys and values
constexpr uint32_t kPageSize = 16, kPagesOfSequence = (kSteps - 1) / kPageSize + 1;
constexpr uint32_t kLengthMax = kPagesOfSequence * kPageSize;
constexpr uint64_t kElement = sizeof(uint16_t), kIndex = sizeof(int32_t);
constexpr uint64_t kTokenBytes = kHeadDim * kElement;  // of keys or of values
constexpr uint64_t kLogitsBytes = kSequences * kVocabulary * kElement;
constexpr double kTolerance = 2e-2;

using daemon::conformance::Decode;
using daemon::conformance::RelativeError;

std::vector<double> Numbers(const Buffer& buffer, uint64_t count, uint64_t offset) {
  std::vector<uint8_t> bytes(count * kElement);
  buffer.Read(bytes.data(), bytes.size(), offset).Check();
  return Decode(policies::Dtype::kBf16, bytes);
}

template <typename T>
Buffer Upload(const Session& session, const std::vector<T>& values) {
  Buffer buffer = session.Allocate(values.size() * sizeof(T)).value();
  buffer.Write(values.data(), values.size() * sizeof(T)).Check();
  return buffer;
}

struct Weights {
  struct Layer {
    Buffer norm, qkv, out, mlp_norm, up, down;
  };
  Buffer table, norm, head, cos_sin;
  std::vector<Layer> layers;
};

Weights MakeWeights(const Session& session, uint32_t seed) {
  std::mt19937 random(seed);
  const auto numbers = [&](size_t count, float middle, float reach) {
    std::uniform_real_distribution<float> uniform(middle - reach, middle + reach);
    std::vector<double> values(count);
    for (double& value : values) value = static_cast<double>(uniform(random));
    return Upload(session, daemon::conformance::Encode(policies::Dtype::kBf16, values));
  };
  const auto gains = [&] { return numbers(kHidden, 1, 0.5f); };
  const auto matrix = [&](uint32_t rows, uint32_t columns) {
    return numbers(size_t{rows} * columns, 0, std::sqrt(3.f / static_cast<float>(columns)));
  };
  Weights weights = {.table = numbers(size_t{kVocabulary} * kHidden, 0, 1),
                     .norm = gains(),
                     .head = matrix(kVocabulary, kHidden),
                     .cos_sin = {},
                     .layers = {}};
  for (uint32_t i = 0; i < kLayers; ++i) {
    weights.layers.push_back({.norm = gains(),
                              .qkv = matrix(kQkvColumns, kHidden),
                              .out = matrix(kHidden, kQColumns),
                              .mlp_norm = gains(),
                              .up = matrix(2 * kInner, kHidden),
                              .down = matrix(kHidden, kInner)});
  }
  std::vector<float> angles(size_t{kLengthMax} * kHeadDim);
  for (uint32_t position = 0; position < kLengthMax; ++position) {
    for (uint32_t i = 0; i < kHeadDim / 2; ++i) {
      const double angle = position / std::pow(10'000, i / (kHeadDim / 2.0));
      angles[position * kHeadDim + i] = static_cast<float>(std::cos(angle));
      angles[position * kHeadDim + kHeadDim / 2 + i] = static_cast<float>(std::sin(angle));
    }
  }
  weights.cos_sin = Upload(session, angles);
  return weights;
}

// Of each layer.
struct Cache {
  Cache(const Session& session, uint32_t tokens) {
    for (uint32_t i = 0; i < kLayers; ++i) {
      keys.push_back(session.Allocate(tokens * kTokenBytes).value());
      values.push_back(session.Allocate(tokens * kTokenBytes).value());
    }
  }
  std::vector<Buffer> keys, values;
};

// Where rows of a forward pass have what they pass on: slots of a program, or buffers.
struct Scratch {
  template <typename Make>
  Scratch(uint32_t rows, const Make& make)
      : residual(make(rows * kHidden)),
        update(make(rows * kHidden)),
        normed(make(rows * kHidden)),
        qkv(make(rows * kQkvColumns)),
        attended(make(rows * kQColumns)),
        gates(make(rows * 2 * kInner)),
        inner(make(rows * kInner)) {}
  Buffer residual, update, normed, qkv, attended, gates, inner;
};

void Check(const Ticket& ticket) { ticket.submit_status().Check(); }

// From ids to normed, which is the last hidden state: append(layer) puts qkv's keys and values into
// the layer's cache, attend(layer) leaves attended.
template <typename Append, typename Attend>
void Forward(Queue& queue, const Weights& weights, const Scratch& scratch, uint32_t rows,
             const Slice& ids, const Append& append, const Attend& attend) {
  const auto multiply = [&](const Buffer& a, const Buffer& w, uint32_t n, uint32_t k,
                            const Buffer& d) {
    Check(queue.Gemm({.m = rows, .n = n, .k = k, .a = a, .w = w, .d = d}));
  };
  const auto norm = [&](const Buffer& weight, bool first) {
    RmsNormOp op{.rows = rows, .columns = kHidden, .weight = weight, .out = scratch.normed};
    op.x = first ? scratch.residual : scratch.update;
    if (!first) op.residual = scratch.residual;
    Check(queue.RmsNorm(op));
  };
  Check(queue.Embedding({.rows = rows,
                         .columns = kHidden,
                         .vocabulary = kVocabulary,
                         .ids = ids,
                         .table = weights.table,
                         .out = scratch.residual}));
  for (uint32_t i = 0; i < kLayers; ++i) {
    const Weights::Layer& layer = weights.layers[i];
    norm(layer.norm, i == 0);
    multiply(scratch.normed, layer.qkv, kQkvColumns, kHidden, scratch.qkv);
    append(i);
    attend(i);
    multiply(scratch.attended, layer.out, kHidden, kQColumns, scratch.update);
    norm(layer.mlp_norm, false);
    multiply(scratch.normed, layer.up, 2 * kInner, kHidden, scratch.gates);
    Check(queue.GatedActivation(
        {.rows = rows, .columns = kInner, .x = scratch.gates, .out = scratch.inner}));
    multiply(scratch.inner, layer.down, kHidden, kInner, scratch.update);
  }
  norm(weights.norm, false);
}

RopeAppendOp AppendOp(const Weights& weights, const Buffer& qkv, uint32_t rows) {
  return {.rows = rows,
          .q_heads = kQHeads,
          .kv_heads = 1,
          .head_dim = kHeadDim,
          .positions_max = kLengthMax,
          .q = qkv,
          .k = {qkv, kQColumns * kElement},
          .v = {qkv, (kQColumns + kHeadDim) * kElement},
          .cos_sin = weights.cos_sin,
          .q_stride = kQkvColumns,
          .k_stride = kQkvColumns,
          .v_stride = kQkvColumns};
}

class GrowingContextTest : public testing::Test {
 protected:
  // Row 0 gets a token with each step; row 1 is there from the 100th on and rests in every third.
  static bool Grows(uint32_t row, uint32_t step) {
    return row == 0 || (step >= 100 && step % 3 != 2);
  }

  void PlaceTokens() {
    std::mt19937 random(seed_);
    pages_.resize(kSequences * kPagesOfSequence);
    std::iota(pages_.begin(), pages_.end(), 0);
    std::shuffle(pages_.begin(), pages_.end(), random);
    slots_.assign(kSteps * kSequences, -1);
    std::vector<uint32_t> lengths(kSequences, 0);
    for (uint32_t step = 0; step < kSteps; ++step) {
      for (uint32_t row = 0; row < kSequences; ++row)
        if (Grows(row, step)) slots_[step * kSequences + row] = SlotOf(row, lengths[row]++);
    }
  }
  int32_t SlotOf(uint32_t row, uint32_t token) const {
    const int32_t page = pages_[row * kPagesOfSequence + token / kPageSize];
    return page * static_cast<int32_t>(kPageSize) + static_cast<int32_t>(token % kPageSize);
  }

  // Bindings: tokens in, slots, tokens out, logits.
  void Record();
  void RunAll();
  void ExpectAsPrefill(uint32_t row, uint32_t step);
  // Hidden states of a prefill of these tokens, whose keys and values go to a cache of its own.
  std::vector<double> Prefill(const std::vector<int32_t>& tokens, const Cache& cache);

  const uint32_t seed_ = test::Seed();
  const testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
  TestDaemon daemon_{{.gpus = 1}};
  const Session session_ = daemon_.Connect("decode");
  const Weights weights_ = MakeWeights(session_, seed_);
  const Cache cache_{session_, kSequences* kLengthMax};
  std::vector<int32_t> pages_, slots_;  // slots_: [step][row]
  Buffer table_, slots_of_steps_, positions_, lengths_;
  const Buffer tokens_ = session_.Allocate((kSteps + 1) * kSequences * kIndex).value(),
               logits_ = session_.Allocate(kSteps * kLogitsBytes).value();
  Program program_ = session_.BeginProgram().value();
};

void GrowingContextTest::Record() {
  table_ = Upload(session_, pages_);
  slots_of_steps_ = Upload(session_, slots_);
  positions_ = Upload(session_, std::vector<int32_t>(kSequences, 0));
  lengths_ = Upload(session_, std::vector<int32_t>(kSequences, 1));  // with the step's own
  const auto binding = [&](uint64_t bytes) { return program_.Binding(bytes).value(); };
  const Buffer ids = binding(kSequences * kIndex), slots = binding(kSequences * kIndex),
               following = binding(kSequences * kIndex), logits = binding(kLogitsBytes);
  const Scratch scratch(kSequences,
                        [&](uint64_t count) { return program_.Arena(count * kElement).value(); });
  Queue& queue = program_.queue();
  const auto cache = [&](uint32_t layer) {
    return KvCache{.k = cache_.keys[layer],
                   .v = cache_.values[layer],
                   .pages = kSequences * kPagesOfSequence,
                   .page_size = kPageSize};
  };
  Forward(
      queue, weights_, scratch, kSequences, ids,
      [&](uint32_t layer) {
        RopeAppendOp op = AppendOp(weights_, scratch.qkv, kSequences);
        op.positions = positions_, op.slots = slots, op.cache = cache(layer);
        Check(queue.RopeAppend(op));
      },
      [&](uint32_t layer) {
        Check(queue.AttentionDecode({.rows = kSequences,
                                     .q_heads = kQHeads,
                                     .kv_heads = 1,
                                     .head_dim = kHeadDim,
                                     .length_max = kLengthMax,
                                     .q = scratch.qkv,
                                     .lengths = lengths_,
                                     .out = scratch.attended,
                                     .cache = cache(layer),
                                     .page_table = table_,
                                     .q_stride = kQkvColumns,
                                     .table_stride = kPagesOfSequence,
                                     .scale = 0.125f}));
      });
  Check(queue.Gemm({.m = kSequences,
                    .n = kVocabulary,
                    .k = kHidden,
                    .a = scratch.normed,
                    .w = weights_.head,
                    .d = logits}));
  Check(queue.Argmax(
      {.rows = kSequences, .columns = kVocabulary, .x = logits, .indices = following}));
  for (const Buffer* counters : {&positions_, &lengths_}) {
    Check(queue.Advance(
        {.rows = kSequences, .counter_max = kLengthMax, .counters = *counters, .slots = slots}));
  }
  program_.End().Check();
}

// Nobody looks at any of it before the last has ended.
void GrowingContextTest::RunAll() {
  const std::vector<int32_t> first = {7, 21};
  tokens_.Write(first.data(), kSequences * kIndex).Check();
  Queue queue = session_.CreateQueue().value();
  for (uint64_t step = 0; step < kSteps; ++step) {
    Check(queue.Run({.program = program_,
                     .bindings = {{tokens_, step * kSequences * kIndex},
                                  {slots_of_steps_, step * kSequences * kIndex},
                                  {tokens_, (step + 1) * kSequences * kIndex},
                                  {logits_, step * kLogitsBytes}}}));
  }
  queue.last().Wait(kTimeout).Check();
}

std::vector<double> GrowingContextTest::Prefill(const std::vector<int32_t>& tokens,
                                                const Cache& cache) {
  const auto count = static_cast<uint32_t>(tokens.size());
  std::vector<int32_t> places(count);
  std::iota(places.begin(), places.end(), 0);
  const Buffer ids = Upload(session_, tokens), positions = Upload(session_, places);
  const auto length = static_cast<int32_t>(count);
  const Buffer lengths = Upload(session_, std::vector<int32_t>{length}),
               starts = Upload(session_, std::vector<int32_t>{0, length});
  const Scratch scratch(
      count, [&](uint64_t elements) { return session_.Allocate(elements * kElement).value(); });
  Queue queue = session_.CreateQueue().value();
  const auto pages = [&](uint32_t layer) {
    return KvCache{
        .k = cache.keys[layer], .v = cache.values[layer], .pages = 1, .page_size = kLengthMax};
  };
  Forward(
      queue, weights_, scratch, count, ids,
      [&](uint32_t layer) {
        RopeAppendOp op = AppendOp(weights_, scratch.qkv, count);
        op.positions = positions, op.slots = positions, op.cache = pages(layer);
        Check(queue.RopeAppend(op));
      },
      [&](uint32_t layer) {
        Check(queue.AttentionPrefill({.tokens = count,
                                      .sequences = 1,
                                      .q_heads = kQHeads,
                                      .kv_heads = 1,
                                      .head_dim = kHeadDim,
                                      .length_max = kLengthMax,
                                      .q = scratch.qkv,
                                      .query_starts = starts,
                                      .lengths = lengths,
                                      .out = scratch.attended,
                                      .cache = pages(layer),
                                      .q_stride = kQkvColumns,
                                      .scale = 0.125f}));
      });
  const Buffer logits = session_.Allocate(kVocabulary * kElement).value();
  queue
      .Gemm({.m = 1,
             .n = kVocabulary,
             .k = kHidden,
             .a = {scratch.normed, (count - 1) * kHidden * kElement},
             .w = weights_.head,
             .d = logits})
      .Wait(kTimeout)
      .Check();
  return Numbers(logits, kVocabulary, 0);
}

// The logits of the row's last token at this step, and the keys and values of all its tokens.
void GrowingContextTest::ExpectAsPrefill(uint32_t row, uint32_t step) {
  SCOPED_TRACE("sequence " + std::to_string(row) + ", step " + std::to_string(step));
  std::vector<int32_t> all((kSteps + 1) * kSequences), tokens;
  tokens_.Read(all.data(), all.size() * kIndex).Check();
  for (uint32_t i = 0; i <= step; ++i)
    if (Grows(row, i)) tokens.push_back(all[i * kSequences + row]);
  const Cache fresh(session_, kLengthMax);
  const std::vector<double> wanted = Prefill(tokens, fresh);
  const std::vector<double> got =
      Numbers(logits_, kVocabulary, step * kLogitsBytes + row * kVocabulary * kElement);
  EXPECT_LT(RelativeError(got, wanted), kTolerance);
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    for (const auto& [mine, its] : {std::pair(&cache_.keys[layer], &fresh.keys[layer]),
                                    std::pair(&cache_.values[layer], &fresh.values[layer])}) {
      for (uint32_t token = 0; token < tokens.size(); ++token) {
        const auto at = static_cast<uint64_t>(SlotOf(row, token));
        ASSERT_LT(RelativeError(Numbers(*mine, kHeadDim, at * kTokenBytes),
                                Numbers(*its, kHeadDim, token * kTokenBytes)),
                  kTolerance)
            << "token " << token << ", layer " << layer;
      }
    }
  }
}

TEST_F(GrowingContextTest, TwoThousandStepsGiveWhatAPrefillGives) {
  PlaceTokens();
  Record();
  RunAll();
  std::vector<int32_t> positions(kSequences), lengths(kSequences);
  positions_.Read(positions.data(), kSequences * kIndex).Check();
  lengths_.Read(lengths.data(), kSequences * kIndex).Check();
  EXPECT_EQ(positions, (std::vector<int32_t>{2000, 1267}));
  EXPECT_EQ(lengths, (std::vector<int32_t>{2000, 1268}));  // at most what it may come to
  // The first token, around the ends of pages, and the last.
  for (const uint32_t step : {0u, 1u, 15u, 16u, 17u, 63u, 64u, 499u, kSteps - 1})
    ExpectAsPrefill(0, step);
  for (const uint32_t step : {100u, 124u, 126u, 801u, kSteps - 1}) ExpectAsPrefill(1, step);
}

}  // namespace
}  // namespace concert::test
