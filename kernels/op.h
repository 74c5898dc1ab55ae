// An admitted op: a descriptor whose every field has been checked and whose operands are addresses.
// Plain data; copied freely; owns nothing.
#ifndef CONCERT_KERNELS_OP_H_
#define CONCERT_KERNELS_OP_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/advance/advance_args.h"
#include "kernels/argmax/argmax_args.h"
#include "kernels/attention_decode/attention_decode_args.h"
#include "kernels/attention_prefill/attention_prefill_args.h"
#include "kernels/elementwise/elementwise_args.h"
#include "kernels/embedding/embedding_args.h"
#include "kernels/gated_activation/gated_activation_args.h"
#include "kernels/gemm/gemm_args.h"
#include "kernels/inline_list.h"
#include "kernels/layer_norm/layer_norm_args.h"
#include "kernels/program/program_args.h"
#include "kernels/quantize/quantize_args.h"
#include "kernels/rms_norm/rms_norm_args.h"
#include "kernels/rope_append/rope_append_args.h"
#include "kernels/sample/sample_args.h"
#include "policies/seam/work.h"
#include "proto/ring/ring_abi.h"

namespace concert::kernels {

enum class Reduction : uint8_t { kSum = 0, kMax = 1, kMin = 2 };

// How a group launch adds the parts of a sum that it splits along K: in a fixed order, so that a
// plan gives the same bits each time, or as they come.
enum class SplitSums : uint8_t { kRepeatable, kFastest };

// Bytes [begin, end) of a device's address space. {0, 0}, of an absent operand, is nothing and
// overlaps nothing.
struct ByteRange {
  Address begin = 0;
  Address end = 0;

  // Both sides always compared: lists of ranges are searched without a branch for each.
  bool Overlaps(const ByteRange& other) const {
    return static_cast<bool>(static_cast<int>(begin < other.end) &
                             static_cast<int>(other.begin < end));
  }
  // To the smallest range that holds both.
  void Extend(const ByteRange& other) {
    if (other == ByteRange{}) return;
    *this = *this == ByteRange{}
                ? other
                : ByteRange{std::min(begin, other.begin), std::max(end, other.end)};
  }
  bool operator==(const ByteRange&) const = default;
};

// One rank's part of a collective; counts as concert_collective_body.
struct CollectiveArgs {
  uint32_t communicator;
  uint32_t root;
  uint64_t sequence;
  uint64_t count;
  Address src, dst;
  uint64_t src_bytes, dst_bytes;
  Dtype dtype;
  Reduction reduction;
};

struct CopyArgs {
  Address src, dst;
  uint64_t bytes;
};

// Operands in buffers that an op may have: as many as its descriptor's body has room for.
inline constexpr size_t kMaxOperands = CONCERT_BODY_BYTES / sizeof(concert_operand);

struct Op {
  uint16_t kind = CONCERT_OP_INVALID;
  uint32_t session = 0;  // id
  uint32_t queue = 0;    // index in the session
  uint64_t ticket = 0;
  uint32_t covered = 0;  // tickets before its own that it stands for, too
  uint64_t deadline_ns = 0;
  InlineList<concert_wait_entry, CONCERT_MAX_WAITS> waits;
  // Handles of the buffers used, by operand, so that none is unmapped under the op.
  InlineList<uint32_t, kMaxOperands> buffers;
  policies::Work work;
  union {
    GemmArgs gemm;
    CollectiveArgs collective;
    CopyArgs copy;
    RmsNormArgs rms_norm;
    GatedActivationArgs gated_activation;
    EmbeddingArgs embedding;
    ArgmaxArgs argmax;
    RopeAppendArgs rope_append;
    AttentionDecodeArgs attention_decode;
    LayerNormArgs layer_norm;
    ElementwiseArgs elementwise;
    AdvanceArgs advance;
    QuantizeArgs quantize;
    SampleArgs sample;
    ProgramArgs program;
    AttentionPrefillArgs attention_prefill;
  };
  Op() : gemm{} {}
  // Without arguments, which admission fills in: to zero the largest first takes a dispatcher 4 %
  // of its time.
  struct ArgumentsFollow {};
  explicit Op(ArgumentsFollow) {}
};

// A store of `value` to the 64-bit word at `address`, which the node has registered, once the work
// it stands for is done and visible.
struct TimelineWrite {
  Address address = 0;
  uint64_t value = 0;
};

// The op of an earlier launch on the same lane that an op of a group follows.
struct Predecessor {
  uint16_t launches_back = 0;  // 1: of the launch before this one; 0: none
  uint16_t op = 0;             // its index in that launch
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_OP_H_
