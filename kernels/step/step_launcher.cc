#include "kernels/step/step_launcher.h"

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda_api/launch_kernel.h"
#include "kernels/program/compile.h"
#include "kernels/rows/row_ops.h"
#include "kernels/step/stage_addresses.h"
#include "kernels/step/step_args.h"
#include "kernels/step/step_shared.h"

namespace concert::kernels::cuda {
namespace {

// How many slots each of a launch's blocks asks for at once: enough to keep memory busy, and few,
// because what queues for memory delays the words that blocks wait for. One H100, hidden 1024,
// alone on 132 SMs: 259 us a step with two, 273 with four; eight on 16 each: 1,569 with two, 1,430
// with five; hidden 2048 632, 637, 4,869 and 4,451. On an H200 twice as many make no difference:
// alone 276 and 271, 566 and 561, GQA 1536 832 and 836; eight with ten instead of six as before.
uint32_t InFlightOf(int blocks) { return static_cast<uint32_t>(std::clamp(264 / blocks, 2, 6)); }

// Hands out parts of the workspace.
class Carver {
 public:
  explicit Carver(Address begin) : next_(begin) {}
  Address Take(uint64_t bytes) {
    const Address address = next_;
    next_ += AlignedInArena(bytes);
    return address;
  }
  Address next() const { return next_; }

 private:
  Address next_;
};

// What blocks that share a row's head of the cache leave for each other: there are no more of them
// than blocks, and only where rows and heads are fewer than those.
struct ChunkSums {
  Address begin = 0, states = 0;
  uint64_t bytes = 0;
};
ChunkSums PlaceChunkSums(const StepPlan& plan, Carver& carver) {
  uint64_t group = 0, dim = 0;
  for (const PlannedStage& stage : plan.stages) {
    if (stage.kind != StageKind::kAttention) continue;
    const AttentionDecodeArgs& op = stage.op.attention_decode;
    group = std::max<uint64_t>(group, op.q_heads / op.kv_heads);
    dim = std::max<uint64_t>(dim, op.head_dim);
  }
  const uint64_t sums_bytes = kMaxStepBlocks * group * dim * sizeof(uint64_t);
  ChunkSums sums;
  sums.bytes = sums_bytes + kMaxStepBlocks * group * 2 * sizeof(uint64_t);
  sums.begin = carver.Take(sums.bytes);
  sums.states = sums.begin + sums_bytes;
  return sums;
}

// Where a list lies, and what its blocks exchange.
struct Places {
  Places(const StepPlan& plan, Address begin) {
    const size_t count = plan.stages.size();
    size_t more_waits = 0;  // than the one that a stage has itself
    for (const PlannedStage& stage : plan.stages)
      more_waits += std::max<size_t>(stage.waits.size(), 1) - 1;
    Carver carver(begin);
    stages = carver.Take(count * sizeof(Stage));
    stage_bindings = carver.Take(count * sizeof(StageBindings));
    ended = carver.Take(count * kMaxStepBlocks * sizeof(uint32_t));
    sums = PlaceChunkSums(plan, carver);
    exchange = carver.Take(2 * plan.exchange_bytes);
    waits = carver.Take(more_waits * sizeof(StepWait));
    maps = carver.Take(2 * count * sizeof(CUtensorMap));
    end = carver.next();
  }

  Address stages, stage_bindings, ended, exchange, waits, maps, end;
  ChunkSums sums;
};

void LowerRowStage(const Op& op, Stage& stage) {
  const Op* const one[] = {&op};
  RowArgs args{};
  stage.units = LowerRows(one, kMaxStepBlocks, args);
  stage.row = args.tasks[0];
}

// Where in memory the exchange has what a plan names.
Address Moved(Address planned, Address exchange) { return planned - kExchangeBase + exchange; }

StepGemm GemmOf(const PlannedStage& planned, Address exchange) {
  StepGemm gemm = planned.gemm;
  if (gemm.a_exchanged) gemm.a = Moved(gemm.a, exchange);
  if (gemm.c_exchanged) gemm.c = Moved(gemm.c, exchange);
  if (gemm.stores_exchanged) gemm.exchanged = Moved(gemm.exchanged, exchange);
  return gemm;
}

// How many tokens a box of a tensor map may have: all that boxes begin with must be a multiple of
// it. 0: no map can be used.
uint32_t BoxTokensOf(const AttentionDecodeArgs& op) {
  constexpr uint32_t kMin = 8;                  // fewer are no gain
  if (op.span_max() < op.length_max) return 0;  // a window may begin anywhere
  uint32_t tokens = SlotTokens(op.head_dim);
  while (tokens >= kMin && op.cache.page_size % tokens != 0) tokens /= 2;
  return tokens >= kMin ? tokens : 0;
}

// Of bf16; sizes[0] elements are neighbours. Whether the driver takes it.
template <size_t kDims>
bool Encode(const Driver& driver, Address begin, const cuuint64_t (&sizes)[kDims],
            const cuuint64_t (&strides)[kDims - 1], const cuuint32_t (&box)[kDims],
            CUtensorMap& map) {
  cuuint32_t steps[kDims];
  std::fill(std::begin(steps), std::end(steps), 1);
  return driver.cuTensorMapEncodeTiled(
             &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, kDims, reinterpret_cast<void*>(begin), sizes,
             strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool EncodeCache(const Driver& driver, const AttentionDecodeArgs& op, Address begin,
                 uint32_t box_tokens, CUtensorMap& map) {
  return Encode(
      driver, begin, {op.head_dim, op.kv_heads, op.cache.page_size, op.cache.pages},
      {op.cache.head_stride * kStepElementBytes, op.cache.token_stride * kStepElementBytes,
       op.cache.page_stride * kStepElementBytes},
      {64, 1, box_tokens, 1}, map);
}

// A box is half a slot (step_shared.h).
bool EncodeWeights(const Driver& driver, const StepGemm& gemm, CUtensorMap& map) {
  return Encode(driver, gemm.w, {kStepColumnStep, gemm.n, gemm.k / kStepColumnStep},
                {gemm.ldw * kStepElementBytes, kSlotLineBytes},
                {kStepColumnStep, kSlotBoxRows, kSlotBoxLines}, map);
}

// Tensor maps that will lie at `begin`, of which stages know where theirs are.
class Maps {
 public:
  Maps(const Driver& driver, Address begin) : driver_(driver), begin_(begin) {}

  const std::vector<CUtensorMap>& all() const { return maps_; }

  // FAILED_PRECONDITION: the driver takes no map of W.
  absl::Status AddWeights(StepGemm& gemm) {
    CUtensorMap weights;
    if (!EncodeWeights(driver_, gemm, weights)) {
      return absl::FailedPreconditionError(
          absl::StrCat("the driver takes no tensor map of W: ", gemm.n, " rows of ", gemm.k,
                       ", ldw ", gemm.ldw));
    }
    gemm.w_map = Add(weights);
    return absl::OkStatus();
  }
  // Keys' and values', if they can be used.
  void AddCache(StepAttention& attention) {
    const AttentionDecodeArgs& op = attention.op;
    const uint32_t box_tokens = BoxTokensOf(op);
    CUtensorMap keys, values;
    if (box_tokens == 0 || !EncodeCache(driver_, op, op.cache.k, box_tokens, keys) ||
        !EncodeCache(driver_, op, op.cache.v, box_tokens, values)) {
      return;
    }
    attention.box_tokens = box_tokens;
    attention.maps = reinterpret_cast<const CUtensorMap*>(Add(keys));
    Add(values);
  }

 private:
  Address Add(const CUtensorMap& map) {
    maps_.push_back(map);
    return begin_ + (maps_.size() - 1) * sizeof(CUtensorMap);
  }

  const Driver& driver_;
  const Address begin_;
  std::vector<CUtensorMap> maps_;
};

StepAttention AttentionOf(const StepPlan& plan, const PlannedStage& planned, const ChunkSums& sums,
                          Address exchange) {
  StepAttention attention = {};
  attention.sums = reinterpret_cast<uint64_t*>(sums.begin);
  attention.states = reinterpret_cast<uint64_t*>(sums.states);
  attention.op = planned.op.attention_decode;
  attention.group = attention.op.q_heads / attention.op.kv_heads;
  attention.chunks_max = (attention.op.span_max() + kMinStepChunk - 1) / kMinStepChunk;
  attention.exchanges = planned.exchanges;
  if (planned.exchanges) attention.op.out = Moved(attention.op.out, exchange);
  if (planned.heads_from.has_value()) {
    const RopeAppendArgs& rope = plan.stages[*planned.heads_from].gemm.rope;
    attention.op.q = Moved(attention.op.q, exchange);
    attention.append = {rope.rows, rope.slot_type, rope.slots};
  }
  return attention;
}

Stage StageOf(const StepPlan& plan, const PlannedStage& planned, const ChunkSums& sums,
              Address exchange) {
  Stage stage = {};
  stage.kind = planned.kind;
  stage.awaited = planned.awaited;
  stage.units = kAllBlocks;
  switch (planned.kind) {
    case StageKind::kCopy:
      stage.copy = planned.copy;
      break;
    case StageKind::kGemm:
      stage.gemm = GemmOf(planned, exchange);
      stage.units = planned.gemm.units();
      break;
    case StageKind::kAttention:
      stage.attention = AttentionOf(plan, planned, sums, exchange);
      break;
    case StageKind::kRows:
      LowerRowStage(planned.op, stage);
      break;
  }
  return stage;
}

// Which of KernelTable::step has room for the GEMMs' rows.
size_t KernelFor(const StepPlan& plan) {
  uint32_t rows = 1;
  for (const PlannedStage& stage : plan.stages) {
    if (stage.kind == StageKind::kGemm) rows = std::max(rows, stage.gemm.m);
  }
  return rows <= 8 ? 0 : rows <= 16 ? 1 : 2;
}

template <typename T>
absl::Status Upload(const LaunchContext& context, Address to, std::span<const T> from) {
  const Driver& driver = context.api.driver;
  if (from.empty()) return absl::OkStatus();
  return driver.ToStatus(
      driver.cuMemcpyHtoDAsync(to, from.data(), from.size_bytes(), context.stream),
      "cuMemcpyHtoDAsync", context.gpu);
}

}  // namespace

uint64_t StepWorkspaceBytes(const StepPlan& plan) { return Places(plan, 0).end; }

absl::StatusOr<std::unique_ptr<StepLauncher>> StepLauncher::Open(const LaunchContext& context,
                                                                 const Program& program,
                                                                 const StepPlan& plan,
                                                                 Address workspace) {
  const Places places(plan, workspace);
  std::unique_ptr<StepLauncher> launcher(new StepLauncher(program));
  launcher->stage_count_ = static_cast<uint32_t>(plan.stages.size());
  launcher->kernel_ = KernelFor(plan);
  launcher->copies_out_ = plan.copies_out;
  launcher->stages_ = places.stages, launcher->stage_bindings_ = places.stage_bindings;
  launcher->waits_ = places.waits, launcher->ended_ = places.ended;
  launcher->sums_ = places.sums.begin, launcher->sums_bytes_ = places.sums.bytes;
  launcher->exchange_ = places.exchange, launcher->exchange_bytes_ = plan.exchange_bytes;
  std::vector<Stage> stages;
  std::vector<StageBindings> bindings;
  std::vector<StepWait> waits;
  for (const PlannedStage& planned : plan.stages) {
    Stage stage = StageOf(plan, planned, places.sums, places.exchange);
    if (stage.kind == StageKind::kAttention) stage.attention.number = launcher->attention_count_++;
    stage.wait_count = static_cast<uint32_t>(planned.waits.size());
    stage.more_waits = static_cast<uint32_t>(waits.size());
    for (const uint32_t wait : planned.waits) {
      const StepWait one = {wait, stages[wait].units};
      if (wait == planned.waits.front()) {
        stage.wait = one;
      } else {
        waits.push_back(one);
      }
    }
    bindings.push_back(FindBindings(stage, program.bindings));
    stages.push_back(stage);
  }
  const Driver& driver = context.api.driver;
  Maps maps(driver, places.maps);
  for (Stage& stage : stages) {
    if (stage.kind == StageKind::kAttention) maps.AddCache(stage.attention);
    if (stage.kind != StageKind::kGemm) continue;
    if (absl::Status status = maps.AddWeights(stage.gemm); !status.ok()) return status;
  }
  CONCERT_RETURN_IF_DRIVER_ERROR(driver, context.gpu, cuMemsetD8Async, workspace, 0,
                                 places.end - workspace, context.stream);
  if (plan.exchange_bytes > 0) {
    static_assert(kNotThere == 0xffff);
    CONCERT_RETURN_IF_DRIVER_ERROR(driver, context.gpu, cuMemsetD8Async, launcher->exchange_, 0xff,
                                   2 * plan.exchange_bytes, context.stream);
  }
  absl::Status status = Upload(context, launcher->stages_, std::span<const Stage>(stages));
  if (status.ok())
    status = Upload(context, launcher->stage_bindings_, std::span<const StageBindings>(bindings));
  if (status.ok()) status = Upload(context, launcher->waits_, std::span<const StepWait>(waits));
  if (status.ok()) status = Upload(context, places.maps, std::span<const CUtensorMap>(maps.all()));
  if (!status.ok()) return status;
  CONCERT_RETURN_IF_DRIVER_ERROR(driver, context.gpu, cuStreamSynchronize, context.stream);
  return launcher;
}

void StepLauncher::UseDirectly(const ProgramArgs& run, StepArgs& args) const {
  const std::vector<Program::Binding>& bindings = run.program->bindings;
  for (size_t i = 0; i < bindings.size(); ++i)
    args.moves[i + 1] = run.bindings[i] - bindings[i].staged;
  args.first_stage = kTablesStage + 1;
  args.last_stage = stage_count_ - (copies_out_ ? 1 : 0);
}

absl::StatusOr<bool> StepLauncher::Launch(const LaunchContext& context, const Op& op) {
  const Driver& driver = context.api.driver;
  const ProgramArgs& run = op.program;
  StepSms& sms = *context.step_sms;
  const absl::StatusOr<int> blocks = sms.Take(this, context.stream, context.sm_budget);
  if (!blocks.ok()) return blocks.status();
  if (*blocks == 0) return false;
  // Never 0, and its parity takes turns. A launch that fails has none: what the run before left in
  // the exchange is only emptied by the next.
  const uint32_t epoch = epoch_ == std::numeric_limits<uint32_t>::max() ? 2 : epoch_ + 1;
  if (next_tag_ > std::numeric_limits<uint32_t>::max() - attention_count_) {  // begin anew
    CONCERT_RETURN_IF_DRIVER_ERROR(driver, context.gpu, cuMemsetD8Async, sums_, 0, sums_bytes_,
                                   context.stream);
    next_tag_ = 1;
  }
  StepArgs args = {};
  args.stages = reinterpret_cast<const Stage*>(stages_);
  args.stage_bindings = reinterpret_cast<const StageBindings*>(stage_bindings_);
  args.waits = reinterpret_cast<const StepWait*>(waits_);
  args.ended = reinterpret_cast<uint32_t*>(ended_);
  args.report = context.step_report;
  args.launch = ++context.step_report->launches;
  args.session = op.session, args.queue = op.queue, args.ticket = op.ticket;
  args.last_stage = stage_count_;
  args.epoch = epoch;
  args.first_tag = next_tag_;
  next_tag_ += attention_count_;
  args.exchange = epoch % 2 * exchange_bytes_;
  args.emptied = exchange_ + (epoch + 1) % 2 * exchange_bytes_;
  args.emptied_bytes = exchange_bytes_;
  args.in_flight = InFlightOf(*blocks);
  std::copy(run.bindings.begin(), run.bindings.end(), args.bindings);
  if (direct_.Allow(run.bindings)) UseDirectly(run, args);
  absl::Status status = LaunchKernel(driver, context.gpu, context.kernels.step[kernel_],
                                     static_cast<unsigned>(*blocks), kStepThreads, context.stream,
                                     args, sizeof(StepMemory));
  if (!status.ok()) return status;
  epoch_ = epoch;
  status = sms.Launched(this, *blocks, context.stream);
  if (!status.ok()) return status;
  return true;
}

}  // namespace concert::kernels::cuda
