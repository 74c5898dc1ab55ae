// CPU time of a dispatcher's thread: batches of GEMMs from the ring through admission, scheduler,
// policy, launch and timeline to the records, on the benchmark's thread and on a GPU that ends all
// that was launched when it is told to. Nothing else runs, so what is measured repeats.
#include <benchmark/benchmark.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "daemon/check.h"
#include "daemon/clock.h"
#include "daemon/sched/dispatcher.h"
#include "daemon/session/session_memory.h"
#include "kernels/group/group_launcher.h"
#include "policies/policy.h"
#include "tests/bench/null_device.h"
#include "tests/support/idle_driver.h"

namespace concert::bench {
namespace {

using daemon::Address;
using daemon::DispatcherMessage;
using daemon::Lane;
using kernels::cuda::GroupLauncher;

constexpr uint32_t kSession = 1, kBuffer = 1;
constexpr uint64_t kBufferBytes = uint64_t{1} << 40;  // never touched

// Groups go through the real launcher; nothing runs. Finish ends all that was launched.
class IdleGpu : public NullDevice {
 public:
  IdleGpu()
      : launcher_(GroupLauncher::Open(driver_, 0, kernels_, {}, kernels::SplitSums::kRepeatable)
                      .value()) {
    writes_.reserve(1 << 12);
  }

  void Finish() {
    CONCERT_CHECK(NullDevice::Signal(0, writes_).ok());
    writes_.clear();
  }
  uint64_t launches() const { return launches_; }

  absl::Status Launch(Lane lane, const daemon::LaunchRequest& request) override {
    ++launches_;
    if (request.schedule != nullptr) {
      const absl::Status status = launcher_->Launch(policies::GroupLaneIndex(lane),
                                                    {.ops = request.ops,
                                                     .schedule = request.schedule,
                                                     .writes = request.writes,
                                                     .after = request.after,
                                                     .inputs_settled = request.inputs_settled,
                                                     .weights_settled = request.weights_settled});
      if (!status.ok()) return status;
    }
    return Signal(lane, request.writes);
  }
  absl::Status Signal(Lane, std::span<const daemon::TimelineWrite> writes) override {
    writes_.insert(writes_.end(), writes.begin(), writes.end());
    return absl::OkStatus();
  }

 private:
  const kernels::cuda::Driver driver_ = test::IdleDriver();
  const kernels::cuda::KernelTable kernels_;
  std::unique_ptr<GroupLauncher> launcher_;
  std::vector<daemon::TimelineWrite> writes_;
  uint64_t launches_ = 0;
};

struct Shape {
  uint32_t m, n, k;
};

// A dispatcher that has no thread, and one session whose client is the benchmark.
class Bed {
 public:
  explicit Bed(uint32_t queues)
      : tickets_(queues),
        control_(1 << 10),
        issuer_(1 << 14),
        records_(0),
        policy_(policies::FindPolicy("auto")->make({gpu_.info().model, nullptr}).release()),
        dispatcher_({}, gpu_, std::unique_ptr<policies::Policy>(policy_), control_, issuer_,
                    records_) {
    const std::vector<int> gpus = {0};
    memory_ = daemon::SessionMemory::Create({.session = kSession, .gpus = gpus}).value();
    client_bytes_ = memory_->layout().client_bytes;
    client_ = static_cast<char*>(
        mmap(nullptr, client_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, memory_->client_fd(), 0));
    CONCERT_CHECK(client_ != MAP_FAILED);
    DispatcherMessage session(DispatcherMessage::Type::kAddSession, kSession);
    session.link = {.session = kSession,
                    .ring = 0,
                    .event_fd = event_fd_,
                    .timelines_address = reinterpret_cast<Address>(memory_->timelines()),
                    .memory = memory_.get()};
    Tell(session);
    for (uint32_t i = 0; i < queues; ++i) {
      DispatcherMessage queue(DispatcherMessage::Type::kAddQueue, kSession);
      queue.queue = {.queue = i, .priority = policies::Priority::kNormal, .next_ticket = 1};
      Tell(queue);
    }
    DispatcherMessage buffer(DispatcherMessage::Type::kAddBuffer, kSession);
    buffer.buffer = {.handle = kBuffer, .range = {1 << 20, kBufferBytes, 0, false}};
    Tell(buffer);
  }
  ~Bed() {
    munmap(client_, client_bytes_);
    close(event_fd_);
  }

  // A batch: shape i on queue `first_queue` + i, with operands that no other (set, i) has.
  void Submit(std::span<const Shape> shapes, uint32_t first_queue, uint64_t set) {
    const concert_ring_layout& ring = memory_->layout().rings[0];
    auto* slots = reinterpret_cast<concert_descriptor*>(client_ + ring.descriptors_offset);
    for (uint32_t i = 0; i < shapes.size(); ++i) {
      const uint64_t place = (set * 64 + i) << 27;
      const auto [m, n, k] = shapes[i];
      concert_descriptor& op = slots[tail_ & (ring.capacity - 1)];
      op = {};
      op.sequence = ++tail_;
      op.queue = first_queue + i;
      op.ticket = ++tickets_[op.queue];
      op.kind = CONCERT_OP_GEMM;
      op.body.gemm = {.m = m,
                      .n = n,
                      .k = k,
                      .batch = 1,
                      .a = {kBuffer, 0, place},
                      .w = {kBuffer, 0, place + (1 << 25)},
                      .d = {kBuffer, 0, place + (1 << 26)},
                      .lda = k,
                      .ldw = k,
                      .ldd = n,
                      .alpha = 1,
                      .dtype = CONCERT_ABI_BF16};
    }
    auto* control = reinterpret_cast<concert_submit_control*>(client_);
    std::atomic_ref<uint64_t>(control->tail).store(tail_, std::memory_order_release);
  }

  // Turns until there is nothing more to do. Returns the time taken.
  double Turns() {
    const policies::Time begin = daemon::NowNs();
    while (dispatcher_.Turn(daemon::NowNs())) {
    }
    return static_cast<double>(daemon::NowNs() - begin) * 1e-9;
  }
  void Finish() { gpu_.Finish(); }
  void DrainRecords() {
    records_.Drain([](const auto&) {});
  }
  bool idle() const { return dispatcher_.gauges().unfinished_ops == 0; }
  uint64_t launches() const { return gpu_.launches(); }
  policies::PolicyStats stats() const { return policy_->stats(); }

 private:
  void Tell(const DispatcherMessage& message) {
    CONCERT_CHECK(dispatcher_.mailbox().TryPush(message));
    dispatcher_.Turn(daemon::NowNs());
  }

  IdleGpu gpu_;
  const int event_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  std::unique_ptr<daemon::SessionMemory> memory_;
  char* client_ = nullptr;
  uint64_t client_bytes_ = 0;
  uint64_t tail_ = 0;
  std::vector<uint64_t> tickets_;
  daemon::ControlMailbox control_;
  daemon::IssuerMailbox issuer_;
  daemon::RecordRing records_;
  policies::Policy* const policy_;  // the dispatcher's
  daemon::Dispatcher dispatcher_;
};

struct Load {
  const char* name;
  std::vector<Shape> shapes;  // of a batch
  uint32_t batches = 1;       // in flight, each on queues of its own
};

// A server's steady load, with eight sets of operands in turn.
void Dispatch(benchmark::State& state, const Load& load) {
  constexpr uint64_t kSets = 8;
  constexpr int kWarmUp = 1000;
  const auto width = static_cast<uint32_t>(load.shapes.size());
  const uint32_t ops = width * load.batches;
  Bed bed(ops);
  uint64_t set = 0;
  const auto round = [&] {
    for (uint32_t i = 0; i < load.batches; ++i) bed.Submit(load.shapes, i * width, set++ % kSets);
    double seconds = bed.Turns();
    while (!bed.idle()) {
      bed.Finish();
      seconds += bed.Turns();
    }
    bed.DrainRecords();
    return seconds;
  };
  for (int i = 0; i < kWarmUp; ++i) round();
  const uint64_t launches = bed.launches(), unseen = bed.stats().unseen;
  for (auto _ : state) state.SetIterationTime(round());
  const auto rounds = static_cast<double>(state.iterations());
  state.counters["time_per_op"] = benchmark::Counter(
      ops, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  state.counters["ops_per_launch"] = ops * rounds / static_cast<double>(bed.launches() - launches);
  // Of steady load nearly none should be made anew.
  state.counters["plans_made"] = static_cast<double>(bed.stats().unseen - unseen);
}

}  // namespace
}  // namespace concert::bench

int main(int argc, char** argv) {
  using concert::bench::Shape;
  const Shape small = {16, 2048, 1024};
  const std::vector<Shape> lora = {{64, 16, 4096}, {64, 16, 4096}, {32, 16, 4096}, {32, 16, 4096},
                                   {16, 16, 4096}, {16, 16, 4096}, {8, 16, 4096},  {8, 16, 4096}};
  for (const concert::bench::Load& load : std::vector<concert::bench::Load>{
           {.name = "small_x1", .shapes = {small}},
           {.name = "small_x2", .shapes = {small, small}},
           {.name = "small_x2/4_batches", .shapes = {small, small}, .batches = 4},
           {.name = "lora_x8", .shapes = lora},
           {.name = "lora_x8/4_batches", .shapes = lora, .batches = 4},
           {.name = "small_x64", .shapes = std::vector<Shape>(64, small)}}) {
    benchmark::RegisterBenchmark(load.name, concert::bench::Dispatch, load)->UseManualTime();
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
