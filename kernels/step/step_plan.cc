#include "kernels/step/step_plan.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/op_table.h"
#include "kernels/step/direct_bindings.h"
#include "kernels/step/stage_order.h"
#include "kernels/step/step_check.h"
#include "kernels/step/step_draft.h"

namespace concert::kernels {
namespace {

// Stands for where attention's chunks leave their sums, which all of its stages share. No address.
const StridedRange kChunkSums = StridedRange::Of(8, 8);

absl::Status CannotRun(size_t op, uint16_t kind, absl::string_view why) {
  return absl::FailedPreconditionError(
      absl::StrCat("op ", op, ", ", concert_op_kind_name(kind), ": ", why));
}

constexpr absl::string_view kTooManyRows = "it has more than 32 rows";
static_assert(kMaxStepRows == 32);
constexpr absl::string_view kOnlyBf16Caches = "only caches in bf16 are supported";

// Why the step kernel cannot multiply it; empty: it can.
absl::string_view Objection(const GemmArgs& gemm) {
  if (gemm.dtype != Dtype::kBf16 || gemm.d_dtype != Dtype::kBf16) return "only bf16 is supported";
  if (gemm.batch != 1) return "it has several matrices";
  if (gemm.m > kMaxStepRows) return kTooManyRows;
  if (gemm.a_scales != 0) return "its rows of A have scales";
  if (gemm.residual) return "it adds a residual behind its activation";
  if (gemm.k % kStepColumnStep != 0) return "k is no multiple of 64";
  if (gemm.gated && gemm.n % kStepTile != 0) return "it is gated, and n is no multiple of 8";
  if ((gemm.a | gemm.w) % 16 != 0 || (gemm.lda | gemm.ldw) % 8 != 0)
    return "A and W must begin at multiples of 16 bytes, and their strides be multiples of 8";
  if (gemm.c != 0 && (gemm.c % 4 != 0 || gemm.ldc % 2 != 0))
    return "C must begin at a multiple of 4 bytes, and its stride be even";
  if (std::max({gemm.lda, gemm.ldc, gemm.ldd}) > std::numeric_limits<uint32_t>::max())
    return "a stride takes more than 32 bits";
  return "";
}

// The same of attention; empty: it can attend.
absl::string_view Objection(const AttentionDecodeArgs& attention) {
  if (attention.rows > kMaxStepRows) return kTooManyRows;  // a lane of who loads ahead has each
  if (attention.head_dim != 64 && attention.head_dim != 128)
    return "only heads of 64 and 128 are supported";
  if (attention.cache.dtype != Dtype::kBf16) return kOnlyBf16Caches;
  // Who loads ahead numbers tokens in 32 bits; the last number stands for none.
  if (attention.cache.tokens() > std::numeric_limits<uint32_t>::max())
    return "its cache has 2^32 tokens or more";
  return "";
}

absl::Status DraftOp(const Op& op, uint32_t index, Draft& draft) {
  PlannedStage& stage = draft.stage;
  stage.op = op;
  stage.ops = {index};
  draft.touches = TouchesOf(op);
  if (op.kind == CONCERT_OP_GEMM) {
    if (const absl::string_view why = Objection(op.gemm); !why.empty())
      return CannotRun(index, op.kind, why);
    stage.kind = StageKind::kGemm;
    stage.gemm = StepGemmOf(op.gemm);
  } else if (op.kind == CONCERT_OP_ATTENTION_DECODE) {
    if (const absl::string_view why = Objection(op.attention_decode); !why.empty())
      return CannotRun(index, op.kind, why);
    stage.kind = StageKind::kAttention;
    draft.touches.push_back({kChunkSums, 0, CONCERT_FIELD_NONE, true, true});
  } else if (op.kind == CONCERT_OP_COPY) {
    stage.kind = StageKind::kCopy;
    stage.copy = {.count = 1, .pieces = {{op.copy.src, op.copy.dst, op.copy.bytes, -1, -1}}};
  } else if (op.kind == CONCERT_OP_ROPE_APPEND && op.rope_append.cache.dtype == Dtype::kFp8E4m3) {
    return CannotRun(index, op.kind, kOnlyBf16Caches);
  } else if (op.work.carrier == policies::Carrier::kRows) {
    stage.kind = StageKind::kRows;
  } else {
    return CannotRun(index, op.kind, "the step kernel has no code for it");
  }
  return absl::OkStatus();
}

// Copies between bindings and where the program has them. In: the first stage, even if there are
// none.
Draft DraftBindings(const Program& program, bool out) {
  Draft draft;
  StepCopy& copy = draft.stage.copy;
  copy = {};
  for (size_t i = 0; i < program.bindings.size(); ++i) {
    const Program::Binding& binding = program.bindings[i];
    if (out && !binding.written) continue;
    const auto number = static_cast<int32_t>(i);
    copy.pieces[copy.count++] = {out ? binding.staged : 0, out ? 0 : binding.staged, binding.bytes,
                                 out ? -1 : number, out ? number : -1};
    draft.touches.push_back(
        {StridedRange::Of(binding.staged, binding.bytes), 0, CONCERT_FIELD_NONE, out, !out});
  }
  return draft;
}

// Weights are loaded long before their GEMM's turn.
absl::Status CheckWeights(const std::vector<Draft>& drafts) {
  for (const Draft& draft : drafts) {
    if (draft.stage.kind != StageKind::kGemm) continue;
    const StepGemm& gemm = draft.stage.gemm;
    const StridedRange weights = MatrixAt(gemm.w, gemm.n, gemm.k, gemm.ldw);
    for (const Draft& other : drafts) {
      if (other.Writes(weights))
        return CannotRun(draft.stage.ops.front(), CONCERT_OP_GEMM,
                         "the program itself writes its weights");
    }
  }
  return absl::OkStatus();
}

// What a stage needs of an earlier one: nothing, that it has read what it reads, or that what it
// has written is there.
enum class Need { kNothing, kDone, kVisible };

// `takes_heads`: what the later reads of the earlier, it takes from the exchange.
Need NeedOf(const Draft& later, const Draft& earlier, bool takes_heads) {
  Need need = Need::kNothing;
  for (const Touch& touch : later.touches) {
    if (earlier.Writes(touch.memory) && !takes_heads) {
      // What the earlier stage's chunks have left its last ones have read: that they are done will
      // do.
      if (touch.memory != kChunkSums) return Need::kVisible;
      need = Need::kDone;
    }
    if (touch.writes && earlier.Reads(touch.memory)) need = Need::kDone;
  }
  return need;
}

// Each stage waits for what it needs, but for what is known without (StageOrder). The last ones
// first: who knows of them knows of most others.
class WaitPlanner {
 public:
  explicit WaitPlanner(std::vector<Draft>& drafts) : drafts_(drafts), order_(drafts.size()) {}

  void Plan(bool last_follows_all) {
    for (size_t i = 0; i < drafts_.size(); ++i) {
      const bool follows_all = last_follows_all && i + 1 == drafts_.size();
      order_.Begin(i, drafts_[i].stage);
      for (size_t j = i; j-- > 0;) PlanWait(i, j, follows_all);
      order_.End(i, drafts_[i].stage);
    }
  }

 private:
  void PlanWait(size_t i, size_t j, bool follows_all) {
    Need need = NeedOf(drafts_[i], drafts_[j], drafts_[i].stage.heads_from == j);
    if (follows_all) {
      const bool writes = std::any_of(
          drafts_[j].touches.begin(), drafts_[j].touches.end(),
          [](const Touch& touch) { return touch.writes && touch.memory != kChunkSums; });
      need = writes ? Need::kVisible : Need::kDone;
    }
    if (need == Need::kNothing || order_.IsVisible(i, j) ||
        (need == Need::kDone && order_.IsDone(i, j))) {
      return;
    }
    drafts_[i].stage.waits.push_back(static_cast<uint32_t>(j));
    Awaited& awaited = drafts_[j].stage.awaited;
    awaited = std::max(awaited, follows_all ? Awaited::kByCopyOut : Awaited::kAlways);
    order_.Wait(i, j);
  }

  std::vector<Draft>& drafts_;
  StageOrder order_;
};

// What ops do that became one, by the names that `name` appends of each.
template <typename Name>
std::string TextOf(std::span<const uint32_t> ops, const Name& name) {
  if (ops.empty()) return "bindings";
  std::string text;
  name(&text, ops.front());
  if (ops.size() == 1) return text;
  return absl::StrCat(text, " <- ", absl::StrJoin(ops.subspan(1), ", ", name));
}

uint64_t BytesOf(const StepCopy& copy) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < copy.count; ++i) bytes += copy.pieces[i].bytes;
  return bytes;
}

// `rows`: of A, the most in the program, for which its kernel is made. Of a GEMM only W comes from
// memory: what stages pass on is in the L2 cache, and all of A is read by each block.
policies::StageWork WorkOf(const PlannedStage& stage, uint32_t rows) {
  const policies::Work& work = stage.op.work;
  switch (stage.kind) {
    case StageKind::kGemm: {
      const StepGemm& gemm = stage.gemm;
      const double columns = gemm.n, depth = gemm.k;
      return {.flops = 2 * columns * depth * gemm.m,
              .hbm_bytes = columns * depth * kStepElementBytes,
              .read_by_all_bytes = depth * gemm.m * kStepElementBytes,
              .items = gemm.units(),
              .items_a_pass = static_cast<uint32_t>(
                  StepPassTiles(static_cast<int>((rows + kStepTile - 1) / kStepTile)))};
    }
    case StageKind::kCopy:
      return {.hbm_bytes = 2.0 * static_cast<double>(BytesOf(stage.copy))};
    case StageKind::kRows:
      return {.flops = static_cast<double>(work.flops),
              .hbm_bytes = static_cast<double>(work.hbm_bytes),
              .items = work.m};
    case StageKind::kAttention:  // chunks of rows, whatever fits the blocks
      return {.flops = static_cast<double>(work.flops),
              .hbm_bytes = static_cast<double>(work.hbm_bytes)};
  }
  return {};
}

}  // namespace

absl::StatusOr<StepPlan> PlanStep(const Program& program, uint64_t exchange_bytes_max) {
  if (program.ops.size() > kMaxStages) {
    return absl::FailedPreconditionError(
        absl::StrCat("it has ", program.ops.size(), " ops; the step kernel takes ", kMaxStages));
  }
  StepDraft draft(program);
  std::vector<Draft>& drafts = draft.drafts();
  drafts.resize(program.ops.size());
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const absl::Status status = DraftOp(program.ops[i], static_cast<uint32_t>(i), drafts[i]);
    if (!status.ok()) return status;
  }
  Fold(draft);
  drafts.erase(std::remove_if(drafts.begin(), drafts.end(), [](const Draft& d) { return d.gone; }),
               drafts.end());
  drafts.insert(drafts.begin(), DraftBindings(program, /*out=*/false));
  Draft out = DraftBindings(program, /*out=*/true);
  StepPlan plan;
  plan.copies_out = out.stage.copy.count > 0;
  if (plan.copies_out) drafts.push_back(std::move(out));
  if (absl::Status status = CheckWeights(drafts); !status.ok()) return status;
  ExchangeSpace exchange(exchange_bytes_max);
  ExchangeHeads(draft, exchange);
  Exchange(draft, exchange);
  plan.exchange_bytes = exchange.bytes();
  WaitPlanner(drafts).Plan(plan.copies_out);
  drafts[kTablesStage].stage.awaited = Awaited::kAlways;  // by whoever loads ahead
  for (Draft& one : drafts) plan.stages.push_back(std::move(one.stage));
  if (absl::Status status = CheckStep(program, plan); !status.ok()) return status;
  return plan;
}

std::string DescribeStage(const Program& program, const PlannedStage& stage) {
  return TextOf(stage.ops, [&](std::string* out, uint32_t op) {
    absl::StrAppend(out, concert_op_kind_name(program.ops[op].kind), " ", op);
  });
}

std::string KindsOf(const Program& program, std::span<const uint32_t> ops) {
  return TextOf(ops, [&](std::string* out, uint32_t op) {
    out->append(concert_op_kind_name(program.ops[op].kind));
  });
}

std::vector<Program::Stage> StagesOf(const Program& program, const StepPlan& plan) {
  uint32_t rows = 1;
  for (const PlannedStage& stage : plan.stages) {
    if (stage.kind == StageKind::kGemm) rows = std::max(rows, stage.gemm.m);
  }
  const bool direct = DirectBindings(program).possible();
  std::vector<Program::Stage> stages;
  for (const PlannedStage& stage : plan.stages) {
    if (direct && stage.ops.empty()) continue;
    stages.push_back({.what = KindsOf(program, stage.ops), .work = WorkOf(stage, rows)});
  }
  return stages;
}

}  // namespace concert::kernels
