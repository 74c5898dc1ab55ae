#include "tests/support/healthy_client.h"

#include <utility>
#include <vector>

#include "tests/support/raw_client.h"

namespace concert::test {
namespace {

constexpr uint32_t kN = 16;

}  // namespace

HealthyClient::HealthyClient(const TestDaemon& daemon, uint32_t gpu)
    : thread_([this, gpu, session = daemon.Connect("healthy")]() mutable {
        Run(std::move(session), gpu);
      }) {}

bool HealthyClient::Progresses() const {
  const uint64_t seen = rounds_.load(std::memory_order_acquire);
  // The round that runs now may have been submitted before.
  return Eventually([&] { return rounds_.load(std::memory_order_acquire) >= seen + 2; });
}

std::string HealthyClient::Stop() {
  stop_.store(true, std::memory_order_release);
  if (thread_.joinable()) thread_.join();
  return trouble_;
}

void HealthyClient::Run(Session session, uint32_t gpu) { trouble_ = Compute(session, gpu); }

std::string HealthyClient::Compute(Session& session, uint32_t gpu) {
  Queue queue = session.CreateQueue({.gpu = gpu}).value();
  // Small whole numbers, so that results are exact.
  std::vector<float> a(kN * kN), w(kN * kN), d(kN * kN), want(kN * kN);
  const Buffer a_buffer = session.Allocate(sizeof(float) * a.size(), gpu).value();
  const Buffer w_buffer = session.Allocate(sizeof(float) * w.size(), gpu).value();
  const Buffer d_buffer = session.Allocate(sizeof(float) * d.size(), gpu).value();
  for (uint64_t round = 0; !stop_.load(std::memory_order_acquire); ++round) {
    for (uint32_t i = 0; i < kN * kN; ++i) {
      a[i] = static_cast<float>((i + round) % 7);
      w[i] = static_cast<float>((i * 3 + round) % 5);
    }
    for (uint32_t i = 0; i < kN; ++i) {
      for (uint32_t j = 0; j < kN; ++j) {
        want[i * kN + j] = 0;
        for (uint32_t k = 0; k < kN; ++k) want[i * kN + j] += a[i * kN + k] * w[j * kN + k];
      }
    }
    std::fill(d.begin(), d.end(), -1.0f);
    a_buffer.Write(a.data(), sizeof(float) * a.size()).Check();
    w_buffer.Write(w.data(), sizeof(float) * w.size()).Check();
    d_buffer.Write(d.data(), sizeof(float) * d.size()).Check();
    const Status status = queue
                              .Gemm({.m = kN,
                                     .n = kN,
                                     .k = kN,
                                     .a = a_buffer,
                                     .w = w_buffer,
                                     .d = d_buffer,
                                     .dtype = kFp32})
                              .Wait(std::chrono::seconds(30));
    if (!status.ok()) return "round " + std::to_string(round) + ": " + status.ToString();
    d_buffer.Read(d.data(), sizeof(float) * d.size()).Check();
    if (d != want) return "round " + std::to_string(round) + ": wrong numbers";
    rounds_.fetch_add(1, std::memory_order_release);
  }
  return "";
}

}  // namespace concert::test
