// What the service itself costs: ops from libconcert through ring, dispatcher and scheduler to a
// device that does nothing and is done at once. Real processes have the client in one process and
// the rest in another; here they are two threads, which share no more than the mapped regions.
#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <memory>
#include <string>
#include <vector>

#include "client/include/concert/concert.hpp"
#include "daemon/check.h"
#include "daemon/device/device.h"
#include "daemon/sched/engine.h"
#include "daemon/session/server.h"
#include "daemon/telemetry/telemetry.h"
#include "tests/bench/allocation_count.h"
#include "tests/bench/null_device.h"

namespace concert::bench {
namespace {

using daemon::Address;

class NullNode : public daemon::Node {
 public:
  int gpu_count() const override { return 1; }
  daemon::Device& gpu(int) override { return device_; }
  absl::StatusOr<Address> RegisterHostMemory(void* data, uint64_t) override {
    return reinterpret_cast<Address>(data);
  }
  void UnregisterHostMemory(void*) override {}
  absl::Status Connect(std::span<const int>) override { return absl::OkStatus(); }
  absl::Status LaunchCollective(std::span<const daemon::RankPart>) override {
    return absl::OkStatus();
  }

 private:
  NullDevice device_;
};

// Engine, telemetry and control socket on a null node, and a session with one queue.
class NullService {
 public:
  explicit NullService(const std::string& policy, size_t queues = 1) {
    char folder[] = "/tmp/concert-ring-XXXXXX";
    CONCERT_CHECK(mkdtemp(folder) != nullptr);
    folder_ = folder;
    telemetry_ = std::make_unique<daemon::Telemetry>([] { return daemon::NowNs(); });
    daemon::RecordRing* ring = telemetry_->AddRing(0);
    daemon::EngineOptions options;
    options.policy = policy;
    engine_ = daemon::Engine::Create(options, node_, std::span(&ring, 1)).value();
    daemon::ServerOptions server;
    server.socket_path = folder_ + "/concert.sock";
    server_ = daemon::Server::Create(server, *engine_).value();
    telemetry_->Start();
    engine_->Start();
    server_->Start();
    session_ = Session::Connect({.socket_path = server.socket_path}).value();
    for (size_t i = 0; i < queues; ++i) queues_.push_back(session_.CreateQueue({}).value());
    a_ = session_.Allocate(512).value(), w_ = session_.Allocate(512).value();
    d_ = session_.Allocate(512).value();
  }
  ~NullService() {
    d_ = Buffer(), w_ = Buffer(), a_ = Buffer(), queues_.clear(), session_ = Session();
    server_.reset();
    engine_.reset();
    telemetry_.reset();
    rmdir(folder_.c_str());
  }

  Ticket Submit(size_t queue = 0) {
    return queues_[queue].Gemm({.m = 16, .n = 16, .k = 16, .a = a_, .w = w_, .d = d_});
  }

 private:
  std::string folder_;
  NullNode node_;
  std::unique_ptr<daemon::Telemetry> telemetry_;
  std::unique_ptr<daemon::Engine> engine_;
  std::unique_ptr<daemon::Server> server_;
  Session session_;
  std::vector<Queue> queues_;
  Buffer a_, w_, d_;
};

// One op at a time: submit until its timeline is seen.
void RoundTrip(benchmark::State& state, const char* policy) {
  NullService service(policy);
  for (auto _ : state) {
    const Ticket ticket = service.Submit();
    while (!ticket.Done()) {
    }
  }
}
BENCHMARK_CAPTURE(RoundTrip, auto, "auto") -> UseRealTime();
BENCHMARK_CAPTURE(RoundTrip, serial, "serial")->UseRealTime();

// As fast as one session can, the ring kept full: a chain on one queue, and ops of 64 queues that
// are all ready.
void Throughput(benchmark::State& state, const char* policy, size_t queues) {
  NullService service(policy, queues);
  std::vector<Ticket> last(queues);
  // Once through the ring, so that every list has reached its size.
  for (size_t i = 0; i < 4096; ++i) last[i % queues] = service.Submit(i % queues);
  for (const Ticket& ticket : last) ticket.Wait().Check();
  size_t next = 0;
  const AllocationCount allocations("gpu0");
  for (auto _ : state) {
    last[next] = service.Submit(next);
    next = (next + 1) % queues;
  }
  for (const Ticket& ticket : last) ticket.Wait().Check();
  // The hot path must make none.
  state.counters["dispatcher_allocations"] = static_cast<double>(allocations.count());
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK_CAPTURE(Throughput, chain_auto, "auto", 1)->UseRealTime();
BENCHMARK_CAPTURE(Throughput, chain_serial, "serial", 1)->UseRealTime();
BENCHMARK_CAPTURE(Throughput, wide_auto, "auto", 64)->UseRealTime();
BENCHMARK_CAPTURE(Throughput, wide_streams, "streams", 64)->UseRealTime();

}  // namespace
}  // namespace concert::bench

BENCHMARK_MAIN();
