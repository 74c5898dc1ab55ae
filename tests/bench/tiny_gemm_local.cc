#include <atomic>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/device/device.h"
#include "kernels/group/plan/compiler.h"
#include "kernels/op.h"
#include "kernels/op_table.h"
#include "policies/cost/cost_memo.h"
#include "policies/seam/policy.h"
#include "tests/bench/tiny_gemm.h"

namespace concert::bench {
namespace {

constexpr uint64_t kPageBytes = 4096;

// The descriptor that the client library would write.
concert_descriptor TinyDescriptor() {
  concert_descriptor descriptor = {};
  descriptor.kind = CONCERT_OP_GEMM;
  concert_gemm_body& gemm = descriptor.body.gemm;
  gemm.m = gemm.n = gemm.k = kTinyExtent;
  gemm.batch = 1;
  gemm.a = {.buffer = 1, .scales = 0, .offset = 0};
  gemm.w = {.buffer = 1, .scales = 0, .offset = kTinyOperandBytes};
  gemm.d = {.buffer = 1, .scales = 0, .offset = 2 * kTinyOperandBytes};
  gemm.lda = gemm.ldw = gemm.ldd = kTinyExtent;
  gemm.stride_a = gemm.stride_w = gemm.stride_d = kTinyExtent * kTinyExtent;
  gemm.alpha = 1;
  gemm.dtype = CONCERT_ABI_BF16;
  return descriptor;
}

class LocalTinyGemm : public TinyGemm {
 public:
  explicit LocalTinyGemm(std::unique_ptr<daemon::Node> node) : node_(std::move(node)) {}
  ~LocalTinyGemm() override;
  absl::Status Prepare(const std::string& policy);
  absl::Status LaunchAndWait() override;
  std::string form() const override { return std::string(FormName(plan_.launches[0].form)); }

 private:
  absl::Status Admit();
  absl::Status Decide(const std::string& policy);

  std::unique_ptr<daemon::Node> node_;
  void* page_ = nullptr;  // holds the timeline
  daemon::Address timeline_ = 0;
  daemon::Allocation memory_;
  kernels::Op op_;
  std::unique_ptr<policies::Policy> policy_;  // owns what the plan's work list points to
  policies::Plan plan_;                       // of this op alone: one launch
  uint64_t value_ = 0;
};

absl::Status LocalTinyGemm::Prepare(const std::string& policy) {
  page_ = std::aligned_alloc(kPageBytes, kPageBytes);
  *static_cast<uint64_t*>(page_) = 0;
  absl::StatusOr<daemon::Address> timeline = node_->RegisterHostMemory(page_, kPageBytes);
  if (!timeline.ok()) return timeline.status();
  timeline_ = *timeline;
  absl::StatusOr<daemon::Allocation> memory = node_->gpu(0).Allocate(kTinyBytes);
  if (!memory.ok()) return memory.status();
  memory_ = *memory;
  if (absl::Status admitted = Admit(); !admitted.ok()) return admitted;
  return Decide(policy);
}

absl::Status LocalTinyGemm::Admit() {
  // Entry 0 of the buffer table is never valid.
  const kernels::BufferRange buffers[] = {
      {}, {.address = memory_.address, .bytes = memory_.bytes, .gpu = 0, .pool = true}};
  const kernels::Failure failure =
      kernels::FindOpKind(CONCERT_OP_GEMM)
          ->admit(TinyDescriptor(), {.gpu = 0, .buffers = buffers, .ranks = 0}, op_);
  if (!failure.ok()) return absl::InternalError(failure.ToString());
  op_.kind = CONCERT_OP_GEMM;
  return absl::OkStatus();
}

// What the daemon's policy makes of the op on an idle GPU. Decided once: who launches one kernel
// again and again does not choose it again and again.
absl::Status LocalTinyGemm::Decide(const std::string& policy) {
  const policies::PolicyInfo* const info = policies::FindPolicy(policy);
  if (info == nullptr) return absl::NotFoundError("no policy is called " + policy);
  const policies::DeviceModel& model = node_->gpu(0).info().model;
  policy_ =
      info->make({.device = model, .tuned = nullptr, .make_compiler = kernels::MakeGroupCompiler});
  constexpr policies::Time kNow = 1'000'000'000;
  const policies::ReadyOp ready[] = {{.op = 0,
                                      .session = 1,
                                      .ready_at = kNow,
                                      .work = op_.work,
                                      .work_hash = policies::HashWork(op_.work)}};
  policy_->Decide({.now = kNow, .device = &model, .ready = ready, .running = {}, .lanes = {}},
                  plan_);
  if (plan_.launch_count == 1 && plan_.op_count == 1) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("policy ", policy, " makes ", plan_.launch_count, " launches of one GEMM"));
}

LocalTinyGemm::~LocalTinyGemm() {
  if (memory_.bytes != 0) node_->gpu(0).Free(memory_);
  if (timeline_ != 0) node_->UnregisterHostMemory(page_);
  node_.reset();
  std::free(page_);
}

absl::Status LocalTinyGemm::LaunchAndWait() {
  daemon::Device& gpu = node_->gpu(0);
  const kernels::Op* const ops[] = {&op_};
  const daemon::TimelineWrite signal[] = {{.address = timeline_, .value = ++value_}};
  // Nothing else is in flight.
  const absl::Status status = gpu.Launch({.planned = plan_.launches[0],
                                          .ops = ops,
                                          .writes = signal,
                                          .inputs_ready = true,
                                          .weights_ready = true});
  if (!status.ok()) return status;
  // Pairs with the device's system-scope store of the value, which follows the results.
  std::atomic_ref<uint64_t> word(*static_cast<uint64_t*>(page_));
  return PollTinyGemm([&] { return word.load(std::memory_order_acquire) >= value_; });
}

}  // namespace

absl::StatusOr<std::unique_ptr<TinyGemm>> MakeLocalTinyGemm(const std::string& device,
                                                            const std::string& policy) {
  absl::StatusOr<daemon::NodeChoice> choice = daemon::OpenNode({.device = device});
  if (!choice.ok()) return choice.status();
  auto gemm = std::make_unique<LocalTinyGemm>(std::move(choice->node));
  if (absl::Status prepared = gemm->Prepare(policy); !prepared.ok()) return prepared;
  return gemm;
}

}  // namespace concert::bench
