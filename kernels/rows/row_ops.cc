#include "kernels/rows/row_ops.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "kernels/advance/advance_op.h"
#include "kernels/argmax/argmax_op.h"
#include "kernels/cuda_api/launch_context.h"
#include "kernels/cuda_api/launch_kernel.h"
#include "kernels/elementwise/elementwise_op.h"
#include "kernels/embedding/embedding_op.h"
#include "kernels/gated_activation/gated_activation_op.h"
#include "kernels/layer_norm/layer_norm_op.h"
#include "kernels/op_table.h"
#include "kernels/quantize/quantize_op.h"
#include "kernels/rms_norm/rms_norm_op.h"
#include "kernels/rope_append/rope_append_op.h"
#include "kernels/rows/row_args.h"
#include "kernels/sample/sample_op.h"

namespace concert::kernels::cuda {
namespace {

// Enough to fill any GPU; blocks take their rows in turn.
constexpr unsigned kMaxBlocks = 1024;

// A kind of op that the kernel has code for. `lower` fills in a task but for its place in a chain
// and returns how many blocks could work on it.
struct RowOpKind {
  uint16_t kind;
  uint64_t (*lower)(const Op& op, RowTask& task);
};
constexpr RowOpKind kKinds[] = {
    {CONCERT_OP_RMS_NORM, LowerRmsNorm},        {CONCERT_OP_GATED_ACTIVATION, LowerGatedActivation},
    {CONCERT_OP_EMBEDDING, LowerEmbedding},     {CONCERT_OP_ARGMAX, LowerArgmax},
    {CONCERT_OP_ROPE_APPEND, LowerRopeAppend},  {CONCERT_OP_LAYER_NORM, LowerLayerNorm},
    {CONCERT_OP_ELEMENTWISE, LowerElementwise}, {CONCERT_OP_ADVANCE, LowerAdvance},
    {CONCERT_OP_QUANTIZE, LowerQuantize},       {CONCERT_OP_SAMPLE, LowerSample},
};

const RowOpKind* Find(const Op& op) {
  for (const RowOpKind& kind : kKinds) {
    if (kind.kind == op.kind) return &kind;
  }
  return nullptr;
}

}  // namespace

bool AreRows(std::span<const Op* const> ops) {
  return ops.size() <= kMaxRowTasks && std::all_of(ops.begin(), ops.end(), [](const Op* op) {
           return op->work.carrier == policies::Carrier::kRows;
         });
}

unsigned LowerRows(std::span<const Op* const> ops, unsigned max_blocks, RowArgs& args) {
  std::array<uint64_t, kMaxRowTasks> wanted;
  args.task_count = static_cast<uint8_t>(ops.size());
  for (size_t i = 0; i < ops.size(); ++i) {
    args.tasks[i] = {};
    wanted[i] = Find(*ops[i])->lower(*ops[i], args.tasks[i]);
  }
  // Each as many as it wants, or, where that is too much in all, in proportion.
  const auto all = std::accumulate(wanted.begin(), wanted.begin() + ops.size(), 0.0);
  const double share = std::min(1.0, max_blocks / all);
  unsigned blocks = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    const double its = share * static_cast<double>(wanted[i]);
    args.tasks[i].blocks = static_cast<uint16_t>(std::max(1.0, its));
    blocks += args.tasks[i].blocks;
  }
  return blocks;
}

static_assert(kMaxTogether <= kMaxRowTasks);

absl::Status LaunchRows(LaunchContext& context, std::span<const Op* const> ops,
                        const uint32_t* there) {
  RowArgs args{};
  args.there = there;
  args.releases_next = context.releases_next;
  const unsigned blocks = LowerRows(ops, kMaxBlocks, args);
  CUlaunchAttribute early = OverlapsTheOneBefore();
  return LaunchKernelWith({&early, context.begins_early ? 1u : 0u}, context.api.driver, context.gpu,
                          context.kernels.rows, blocks, kRowThreads, context.stream, args);
}

absl::Status LaunchRow(LaunchContext& context, const Op& op) {
  const Op* const one[] = {&op};
  return LaunchRows(context, one);
}

}  // namespace concert::kernels::cuda
