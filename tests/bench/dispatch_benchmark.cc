// CPU time of a dispatcher's thread: batches of GEMMs from the ring through admission, scheduler,
// policy, launch and timeline to the records, on the benchmark's thread and on a GPU that ends all
// that was launched when it is told to. Nothing else runs, so what is measured repeats.
#include <benchmark/benchmark.h>
#include <pthread.h>

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/check.h"
#include "daemon/clock.h"
#include "daemon/sched/coordinator.h"
#include "daemon/sched/rendezvous.h"
#include "kernels/group/group_launcher.h"
#include "kernels/program/pass.h"
#include "kernels/program/program.h"
#include "tests/bench/dispatcher_bed.h"
#include "tests/bench/null_device.h"
#include "tests/support/heap_use.h"
#include "tests/support/idle_driver.h"

namespace concert::bench {
namespace {

using daemon::Lane;
using kernels::cuda::GroupLauncher;

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

  absl::Status Launch(const daemon::LaunchRequest& launch) override {
    ++launches_;
    const Lane lane = launch.planned.lane;
    if (launch.planned.work_list != nullptr) {
      const absl::Status status = launcher_->Launch(policies::GroupLaneIndex(lane), launch);
      if (!status.ok()) return status;
    }
    return Signal(lane, launch.writes);
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

struct Load {
  const char* name;
  std::vector<GemmShape> shapes;  // of a batch
  uint32_t batches = 1;           // in flight, each on queues of its own
};

constexpr char kThread[] = "dispatcher";

// What turns took of the CPU and of the heap.
struct Taken {
  double seconds = 0;
  int64_t allocations = 0;
};

// Turns until there is nothing more to do.
void Turns(DispatcherBed& bed, Taken& taken) {
  const test::AllocationCount allocations(kThread);
  const policies::Time begin = daemon::NowNs();
  while (bed.Turn(daemon::NowNs())) {
  }
  taken.seconds += static_cast<double>(daemon::NowNs() - begin) * 1e-9;
  taken.allocations += allocations.count();
}

// From what was published to its end, with what telemetry does to records, which counts for
// nothing.
double TurnsUntilIdle(DispatcherBed& bed, IdleGpu& gpu, int64_t& allocations) {
  Taken taken;
  Turns(bed, taken);
  while (!bed.idle()) {
    gpu.Finish();
    Turns(bed, taken);
  }
  bed.DrainRecords();
  allocations += taken.allocations;
  return taken.seconds;
}

// A server's steady load, with eight sets of operands in turn.
void Dispatch(benchmark::State& state, const Load& load) {
  constexpr uint64_t kSets = 8;
  constexpr int kWarmUp = 1000;
  const auto width = static_cast<uint32_t>(load.shapes.size());
  const uint32_t ops = width * load.batches;
  IdleGpu gpu;
  DispatcherBed bed(gpu, "auto", {}, ops);
  uint64_t set = 0;
  int64_t allocations = 0;
  const auto round = [&] {
    for (uint32_t i = 0; i < load.batches; ++i) bed.Submit(load.shapes, i * width, set++ % kSets);
    return TurnsUntilIdle(bed, gpu, allocations);
  };
  for (int i = 0; i < kWarmUp; ++i) round();
  const uint64_t launches = gpu.launches(), unseen = bed.stats().unseen;
  allocations = 0;
  for (auto _ : state) state.SetIterationTime(round());
  const auto rounds = static_cast<double>(state.iterations());
  state.counters["time_per_op"] = benchmark::Counter(
      ops, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  state.counters["ops_per_launch"] = ops * rounds / static_cast<double>(gpu.launches() - launches);
  // Of steady load nearly none should be made anew.
  state.counters["plans_made"] = static_cast<double>(bed.stats().unseen - unseen);
  state.counters["allocations"] = static_cast<double>(allocations);
}

// Programs that a session has registered, of `ops` ops and with four bindings each, whose runs are
// all on queues of their own. They are replicas if there are several.
class Programs {
 public:
  Programs(DispatcherBed& bed, uint32_t count, uint32_t ops) : bed_(bed) {
    const uint64_t weight_bytes = uint64_t{ops} << 21;
    for (uint32_t i = 0; i < count; ++i) {
      kernels::Program& program = programs_[i];
      const uint64_t arena = (uint64_t{1} << 50) + (uint64_t{i} << 20);
      program.arena = {arena, arena + (1 << 20)};
      program.bindings.resize(kBindings, {arena, 256, false});
      program.bindings.back().written = true;
      program.work = {.m = 132, .n = 1, .steps = ops, .hbm_bytes = weight_bytes};
      if (count > 1) program.pass = &pass_;
      pass_.members[i] = &program;
      daemon::DispatcherMessage add(daemon::DispatcherMessage::Type::kAddBuffer, bed.IdOf(0));
      add.buffer = {.handle = kFirst + i, .range = {.address = arena, .program = &program}};
      bed.Tell(add);
    }
    pass_.member_count = count;
    pass_.shared_bytes = weight_bytes;
  }

  // A run of each.
  void Run(uint32_t count) {
    concert_descriptor run{};
    run.kind = CONCERT_OP_PROGRAM;
    run.body.program.binding_count = kBindings;
    for (run.queue = 0; run.queue < count; ++run.queue) {
      run.body.program.program = kFirst + run.queue;
      for (uint32_t i = 0; i < kBindings; ++i)
        run.body.program.bindings[i] = {1, 0, (run.queue * kBindings + i) * 256};
      bed_.Write(0, run);
    }
    bed_.Ring(0);
  }

 private:
  static constexpr uint32_t kFirst = 2, kBindings = 4;

  DispatcherBed& bed_;
  std::array<kernels::Program, kernels::kMaxPassMembers> programs_;
  kernels::Pass pass_;
};

// A client's decode steps, one behind the other: `submit` hands one over.
template <typename Submit>
void Step(benchmark::State& state, IdleGpu& gpu, DispatcherBed& bed, const Submit& submit) {
  int64_t allocations = 0;
  const auto step = [&] {
    submit();
    return TurnsUntilIdle(bed, gpu, allocations);
  };
  for (int i = 0; i < 100; ++i) step();
  CONCERT_CHECK(bed.TakeFailures(0).empty());
  const uint64_t launches = gpu.launches();
  allocations = 0;
  for (auto _ : state) state.SetIterationTime(step());
  state.counters["allocations"] = static_cast<double>(allocations);
  state.counters["launches"] = benchmark::Counter(static_cast<double>(gpu.launches() - launches),
                                                  benchmark::Counter::kAvgIterations);
}

// As a chain of `ops` GEMMs on one queue.
void StepAsChain(benchmark::State& state, uint32_t ops) {
  IdleGpu gpu;
  DispatcherBed bed(gpu, "auto", {}, 1);
  Step(state, gpu, bed, [&] {
    for (uint32_t op = 0; op < ops; ++op) bed.Write(0, DispatcherBed::Gemm({8, 1024, 1024}, 0, op));
    bed.Ring(0);
  });
}

// As a run of a program of as many; or of several replicas, which are ready together.
void StepAsProgram(benchmark::State& state, uint32_t ops, uint32_t replicas) {
  IdleGpu gpu;
  DispatcherBed bed(gpu, "auto", {}, replicas);
  Programs programs(bed, replicas, ops);
  Step(state, gpu, bed, [&] { programs.Run(replicas); });
  state.counters["time_per_run"] = benchmark::Counter(
      replicas, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

// Ranks on GPUs of their own, whose dispatchers take turns on this thread, and what the issuer asks
// before a launch. Its thread, the hand-overs to it and the driver's launches are not here.
class Ranks {
 public:
  // Of an all-reduce.
  struct Seconds {
    double offering = 0;  // from the rings until all parts are offered
    double deciding = 0;  // until it is decided how they go
    double ending = 0;    // until all dispatchers have seen the end
  };

  Ranks(uint32_t count, uint64_t elements) {
    op_.kind = CONCERT_OP_ALL_REDUCE;
    op_.body.collective.count = elements;
    op_.body.collective.dtype = CONCERT_ABI_BF16;
    std::vector<policies::DeviceModel> models;
    for (uint32_t rank = 0; rank < count; ++rank) {
      daemon::DispatcherOptions options;
      options.scheduler.gpu = static_cast<uint8_t>(rank);
      gpus_.push_back(std::make_unique<IdleGpu>());
      beds_.push_back(std::make_unique<DispatcherBed>(*gpus_.back(), "auto", options, 1));
      daemon::DispatcherMessage member(daemon::DispatcherMessage::Type::kAddMembership,
                                       DispatcherBed::IdOf(0));
      member.membership = {
          .handle = HandleOf(rank), .communicator = kCommunicator, .rank = rank, .ranks = count};
      beds_.back()->Tell(member);
      rendezvous_.Join(kCommunicator, rank, count, beds_.back()->account(0),
                       {.session = DispatcherBed::IdOf(0), .gpu = static_cast<int>(rank)});
      models.push_back(gpus_.back()->info().model);
    }
    coordinator_.emplace(std::move(models));
  }

  void AllReduce(Seconds& seconds, int64_t& allocations) {
    for (uint32_t rank = 0; rank < beds_.size(); ++rank) {
      concert_collective_body& body = op_.body.collective;
      body.communicator = HandleOf(rank);
      body.src = body.dst = DispatcherBed::Operand(rank, 0);  // all beds have the same addresses
      beds_[rank]->Write(0, op_);
      beds_[rank]->Ring(0);
    }
    ++op_.body.collective.sequence;
    const test::AllocationCount count(kThread);
    const policies::Time begin = daemon::NowNs();
    Offer();
    const policies::Time offered = daemon::NowNs();
    const std::span<const daemon::RankPart> parts = Meet();
    const daemon::CollectivePlan plan = coordinator_->Decide(parts);
    const policies::Time decided = daemon::NowNs();
    End(parts, plan.reservation);
    const policies::Time ended = daemon::NowNs();
    allocations += count.count();
    seconds.offering += static_cast<double>(offered - begin) * 1e-9;
    seconds.deciding += static_cast<double>(decided - offered) * 1e-9;
    seconds.ending += static_cast<double>(ended - decided) * 1e-9;
    for (const auto& bed : beds_) bed->DrainRecords();
    CONCERT_CHECK(beds_[0]->idle() && beds_[0]->TakeFailures(0).empty());
  }

 private:
  static constexpr uint32_t kCommunicator = 1;
  static uint32_t HandleOf(uint32_t rank) { return kCommunicator << 8 | rank; }

  void Offer() {
    offers_.clear();
    for (const auto& bed : beds_) {
      daemon::IssuerMessage offer(daemon::IssuerMessage::Type::kWake);
      while (!bed->issuer().TryPop(offer)) bed->Turn(daemon::NowNs());
      CONCERT_CHECK(offer.type == daemon::IssuerMessage::Type::kPart);
      offers_.push_back(offer);
    }
  }
  std::span<const daemon::RankPart> Meet() {
    outcomes_.Clear();
    for (const daemon::IssuerMessage& offer : offers_) {
      rendezvous_.Arrive(offer.communicator, offer.rank, offer.part, daemon::NowNs(), outcomes_);
    }
    rendezvous_.TellNews(outcomes_);
    CONCERT_CHECK(outcomes_.matched.size() == 1);
    return outcomes_.PartsOf(outcomes_.matched[0]);
  }
  void End(std::span<const daemon::RankPart> parts, const daemon::Reservation& reservation) {
    for (const daemon::RankPart& part : parts) {
      const auto rank = static_cast<size_t>(part.gpu);
      daemon::DispatcherMessage launched(daemon::DispatcherMessage::Type::kPartLaunched);
      launched.part = {
          .op = part.id, .failure = {}, .launched_at = daemon::NowNs(), .reservation = reservation};
      beds_[rank]->Tell(launched);
      CONCERT_CHECK(gpus_[rank]->Signal(part.lane, {&part.signal, 1}).ok());
      gpus_[rank]->Finish();
      while (beds_[rank]->Turn(daemon::NowNs())) {
      }
    }
  }

  std::vector<std::unique_ptr<IdleGpu>> gpus_;
  std::vector<std::unique_ptr<DispatcherBed>> beds_;
  daemon::Rendezvous rendezvous_{{}};
  daemon::Rendezvous::Outcomes outcomes_;
  std::optional<daemon::Coordinator> coordinator_;
  std::vector<daemon::IssuerMessage> offers_;
  concert_descriptor op_{};
};

void AllReduce(benchmark::State& state, uint32_t count, uint64_t elements) {
  Ranks ranks(count, elements);
  Ranks::Seconds seconds;
  int64_t allocations = 0;
  for (int i = 0; i < 1000; ++i) ranks.AllReduce(seconds, allocations);
  seconds = {}, allocations = 0;
  for (auto _ : state) {
    Ranks::Seconds its;
    ranks.AllReduce(its, allocations);
    state.SetIterationTime(its.offering + its.deciding + its.ending);
    seconds.offering += its.offering, seconds.deciding += its.deciding;
    seconds.ending += its.ending;
  }
  const auto average = [&](double whole, uint32_t by) {
    return benchmark::Counter(whole / by, benchmark::Counter::kAvgIterations);
  };
  state.counters["rank_offers"] = average(seconds.offering, count);
  state.counters["decided"] = average(seconds.deciding, 1);
  state.counters["rank_ends"] = average(seconds.ending, count);
  state.counters["allocations"] = static_cast<double>(allocations);
}

}  // namespace
}  // namespace concert::bench

int main(int argc, char** argv) {
  pthread_setname_np(pthread_self(), concert::bench::kThread);
  using concert::bench::GemmShape;
  const GemmShape small = {16, 2048, 1024};
  const std::vector<GemmShape> lora = {{64, 16, 4096}, {64, 16, 4096}, {32, 16, 4096},
                                       {32, 16, 4096}, {16, 16, 4096}, {16, 16, 4096},
                                       {8, 16, 4096},  {8, 16, 4096}};
  for (const concert::bench::Load& load : std::vector<concert::bench::Load>{
           {.name = "small_x1", .shapes = {small}},
           {.name = "small_x2", .shapes = {small, small}},
           {.name = "small_x2/4_batches", .shapes = {small, small}, .batches = 4},
           {.name = "lora_x8", .shapes = lora},
           {.name = "lora_x8/4_batches", .shapes = lora, .batches = 4},
           {.name = "small_x64", .shapes = std::vector<GemmShape>(64, small)}}) {
    benchmark::RegisterBenchmark(load.name, concert::bench::Dispatch, load)->UseManualTime();
  }
  for (const uint32_t ops : {50u, 200u}) {
    benchmark::RegisterBenchmark(("step_as_chain/" + std::to_string(ops)).c_str(),
                                 concert::bench::StepAsChain, ops)
        ->UseManualTime();
    for (const uint32_t replicas : {1u, 2u, 8u}) {
      const std::string of = replicas == 1 ? "" : std::to_string(replicas) + "_replicas/";
      benchmark::RegisterBenchmark(("step_as_program/" + of + std::to_string(ops)).c_str(),
                                   concert::bench::StepAsProgram, ops, replicas)
          ->UseManualTime();
    }
  }
  for (const uint32_t ranks : {2u, 4u}) {
    benchmark::RegisterBenchmark(("all_reduce/" + std::to_string(ranks) + "_ranks").c_str(),
                                 concert::bench::AllReduce, ranks, 32 << 10)
        ->UseManualTime();
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
