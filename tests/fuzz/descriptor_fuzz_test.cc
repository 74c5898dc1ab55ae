// Random descriptors with plausible fields through the real ring of a real session: every one ends,
// with success or with a sentence, and the daemon stays whole.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/support/healthy_client.h"
#include "tests/support/raw_client.h"
#include "tests/support/seed.h"
#include "tests/support/test_daemon.h"

namespace concert::test {
namespace {

constexpr uint32_t kOps = 20'000;
constexpr uint64_t kBufferBytes = 1 << 16;
constexpr int kQueues = 4;

class DescriptorGenerator {
 public:
  DescriptorGenerator(uint32_t seed, std::array<uint32_t, 3> buffers, uint32_t communicator,
                      uint32_t session)
      : random_(seed), buffers_(buffers), communicator_(communicator), session_(session) {}

  concert_descriptor Next() {
    concert_descriptor descriptor{};
    descriptor.kind = Rarely() ? static_cast<uint16_t>(random_())
                               : static_cast<uint16_t>(Pick(CONCERT_OP_KIND_COUNT) + 1);
    switch (descriptor.kind) {
      case CONCERT_OP_GEMM:
        descriptor.body.gemm = Gemm();
        break;
      case CONCERT_OP_COPY:
        descriptor.body.copy = {
            .src = Operand(), .dst = Operand(), .bytes = Size(), .reserved = {}};
        break;
      case CONCERT_OP_RMS_NORM:
        descriptor.body.rms_norm = RmsNorm();
        break;
      case CONCERT_OP_GATED_ACTIVATION:
        descriptor.body.gated_activation = GatedActivation();
        break;
      case CONCERT_OP_EMBEDDING:
        descriptor.body.embedding = Embedding();
        break;
      case CONCERT_OP_ARGMAX:
        descriptor.body.argmax = Argmax();
        break;
      case CONCERT_OP_ROPE_APPEND:
        descriptor.body.rope_append = RopeAppend();
        break;
      case CONCERT_OP_ATTENTION_DECODE:
        descriptor.body.attention_decode = AttentionDecode();
        break;
      case CONCERT_OP_ATTENTION_PREFILL:
        descriptor.body.attention_prefill = AttentionPrefill();
        break;
      case CONCERT_OP_LAYER_NORM:
        descriptor.body.layer_norm = LayerNorm();
        break;
      case CONCERT_OP_ELEMENTWISE:
        descriptor.body.elementwise = Elementwise();
        break;
      case CONCERT_OP_ADVANCE:
        descriptor.body.advance = Advance();
        break;
      case CONCERT_OP_QUANTIZE:
        descriptor.body.quantize = Quantize();
        break;
      case CONCERT_OP_SAMPLE:
        descriptor.body.sample = Sample();
        break;
      default:
        descriptor.body.collective = Collective(descriptor.kind);
    }
    descriptor.deadline_ns = Rarely() ? random_() : 0;
    AddWaits(descriptor);
    // And sometimes bits of the whole, but for sequence, ticket and queue, which end the session.
    for (int flips = Pick(8) == 0 ? Pick(4) : 0; flips > 0; --flips) {
      auto* bytes = reinterpret_cast<unsigned char*>(&descriptor);
      const size_t first = offsetof(concert_descriptor, kind);
      bytes[first + random_() % (sizeof(descriptor) - first)] ^=
          static_cast<unsigned char>(1u << Pick(8));
    }
    return descriptor;
  }

 private:
  int Pick(int count) { return static_cast<int>(random_() % static_cast<uint64_t>(count)); }
  bool Rarely() { return Pick(16) == 0; }

  // Mostly small; sometimes at the edges of what anything can hold.
  uint64_t Size() {
    static constexpr uint64_t kEdges[] = {0,
                                          1,
                                          kBufferBytes - 1,
                                          kBufferBytes,
                                          kBufferBytes + 1,
                                          uint64_t{1} << 31,
                                          uint64_t{1} << 32,
                                          uint64_t{1} << 63,
                                          std::numeric_limits<uint64_t>::max() - 3,
                                          std::numeric_limits<uint64_t>::max()};
    if (Rarely()) return kEdges[random_() % std::size(kEdges)];
    return 1 + random_() % 48;
  }
  uint32_t Size32() { return static_cast<uint32_t>(Size()); }

  concert_operand Operand() {
    const uint32_t buffer = Rarely() ? static_cast<uint32_t>(Pick(6)) : buffers_[random_() % 3];
    return {buffer, 0, Rarely() ? Size() : random_() % (kBufferBytes / 2) / 16 * 16};
  }

  concert_gemm_body Gemm() {
    concert_gemm_body gemm{};
    gemm.m = Size32(), gemm.n = Size32(), gemm.k = Size32();
    gemm.batch = Pick(4) == 0 ? Size32() : 1;
    gemm.a = Operand(), gemm.w = Operand(), gemm.d = Operand();
    gemm.lda = gemm.k + (Rarely() ? Size() : 0);
    gemm.ldw = gemm.k + (Rarely() ? Size() : 0);
    gemm.ldd = gemm.n + (Rarely() ? Size() : 0);
    gemm.stride_a = Size(), gemm.stride_w = Size();
    gemm.stride_d = Rarely() ? Size() : gemm.m * gemm.ldd;
    if (Pick(4) == 0) gemm.c = Operand(), gemm.ldc = gemm.n, gemm.beta = 1;
    if (Pick(4) == 0) gemm.bias = Operand();
    gemm.alpha = Rarely() ? std::numeric_limits<float>::quiet_NaN() : 1;
    gemm.dtype = static_cast<uint8_t>(Rarely() ? Pick(256) : 1 + Pick(3));
    gemm.activation = static_cast<uint8_t>(Pick(5));
    gemm.flags = static_cast<uint16_t>(Pick(3));
    if (Pick(4) == 0) {
      const concert_operand scales = Operand();
      gemm.a.scales = scales.buffer, gemm.a_scales_offset = scales.offset;
      if (!Rarely()) gemm.flags |= CONCERT_GEMM_A_SCALES_PER_ROW;
    }
    if (Pick(3) == 0) MakeFp8(gemm);
    if (Pick(4) == 0) gemm.flags |= CONCERT_GEMM_RESIDUAL;
    if (Pick(4) == 0) MakeGated(gemm);
    return gemm;
  }

  // D's rows become half as long, if that.
  void MakeGated(concert_gemm_body& gemm) {
    gemm.flags |= CONCERT_GEMM_GATED;
    if (Pick(2) == 0) gemm.flags |= CONCERT_GEMM_GATE_INTERLEAVED;
    if (!Rarely()) gemm.n -= gemm.n % 2, gemm.beta = 0;
    if (!Rarely()) gemm.activation = static_cast<uint8_t>(2 + Pick(2));
    if (Pick(2) == 0) gemm.ldd = gemm.n / 2;
  }

  void MakeFp8(concert_gemm_body& gemm) {
    gemm.dtype = CONCERT_ABI_FP8_E4M3;
    gemm.d_dtype = static_cast<uint8_t>(Rarely() ? Pick(256) : 1 + Pick(2));
    gemm.flags = static_cast<uint16_t>(Pick(Rarely() ? 16 : 4) * 2);
    const concert_operand a_scales = Operand(), w_scales = Operand();
    if (Pick(3) != 0) gemm.a.scales = a_scales.buffer, gemm.a_scales_offset = a_scales.offset;
    if (Pick(3) != 0) gemm.w.scales = w_scales.buffer, gemm.w_scales_offset = w_scales.offset;
  }

  uint64_t RowStride(uint64_t columns) { return columns + (Rarely() ? Size() : 0); }

  concert_rms_norm_body RmsNorm() {
    concert_rms_norm_body norm{};
    norm.rows = Size32(), norm.columns = Size32();
    norm.x = Operand(), norm.weight = Operand();
    norm.out = Pick(4) == 0 ? norm.x : Operand();
    if (Pick(2) == 0) norm.residual = Operand();
    norm.x_stride = RowStride(norm.columns);
    norm.out_stride = Rarely() ? RowStride(norm.columns) : norm.x_stride;
    norm.residual_stride = RowStride(norm.columns);
    norm.epsilon = Rarely() ? std::numeric_limits<float>::quiet_NaN() : 1e-6f;
    norm.dtype = static_cast<uint8_t>(Rarely() ? Pick(256) : 1 + Pick(3));
    norm.flags = static_cast<uint16_t>(Pick(Rarely() ? 16 : 2));
    return norm;
  }

  concert_layer_norm_body LayerNorm() {
    const concert_rms_norm_body same = RmsNorm();
    concert_layer_norm_body norm{};
    norm.rows = same.rows, norm.columns = same.columns;
    norm.x = same.x, norm.residual = same.residual, norm.weight = same.weight, norm.out = same.out;
    if (Pick(2) == 0) norm.bias = Operand();
    norm.x_stride = same.x_stride, norm.residual_stride = same.residual_stride;
    norm.out_stride = same.out_stride;
    norm.epsilon = same.epsilon, norm.dtype = same.dtype;
    return norm;
  }

  concert_elementwise_body Elementwise() {
    concert_elementwise_body elementwise{};
    elementwise.rows = Size32(), elementwise.columns = Size32();
    elementwise.x = Operand(), elementwise.y = Operand();
    elementwise.out = Pick(4) == 0 ? elementwise.x : Operand();
    elementwise.x_stride = RowStride(elementwise.columns);
    elementwise.y_stride = Pick(3) == 0 ? 0 : RowStride(elementwise.columns);
    elementwise.out_stride = Rarely() ? RowStride(elementwise.columns) : elementwise.x_stride;
    elementwise.function = static_cast<uint8_t>(Rarely() ? Pick(256) : 1 + Pick(3));
    elementwise.dtype = static_cast<uint8_t>(Rarely() ? Pick(256) : 1 + Pick(3));
    elementwise.out_dtype = static_cast<uint8_t>(Rarely() ? Pick(256) : 1 + Pick(3));
    return elementwise;
  }

  concert_gated_activation_body GatedActivation() {
    concert_gated_activation_body gated{};
    gated.rows = Size32(), gated.columns = Size32();
    gated.x = Operand(), gated.out = Operand();
    gated.x_stride = RowStride(2 * uint64_t{gated.columns});
    gated.out_stride = RowStride(gated.columns);
    gated.dtype = static_cast<uint8_t>(Rarely() ? Pick(256) : 1 + Pick(3));
    gated.activation = static_cast<uint8_t>(Rarely() ? Pick(256) : 2 + Pick(2));
    gated.flags = static_cast<uint16_t>(Pick(Rarely() ? 16 : 2));
    return gated;
  }

  uint8_t IndexDtype() { return static_cast<uint8_t>(Rarely() ? Pick(256) : 5 + Pick(2)); }

  // The ids are whatever lies in the buffers.
  concert_embedding_body Embedding() {
    concert_embedding_body embedding{};
    embedding.rows = Size32(), embedding.columns = Size32(), embedding.vocabulary = Size32();
    embedding.ids = Operand(), embedding.table = Operand(), embedding.out = Operand();
    embedding.table_stride = RowStride(embedding.columns);
    embedding.out_stride = RowStride(embedding.columns);
    embedding.dtype = static_cast<uint8_t>(Rarely() ? Pick(256) : 1 + Pick(3));
    embedding.index_dtype = IndexDtype();
    return embedding;
  }

  concert_argmax_body Argmax() {
    concert_argmax_body argmax{};
    argmax.rows = Size32(), argmax.columns = Size32();
    argmax.x = Operand(), argmax.indices = Operand();
    argmax.x_stride = RowStride(argmax.columns);
    argmax.dtype = static_cast<uint8_t>(Rarely() ? Pick(256) : 1 + Pick(3));
    argmax.index_dtype = IndexDtype();
    return argmax;
  }

  concert_advance_body Advance() {
    concert_advance_body advance{};
    advance.rows = Size32(), advance.counter_max = Size32();
    advance.counters = Operand();
    if (Pick(2) == 0) advance.slots = Operand();
    advance.counter_dtype = IndexDtype(), advance.slot_dtype = IndexDtype();
    return advance;
  }

  concert_quantize_body Quantize() {
    concert_quantize_body quantize{};
    quantize.rows = Size32(), quantize.columns = Size32();
    quantize.x = Operand(), quantize.out = Operand(), quantize.scales = Operand();
    quantize.x_stride = RowStride(quantize.columns);
    quantize.out_stride = RowStride(quantize.columns);
    quantize.dtype = static_cast<uint8_t>(Rarely() ? Pick(256) : 1 + Pick(3));
    return quantize;
  }

  // Parameters of rows are whatever lies in the buffers.
  concert_sample_body Sample() {
    concert_sample_body sample{};
    sample.rows = Size32(), sample.columns = Size32();
    sample.x = Operand(), sample.indices = Operand();
    for (concert_operand* operand :
         {&sample.temperatures, &sample.top_ks, &sample.top_ps, &sample.seeds, &sample.steps}) {
      if (Pick(2) == 0) *operand = Operand();
    }
    sample.x_stride = RowStride(sample.columns);
    sample.seed = random_();
    sample.temperature = Rarely() ? std::numeric_limits<float>::quiet_NaN() : 0.7f;
    sample.top_p = Rarely() ? std::numeric_limits<float>::infinity() : 0.9f;
    sample.top_k = Pick(3) == 0 ? Size32() : 0;
    sample.dtype = static_cast<uint8_t>(Rarely() ? Pick(256) : 1 + Pick(3));
    sample.index_dtype = IndexDtype(), sample.step_dtype = IndexDtype();
    return sample;
  }

  uint16_t Few(int most) { return static_cast<uint16_t>(Rarely() ? Size() : 1 + Pick(most)); }

  concert_kv_cache_abi Cache(uint32_t heads, uint32_t head_dim) {
    concert_kv_cache_abi cache{};
    cache.k = Operand(), cache.v = Operand();
    cache.pages = Few(8), cache.page_size = Few(16);
    cache.head_stride = head_dim, cache.token_stride = heads * head_dim;
    cache.page_stride = uint64_t{cache.page_size} * cache.token_stride + (Rarely() ? Size() : 0);
    return cache;
  }

  template <typename Body>
  void FillCacheElements(Body& body) {
    if (Pick(2) == 0) return;
    body.cache_dtype = static_cast<uint8_t>(Rarely() ? Pick(256) : CONCERT_ABI_FP8_E4M3);
    const auto scale = [&] { return Rarely() ? static_cast<uint32_t>(random_()) : 0x3e000000u; };
    body.cache.k.scales = scale(), body.cache.v.scales = scale();
  }

  concert_rope_append_body RopeAppend() {
    concert_rope_append_body rope{};
    rope.rows = Few(16), rope.positions_max = Size32();
    rope.q_heads = Few(4), rope.kv_heads = Few(2);
    rope.head_dim = static_cast<uint16_t>(2 * Few(16));
    rope.rotary_dim = Rarely() ? Few(64) : rope.head_dim;
    rope.q = Operand(), rope.k = Operand(), rope.v = Operand();
    rope.positions = Operand(), rope.slots = Operand(), rope.cos_sin = Operand();
    rope.cache = Cache(rope.kv_heads, rope.head_dim);
    rope.q_stride = static_cast<uint32_t>(RowStride(uint64_t{rope.q_heads} * rope.head_dim));
    rope.k_stride = rope.v_stride =
        static_cast<uint32_t>(RowStride(uint64_t{rope.kv_heads} * rope.head_dim));
    rope.dtype = static_cast<uint8_t>(Rarely() ? Pick(256) : 1 + Pick(3));
    rope.position_dtype = IndexDtype(), rope.slot_dtype = IndexDtype();
    rope.flags = static_cast<uint16_t>(Pick(Rarely() ? 16 : 2));
    FillCacheElements(rope);
    return rope;
  }

  concert_attention_decode_body AttentionDecode() {
    concert_attention_decode_body attention{};
    attention.rows = Few(8);
    FillAttention(attention);
    return attention;
  }

  // Starts, too, are whatever lies in the buffers.
  concert_attention_prefill_body AttentionPrefill() {
    concert_attention_prefill_body attention{};
    attention.tokens = Few(32), attention.sequences = Few(8);
    attention.query_starts = Operand();
    FillAttention(attention);
    return attention;
  }

  template <typename Body>
  void FillAttention(Body& attention) {
    attention.kv_heads = Few(2);
    attention.q_heads = static_cast<uint16_t>(attention.kv_heads * Few(8));
    attention.head_dim = static_cast<uint16_t>(64 * Few(4));
    attention.q = Operand(), attention.lengths = Operand(), attention.out = Operand();
    if (Pick(3) != 0) attention.page_table = Operand();
    attention.cache = Cache(attention.kv_heads, attention.head_dim);
    attention.q_stride = attention.out_stride =
        static_cast<uint32_t>(RowStride(uint64_t{attention.q_heads} * attention.head_dim));
    attention.table_stride = Few(8);
    attention.length_max = Few(8) * (Rarely() ? 1 : attention.cache.page_size);
    attention.window = Rarely() ? Size32() : 0;
    attention.scale = Rarely() ? std::numeric_limits<float>::quiet_NaN() : 0.125f;
    attention.soft_cap = Rarely() ? std::numeric_limits<float>::infinity() : 0;
    attention.dtype = static_cast<uint8_t>(Rarely() ? Pick(256) : 1);
    FillCacheElements(attention);
  }

  concert_collective_body Collective(uint16_t kind) {
    concert_collective_body body{};
    body.communicator = Rarely() ? static_cast<uint32_t>(random_()) : communicator_;
    body.sequence = Rarely() ? Size() : sequence_;
    if (kind == CONCERT_OP_BARRIER && !Rarely()) return body;
    body.root = static_cast<uint32_t>(Rarely() ? Pick(3) : 0);
    body.count = Size();
    body.src = Operand();
    body.dst = Pick(2) == 0 ? body.src : Operand();
    body.dtype = static_cast<uint8_t>(1 + Pick(Rarely() ? 200 : 3));
    body.reduction = static_cast<uint8_t>(Pick(4));
    return body;
  }

  void AddWaits(concert_descriptor& descriptor) {
    descriptor.wait_count = static_cast<uint32_t>(Pick(8) == 0 ? Pick(CONCERT_MAX_WAITS + 2) : 0);
    for (uint32_t i = 0; i < descriptor.wait_count && i < CONCERT_MAX_WAITS; ++i) {
      const uint32_t session = Rarely() ? static_cast<uint32_t>(random_()) : session_;
      const uint32_t user = Pick(4) == 0 ? CONCERT_TIMELINE_USER : 0;
      descriptor.waits[i] = {
          CONCERT_TIMELINE_ID(session, user | static_cast<uint32_t>(Pick(kQueues + 1))),
          Rarely() ? Size() : static_cast<uint64_t>(Pick(50))};
    }
  }

 public:
  // What the test knows of the daemon's count after the descriptor was published as it is.
  void Published(const concert_descriptor& descriptor) {
    const bool collective =
        descriptor.kind >= CONCERT_OP_ALL_REDUCE && descriptor.kind <= CONCERT_OP_BARRIER;
    if (collective && descriptor.body.collective.communicator == communicator_ &&
        descriptor.body.collective.sequence == sequence_) {
      ++sequence_;
    }
  }

 private:
  std::mt19937_64 random_;
  const std::array<uint32_t, 3> buffers_;
  const uint32_t communicator_, session_;
  uint64_t sequence_ = 0;
};

void CheckSentence(const concert_completion& completion) {
  const std::string sentence = Render(completion);
  EXPECT_NE(completion.status, CONCERT_ABI_OK);
  EXPECT_GT(sentence.size(), 10u);
  EXPECT_EQ(sentence.find('%'), std::string::npos) << sentence;
  EXPECT_EQ(sentence.find("newer daemon"), std::string::npos) << sentence;
}

void Fuzz(uint32_t seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  // Ops wait at random for what never comes; the test must not wait long for them.
  TestDaemon daemon({.wait_timeout = std::chrono::milliseconds(1)});
  HealthyClient healthy(daemon, 0);
  uint64_t failures = 0;
  {
    RawClient client(daemon.socket());
    ASSERT_TRUE(client.Hello());
    for (int i = 0; i < kQueues; ++i) ASSERT_EQ(client.CreateQueue(), static_cast<uint32_t>(i));
    std::array<uint32_t, 3> buffers;
    for (uint32_t& buffer : buffers) buffer = client.AllocateBuffer(kBufferBytes);
    DescriptorGenerator generator(seed, buffers, client.Join("alone", 0, 1), client.session());
    std::array<uint64_t, kQueues> tickets{};
    std::mt19937 random(seed);
    for (uint32_t i = 0; i < kOps; ++i) {
      concert_descriptor descriptor = generator.Next();
      descriptor.queue = random() % kQueues;
      uint64_t& ticket = tickets[descriptor.queue];
      // Other tickets end the session.
      if (descriptor.kind == CONCERT_OP_PROGRAM)
        ticket += descriptor.body.program.covered %= CONCERT_MAX_PROGRAM_OPS;
      descriptor.ticket = ++ticket;
      generator.Published(descriptor);
      // Completions are read as they come, or the ring would fill up with them.
      while (client.tail() - client.head() >= client.capacity() - 1) {
        while (const auto completion = client.NextCompletion())
          CheckSentence(*completion), ++failures;
        ASSERT_NE(client.page().state, static_cast<uint32_t>(CONCERT_SESSION_CLOSED));
      }
      ASSERT_TRUE(client.Push(descriptor));
    }
    for (uint32_t queue = 0; queue < kQueues; ++queue) {
      EXPECT_TRUE(Eventually([&] {
        while (const auto completion = client.NextCompletion())
          CheckSentence(*completion), ++failures;
        return client.timeline(queue) >= tickets[queue];
      })) << "queue "
          << queue << " stands at " << client.timeline(queue) << " of " << tickets[queue];
    }
  }
  EXPECT_GT(failures, kOps / 20);       // the generator is mean enough
  EXPECT_LT(failures, kOps * 19 / 20);  // and not too mean
  EXPECT_TRUE(healthy.Progresses());
  EXPECT_EQ(healthy.Stop(), "");
  EXPECT_TRUE(daemon.WaitUntilEmpty());
  EXPECT_EQ(daemon.node().gpu(0).used_bytes(), 0u);
}

TEST(DescriptorFuzzTest, EveryTicketEnds) { Fuzz(test::Seed()); }

// Registers the ops with a binding, slot 0, and an arena, slot 1, of kBufferBytes each. The
// program's handle, or 0 and why not.
uint32_t Register(const RawClient& client, const std::vector<concert_descriptor>& ops,
                  std::string& why) {
  const concert_program_slot slots[] = {{CONCERT_SLOT_BINDING, 0, kBufferBytes},
                                        {CONCERT_SLOT_ARENA, 0, kBufferBytes}};
  const concert_program_reply reply = client.CreateProgram(slots, ops);
  EXPECT_NE(reply.reply.status, CONCERT_ABI_UNAVAILABLE) << "the daemon hung up";
  why = reply.reply.message;
  return reply.program;
}

// Mostly as a program may have them. The first fills the arena, so that others may read it.
std::vector<concert_descriptor> RandomOps(DescriptorGenerator& generator, std::mt19937& random) {
  concert_descriptor fill{};
  fill.kind = CONCERT_OP_COPY;
  fill.body.copy = {.src = {CONCERT_SLOT_HANDLE(0), 0, 0},
                    .dst = {CONCERT_SLOT_HANDLE(1), 0, 0},
                    .bytes = kBufferBytes,
                    .reserved = {}};
  std::vector<concert_descriptor> ops = {fill};
  for (uint32_t left = 1 + random() % 3; left > 0; --left) {
    concert_descriptor descriptor = generator.Next();
    if (random() % 64 != 0) {
      const concert_descriptor drawn = descriptor;
      descriptor = {};
      descriptor.kind = drawn.kind;
      descriptor.body = drawn.body;
    }
    ops.push_back(descriptor);
  }
  return ops;
}

TEST(DescriptorFuzzTest, ProgramsRunOrAreRefusedWithASentence) {
  constexpr int kPrograms = 3000;
  SCOPED_TRACE(testing::Message() << "seed " << test::Seed());
  TestDaemon daemon({.gpus = 1});
  int registered = 0, refused = 0;
  {
    RawClient client(daemon.socket());
    ASSERT_TRUE(client.Hello());
    const uint32_t queue = client.CreateQueue(), buffer = client.AllocateBuffer(kBufferBytes);
    DescriptorGenerator generator(test::Seed(),
                                  {buffer, CONCERT_SLOT_HANDLE(0), CONCERT_SLOT_HANDLE(1)}, 0,
                                  client.session());
    std::mt19937 random(test::Seed());
    concert_descriptor run{};
    run.kind = CONCERT_OP_PROGRAM;
    run.queue = queue;
    run.body.program.binding_count = 1;
    run.body.program.bindings[0].buffer = buffer;
    for (int i = 0; i < kPrograms; ++i) {
      std::string why;
      run.body.program.program = Register(client, RandomOps(generator, random), why);
      if (run.body.program.program == 0) {
        ++refused;
        ASSERT_GT(why.size(), 10u);
        continue;
      }
      ++registered;
      ++run.ticket;
      ASSERT_TRUE(client.Push(run));
      ASSERT_EQ(client.ReleaseBuffer(run.body.program.program), 0u);  // it runs all the same
      ASSERT_TRUE(Eventually([&] { return client.timeline(queue) >= run.ticket; }));
      ASSERT_FALSE(client.NextCompletion()) << "a registered program's run failed";
    }
  }
  EXPECT_GT(registered, kPrograms / 20);
  EXPECT_GT(refused, kPrograms / 20);
  EXPECT_TRUE(daemon.WaitUntilEmpty());
  EXPECT_EQ(daemon.node().gpu(0).used_bytes(), 0u);
}

}  // namespace
}  // namespace concert::test
