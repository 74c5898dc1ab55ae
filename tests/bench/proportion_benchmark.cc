// Whether a dispatcher's work is in proportion to what changes: a healthy session's latency and
// throughput beside idle queues, beside ops that wait for other queues, and beside ops that wait
// for words of shared memory, which nobody ever signals; and the throughput of sessions that submit
// ever further ahead. CPU time of the dispatcher's thread on a
// device that ends at once what it is given; all runs on the benchmark's thread.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "daemon/check.h"
#include "daemon/clock.h"
#include "tests/bench/dispatcher_bed.h"
#include "tests/bench/null_device.h"

namespace concert::bench {
namespace {

using daemon::NowNs;
using daemon::Resource;

constexpr uint32_t kWidth = 64;              // queues of the healthy session
constexpr uint32_t kQueuesPerSession = 256;  // and ops, of a crowd's session
constexpr GemmShape kShape = {16, 16, 16};

enum class Crowd { kIdleQueues, kWaitsForQueues, kWaitsForWords };

class Scene {
 public:
  Scene(Crowd crowd, uint32_t count) : bed_(gpu_, "auto", Options(), kWidth, Limits()) {
    if (crowd == Crowd::kIdleQueues) {
      for (uint32_t left = count; left > 0; left -= std::min(left, kQueuesPerSession)) {
        bed_.OpenSession(kCrowdUser, std::min(left, kQueuesPerSession));
      }
    } else {
      OpenWaiting(crowd, count);
    }
    while (bed_.Turn(NowNs())) {
    }
  }

  // Submits to the first `width` queues and turns until all has ended. Returns the time taken.
  policies::Time Round(uint32_t width) {
    for (uint32_t queue = 0; queue < width; ++queue) bed_.Write(0, bed_.Gemm(kShape, queue));
    const policies::Time begin = NowNs();
    bed_.Ring(0);
    while (bed_.timeline(0) < bed_.ticket(0) || bed_.timeline(width - 1) < bed_.ticket(width - 1)) {
      bed_.Turn(NowNs());
    }
    const policies::Time time = NowNs() - begin;
    // Not the client's business: what comes after the end.
    for (int i = 0; i < 3; ++i) bed_.Turn(NowNs());
    bed_.DrainRecords();
    return time;
  }

 private:
  static constexpr uint32_t kCrowdUser = 2;

  static daemon::DispatcherOptions Options() {
    daemon::DispatcherOptions options;
    options.scheduler.max_queues = 1 << 15;
    options.scheduler.max_ops = 1 << 17;
    options.scheduler.wait_timeout_ns = 3'600'000'000'000;
    return options;
  }
  static daemon::Limits Limits() {
    daemon::Limits limits;
    limits[daemon::Resource::kWaits] = {};
    return limits;
  }

  // Ops with four waits each, on queues of their own.
  void OpenWaiting(Crowd crowd, uint32_t waits) {
    const uint32_t never = bed_.OpenSession(kCrowdUser, 1);
    uint32_t next_word = 0;
    while (waits > 0) {
      const uint32_t session = bed_.OpenSession(kCrowdUser, kQueuesPerSession);
      for (uint32_t queue = 0; queue < kQueuesPerSession && waits > 0; ++queue) {
        concert_descriptor op = bed_.Gemm(kShape, queue);
        op.wait_count = std::min<uint32_t>(waits, CONCERT_MAX_WAITS);
        for (uint32_t i = 0; i < op.wait_count; ++i) {
          const uint32_t word = CONCERT_TIMELINE_USER | next_word++ % CONCERT_MAX_USER_TIMELINES;
          op.waits[i] = {crowd == Crowd::kWaitsForWords
                             ? CONCERT_TIMELINE_ID(bed_.IdOf(session), word)
                             : CONCERT_TIMELINE_ID(bed_.IdOf(never), 0),
                         1};
        }
        waits -= op.wait_count;
        bed_.Write(session, op);
      }
      bed_.Ring(session);
      while (bed_.Turn(NowNs())) {
      }
    }
  }

  NullDevice gpu_;
  DispatcherBed bed_;
};

// Servers that submit ahead, each a chain on every one of its queues.
class Fleet {
 public:
  static constexpr uint32_t kServers = 16, kQueues = 4;

  Fleet() : bed_(gpu_, "auto", {.scheduler = {.max_ops = 1 << 17}}, kQueues) {
    for (uint32_t i = 1; i < kServers; ++i) bed_.OpenSession(/*uid=*/i + 1, kQueues);
  }

  // Every server submits `count` ops at once. Returns the time until all have ended.
  policies::Time Round(uint32_t count) {
    for (uint32_t server = 0; server < kServers; ++server) {
      for (uint32_t i = 0; i < count; ++i)
        bed_.Write(server, bed_.Gemm(kShape, i % kQueues, i % kQueues));
    }
    const policies::Time begin = NowNs();
    for (uint32_t server = 0; server < kServers; ++server) bed_.Ring(server);
    do {
      bed_.Turn(NowNs());
    } while (!bed_.idle() || bed_.timeline(0) < bed_.ticket(0));
    const policies::Time time = NowNs() - begin;
    bed_.DrainRecords();
    return time;
  }

 private:
  NullDevice gpu_;
  DispatcherBed bed_;
};

void MeasureFleet(benchmark::State& state) {
  const auto count = static_cast<uint32_t>(state.range(0));
  Fleet fleet;
  for (uint32_t ops = 0; ops < 20'000; ops += count * Fleet::kServers) fleet.Round(count);
  for (auto _ : state) state.SetIterationTime(static_cast<double>(fleet.Round(count)) * 1e-9);
  state.SetItemsProcessed(state.iterations() * count * Fleet::kServers);
}

void Measure(benchmark::State& state, Crowd crowd, uint32_t width) {
  Scene scene(crowd, static_cast<uint32_t>(state.range(0)));
  for (int i = 0; i < 2'000; ++i) scene.Round(width);
  std::vector<policies::Time> times;
  for (auto _ : state) {
    times.push_back(scene.Round(width));
    state.SetIterationTime(static_cast<double>(times.back()) * 1e-9);
  }
  std::sort(times.begin(), times.end());
  state.counters["p50_us"] = static_cast<double>(times[times.size() / 2]) * 1e-3;
  state.counters["p99_us"] = static_cast<double>(times[times.size() * 99 / 100]) * 1e-3;
  state.SetItemsProcessed(state.iterations() * width);
}

void Register(const char* name, Crowd crowd, const std::vector<int64_t>& counts) {
  for (const bool wide : {false, true}) {
    auto* benchmark = benchmark::RegisterBenchmark(
        (std::string(name) + (wide ? "/throughput" : "/latency")).c_str(), Measure, crowd,
        wide ? kWidth : 1);
    for (const int64_t count : counts) benchmark->Arg(count);
    benchmark->UseManualTime();
  }
}

}  // namespace
}  // namespace concert::bench

int main(int argc, char** argv) {
  using concert::bench::Crowd;
  concert::bench::Register("idle_queues", Crowd::kIdleQueues, {1, 16, 256, 4'096, 16'384});
  concert::bench::Register("waits_for_queues", Crowd::kWaitsForQueues, {1, 16, 256, 4'096, 65'536});
  concert::bench::Register("waits_for_words", Crowd::kWaitsForWords, {1, 16, 256, 4'096, 65'536});
  auto* fleet = benchmark::RegisterBenchmark("ops_in_flight_of_16_sessions/throughput",
                                             concert::bench::MeasureFleet);
  for (const int64_t count : {4, 16, 64, 256, 1'024}) fleet->Arg(count);
  fleet->UseManualTime();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
