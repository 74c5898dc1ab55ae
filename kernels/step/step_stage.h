// A program as the step kernel runs it: a list of stages, which all of its blocks go through in
// order, each doing its share of every stage. Shared by host and device code.
#ifndef CONCERT_KERNELS_STEP_STEP_STAGE_H_
#define CONCERT_KERNELS_STEP_STEP_STAGE_H_

#include <cstdint>

#include "kernels/gemm/gemm_args.h"
#include "kernels/rope_append/rope_append_args.h"
#include "proto/ring/ring_abi.h"

namespace concert::kernels {

enum class StageKind : uint32_t { kCopy, kGemm, kAttention, kRows };

// Whether a stage's end is waited for: in runs that copy bindings out, by the stage that does so,
// or by others and so in each.
enum class Awaited : uint8_t { kNever, kByCopyOut, kAlways };

inline constexpr uint64_t kStepElementBytes = 2;  // bf16

// Columns of W's product that are computed at once, and rows of A: the tensor cores' smallest tile.
inline constexpr uint32_t kStepTile = 8;
// K is cut into so many elements, in which weights come from memory: as many as a tensor copy mixes
// up.
inline constexpr uint32_t kStepColumnStep = 64;
// Rows of A at most: as many as a thread's registers hold; and of attention, one for each lane.
inline constexpr uint32_t kMaxStepRows = 32;
// Units of W's product that a block sums up at a time, for a number of rows of A in eights. For
// each such pass over its units it reads all of A. How many are worth their instructions:
// docs/adr/0029-a-step-is-one-launch.md.
CONCERT_ON_BOTH_SIDES constexpr int StepPassTiles(int row_tiles) {
  return row_tiles == 1 ? 8 : row_tiles == 2 ? 12 : 6;
}

// Matrices may go from stage to stage by the exchange, as words that are their own flags: readers
// look at them until they are there, and nobody waits for fences and counts. An element that is not
// there yet has all bits set, which no rounding makes: NaN is 0x7fff.
//
// There are two of each matrix, dense, which runs use in turn: while one is used, the other is
// emptied, at any time in between, since nobody reads it.
inline constexpr uint16_t kNotThere = 0xffff;

// What becomes of a product's columns.
enum class StepEpilogue : uint8_t {
  kStore,
  kGated,            // activation(column c) * column c + n / 2 is column c of D
  kGatedNeighbours,  // activation(column 2 * c) * column 2 * c + 1 is column c of D
  kRope,             // D is q, k and v: q is rotated, k and v go on to the cache (StepGemm::rope)
};

// D = epilogue(alpha * norm(A) * W^T + beta * C + bias): a GEMM with what was folded into it. All
// elements are bf16, sums fp32.
//
// Its columns are shared among blocks by units, of kStepTile columns each. Where columns are needed
// in pairs that lie apart, a unit holds both halves of four pairs.
struct StepGemm {
  uint32_t m, n, k;            // k: a multiple of kStepColumnStep
  uint32_t lda, ldc, ldd;      // elements
  uint64_t ldw;                // elements
  Address a, w, c, d, bias;    // c, bias: 0: none
  Address w_map;               // of W, for tensor copies; whoever launches the stages makes it
  Address gain;                // not 0: A's rows are RMS-normalised and multiplied by it first
  float k_inverse;             // 1 / k
  float alpha, beta, epsilon;  // epsilon: of the norm
  Activation activation;       // of kGated: the gate's
  StepEpilogue epilogue;
  RopeAppendArgs rope;          // of kRope; the cache's tokens fit in 32 bits
  uint32_t head_units_inverse;  // of kRope: 2^32 / units of a head, rounded up

  // What goes through the exchange: A or C come from there, D goes there, or only there.
  bool a_exchanged, c_exchanged, stores_d, stores_exchanged;
  Address exchanged;  // D, in the first of both

  // Behind n the last may have columns that are none.
  CONCERT_ON_BOTH_SIDES uint32_t units() const { return (n + kStepTile - 1) / kStepTile; }
  // D's columns do not lie in pairs that are words: each is stored by itself. Of kStore.
  CONCERT_ON_BOTH_SIDES bool stores_elements() const {
    return n % 2 != 0 || ldd % 2 != 0 || d % 4 != 0;
  }
  // Pair `i` of a unit's four: its columns i and i + 4 where they lie apart, else 2 * i and the
  // next.
  struct Pair {
    uint32_t first, second;
    bool apart;     // no neighbours
    bool rotates;   // of kRope
    uint32_t head;  // of kRope
  };
  CONCERT_ON_BOTH_SIDES Pair PairOf(uint32_t unit, uint32_t i) const {
    constexpr uint32_t kPairs = kStepTile / 2;
    if (epilogue == StepEpilogue::kGated) {
      const uint32_t first = unit * kPairs + i;
      return {first, first + n / 2, true, false, 0};
    }
    const uint32_t neighbour = unit * kStepTile + 2 * i;
    if (epilogue != StepEpilogue::kRope) return {neighbour, neighbour + 1, false, false, 0};
    const uint32_t head = HeadOf(unit), within = unit - head * (rope.head_dim / kStepTile);
    const bool rotates =
        head < uint32_t{rope.q_heads} + rope.kv_heads && within < rope.rotary_dim / kStepTile;
    if (!rotates || rope.interleaved) return {neighbour, neighbour + 1, false, rotates, head};
    const uint32_t first = head * rope.head_dim + within * kPairs + i;
    return {first, first + rope.rotary_dim / 2u, true, true, head};
  }
  // Which columns of W's product are a unit's columns 0 to 3, and 4 to 7: the first of each.
  struct Halves {
    uint32_t first, second;
  };
  CONCERT_ON_BOTH_SIDES Halves HalvesOf(uint32_t unit) const {
    const Pair pair = PairOf(unit, 0);
    return {pair.first, pair.apart ? pair.second : pair.first + kStepTile / 2};
  }
  // Of kRope: the head, of q's, k's and v's, that a unit is part of. Exact: units are below 2^16,
  // and those of a head below 2^13.
  CONCERT_ON_BOTH_SIDES uint32_t HeadOf(uint32_t unit) const {
    return static_cast<uint32_t>(uint64_t{unit} * head_units_inverse >> 32);
  }
};

// The stage that copies a run's bindings in: the first, in which every block takes part.
inline constexpr uint32_t kTablesStage = 0;

// Pieces of memory on their way, of a run's bindings or at an address.
struct StepCopy {
  struct Piece {
    Address from, to;
    uint64_t bytes;
    int32_t from_binding, to_binding;  // instead of the address; -1: none
  };
  uint32_t count;
  Piece pieces[CONCERT_MAX_BINDINGS];
};

inline constexpr uint32_t kMaxStepBlocks = 160;  // one on each SM
inline constexpr uint32_t kAllBlocks = ~0u;      // as units of a stage

// A stage that must have ended, and the units it has: so many blocks, at most, take part in it.
struct StepWait {
  uint32_t stage, units;
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_STEP_STEP_STAGE_H_
