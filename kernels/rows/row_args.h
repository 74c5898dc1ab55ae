// What the host hands to the row kernel, which carries all ops whose rows are computed each for
// itself. Shared by host and device code.
#ifndef CONCERT_KERNELS_ROWS_ROW_ARGS_H_
#define CONCERT_KERNELS_ROWS_ROW_ARGS_H_

#include <cstdint>

#include "kernels/advance/advance_args.h"
#include "kernels/argmax/argmax_args.h"
#include "kernels/elementwise/elementwise_args.h"
#include "kernels/embedding/embedding_args.h"
#include "kernels/gated_activation/gated_activation_args.h"
#include "kernels/group/group_args.h"
#include "kernels/layer_norm/layer_norm_args.h"
#include "kernels/quantize/quantize_args.h"
#include "kernels/rms_norm/rms_norm_args.h"
#include "kernels/rope_append/rope_append_args.h"
#include "kernels/sample/sample_args.h"
#include "policies/seam/form.h"

namespace concert::kernels::cuda {

// Eight warps that compute, and one that lets the next launch start (LineUp).
inline constexpr int kRowComputeThreads = 256;
inline constexpr int kRowThreads = kRowComputeThreads + 32;
inline constexpr int kMaxRowTasks = policies::kMaxRowOps;

enum class RowKind : uint8_t {
  kRmsNorm,
  kGatedActivation,
  kEmbedding,
  kArgmax,
  kRopeAppend,
  kLayerNorm,
  kElementwise,
  kAdvance,
  kQuantize,
  kSample
};

// One op of a launch.
struct RowTask {
  uint64_t signal_address;  // a timeline; 0: none
  uint64_t signal_value;
  uint32_t stored;        // what GroupCounters::stored reads when all of its blocks have stored
  uint32_t after_stored;  // the same of what this one follows
  uint16_t after;         // as GroupTask's
  uint16_t blocks;        // that share its rows
  RowKind kind;
  Dtype dtype;
  bool wide;                 // 16 bytes at a time, else one element
  uint8_t next_on_timeline;  // GroupRecord::kNextOnTimeline
  union {
    RmsNormArgs rms_norm;
    GatedActivationArgs gated_activation;
    EmbeddingArgs embedding;
    ArgmaxArgs argmax;
    RopeAppendArgs rope_append;
    LayerNormArgs layer_norm;
    ElementwiseArgs elementwise;
    AdvanceArgs advance;
    QuantizeArgs quantize;
    SampleArgs sample;
  };

  // How elements of `of` can be moved whose operands have these addresses, or-ed together, and
  // whose strides and numbers of columns are these.
  void SetElements(Dtype of, Address addresses, uint64_t columns) {
    dtype = of;
    wide = addresses % 16 == 0 && columns % (16 / DtypeBytes(of)) == 0;
  }
  // That a thread takes at a time.
  uint64_t width() const { return wide ? 16 / DtypeBytes(dtype) : 1; }
};

// How many blocks can work on `elements` elements, a pack for each thread.
inline uint64_t BlocksForPacks(const RowTask& task, uint64_t elements) {
  return (elements / task.width() + kRowComputeThreads - 1) / kRowComputeThreads;
}

// The kernel's only parameter. Blocks of the first task come first, then those of the next.
struct RowArgs {
  // The track's; null: a launch of its own, which waits for all that the stream has before it and
  // signals nothing.
  GroupCounters* counters;
  const uint32_t* there;  // nothing is done for task i where bit i is 0; null: all are there
  bool releases_next;     // LaunchContext::releases_next; of a launch that is on no track
  uint8_t task_count;
  uint8_t set;           // of the counters
  uint8_t inputs_early;  // as GroupArgs'
  uint8_t release_late;  // as GroupArgs'
  RowTask tasks[kMaxRowTasks];
};
static_assert(sizeof(RowArgs) <= 4096);

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_ROWS_ROW_ARGS_H_
