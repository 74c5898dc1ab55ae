#include "daemon/tuning/device_bench.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "daemon/check.h"
#include "daemon/sched/engine.h"
#include "daemon/service/log.h"
#include "kernels/op_table.h"

namespace concert::daemon {
namespace {

using policies::Form;

constexpr uint64_t kPatternBytes = 4 << 20;
constexpr uint64_t kAlignment = 256;            // of operands, as cuBLASLt likes them
constexpr uint64_t kOutputShare = 4;            // one part of the memory in so many is for outputs
constexpr uint64_t kRotationBytes = 256 << 20;  // of inputs: five times the L2 of an H200

constexpr int kMinLaunches = 8;   // of GEMMs per sample
constexpr int kMaxLaunches = 96;  // of a few microseconds each; the host needs 4 to 7 us for one
// Its two timeline writes and the start are some 3 us of it.
constexpr int64_t kSampleNs = 600'000;
// Host time per launch that copies cover: from what a launch costs on an H200's host (3.3 us,
// docs/benchmarks) to far beyond. Doubled between the two when a sample was bound by the host.
constexpr int64_t kFirstLaunchNs = 4'000;
constexpr int64_t kMaxLaunchNs = 32'000;
constexpr int kMaxPlugCopies = 256;

uint64_t AlignUp(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Numbers of every dtype: exponents near 0, so that sums stay finite; random signs and mantissas,
// because a GPU draws less power, and is faster, on zeros.
void FillPattern(uint8_t* bytes) {
  std::mt19937 random(1);
  auto* words = reinterpret_cast<uint16_t*>(bytes);
  for (uint64_t i = 0; i < kPatternBytes / sizeof(uint16_t); ++i) {
    const uint32_t bits = random();
    words[i] = static_cast<uint16_t>((bits >> 16 & 0x8000u) | 0x3e00u | (bits & 0x1ffu));
  }
}

Op MakeCopy(Address from, Address to, uint64_t bytes) {
  Op op;
  op.kind = CONCERT_OP_COPY;
  op.copy = {.src = from, .dst = to, .bytes = bytes};
  op.work.runs_on = policies::RunsOn::kCopyEngine;
  op.work.hbm_bytes = 2 * bytes;
  return op;
}

absl::Status LaunchOne(Device& device, Lane lane, const Op& op) {
  const Op* ops[] = {&op};
  return device.Launch({.planned = {.lane = lane}, .ops = ops});
}

float Percentile(const std::vector<float>& sorted, double share) {
  return sorted[static_cast<size_t>(std::lround(share * static_cast<double>(sorted.size() - 1)))];
}

}  // namespace

// Copies the pattern all over the inputs.
class DeviceBench::Fill final : public Lease {
 public:
  explicit Fill(DeviceBench& bench) : Lease(bench.words(), bench.options_.stop), bench_(bench) {}

 private:
  absl::Status Enqueue(Device& device, const TimelineWrite& begin,
                       const TimelineWrite& end) override {
    const Address inputs = bench_.memory_.address;
    uint64_t filled = std::min(kPatternBytes, bench_.input_bytes_);
    absl::Status status =
        LaunchOne(device, 0, MakeCopy(bench_.host_address_ + kPageBytes, inputs, filled));
    while (status.ok() && filled < bench_.input_bytes_) {
      const uint64_t more = std::min(filled, bench_.input_bytes_ - filled);
      status = LaunchOne(device, 0, MakeCopy(inputs, inputs + filled, more));
      filled += more;
    }
    status.Update(device.Signal(0, {&begin, 1}));
    status.Update(device.Signal(0, {&end, 1}));
    return status;
  }
  bool Take(const Sample&) override { return true; }

  DeviceBench& bench_;
};

// Samples of one co-run set.
class DeviceBench::SetRun final : public Lease {
 public:
  // `ops` are the set's, with operands yet to be placed.
  SetRun(DeviceBench& bench, std::span<const Candidate> set, std::vector<Op> ops, Form form,
         int sm_budget, int samples)
      : Lease(bench.words(), bench.options_.stop),
        bench_(bench),
        set_(set),
        ops_(std::move(ops)),
        form_(form),
        sm_budget_(sm_budget),
        samples_(static_cast<size_t>(samples)),
        lanes_(form == Form::kStreams
                   ? std::min<int>(static_cast<int>(ops_.size()), policies::kNormalLaneCount)
                   : 1),
        repetitions_(MinRepetitions()) {
    for (size_t i = 0; i < ops_.size(); ++i) {
      pointers_.push_back(&ops_[i]);
      writes_.push_back({bench.TimelineOf(i), 0});
    }
  }

  void set_schedule(const kernels::GroupWorkList* work_list) { work_list_ = work_list; }

  Measurement Result() {
    std::sort(times_us_.begin(), times_us_.end());
    return {.median_us = Percentile(times_us_, 0.5),
            .p10_us = Percentile(times_us_, 0.1),
            .p90_us = Percentile(times_us_, 0.9)};
  }

 private:
  int MinRepetitions() const {
    const auto members = static_cast<int>(ops_.size());
    return (kMinLaunches + members - 1) / members;
  }

  absl::Status Enqueue(Device& device, const TimelineWrite& begin,
                       const TimelineWrite& end) override {
    absl::Status status = Plug(device);
    status.Update(device.Signal(0, {&begin, 1}));
    for (int lane = 1; lane < lanes_; ++lane) status.Update(device.Order(Lane(lane), 0));
    for (int i = 0; i < repetitions_ && status.ok(); ++i) status = LaunchSet(device);
    for (int lane = 1; lane < lanes_; ++lane) status.Update(device.Order(0, Lane(lane)));
    status.Update(device.Signal(0, {&end, 1}));
    if (status.ok() || !device.healthy().ok()) return status;
    return absl::InvalidArgumentError(status.message());  // this set's fault
  }

  // Keeps the GPU busy while the rest is enqueued. It also fills the L2 with something else.
  absl::Status Plug(Device& device) {
    const policies::DeviceModel& model = device.info().model;
    const uint64_t bytes = std::min(bench_.options_.plug_bytes, bench_.output_bytes_);
    const double copy_ns =
        2e9 * static_cast<double>(bytes) / model.hbm_bytes_per_s + 1e3 * model.kernel_floor_us;
    const double cover_ns =
        static_cast<double>(bench_.launch_ns_) * repetitions_ * static_cast<double>(ops_.size());
    const int copies = std::min(kMaxPlugCopies, static_cast<int>(cover_ns / copy_ns) + 1);
    const Op copy =
        MakeCopy(bench_.memory_.address, bench_.memory_.address + bench_.input_bytes_, bytes);
    absl::Status status;
    for (int i = 0; i < copies && status.ok() && bench_.launch_ns_ > 0; ++i) {
      status = LaunchOne(device, 0, copy);
    }
    return status;
  }

  // As the dispatcher launches sets that follow one another: every op writes a timeline, and
  // a group waits for nothing that the launch before it does.
  absl::Status LaunchSet(Device& device) {
    for (Op& op : ops_) bench_.Place(op);
    LaunchRequest launch{.planned = {.form = form_,
                                     .sm_budget = sm_budget_,
                                     .degree = policies::DegreeOf(static_cast<int>(ops_.size())),
                                     .work_list = work_list_}};
    for (TimelineWrite& write : writes_) ++write.value;
    if (form_ == Form::kGroup) {
      launch.ops = pointers_;
      launch.writes = writes_;
      launch.inputs_ready = launch.weights_ready = true;
      return device.Launch(launch);
    }
    for (size_t i = 0; i < ops_.size(); ++i) {
      const policies::Variant& variant = set_[i].variant;
      launch.ops = {&pointers_[i], 1};
      if (form_ == Form::kStreams) launch.writes = {&writes_[i], 1};
      launch.variant = variant.source == policies::Variant::Source::kNone ? nullptr : &variant;
      launch.planned.lane = static_cast<Lane>(i % static_cast<size_t>(lanes_));
      if (absl::Status status = device.Launch(launch); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  bool Take(const Sample& sample) override {
    const int64_t set_ns = std::max<int64_t>(sample.time_ns / repetitions_, 1);
    if (sample.host_bound && bench_.launch_ns_ < kMaxLaunchNs) {
      bench_.launch_ns_ = std::max(kFirstLaunchNs, 2 * bench_.launch_ns_);
      return false;
    }
    if (warming_up_) {
      // The first sample pays for heuristics and cold clocks; it only says how long one takes.
      warming_up_ = false;
      const auto wanted = static_cast<int>(std::min<int64_t>(kSampleNs / set_ns, kMaxLaunches));
      const int most = std::max(1, kMaxLaunches / static_cast<int>(ops_.size()));
      repetitions_ = std::clamp(wanted, MinRepetitions(), std::max(most, MinRepetitions()));
      return false;
    }
    times_us_.push_back(static_cast<float>(sample.time_ns) * 1e-3f /
                        static_cast<float>(repetitions_));
    return times_us_.size() == samples_;
  }

  DeviceBench& bench_;
  const std::span<const Candidate> set_;
  std::vector<Op> ops_;
  std::vector<const Op*> pointers_;
  std::vector<TimelineWrite> writes_;
  const Form form_;
  const int sm_budget_;
  const size_t samples_;
  const int lanes_;
  const kernels::GroupWorkList* work_list_ = nullptr;
  int repetitions_;
  bool warming_up_ = true;
  std::vector<float> times_us_;
};

DeviceBenchOptions SuitableBenchOptions(const DeviceInfo& device) {
  if (device.backend == "sim") return {.memory_bytes = 16 << 20, .plug_bytes = 64 << 10};
  return {.memory_bytes = std::min<uint64_t>(1 << 30, device.memory_bytes / 8),
          .plug_bytes = 64 << 20};
}

absl::StatusOr<std::unique_ptr<DeviceBench>> DeviceBench::Create(
    Device& device, Node& node, DispatcherMailbox& dispatcher, const DeviceBenchOptions& options) {
  std::unique_ptr<DeviceBench> bench(new DeviceBench(device, node, dispatcher, options));
  if (absl::Status status = bench->Init(); !status.ok()) return status;
  return bench;
}

absl::Status DeviceBench::Init() {
  absl::StatusOr<Allocation> memory = device_.Allocate(options_.memory_bytes);
  if (!memory.ok()) return memory.status();
  memory_ = *memory;
  if (memory_.export_fd >= 0) close(memory_.export_fd);
  output_bytes_ = memory_.bytes / kOutputShare / kAlignment * kAlignment;
  input_bytes_ = memory_.bytes - output_bytes_;

  host_.reset(static_cast<uint8_t*>(std::aligned_alloc(kPageBytes, kPageBytes + kPatternBytes)));
  std::fill_n(host_.get(), kPageBytes, uint8_t{0});
  FillPattern(host_.get() + kPageBytes);
  absl::StatusOr<Address> registered =
      node_.RegisterHostMemory(host_.get(), kPageBytes + kPatternBytes);
  if (!registered.ok()) {
    host_.reset();
    return registered.status();
  }
  host_address_ = *registered;
  Fill fill(*this);
  const absl::Status status = RunLease(fill);
  if (status.ok() || absl::IsCancelled(status) || hung_ || !device_.healthy().ok()) return status;
  Log(LogLevel::kWarning,
      absl::StrCat("GPU ", device_.info().gpu,
                   " is measured with zeros, which draw less power: ", status.message()));
  return absl::OkStatus();
}

DeviceBench::~DeviceBench() {
  if (hung_) {
    // The GPU may still write to both: they are lost with it.
    static_cast<void>(host_.release());
    return;
  }
  if (host_ != nullptr) node_.UnregisterHostMemory(host_.get());
  if (memory_.bytes > 0) device_.Free(memory_);
}

Lease::Words DeviceBench::words() {
  auto* words = reinterpret_cast<uint64_t*>(host_.get());
  return {.begin = words,
          .end = words + kLineBytes / sizeof(uint64_t),
          .begin_address = host_address_,
          .end_address = host_address_ + kLineBytes,
          .signals = &signals_};
}

Address DeviceBench::TimelineOf(size_t member) const {
  CONCERT_CHECK((member + 3) * kLineBytes <= kPageBytes);
  return host_address_ + (member + 2) * kLineBytes;
}

absl::Status DeviceBench::RunLease(Lease& lease) {
  if (hung_) return absl::UnavailableError("an earlier measurement has not ended");
  DispatcherMessage message(DispatcherMessage::Type::kLease);
  message.lease_holder = &lease;
  if (absl::Status status = Post(dispatcher_, message); !status.ok()) return status;
  absl::Status status = lease.Wait();
  hung_ = lease.hung();
  return status;
}

std::vector<policies::Variant> DeviceBench::Candidates(const policies::Problem& problem,
                                                       int sm_budget) {
  return device_.Variants(problem, sm_budget);
}

// Through admission, as a client's op: what it checks and what it says of the cost are the same.
absl::StatusOr<Op> DeviceBench::MakeOp(const policies::Problem& problem) const {
  concert_descriptor descriptor{};
  descriptor.kind = CONCERT_OP_GEMM;
  concert_gemm_body& body = descriptor.body.gemm;
  body.m = problem.m, body.n = problem.n, body.k = problem.k, body.batch = problem.batch;
  body.a = {1, 0, 0}, body.w = {1, 0, 0}, body.d = {2, 0, 0};
  body.lda = body.ldw = problem.k, body.ldd = problem.n;
  body.stride_a = uint64_t{problem.m} * problem.k;
  body.stride_w = uint64_t{problem.n} * problem.k;
  body.stride_d = uint64_t{problem.m} * problem.n;
  body.alpha = 1;
  body.dtype = static_cast<uint8_t>(problem.dtype);
  // An fp8 product has no fp8 output. bf16, as in the keys that variants are listed for.
  const bool fp8 = problem.dtype == policies::Dtype::kFp8E4m3;
  body.d_dtype = static_cast<uint8_t>(fp8 ? policies::Dtype::kBf16 : problem.dtype);
  const kernels::BufferRange buffers[] = {
      {},
      {memory_.address, input_bytes_, device_.info().gpu, memory_.pool},
      {memory_.address + input_bytes_, output_bytes_, device_.info().gpu, memory_.pool}};
  Op op;
  const kernels::Failure failure =
      kernels::FindOpKind(CONCERT_OP_GEMM)
          ->admit(descriptor, {.gpu = device_.info().gpu, .buffers = buffers}, op);
  if (!failure.ok()) return absl::InvalidArgumentError(failure.ToString());
  return op;
}

// Gives the op the next place for all its operands, whose inputs are in no cache. The places
// repeat, so that a group launch finds its tensor maps made, as with a server's buffers: one that
// must upload them waits for the launch before to end.
void DeviceBench::Place(Op& op) {
  kernels::GemmArgs& gemm = op.gemm;
  const uint64_t element = policies::DtypeBytes(gemm.dtype), batch = gemm.batch;
  const uint64_t a_bytes = AlignUp(element * batch * gemm.m * gemm.k);
  const uint64_t w_bytes = AlignUp(element * batch * gemm.n * gemm.k);
  const uint64_t d_bytes = AlignUp(policies::DtypeBytes(gemm.d_dtype) * batch * gemm.m * gemm.n);
  if (input_cursor_ + a_bytes + w_bytes > std::min(input_bytes_, kRotationBytes) ||
      output_cursor_ + d_bytes > output_bytes_) {
    input_cursor_ = output_cursor_ = 0;
  }
  // Two that fit only one by one share their bytes.
  const uint64_t w_offset =
      input_cursor_ + a_bytes + w_bytes <= input_bytes_ ? input_cursor_ + a_bytes : 0;
  gemm.a = memory_.address + input_cursor_;
  gemm.w = memory_.address + w_offset;
  gemm.d = memory_.address + input_bytes_ + output_cursor_;
  input_cursor_ += a_bytes + w_bytes;
  output_cursor_ += d_bytes;
}

absl::StatusOr<Measurement> DeviceBench::Measure(std::span<const Candidate> set, Form form,
                                                 int sm_budget, int samples) {
  std::vector<Op> ops;
  std::vector<policies::Problem> problems;
  for (const Candidate& member : set) {
    absl::StatusOr<Op> op = MakeOp(member.problem);
    if (!op.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a GEMM cannot be measured in ", memory_.bytes >> 20, " MiB: ", op.status().message()));
    }
    ops.push_back(*std::move(op));
    problems.push_back(member.problem);
  }
  const kernels::GroupWorkList* work_list = nullptr;
  if (form == Form::kGroup) {
    bool groupable = true;
    uint64_t repack_bytes = 0;
    for (const Op& op : ops) {
      groupable &= op.work.groupable();
      repack_bytes += op.work.repack_bytes;
    }
    groupable &= repack_bytes <= kernels::kGroupRepackBytes;
    if (groupable && options_.plan_group != nullptr)
      work_list = options_.plan_group(problems, sm_budget);
    if (work_list == nullptr)
      return absl::InvalidArgumentError("no group launch can carry this co-run set");
  }
  input_cursor_ = output_cursor_ = 0;  // the places of the measurement before
  SetRun run(*this, set, std::move(ops), form, sm_budget, samples);
  run.set_schedule(work_list);
  if (absl::Status status = RunLease(run); !status.ok()) return status;
  return run.Result();
}

}  // namespace concert::daemon
