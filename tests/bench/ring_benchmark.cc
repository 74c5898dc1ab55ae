// What the service itself costs: ops from libconcert through ring, dispatcher and scheduler to a
// device that does nothing and is done at once. Real processes have the client in one process and
// the rest in another; here they are two threads, which share no more than the mapped regions.
#include <benchmark/benchmark.h>

#include <vector>

#include "tests/bench/null_service.h"
#include "tests/support/heap_use.h"

namespace concert::bench {
namespace {

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
  const test::AllocationCount allocations("gpu0");
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
