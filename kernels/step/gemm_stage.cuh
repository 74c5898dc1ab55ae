// A GEMM's stage: activations of few rows times weights that stream through the ring. The warps
// share K, so that each has its part of A in registers, and add up through shared memory.
//
// Weights are the left operand of the tensor cores, whose tiles have 16 rows there: two units of
// columns at a time, straight from where they landed. A's rows are the right one, which has room
// for 8. Of 32 elements of K, a lane takes 8 that are neighbours, of both alike: the tensor cores
// add up all of K in whatever order, so that nothing is rearranged on the way.
#ifndef CONCERT_KERNELS_STEP_GEMM_STAGE_CUH_
#define CONCERT_KERNELS_STEP_GEMM_STAGE_CUH_

#include "kernels/activation.cuh"
#include "kernels/attention/attention.cuh"
#include "kernels/step/exchange_words.cuh"
#include "kernels/step/matrices.cuh"
#include "kernels/step/raw_index.cuh"
#include "kernels/step/scratch_turn.cuh"
#include "kernels/step/weight_feeder.cuh"

namespace concert::kernels::cuda {

__device__ __forceinline__ float LowOf(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float HighOf(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}
__device__ __forceinline__ float FloatOf(uint16_t bits) {
  return __uint_as_float(uint32_t{bits} << 16);
}
__device__ __forceinline__ uint32_t MultiplyPairs(uint32_t a, uint32_t b) {
  const __nv_bfloat162 product = __hmul2(reinterpret_cast<const __nv_bfloat162&>(a),
                                         reinterpret_cast<const __nv_bfloat162&>(b));
  return reinterpret_cast<const uint32_t&>(product);
}

// `kRowTiles`: rows of A in eights: 1, 2 or 4.
//
// A block runs through most of this once a stage, and what comes from the instruction cache for the
// first time comes slowly: the fewer instructions, the shorter the stage.
template <int kRowTiles>
class GemmStage {
 public:
  __device__ GemmStage(const StepGemm& gemm, StepMemory& memory, SlotReader& ring,
                       ScratchTurn& scratch)
      : gemm_(gemm),
        memory_(memory),
        ring_(ring),
        scratch_(scratch),
        warp_(threadIdx.x / 32),
        eighth_(threadIdx.x % 32 / 4),
        quarter_(threadIdx.x % 4),
        k_(gemm.k),
        a_(gemm.a),
        gain_(gemm.gain),
        a_exchanged_(gemm.a_exchanged),
        alpha_(gemm.alpha),
        beta_(gemm.c != 0 ? gemm.beta : 0),
        epilogue_(gemm.epilogue),
        activation_(static_cast<uint32_t>(gemm.activation)) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      // Behind A's last row: of the last, whose results nobody finishes.
      const uint32_t row = min(8 * r + eighth_, gemm.m - 1);
      rows_[r] = a_ + 2 * (uint64_t{row} * gemm.lda) + OffsetOf(0);
    }
  }

  __device__ void Run(UnitRange units) {
    for (uint32_t begin = units.begin; begin < units.end; begin += kTiles) {
      is_first_pass_ = begin == units.begin;
      Pass(begin, min(begin + kTiles, units.end));
    }
  }

 private:
  static constexpr int kTiles = StepPassTiles(kRowTiles);
  // Packs of a warp in a chunk of K: 32 elements each, 8 a lane.
  static constexpr int kPacks = kSlotColumns / 32 / kStepWarps;
  // Results of a unit that a thread finishes.
  static constexpr int kResults = kTiles * kRowTiles * 32 / kStepComputeThreads;

  // Whether registers reach for where results go, which else is found when they are there.
  static constexpr bool kPlacesAhead = kResults == 1;

  // Whether registers reach for a chunk of A that is on its way while the one before is multiplied.
  static constexpr bool kLooksAhead = kRowTiles < 4;

  // Of a pack's 32 elements, those of row eighth_ at place quarter_: 8 of them.
  struct Chunk {
    uint4 a[kPacks][kRowTiles];
  };
  // Of rows; two each, so that products need not wait for each other.
  struct Squares {
    float sums[kRowTiles][2][4] = {};
  };
  // What a thread finishes: a pair of a unit's columns, of one row.
  struct Result {
    bool there;
    uint32_t tile, row;
    StepGemm::Pair columns;
    uint32_t c;        // a pair, too
    uint16_t bias[2];  // zeros where there is none
    // Of kRope: from the run's tables, and what is found by them.
    RawIndex slot, position;
    float cosine, sine;
    // Where the first of the pair goes, in the exchange and elsewhere, as far as that is found
    // ahead (kPlacesAhead); 0: nowhere.
    Address exchanged, target;
  };

  // This warp's packs in the chunk that begins at k.
  __device__ int PacksAt(uint32_t k) const {
    const int columns = static_cast<int>(min(kSlotColumns, k_ - min(k, k_)));
    return (columns / 32 - static_cast<int>(warp_) + kStepWarps - 1) / kStepWarps;
  }
  // Bytes from one of a warp's packs to the next.
  static constexpr uint32_t kPackStep = 2 * 32 * kStepWarps;

  __device__ uint32_t OffsetOf(uint32_t k) const { return 2 * (k + 32 * warp_ + 8 * quarter_); }
  __device__ Address RowAt(uint32_t k, int r) const { return rows_[r] + 2 * k; }
  // From the end of K on, zeros.
  __device__ void LoadChunk(uint32_t k, Chunk& chunk) const {
    const int packs = PacksAt(k);
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      const Address row = RowAt(k, r);
#pragma unroll
      for (int i = 0; i < kPacks; ++i)
        chunk.a[i][r] = i < packs ? LoadPack(row + i * kPackStep) : uint4{};
    }
  }
  __device__ void LoadGain(uint32_t k) const {
    if (gain_ == 0 || eighth_ != 0) return;
    const int packs = PacksAt(k);
#pragma unroll 1
    for (int i = 0; i < packs; ++i)
      CopyUnit(GainAt(k) + i * kPackStep, gain_ + OffsetOf(k) + i * kPackStep, 16);
  }
  // Of the norm's gain, the lane's part of the warp's first pack in a chunk: by way of shared
  // memory, since all of A's rows have the same.
  __device__ uint32_t GainAt(uint32_t k) const {
    return SharedAddress(memory_.gains[k / kSlotColumns % 2]) + 64 * warp_ + 16 * quarter_;
  }

  static __device__ bool IsWhole(const Chunk& chunk) {
    uint32_t most = 0;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        const uint4& pack = chunk.a[i][r];
        most = __vimax3_u16x2(__vimax3_u16x2(most, pack.x, pack.y), pack.z, pack.w);
      }
    }
    return !IsEmpty(most);
  }
  // Until all of it is there. Asks again only for what is not.
  __device__ void Complete(uint32_t k, Chunk& chunk) const {
    if (IsWhole(chunk)) return;
    Patience patience;
    for (bool is_there = false; !is_there && !patience.GivesUp();) {
      is_there = true;
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
        for (int i = 0; i < kPacks; ++i) {
          if (IsThere(chunk.a[i][r])) continue;
          chunk.a[i][r] = LoadPack(RowAt(k, r) + i * kPackStep);
          is_there = false;
        }
      }
    }
  }

  // Rows times themselves, of which the diagonal counts, and times the norm's gain. What rows are
  // divided by is the same for all of a row, so it waits for the product.
  __device__ void Normalise(uint32_t k, Chunk& chunk, Squares& squares) const {
    const int packs = PacksAt(k);
    WaitUnitsCopied();
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (i >= packs) break;
      const uint4 gain = LoadShared(GainAt(k) + i * kPackStep);
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        uint4& a = chunk.a[i][r];
        MultiplyAdd(squares.sums[r][0], {a.x, 0, a.y, 0}, a.x, a.y);
        MultiplyAdd(squares.sums[r][1], {a.z, 0, a.w, 0}, a.z, a.w);
        a = {MultiplyPairs(a.x, gain.x), MultiplyPairs(a.y, gain.y), MultiplyPairs(a.z, gain.z),
             MultiplyPairs(a.w, gain.w)};
      }
    }
  }
  __device__ void ShareSquares(const Squares& squares) {
    if (quarter_ != eighth_ / 2) return;  // not on the diagonal
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      const float(&a)[4] = squares.sums[r][0], (&b)[4] = squares.sums[r][1];
      memory_.squares[scratch_.turn()][warp_][8 * r + eighth_] =
          eighth_ % 2 == 0 ? a[0] + b[0] : a[1] + b[1];
    }
  }

  __device__ void Pass(uint32_t begin, uint32_t end) {
    const int units = static_cast<int>(end - begin);
    Squares squares;
    Chunk chunk, next;
    Result results[kResults];
    LoadGain(0);
    Prepare(begin, end, results);
    if (epilogue_ == StepEpilogue::kRope) FindTargets(results);
    sums_ = scratch_.Take(static_cast<uint32_t>(units) * kUnitSumsBytes);
#pragma unroll 1
    for (uint32_t k = 0; k < k_; k += kSlotColumns) {
      MultiplyChunk(k, chunk, next, units, squares);
      if (kLooksAhead) chunk = next;
    }
    if (gain_ != 0) ShareSquares(squares);
    SyncRowThreads();
#pragma unroll
    for (int i = 0; i < kResults; ++i) {
      if (results[i].there) Finish(results[i]);
    }
  }

  // Sums of two units' products; two of each, so that products need not wait for each other.
  struct Products {
    float sums[kRowTiles][2][4] = {};

    __device__ float Sum(int row_tile, int i) const {
      return sums[row_tile][0][i] + sums[row_tile][1][i];
    }
  };

  // Of two units, as A's chunk lies.
  struct Weights {
    uint4 first[kPacks], second[kPacks];
  };
  // Lines of a row from one of a warp's packs to the next.
  static constexpr uint32_t kPackLines = 32 * kStepWarps / kStepColumnStep;
  static constexpr uint32_t kUnitsOfPack = 32 * 2 / 16;

  // Row r of the tensor cores' is row r / 2 of a slot's box r % 2.
  __device__ void LoadWeights(const char* slot, uint4 (&weights)[kPacks]) const {
    const uint32_t line = warp_ * 32 / kStepColumnStep * kSlotBoxRows + eighth_ / 2;
    const uint32_t from = SharedAddress(slot) + eighth_ % 2 * kSlotBoxStep + line * kSlotLineBytes;
    const uint32_t unit = (warp_ % 2 * kUnitsOfPack + quarter_) ^ (from / kSlotLineBytes % 8);
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      weights[i] = LoadShared(from + 16 * unit + i * kPackLines * kSlotBoxRows * kSlotLineBytes);
    }
  }

  // A chunk's W times A's, by two units, added to what the lane has of them in shared memory. The
  // first weights are in registers before A is there.
  __device__ void MultiplyChunk(uint32_t k, Chunk& chunk, Chunk& next, int units,
                                Squares& squares) {
    Weights w;
    TakeWeights(units > 1, w);
    if (k == 0 || !kLooksAhead) {
      // Who waits looks at one word alone: what many blocks ask for again and again is in the way
      // of what they wait for. Another pass knows that it is there.
      if (a_exchanged_ && is_first_pass_ && 32 * warp_ < k_) AwaitWord(a_ + 64 * warp_);
      LoadChunk(k, chunk);
    }
    if (k + kSlotColumns < k_) {
      LoadGain(k + kSlotColumns);
      if (kLooksAhead) LoadChunk(k + kSlotColumns, next);
    }
    if (a_exchanged_) Complete(k, chunk);
    if (gain_ != 0) Normalise(k, chunk, squares);
#pragma unroll 1
    for (int unit = 0;;) {
      MultiplyUnits(chunk, w, unit, unit + 1 < units, k == 0);
      unit += 2;
      if (unit >= units) break;
      TakeWeights(unit + 1 < units, w);
    }
  }
  __device__ void TakeWeights(bool both, Weights& w) {
    const char* const first = ring_.Wait();
    const char* const second = both ? ring_.Wait(1) : first;
    LoadWeights(first, w.first);
    LoadWeights(second, w.second);
    ring_.Release(both ? 2 : 1);
  }
  __device__ void MultiplyUnits(const Chunk& chunk, const Weights& w, int unit, bool both,
                                bool is_first) {
    Products products;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) MultiplyPack(chunk.a[i], w.first[i], w.second[i], products);
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      Keep(unit, r, make_float2(products.Sum(r, 0), products.Sum(r, 1)), is_first);
      if (both) Keep(unit + 1, r, make_float2(products.Sum(r, 2), products.Sum(r, 3)), is_first);
    }
  }
  static __device__ void MultiplyPack(const uint4 (&a)[kRowTiles], const uint4& first,
                                      const uint4& second, Products& products) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      auto& sums = products.sums[r];
      MultiplyAdd(sums[0], {first.x, second.x, first.y, second.y}, a[r].x, a[r].y);
      MultiplyAdd(sums[1], {first.z, second.z, first.w, second.w}, a[r].z, a[r].w);
    }
  }
  __device__ void Keep(int unit, int row_tile, float2 sums, bool is_first) {
    float2& kept = SumsOf(unit, row_tile, warp_)[threadIdx.x % 32];
    if (!is_first) sums.x += kept.x, sums.y += kept.y;
    kept = sums;
  }

  // A warp's sums of a unit and eight rows, column by column: two a lane.
  __device__ float2* SumsOf(int tile, int row_tile, int warp) const {
    auto* sums = reinterpret_cast<float2*>(sums_);
    return sums + ((tile * kRowTiles + row_tile) * kStepWarps + warp) * 32;
  }
  static constexpr uint32_t kUnitSumsBytes = kRowTiles * kStepWarps * 32 * sizeof(float2);
  static_assert(kTiles * kUnitSumsBytes <= kStepScratchBytes);

  // Asks ahead of the product for what is added to it, and for where a row is. Nothing here waits
  // for memory.
  __device__ void Prepare(uint32_t begin, uint32_t end, Result (&results)[kResults]) const {
#pragma unroll
    for (int i = 0; i < kResults; ++i) {
      Result& result = results[i];
      const uint32_t index = threadIdx.x + i * kStepComputeThreads;
      result.tile = index / (32 * kRowTiles);
      result.row = 8 * (index / 32 % kRowTiles) + eighth_;
      const uint32_t unit = begin + result.tile;
      result.there = unit < end && result.row < gemm_.m;
      result.c = result.bias[0] = result.bias[1] = 0;
      result.exchanged = result.target = 0;
      if (!result.there) continue;
      result.columns = gemm_.PairOf(unit, quarter_);
      if (adds_c()) result.c = LoadWord(PlaceInC(result));
      if (gemm_.bias != 0) {
        result.bias[0] = LoadBits(gemm_.bias + 2 * result.columns.first);
        result.bias[1] = LoadBits(gemm_.bias + 2 * result.columns.second);
      }
      if (kPlacesAhead) result.exchanged = PlaceInExchange(result);
      if (epilogue_ != StepEpilogue::kRope) {
        if (kPlacesAhead) result.target = PlaceInD(result);
        continue;
      }
      result.slot.Load(gemm_.rope.slots, result.row, gemm_.rope.slot_type);
      result.position.Load(gemm_.rope.positions, result.row, gemm_.rope.position_type);
    }
  }
  // C is added by a plain epilogue alone, whose columns are neighbours.
  __device__ bool adds_c() const { return beta_ != 0; }
  __device__ Address PlaceInC(const Result& result) const {
    return gemm_.c + 2 * (uint64_t{result.row} * gemm_.ldc + result.columns.first);
  }
  // Where the first of the pair goes, or, of a pair that is gated, what becomes of it; 0: nowhere.
  __device__ Address PlaceInExchange(const Result& result) const {
    if (!gemm_.stores_exchanged) return 0;
    const uint32_t columns = is_gated() ? gemm_.n / 2 : gemm_.n;
    return gemm_.exchanged + 2 * (uint64_t{result.row} * columns + ColumnOf(result));
  }
  // But of kRope.
  __device__ Address PlaceInD(const Result& result) const {
    if (!gemm_.stores_d) return 0;
    return gemm_.d + 2 * (uint64_t{result.row} * gemm_.ldd + ColumnOf(result));
  }
  __device__ uint32_t ColumnOf(const Result& result) const {
    const bool halves = epilogue_ == StepEpilogue::kGatedNeighbours;
    return halves ? result.columns.first / 2 : result.columns.first;
  }
  __device__ bool is_gated() const {
    return epilogue_ == StepEpilogue::kGated || epilogue_ == StepEpilogue::kGatedNeighbours;
  }

  // By tables, which are there by the time that A is.
  __device__ void FindTargets(Result (&results)[kResults]) const {
    const RopeAppendArgs& rope = gemm_.rope;
#pragma unroll
    for (Result& result : results) {
      if (!result.there) continue;
      if (const Address head = TargetOf(result); head != 0)
        result.target = head + 2 * (result.columns.first - HeadBegin(result));
      if (!result.columns.rotates) continue;
      const uint64_t position =
          Clamped(result.position.Get(rope.position_type), rope.positions_max);
      const uint32_t within = result.columns.first - HeadBegin(result);
      const float* cosine = reinterpret_cast<const float*>(rope.cos_sin) +
                            position * rope.rotary_dim + (rope.interleaved ? within / 2 : within);
      result.cosine = cosine[0];
      result.sine = cosine[rope.rotary_dim / 2];
    }
  }
  __device__ uint32_t HeadBegin(const Result& result) const {
    return result.columns.head * gemm_.rope.head_dim;
  }
  // Where the head begins: q goes to D, if anywhere, k and v to the cache.
  __device__ Address TargetOf(const Result& result) const {
    const RopeAppendArgs& rope = gemm_.rope;
    if (result.columns.head < rope.q_heads) {
      const uint64_t at = uint64_t{result.row} * gemm_.ldd + HeadBegin(result);
      return gemm_.stores_d ? gemm_.d + 2 * at : 0;
    }
    const int64_t index = result.slot.Get(rope.slot_type);
    if (index < 0) return 0;  // a row that is no sequence
    const auto slot = static_cast<uint32_t>(Clamped(index, rope.cache.tokens()));
    const uint32_t page = slot / rope.cache.page_size;
    const uint32_t kv_head = result.columns.head - rope.q_heads;
    const bool is_k = kv_head < rope.kv_heads;
    return (is_k ? rope.cache.k : rope.cache.v) +
           2 * (rope.cache.TokenAt(page, slot - page * rope.cache.page_size) +
                uint64_t{is_k ? kv_head : kv_head - rope.kv_heads} * rope.cache.head_stride);
  }

  __device__ void Finish(const Result& result) {
    // Column c of a unit is row 2 * (c % 4) + c / 4 of the tensor cores' (LoadWeights).
    const bool apart = result.columns.apart;
    const uint32_t first = eighth_ + 8 * (apart ? 2 * quarter_ : quarter_ % 2 * 4 + quarter_ / 2);
    const uint32_t second = first + 8 * (apart ? 1 : 2);
    float2 sum = make_float2(0, 0);
#pragma unroll
    for (int warp = 0; warp < kStepWarps; ++warp) {
      const auto* sums = reinterpret_cast<const float*>(
          SumsOf(static_cast<int>(result.tile), static_cast<int>(result.row / 8), warp));
      sum.x += sums[first], sum.y += sums[second];
    }
    const float scale = alpha_ * (gain_ != 0 ? InverseNorm(result.row) : 1.0f);
    sum.x = scale * sum.x + FloatOf(result.bias[0]),
    sum.y = scale * sum.y + FloatOf(result.bias[1]);
    if (adds_c()) AddC(result, sum);
    // To the exchange first, where others look for it.
    const uint32_t pair = Epilogue(result, sum);
    const Address exchanged = kPlacesAhead ? result.exchanged : PlaceInExchange(result);
    if (exchanged != 0) StorePair(exchanged, result.columns, pair);
    const bool has_target = kPlacesAhead || epilogue_ == StepEpilogue::kRope;
    const Address target = has_target ? result.target : PlaceInD(result);
    if (target != 0) StorePair(target, result.columns, pair);
  }
  // C may not have been there when it was asked for.
  __device__ void AddC(const Result& result, float2& sum) const {
    uint32_t c = result.c;
    if (gemm_.c_exchanged && IsEmpty(c)) c = AwaitWord(PlaceInC(result));
    sum.x += beta_ * LowOf(c), sum.y += beta_ * HighOf(c);
  }

  __device__ float InverseNorm(uint32_t row) const {
    float squares = 0;
#pragma unroll
    for (int warp = 0; warp < kStepWarps; ++warp)
      squares += memory_.squares[scratch_.turn()][warp][row];
    return rsqrtf(squares * gemm_.k_inverse + gemm_.epsilon);
  }

  // A result, or its lower half is.
  __device__ uint32_t Epilogue(const Result& result, float2 value) const {
    if (epilogue_ == StepEpilogue::kRope) {
      if (result.columns.rotates) {
        value = make_float2(value.x * result.cosine - value.y * result.sine,
                            value.y * result.cosine + value.x * result.sine);
      }
      return PackBf16(value.x, value.y);
    }
    if (activation_ != 0) {
      value.x = Activate(value.x, activation_);
      if (!is_gated()) value.y = Activate(value.y, activation_);
    }
    return is_gated() ? PackBf16(value.x * value.y, 0) : PackBf16(value.x, value.y);
  }
  // The first of the pair at `to`.
  __device__ void StorePair(Address to, const StepGemm::Pair& columns, uint32_t pair) const {
    StoreWord(to, pair, /*whole=*/epilogue_ == StepEpilogue::kStore);
    if (epilogue_ == StepEpilogue::kRope)
      StoreWord(to + 2 * (columns.second - columns.first), pair >> 16, /*whole=*/false);
  }

  const StepGemm& gemm_;
  StepMemory& memory_;
  SlotReader& ring_;
  ScratchTurn& scratch_;
  const uint32_t warp_, eighth_, quarter_;
  // Of gemm_, which is in shared memory, and would be read again for each chunk of K.
  const uint32_t k_;
  const Address a_, gain_;
  const bool a_exchanged_;
  // Of gemm_, too, for what follows the product.
  const float alpha_, beta_;  // beta: 0 where there is no C
  const StepEpilogue epilogue_;
  const uint32_t activation_;
  char* sums_ = nullptr;     // of the pass, where the warps leave theirs
  Address rows_[kRowTiles];  // of A, where this lane's part of them begins
  bool is_first_pass_ = true;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_GEMM_STAGE_CUH_
