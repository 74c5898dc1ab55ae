// Ops from the client's call to its result: libconcert, ring, dispatcher, scheduler, simulator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/bf16.h"
#include "tests/support/e4m3.h"
#include "tests/support/seed.h"
#include "tests/support/test_daemon.h"

namespace concert::test {
namespace {

using testing::HasSubstr;
using testing::Values;

std::vector<float> RandomFloats(size_t count, uint32_t seed) {
  std::mt19937 random(test::Seed() + seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(random);
  return values;
}

Buffer MakeBuffer(const Session& session, const std::vector<float>& values, uint32_t gpu = 0) {
  Buffer buffer = session.Allocate(values.size() * sizeof(float), gpu).value();
  buffer.Write(values.data(), values.size() * sizeof(float)).Check();
  return buffer;
}

std::vector<float> ReadFloats(const Buffer& buffer, size_t count) {
  std::vector<float> values(count);
  buffer.Read(values.data(), count * sizeof(float)).Check();
  return values;
}

// D = A * W^T in double.
std::vector<float> Reference(const std::vector<float>& a, const std::vector<float>& w, uint32_t m,
                             uint32_t n, uint32_t k) {
  std::vector<float> d(size_t{m} * n);
  for (uint32_t i = 0; i < m; ++i) {
    for (uint32_t j = 0; j < n; ++j) {
      double sum = 0;
      for (uint32_t l = 0; l < k; ++l) sum += double{a[i * k + l]} * double{w[j * k + l]};
      d[i * n + j] = static_cast<float>(sum);
    }
  }
  return d;
}

double RelativeError(const std::vector<float>& got, const std::vector<float>& want) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += std::pow(double{got[i]} - double{want[i]}, 2);
    norm += std::pow(double{want[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

class ServiceTest : public testing::TestWithParam<const char*> {
 protected:
  ServiceTest() : daemon_({.policy = GetParam()}) {}
  // Another GPU where there is one.
  uint32_t OtherGpu() const { return daemon_.gpu_count() > 1 ? 1 : 0; }
  TestDaemon daemon_;
};

TEST_P(ServiceTest, AGemmComesBackRight) {
  const Session session = daemon_.Connect();
  Queue queue = session.CreateQueue({}).value();
  const std::vector<float> a = RandomFloats(17 * 33, 1), w = RandomFloats(29 * 33, 2);
  const Buffer a_buffer = MakeBuffer(session, a), w_buffer = MakeBuffer(session, w);
  const Buffer d_buffer = MakeBuffer(session, std::vector<float>(17 * 29, NAN));
  const Ticket ticket = queue.Gemm(
      {.m = 17, .n = 29, .k = 33, .a = a_buffer, .w = w_buffer, .d = d_buffer, .dtype = kFp32});
  const Status status = ticket.Wait();
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_LT(RelativeError(ReadFloats(d_buffer, 17 * 29), Reference(a, w, 17, 29, 33)), 1e-5);
}

// Operands in fp8 as a client quantises them, their scales in the same buffers, D in bf16.
TEST_P(ServiceTest, AnFp8GemmComesBackRight) {
  constexpr uint32_t kM = 17, kN = 24, kK = 48;
  const Session session = daemon_.Connect();
  Queue queue = session.CreateQueue({}).value();
  std::vector<float> a = RandomFloats(kM * kK, 3), w = RandomFloats(kN * kK, 4);
  std::vector<float> a_scales(kM), w_scale = {1.0f / 448};
  std::vector<uint8_t> a_bits, w_bits;
  for (uint32_t i = 0; i < kM; ++i) {  // row i is as large as i + 1
    a_scales[i] = static_cast<float>(i + 1) / 448;
    for (uint32_t l = 0; l < kK; ++l) a_bits.push_back(EncodeE4m3(a[i * kK + l] * 448));
    for (uint32_t l = 0; l < kK; ++l)
      a[i * kK + l] = kernels::DecodeE4m3(a_bits[i * kK + l]) * a_scales[i];
  }
  for (float& value : w) {
    w_bits.push_back(EncodeE4m3(value / w_scale[0]));
    value = kernels::DecodeE4m3(w_bits.back()) * w_scale[0];
  }
  const Buffer scales = MakeBuffer(session, a_scales), w_buffer = session.Allocate(2048).value();
  const Buffer a_buffer = session.Allocate(a_bits.size()).value();
  const Buffer d_buffer = session.Allocate(kM * kN * 2).value();
  a_buffer.Write(a_bits.data(), a_bits.size()).Check();
  w_buffer.Write(w_bits.data(), w_bits.size()).Check();
  w_buffer.Write(w_scale.data(), sizeof(float), 2044).Check();
  const Ticket ticket = queue.Gemm({.m = kM,
                                    .n = kN,
                                    .k = kK,
                                    .a = a_buffer,
                                    .w = w_buffer,
                                    .d = d_buffer,
                                    .dtype = kFp8E4m3,
                                    .d_dtype = kBf16,
                                    .a_scales = scales,
                                    .w_scales = {w_buffer, 2044},
                                    .a_scales_per_row = true});
  const Status status = ticket.Wait();
  ASSERT_TRUE(status.ok()) << status.ToString();
  std::vector<uint16_t> bits(kM * kN);
  d_buffer.Read(bits.data(), bits.size() * 2).Check();
  std::vector<float> d;
  for (const uint16_t word : bits) d.push_back(FromBf16(word));
  EXPECT_LT(RelativeError(d, Reference(a, w, kM, kN, kK)), 4e-3);  // of bf16
}

TEST_P(ServiceTest, NanAndInfinityAreScalarsLikeOthers) {
  const Session session = daemon_.Connect();
  Queue queue = session.CreateQueue({}).value();
  const Buffer one = MakeBuffer(session, {1}), d = MakeBuffer(session, {7});
  const auto result = [&](float alpha, float beta) {
    queue
        .Gemm({.m = 1,
               .n = 1,
               .k = 1,
               .a = one,
               .w = one,
               .c = one,
               .d = d,
               .alpha = alpha,
               .beta = beta,
               .dtype = kFp32})
        .Wait()
        .Check();
    return ReadFloats(d, 1)[0];
  };
  EXPECT_TRUE(std::isnan(result(NAN, 0)));
  EXPECT_TRUE(std::isnan(result(1, NAN)));
  EXPECT_EQ(result(INFINITY, 0), INFINITY);
  EXPECT_EQ(result(1, -INFINITY), -INFINITY);
  EXPECT_EQ(result(0, 2), 2);  // alpha = 0 means 0
}

TEST_P(ServiceTest, AChainRunsInOrderAcrossManyOps) {
  const Session session = daemon_.Connect();
  Queue queue = session.CreateQueue({}).value();
  constexpr uint32_t kN = 16,
                     kLength = 300;  // longer than the ring and than what is admitted at once
  // W = identity shifted by one row: each op rotates x once.
  std::vector<float> shift(kN * kN), x(kN);
  for (uint32_t i = 0; i < kN; ++i) shift[i * kN + (i + 1) % kN] = 1, x[i] = static_cast<float>(i);
  const Buffer w = MakeBuffer(session, shift), first = MakeBuffer(session, x),
               second = MakeBuffer(session, x);
  Ticket last;
  for (uint32_t i = 0; i < kLength; ++i) {
    const bool even = i % 2 == 0;
    last = queue.Gemm({.m = 1,
                       .n = kN,
                       .k = kN,
                       .a = even ? first : second,
                       .w = w,
                       .d = even ? second : first,
                       .dtype = kFp32});
    ASSERT_TRUE(last.submit_status().ok()) << last.submit_status().ToString();
  }
  const Status status = last.Wait();
  ASSERT_TRUE(status.ok()) << status.ToString();
  const std::vector<float> got = ReadFloats(first, kN);
  for (uint32_t i = 0; i < kN; ++i) EXPECT_EQ(got[i], static_cast<float>((i + kLength) % kN));
}

TEST_P(ServiceTest, OpsOfOneSessionWaitForAnothers) {
  const Session producer = daemon_.Connect("producer"), consumer = daemon_.Connect("consumer");
  Queue up = producer.CreateQueue({}).value(),
        down = consumer.CreateQueue({.gpu = OtherGpu()}).value();
  const Buffer a = MakeBuffer(producer, {1, 2, 3, 4}), w = MakeBuffer(producer, {1, 0, 0, 1});
  const Buffer d = MakeBuffer(producer, {0, 0, 0, 0});
  const Buffer source = MakeBuffer(consumer, {5, 6}, OtherGpu()),
               sink = MakeBuffer(consumer, {0, 0}, OtherGpu());
  const UserTimeline gate = producer.CreateUserTimeline().value();
  const Ticket gemm = up.Gemm({.m = 2, .n = 2, .k = 2, .a = a, .w = w, .d = d, .dtype = kFp32},
                              {.waits = {gate.At(3)}});
  // On another GPU, behind another session's op, which is behind a word that this process writes.
  const Ticket copy = down.Copy({.src = source, .dst = sink, .bytes = 8},
                                {.waits = {consumer.TicketOf(gemm.get())}});
  EXPECT_EQ(copy.Wait(std::chrono::milliseconds(20)).code(), CONCERT_DEADLINE_EXCEEDED);
  EXPECT_EQ(ReadFloats(sink, 2)[0], 0);
  gate.Signal(3).Check();
  EXPECT_TRUE(copy.Wait().ok());
  EXPECT_EQ(ReadFloats(sink, 2)[1], 6);
  EXPECT_TRUE(gemm.Wait().ok());
}

TEST_P(ServiceTest, TwoClientsReduceTogetherWhereverTheyAre) {
  for (const uint32_t second_gpu : {0u, OtherGpu()}) {
    SCOPED_TRACE(second_gpu);
    const Session one = daemon_.Connect("one"), two = daemon_.Connect("two");
    Queue q1 = one.CreateQueue({}).value(), q2 = two.CreateQueue({.gpu = second_gpu}).value();
    const Communicator c1 = one.Join({.name = "tp", .rank = 0, .ranks = 2, .gpu = 0}).value();
    const Communicator c2 =
        two.Join({.name = "tp", .rank = 1, .ranks = 2, .gpu = second_gpu}).value();
    const std::vector<float> x = RandomFloats(1000, 3), y = RandomFloats(1000, 4);
    const Buffer b1 = MakeBuffer(one, x), b2 = MakeBuffer(two, y, second_gpu);
    const Ticket t1 = q1.AllReduce(c1, {.data = b1, .count = 1000, .dtype = kFp32});
    EXPECT_EQ(t1.Wait(std::chrono::milliseconds(5)).code(), CONCERT_DEADLINE_EXCEEDED);
    const Ticket t2 = q2.AllReduce(c2, {.data = b2, .count = 1000, .dtype = kFp32});
    ASSERT_TRUE(t1.Wait().ok()) << t1.Wait().ToString();
    ASSERT_TRUE(t2.Wait().ok()) << t2.Wait().ToString();
    const std::vector<float> r1 = ReadFloats(b1, 1000), r2 = ReadFloats(b2, 1000);
    EXPECT_EQ(r1, r2);
    for (size_t i = 0; i < 1000; ++i) ASSERT_FLOAT_EQ(r1[i], x[i] + y[i]);
    const Ticket barrier1 = q1.Barrier(c1), barrier2 = q2.Barrier(c2);
    EXPECT_TRUE(barrier1.Wait().ok());
    EXPECT_TRUE(barrier2.Wait().ok());
  }
}

TEST_P(ServiceTest, ManyClientsAtOnceAllGetTheirOwnNumbers) {
  constexpr int kClients = 4, kSteps = 25;
  std::vector<std::thread> clients;
  std::vector<double> errors(kClients, 1);
  for (int c = 0; c < kClients; ++c) {
    clients.emplace_back([&, c] {
      const Session session = daemon_.Connect("client " + std::to_string(c));
      const uint32_t gpu = c % 2 == 0 ? 0 : OtherGpu(), m = 8 + static_cast<uint32_t>(c), n = 24,
                     k = 40;
      Queue one = session.CreateQueue({.gpu = gpu}).value();
      Queue two = session.CreateQueue({.gpu = gpu, .priority = kHigh}).value();
      const std::vector<float> x = RandomFloats(m * k, 10 + static_cast<uint32_t>(c)),
                               w = RandomFloats(n * k, 20), v = RandomFloats(k * n, 30);
      const Buffer bx = MakeBuffer(session, x, gpu), bw = MakeBuffer(session, w, gpu),
                   bv = MakeBuffer(session, v, gpu);
      const Buffer by = MakeBuffer(session, std::vector<float>(m * n, NAN), gpu),
                   bz = MakeBuffer(session, std::vector<float>(m * k, NAN), gpu);
      double worst = 0;
      for (int step = 0; step < kSteps; ++step) {
        Batch batch = session.BeginBatch(gpu).value();
        const Ticket y =
            one.Gemm({.m = m, .n = n, .k = k, .a = bx, .w = bw, .d = by, .dtype = kFp32});
        const Ticket z = two.Gemm(
            {.m = m, .n = k, .k = n, .a = by, .w = bv, .d = bz, .dtype = kFp32}, {.waits = {y}});
        batch.End().Check();
        z.Wait().Check();
        const std::vector<float> want = Reference(Reference(x, w, m, n, k), v, m, k, n);
        worst = std::max(worst, RelativeError(ReadFloats(bz, m * k), want));
      }
      errors[static_cast<size_t>(c)] = worst;
    });
  }
  for (std::thread& client : clients) client.join();
  for (const double error : errors) EXPECT_LT(error, 1e-4);
  EXPECT_TRUE(daemon_.WaitUntilEmpty());
}

TEST_P(ServiceTest, DestroyingAQueueLetsItsOpsRunAndItsIndexBeUsedAgain) {
  const Session session = daemon_.Connect();
  const Buffer from = MakeBuffer(session, {1, 2, 3, 4}), to = MakeBuffer(session, {0, 0, 0, 0});
  for (int round = 0; round < 600; ++round) {  // more than a session has queues
    Queue queue = session.CreateQueue({}).value();
    const Ticket copy = queue.Copy({.src = from, .dst = to, .bytes = 16});
    queue = Queue();
    ASSERT_TRUE(copy.Wait().ok()) << round << ": " << copy.Wait().ToString();
  }
  EXPECT_EQ(ReadFloats(to, 4)[3], 4);
}

TEST_P(ServiceTest, ABadOpFailsAloneAndInItsTurn) {
  const Session session = daemon_.Connect();
  Queue queue = session.CreateQueue({}).value();
  const Buffer from = MakeBuffer(session, {1, 2}), to = MakeBuffer(session, {0, 0});
  const Ticket good = queue.Copy({.src = from, .dst = to, .bytes = 8});
  const Ticket bad = queue.Copy({.src = from, .dst = {to, 1 << 20}, .bytes = 8});
  const Ticket after = queue.Copy({.src = to, .dst = from, .bytes = 4});
  EXPECT_TRUE(after.Wait().ok());
  EXPECT_TRUE(good.Wait().ok());
  EXPECT_EQ(bad.Wait().code(), CONCERT_INVALID_ARGUMENT);
  EXPECT_THAT(bad.Wait().message(), HasSubstr("dst needs 8 bytes at offset 1048576"));
}

INSTANTIATE_TEST_SUITE_P(Policies, ServiceTest,
                         Values("auto", "serial", "streams", "group", "priority", "conccl",
                                "goldyloc"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace concert::test
