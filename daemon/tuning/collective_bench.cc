#include "daemon/tuning/collective_bench.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "daemon/clock.h"
#include "kernels/comm/messages.h"
#include "kernels/op_table.h"
#include "policies/cost/collective_cost.h"

namespace concert::daemon {
namespace {

using policies::Time;
using policies::Transport;

constexpr int kWordsPerGpu = 3;  // of a row's begin and end, and of the rank
constexpr uint64_t kLeastRoom = 1 << 20;
// A GEMM that fills the SMs of an H200 for some 180 us, and its three matrices.
constexpr uint32_t kGemmSide = 4096;
constexpr uint64_t kMatrixBytes = uint64_t{2} * kGemmSide * kGemmSide;
constexpr uint64_t kGemmBytes = 3 * kMatrixBytes;
// A row takes so many times what the collective takes alone, which beside it takes longer.
constexpr double kRowOfCollective = 3;
constexpr int kBesideSamples = 3;
constexpr int kMaxTooShort = 12;    // rows, each twice as long as the one before or the longest
constexpr int kMaxDisturbed = 100;  // samples of one point

Time NowOf(Node& node, int gpu) {
  const auto model = node.ReadModelTimes(gpu);
  return model ? model->now : NowNs();
}
// Of a signal that has just been seen.
Time SeenAt(Node& node, int gpu) {
  const auto model = node.ReadModelTimes(gpu);
  return model ? model->last_signal : NowNs();
}

double Us(Time ns) { return std::max(1e-3, static_cast<double>(ns) * 1e-3); }

}  // namespace

// GEMMs back to back on one GPU, once.
class CollectiveBench::GemmRow final : public Lease {
 public:
  GemmRow(CollectiveBench& bench, int gpu, const Op& gemm, int count, int sms)
      : Lease({.begin = bench.WordOf(kWordsPerGpu * gpu),
               .end = bench.WordOf(kWordsPerGpu * gpu + 1),
               .begin_address = bench.AddressOf(kWordsPerGpu * gpu),
               .end_address = bench.AddressOf(kWordsPerGpu * gpu + 1),
               .signals = &bench.row_signals_[static_cast<size_t>(gpu)]},
              over_),
        bench_(bench),
        gpu_(gpu),
        gemm_(gemm),
        count_(count),
        sms_(sms) {}

  // A row that clients' work disturbs is over, and CANCELLED.
  bool Turn(Device& device, bool idle) override {
    Node& node = bench_.engine_.node();
    // Whoever waits may free the row as soon as it is given back.
    const std::shared_ptr<State> state = state_;
    if (tried_ && row_began_at_ == 0 && LoadWord(begin()) >= signal()) {
      row_began_at_ = SeenAt(node, gpu_);
      state->begun.store(true, std::memory_order_release);
    }
    if (row_began_at_ != 0 && row_ended_at_ == 0 && LoadWord(end()) >= signal())
      row_ended_at_ = SeenAt(node, gpu_);
    if (Lease::Turn(device, idle)) return true;
    state->over.store(true, std::memory_order_release);
    return false;
  }

  // Of the issuer's thread.
  bool begun() const { return state_->begun.load(std::memory_order_acquire); }
  bool over() const { return state_->over.load(std::memory_order_acquire); }
  // Once Wait() has returned OK.
  Time began_at() const { return row_began_at_; }
  Time ended_at() const { return row_ended_at_; }

 private:
  absl::Status Enqueue(Device& device, const TimelineWrite& begin,
                       const TimelineWrite& end) override {
    tried_ = true;
    absl::Status status = device.Signal(0, {&begin, 1});
    const Op* ops[] = {&gemm_};
    for (int i = 0; i < count_ && status.ok(); ++i) {
      status = device.Launch({.planned = {.lane = 0, .sm_budget = sms_}, .ops = ops});
    }
    status.Update(device.Signal(0, {&end, 1}));
    return status;
  }
  // The words may have moved since Turn has looked.
  bool Take(const Sample& sample) override {
    if (row_ended_at_ == 0) row_ended_at_ = SeenAt(bench_.engine_.node(), gpu_);
    if (row_began_at_ == 0) row_began_at_ = row_ended_at_ - sample.time_ns;
    return true;
  }

  uint64_t* begin() const { return bench_.WordOf(kWordsPerGpu * gpu_); }
  uint64_t* end() const { return bench_.WordOf(kWordsPerGpu * gpu_ + 1); }
  uint64_t signal() const { return bench_.row_signals_[static_cast<size_t>(gpu_)]; }

  CollectiveBench& bench_;
  const int gpu_;
  const Op gemm_;
  const int count_, sms_;
  const std::function<bool()> over_ = [this] { return tried_ || bench_.options_.stop(); };
  // Of the dispatcher's thread until it gives the GPU back.
  bool tried_ = false;
  Time row_began_at_ = 0, row_ended_at_ = 0;
  struct State {
    std::atomic<bool> begun{false}, over{false};
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

// One collective, beside the rows if there are any.
class CollectiveBench::Run final : public CollectiveLeaseHolder {
 public:
  Run(CollectiveBench& bench, const std::vector<Op>& ops, const policies::TransportChoice& choice,
      std::span<const std::unique_ptr<GemmRow>> rows)
      : bench_(bench), ops_(ops), choice_(choice), rows_(rows), ended_(ops.size()) {}
  // The issuer's thread may be on its way out of GiveBack.
  ~Run() override { const absl::MutexLock lock(&mutex_); }

  bool Turn(Node& node, bool idle) override {
    if (parts_.empty()) {
      if (bench_.options_.stop()) return GiveBack(absl::CancelledError("stopped"));
      // Over before this one could begin: they were too short.
      if (std::any_of(rows_.begin(), rows_.end(), [](const auto& row) { return row->over(); }))
        return GiveBack(absl::OkStatus());
      const bool ready =
          std::all_of(rows_.begin(), rows_.end(), [](const auto& row) { return row->begun(); });
      if (!ready || !idle || Busy()) return true;
      const absl::Status status = Launch(node);
      return status.ok() || GiveBack(status);
    }
    disturbed_ |= !idle || Busy();
    Poll(node);
    if (left_ == 0) return GiveBack(disturbed_ ? Disturbed() : absl::OkStatus());
    if (NowNs() - polled_since_ < kHungNs) return true;
    bench_.hung_ = true;
    return GiveBack(absl::DeadlineExceededError(
        absl::StrCat("a collective has not ended after ", kHungNs / 1'000'000'000, " s")));
  }

  absl::Status Wait() {
    const absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&over_));
    return result_;
  }
  bool launched() const { return !parts_.empty(); }
  double us() const { return Us(ended_at_ - launched_at_); }
  Time ended_at() const { return ended_at_; }

  static absl::Status Disturbed() { return absl::AbortedError("clients' work came between"); }

 private:
  bool Busy() const {
    for (size_t gpu = 0; gpu < ops_.size(); ++gpu) {
      if (bench_.options_.busy(static_cast<int>(gpu))) return true;
    }
    return false;
  }

  absl::Status Launch(Node& node) {
    const uint64_t value = ++bench_.signals_;
    for (size_t rank = 0; rank < ops_.size(); ++rank) {
      const int gpu = static_cast<int>(rank);
      parts_.push_back({.gpu = gpu,
                        .op = &ops_[rank],
                        .signal = {bench_.AddressOf(kWordsPerGpu * gpu + 2), value}});
    }
    left_ = parts_.size();
    polled_since_ = NowNs();
    launched_at_ = NowOf(node, 0);
    return node.LaunchCollective(parts_, choice_);
  }

  void Poll(Node& node) {
    for (size_t rank = 0; rank < parts_.size(); ++rank) {
      const int gpu = static_cast<int>(rank);
      if (ended_[rank] || LoadWord(bench_.WordOf(kWordsPerGpu * gpu + 2)) < bench_.signals_)
        continue;
      ended_[rank] = true;
      ended_at_ = std::max(ended_at_, SeenAt(node, gpu));
      --left_;
    }
  }

  bool GiveBack(absl::Status status) {
    const absl::MutexLock lock(&mutex_);
    result_ = std::move(status);
    over_ = true;
    return false;
  }

  CollectiveBench& bench_;
  const std::vector<Op>& ops_;
  const policies::TransportChoice choice_;
  const std::span<const std::unique_ptr<GemmRow>> rows_;
  // Of the issuer's thread until it gives back.
  std::vector<RankPart> parts_;  // empty: not launched
  std::vector<bool> ended_;
  size_t left_ = 0;
  bool disturbed_ = false;
  Time launched_at_ = 0, ended_at_ = 0, polled_since_ = 0;

  absl::Mutex mutex_;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status result_ ABSL_GUARDED_BY(mutex_);
};

CollectiveBenchOptions SuitableCollectiveBenchOptions(const DeviceInfo& device) {
  if (device.backend == "sim") return {.tensor_bytes = 4 << 20};
  return {.tensor_bytes = std::min<uint64_t>(256 << 20, device.memory_bytes / 16),
          .beside_gemms = true};
}

absl::StatusOr<std::unique_ptr<CollectiveBench>> CollectiveBench::Create(
    Engine& engine, const CollectiveBenchOptions& options) {
  std::unique_ptr<CollectiveBench> bench(new CollectiveBench(engine, options));
  if (absl::Status status = bench->Init(); !status.ok()) return status;
  return bench;
}

absl::Status CollectiveBench::Init() {
  host_.reset(static_cast<uint8_t*>(std::aligned_alloc(kPageBytes, kPageBytes)));
  std::fill_n(host_.get(), kPageBytes, uint8_t{0});
  absl::StatusOr<Address> registered = engine_.node().RegisterHostMemory(host_.get(), kPageBytes);
  if (!registered.ok()) {
    host_.reset();
    return registered.status();
  }
  host_address_ = *registered;
  row_signals_.resize(static_cast<size_t>(engine_.gpu_count()));
  absl::Status status = Allocate();
  while (absl::IsResourceExhausted(status) && options_.tensor_bytes > kLeastRoom) {
    options_.tensor_bytes /= 2;
    status = Allocate();
  }
  return status;
}

// On every GPU, or on none.
absl::Status CollectiveBench::Allocate() {
  const uint64_t bytes =
      2 * options_.tensor_bytes + (options_.beside_gemms ? kGemmBytes : uint64_t{0});
  for (int gpu = 0; gpu < engine_.gpu_count(); ++gpu) {
    absl::StatusOr<Allocation> memory = engine_.node().gpu(gpu).Allocate(bytes);
    if (!memory.ok()) {
      for (const Allocation& other : memory_) engine_.node().gpu(other.gpu).Free(other);
      memory_.clear();
      return memory.status();
    }
    if (memory->export_fd >= 0) close(memory->export_fd);  // no client may have it
    memory->export_fd = -1;
    memory->gpu = gpu;
    memory_.push_back(*memory);
  }
  return absl::OkStatus();
}

CollectiveBench::~CollectiveBench() {
  if (hung_) {
    // GPUs may still write to both: they are lost with them.
    static_cast<void>(host_.release());
    return;
  }
  for (const Allocation& memory : memory_) engine_.node().gpu(memory.gpu).Free(memory);
  if (host_ != nullptr) engine_.node().UnregisterHostMemory(host_.get());
}

uint64_t* CollectiveBench::WordOf(int word) const {
  return reinterpret_cast<uint64_t*>(host_.get() + static_cast<uint64_t>(word) * kLineBytes);
}

Address CollectiveBench::AddressOf(int word) const {
  return host_address_ + static_cast<uint64_t>(word) * kLineBytes;
}

// Through admission, as a client's op: what it checks and what it says of the cost are the same.
absl::StatusOr<std::vector<Op>> CollectiveBench::MakeOps(const CollectiveCase& test) const {
  const auto ranks = static_cast<uint64_t>(test.ranks);
  const bool whole = test.kind == CONCERT_OP_ALL_REDUCE || test.kind == CONCERT_OP_BROADCAST;
  std::vector<Op> ops(ranks);
  for (uint64_t rank = 0; rank < ranks; ++rank) {
    concert_descriptor descriptor{};
    descriptor.kind = test.kind;
    concert_collective_body& body = descriptor.body.collective;
    body.dtype = CONCERT_ABI_BF16;
    // Parts of 16 bytes and their multiples, as peer kernels want them.
    body.count = std::max<uint64_t>(8, test.tensor_bytes / 2 / (whole ? 1 : ranks) / 8 * 8);
    const uint64_t slot = 2 * body.count * rank;
    body.src = {1, 0, test.kind == CONCERT_OP_ALL_GATHER ? slot : 0};
    body.dst = {1, 0, test.kind == CONCERT_OP_REDUCE_SCATTER ? slot : 0};
    if (test.kind == CONCERT_OP_ALL_TO_ALL) body.dst.offset = options_.tensor_bytes;
    const Allocation& memory = memory_[rank];
    const kernels::BufferRange buffers[] = {
        {}, {memory.address, 2 * options_.tensor_bytes, static_cast<int>(rank), memory.pool}};
    const kernels::Failure failure =
        kernels::FindOpKind(test.kind)->admit(descriptor,
                                              {.gpu = static_cast<int>(rank),
                                               .buffers = buffers,
                                               .ranks = static_cast<uint32_t>(ranks),
                                               .rank = static_cast<uint32_t>(rank)},
                                              ops[rank]);
    if (!failure.ok()) return absl::InvalidArgumentError(failure.ToString());
  }
  return ops;
}

absl::StatusOr<Op> CollectiveBench::MakeGemm(int gpu) const {
  concert_descriptor descriptor{};
  descriptor.kind = CONCERT_OP_GEMM;
  concert_gemm_body& body = descriptor.body.gemm;
  body.m = body.n = body.k = body.lda = body.ldw = body.ldd = kGemmSide;
  body.batch = 1;
  body.stride_a = body.stride_w = body.stride_d = uint64_t{kGemmSide} * kGemmSide;
  body.a = {1, 0, 0}, body.w = {1, 0, kMatrixBytes}, body.d = {1, 0, 2 * kMatrixBytes};
  body.alpha = 1;
  body.dtype = body.d_dtype = CONCERT_ABI_BF16;
  const Allocation& memory = memory_[static_cast<size_t>(gpu)];
  const kernels::BufferRange buffers[] = {
      {}, {memory.address + 2 * options_.tensor_bytes, kGemmBytes, gpu, memory.pool}};
  Op op;
  const kernels::Failure failure =
      kernels::FindOpKind(CONCERT_OP_GEMM)->admit(descriptor, {.gpu = gpu, .buffers = buffers}, op);
  if (!failure.ok()) return absl::InvalidArgumentError(failure.ToString());
  return op;
}

bool CollectiveBench::Carries(const CollectiveCase& test) {
  const absl::StatusOr<std::vector<Op>> ops = MakeOps(test);
  if (!ops.ok()) return false;
  for (int gpu = 0; gpu < test.ranks; ++gpu) {
    const policies::TransportSet there = engine_.node().gpu(gpu).info().model.transports &
                                         (*ops)[static_cast<size_t>(gpu)].work.transports;
    if (test.choice.transport != Transport::kNccl && !there.Has(test.choice.transport))
      return false;
  }
  return true;
}

absl::StatusOr<CollectiveBench::Times> CollectiveBench::RunOnce(const CollectiveCase& test,
                                                                bool collective, int row_gemms,
                                                                int sms) {
  if (hung_) return absl::UnavailableError("an earlier measurement has not ended");
  const absl::StatusOr<std::vector<Op>> ops = MakeOps(test);
  if (!ops.ok()) return ops.status();
  std::vector<std::unique_ptr<GemmRow>> rows;
  absl::Status status;
  for (int gpu = 0; gpu < test.ranks && row_gemms > 0 && status.ok(); ++gpu) {
    const absl::StatusOr<Op> gemm = MakeGemm(gpu);
    if (!gemm.ok()) return gemm.status();
    auto row = std::make_unique<GemmRow>(*this, gpu, *gemm, row_gemms, sms);
    DispatcherMessage message(DispatcherMessage::Type::kLease);
    message.lease_holder = row.get();
    status = Post(engine_.dispatcher(gpu).mailbox(), message);
    if (status.ok()) rows.push_back(std::move(row));
  }
  Run run(*this, *ops, test.choice, rows);
  if (collective && status.ok()) {
    IssuerMessage message(IssuerMessage::Type::kLease);
    message.lease_holder = &run;
    status = engine_.PostToIssuer(message);
    if (status.ok()) status = run.Wait();
  }
  Times times{.collective_us = run.us(), .overlapped = run.launched() || !collective};
  for (const auto& row : rows) {
    const absl::Status ended = row->Wait();
    hung_ |= row->hung();
    if (absl::IsCancelled(ended) && !options_.stop()) {
      status.Update(Run::Disturbed());
    } else {
      status.Update(ended);
    }
    times.row_us = std::max(times.row_us, Us(row->ended_at() - row->began_at()));
    times.overlapped &= run.ended_at() < row->ended_at();
  }
  if (!status.ok()) return status;
  return times;
}

absl::StatusOr<CollectiveBench::Times> CollectiveBench::RunUndisturbed(const CollectiveCase& test,
                                                                       bool collective,
                                                                       int row_gemms, int sms) {
  for (int i = 0; i < kMaxDisturbed; ++i) {
    absl::StatusOr<Times> times = RunOnce(test, collective, row_gemms, sms);
    if (!absl::IsAborted(times.status())) return times;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("clients' work has disturbed ", kMaxDisturbed,
                   " measurements on end; tune when there is less of it"));
}

absl::StatusOr<CurvePoint> CollectiveBench::TimeAlone(const CollectiveCase& test) {
  const absl::StatusOr<std::vector<Op>> ops = MakeOps(test);
  if (!ops.ok()) return ops.status();
  const absl::StatusOr<Times> times = RunUndisturbed(test, true, 0, 0);
  if (!times.ok()) return times.status();
  return CurvePoint{.work = ops->front().work,
                    .block_bytes = kernels::BlockBytes(ops->front(), ops->size()),
                    .choice = test.choice,
                    .us = times->collective_us};
}

absl::StatusOr<double> CollectiveBench::MedianRowUs(const CollectiveCase& test, int row_gemms,
                                                    int sms) {
  std::vector<double> us;
  for (int i = 0; i < kBesideSamples; ++i) {
    const absl::StatusOr<Times> times = RunUndisturbed(test, false, row_gemms, sms);
    if (!times.ok()) return times.status();
    us.push_back(times->row_us);
  }
  return Median(std::move(us));
}

absl::StatusOr<BesidePoint> CollectiveBench::TimeBeside(const CollectiveCase& test,
                                                        double alone_us) {
  const absl::StatusOr<std::vector<Op>> ops = MakeOps(test);
  if (!ops.ok()) return ops.status();
  const policies::DeviceModel& model = engine_.node().gpu(0).info().model;
  const int sms = std::max(1, model.sm_count - policies::HeldSms(model, test.choice));
  const absl::StatusOr<double> one_us = MedianRowUs(test, 4, 0);
  if (!one_us.ok()) return one_us.status();
  const int most = options_.most_row_gemms;
  int gemms = std::clamp(static_cast<int>(std::ceil(kRowOfCollective * alone_us / (*one_us / 4))),
                         options_.least_row_gemms, most);
  for (int tries = 0; tries < kMaxTooShort; gemms = std::min(2 * gemms, most), ++tries) {
    const absl::StatusOr<double> all_us = MedianRowUs(test, gemms, 0);
    const absl::StatusOr<double> left_us = MedianRowUs(test, gemms, sms);
    if (!all_us.ok() || !left_us.ok()) return all_us.ok() ? left_us.status() : all_us.status();
    const absl::StatusOr<Times> times = MedianBeside(test, gemms, sms);
    if (!times.ok()) return times.status();
    if (!times->overlapped) continue;
    // Of the time beside the collective, what the GEMMs lost to it; at least a tenth was theirs.
    const double lost_us = std::clamp(times->row_us - *left_us, 0.0, 0.9 * times->collective_us);
    return BesidePoint{
        .alone = {.work = ops->front().work,
                  .block_bytes = kernels::BlockBytes(ops->front(), ops->size()),
                  .choice = {test.choice.transport,
                             static_cast<uint16_t>(policies::HeldSms(model, test.choice))},
                  .us = alone_us},
        .us = times->collective_us,
        .gemm_times = *left_us / *all_us * times->collective_us / (times->collective_us - lost_us)};
  }
  return absl::NotFoundError("GEMMs end before the collective does");
}

// Each by itself; overlapped if all samples were.
absl::StatusOr<CollectiveBench::Times> CollectiveBench::MedianBeside(const CollectiveCase& test,
                                                                     int row_gemms, int sms) {
  std::vector<double> collective_us, row_us;
  for (int i = 0; i < kBesideSamples; ++i) {
    const absl::StatusOr<Times> times = RunUndisturbed(test, true, row_gemms, sms);
    if (!times.ok() || !times->overlapped) return times;
    collective_us.push_back(times->collective_us);
    row_us.push_back(times->row_us);
  }
  return Times{.collective_us = Median(std::move(collective_us)),
               .row_us = Median(std::move(row_us))};
}

}  // namespace concert::daemon
