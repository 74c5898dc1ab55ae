// A GEMM's stage: activations of few rows times weights that stream through the ring. The warps
// share K, so that each has its part of A in registers, and add up through shared memory.
#ifndef CONCERT_KERNELS_STEP_GEMM_STAGE_CUH_
#define CONCERT_KERNELS_STEP_GEMM_STAGE_CUH_

#include "kernels/activation.cuh"
#include "kernels/attention/attention.cuh"
#include "kernels/step/exchange_words.cuh"
#include "kernels/step/raw_index.cuh"
#include "kernels/step/scratch_turn.cuh"
#include "kernels/step/step_product.cuh"
#include "kernels/step/weight_feeder.cuh"

namespace concert::kernels::cuda {

__device__ __forceinline__ float LowOf(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float HighOf(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}
__device__ __forceinline__ float FloatOf(uint16_t bits) {
  return __uint_as_float(uint32_t{bits} << 16);
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
        zero_(gemm.m >> 31),
        a_(gemm.a),
        gain_(gemm.gain),
        a_exchanged_(gemm.a_exchanged),
        scale_(gemm.alpha),
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
  // Units whose results a thread for each pair of columns finishes at once.
  static constexpr int kTilesAtOnce = kStepComputeThreads / (32 * kRowTiles);

  // Whether registers reach for a chunk of A that is on its way while the one before is multiplied,
  // and for one that stays from pass to pass where there is no other.
  static constexpr bool kLooksAhead = kRowTiles < 4, kKeepsA = kRowTiles == 1;
  // And for whose turn it is to finish: of more rows every other warp has something to finish
  // anyway.
  static constexpr bool kFinishInTurn = kRowTiles == 1;

  static constexpr int kPacks = kStepPacks;
  using Chunk = StepChunk<kRowTiles>;
  using Product = StepProduct<kRowTiles>;
  using Squares = typename Product::Squares;

  // What a thread finishes: a pair of a unit's columns, of one row.
  struct Result {
    bool there;
    uint32_t tile, row;
    StepGemm::Pair columns;
    uint32_t c;          // a pair, too
    uint16_t bias[2];    // zeros where there is none
    float cosine, sine;  // of kRope
    // Where the first of the pair goes, in the exchange and elsewhere; 0: nowhere.
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

  // A chunk, to be multiplied; where there is a norm, rows times themselves, of which one pass is
  // enough, and times the norm's gain. What rows are divided by is the same for all of a row, so it
  // waits for the product.
  __device__ void Take(uint32_t k, const Chunk& chunk, Squares& squares) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      product_.Take(i, chunk.a[i], zero_);
      if (adds_squares()) product_.AddSquares(i, chunk.a[i], squares);
    }
    if (gain_ == 0) return;
    // Behind the squares, which need no gain; and all packs' at once, not each behind a test.
    WaitUnitsCopied();
    __syncwarp();
    const int packs = PacksAt(k);
#pragma unroll
    for (int i = 0; i < kPacks; ++i)
      product_.Scale(i, i < packs ? LoadShared(GainAt(k) + i * kPackStep) : uint4{});
  }
  __device__ bool adds_squares() const { return gain_ != 0 && is_first_pass_; }
  __device__ void ShareSquares(const Squares& squares) {
    if (quarter_ != eighth_ / 2) return;  // not on the diagonal
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      memory_.squares[scratch_.turn()][warp_][8 * r + eighth_] = squares.Of(r, eighth_ % 2 != 0);
    }
  }

  __device__ void Pass(uint32_t begin, uint32_t end) {
    const int units = static_cast<int>(end - begin);
    Squares squares;
    Chunk chunk;
    if (!HasA()) LoadGain(0);
    Result result = Prepared(begin, end);
    sums_ = scratch_.Take(static_cast<uint32_t>(units) * kUnitSumsBytes);
#pragma unroll 1
    for (uint32_t k = 0; k < k_; k += kSlotColumns) {
      MultiplyChunk(k, chunk, units, squares);
    }
    if (adds_squares()) ShareSquares(squares);
    SyncRowThreads();
    if (adds_squares()) scale_ *= InverseNorm(result.row);
#pragma unroll 1
    for (int tile = 0;;) {
      if (result.there) Finish(result);
      tile += kTilesAtOnce;
      if (kTiles <= kTilesAtOnce || tile >= units) break;
      // Most stages have no more, and registers do not reach for more ahead.
      result = Prepared(begin, end, tile);
    }
    if (kFinishInTurn) scratch_.HaveFinished(static_cast<uint32_t>(units) * 32 * kRowTiles);
  }

  // Of two units, as A's chunk lies.
  struct Weights {
    StepWeights first, second;
  };
  // Lines of a row from one of a warp's packs to the next.
  static constexpr uint32_t kPackLines = 32 * kStepWarps / kStepColumnStep;
  static constexpr uint32_t kUnitsOfPack = 32 * 2 / 16;

  // Column c of the tensor cores' is row c / 2 of a slot's box c % 2.
  __device__ void LoadWeights(const char* slot, StepWeights& weights) const {
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
  __device__ void MultiplyChunk(uint32_t k, Chunk& chunk, int units, Squares& squares) {
    Weights w;
    TakeWeights(units > 1, w);
    if (!HasA()) TakeA(k, chunk, squares);
#pragma unroll 1
    for (int unit = 0;;) {
      const bool both = unit + 1 < units;
      product_.Multiply(w.first, w.second, both, [&](int second, int row_tile, float2 sums) {
        Keep(unit + second, row_tile, sums, k == 0);
      });
      ring_.Release(both ? 2 : 1);  // not before the product: SlotReader
      unit += 2;
      if (unit >= units) break;
      TakeWeights(unit + 1 < units, w);
    }
  }
  // Whether another pass has left all of A where this one wants it.
  __device__ bool HasA() const { return kKeepsA && !is_first_pass_ && k_ <= kSlotColumns; }
  // The chunk that begins at k, to be multiplied; the next is on its way then.
  __device__ void TakeA(uint32_t k, Chunk& chunk, Squares& squares) {
    if (k == 0 || !kLooksAhead) {
      // Who waits looks at one word alone: what many blocks ask for again and again is in the way
      // of what they wait for. Another pass knows that it is there.
      if (a_exchanged_ && is_first_pass_ && 32 * warp_ < k_) AwaitWord(a_ + 64 * warp_);
      LoadChunk(k, chunk);
    }
    const uint32_t next = k + kSlotColumns;
    if (next < k_) LoadGain(next);
    if (a_exchanged_) Complete(k, chunk);
    Take(k, chunk, squares);
    if (next < k_ && kLooksAhead) LoadChunk(next, chunk);
  }
  __device__ void TakeWeights(bool both, Weights& w) {
    const char* const first = ring_.Wait();
    const char* const second = both ? ring_.Wait(1) : first;
    LoadWeights(first, w.first);
    LoadWeights(second, w.second);
  }
  __device__ void Keep(int unit, int row_tile, float2 sums, bool is_first) {
    float2& kept = SumsOf(unit, row_tile, warp_)[threadIdx.x % 32];
    if (!is_first) sums.x += kept.x, sums.y += kept.y;
    kept = sums;
  }

  // A warp's sums of a unit and eight rows: two a lane.
  __device__ float2* SumsOf(int tile, int row_tile, int warp) const {
    auto* sums = reinterpret_cast<float2*>(sums_);
    return sums + ((tile * kRowTiles + row_tile) * kStepWarps + warp) * 32;
  }
  static constexpr uint32_t kUnitSumsBytes = kRowTiles * kStepWarps * 32 * sizeof(float2);
  static_assert(kTiles * kUnitSumsBytes <= kStepScratchBytes);

  // The one of this thread among the units from begin + tile on: asks for what is added to the
  // product, and finds where it goes.
  __device__ Result Prepared(uint32_t begin, uint32_t end, uint32_t tile = 0) const {
    Result result;
    const uint32_t thread = kFinishInTurn ? scratch_.Finisher() : threadIdx.x;
    result.tile = tile + thread / (32 * kRowTiles);
    result.row = 8 * (thread / 32 % kRowTiles) + eighth_;
    const uint32_t unit = begin + result.tile;
    result.there = unit < end && result.row < gemm_.m;
    result.c = result.bias[0] = result.bias[1] = 0;
    result.exchanged = result.target = 0;
    if (!result.there) return result;
    result.columns = gemm_.PairOf(unit, quarter_);
    if (result.columns.first >= gemm_.n) {
      result.there = false;
      return result;
    }
    if (adds_c()) result.c = LoadWord(PlaceInC(result));
    if (gemm_.bias != 0) {
      result.bias[0] = LoadBits(gemm_.bias + 2 * result.columns.first);
      result.bias[1] = LoadBits(gemm_.bias + 2 * min(result.columns.second, gemm_.n - 1));
    }
    result.exchanged = PlaceInExchange(result);
    if (epilogue_ == StepEpilogue::kRope) {
      FindInTables(result);
    } else {
      result.target = PlaceInD(result);
    }
    return result;
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
  // But k's and v's of kRope.
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

  // By tables, which are there before A is.
  __device__ void FindInTables(Result& result) const {
    const RopeAppendArgs& rope = gemm_.rope;
    RawIndex slot, position;
    slot.Load(rope.slots, result.row, rope.slot_type);
    position.Load(rope.positions, result.row, rope.position_type);
    const uint32_t within = result.columns.first - result.columns.head * rope.head_dim;
    if (result.columns.head < rope.q_heads) {
      result.target = PlaceInD(result);
    } else if (const Address head = HeadInCache(result, slot.Get(rope.slot_type)); head != 0) {
      result.target = head + 2 * within;
    }
    if (!result.columns.rotates) return;
    const uint64_t row = Clamped(position.Get(rope.position_type), rope.positions_max);
    const float* cosine = reinterpret_cast<const float*>(rope.cos_sin) + row * rope.rotary_dim +
                          (rope.interleaved ? within / 2 : within);
    result.cosine = cosine[0];
    result.sine = cosine[rope.rotary_dim / 2];
  }
  // Where the head of k or v begins, of the row whose slot is `index`; 0: nowhere.
  __device__ Address HeadInCache(const Result& result, int64_t index) const {
    const RopeAppendArgs& rope = gemm_.rope;
    if (index < 0) return 0;  // a row that is no sequence
    const auto slot = static_cast<uint32_t>(Clamped(index, rope.cache.tokens()));
    const uint32_t kv_head = result.columns.head - rope.q_heads;
    const bool is_k = kv_head < rope.kv_heads;
    return (is_k ? rope.cache.k : rope.cache.v) +
           2 * (rope.cache.SlotAt(slot) +
                uint64_t{is_k ? kv_head : kv_head - rope.kv_heads} * rope.cache.head_stride);
  }

  __device__ void Finish(const Result& result) {
    // Column c of a unit is column 2 * (c % 4) + c / 4 of the tensor cores' (LoadWeights).
    const bool apart = result.columns.apart;
    const uint32_t column = apart ? 2 * quarter_ : quarter_ % 2 * 4 + quarter_ / 2;
    const uint32_t first = Product::PlaceOf(eighth_, column);
    const uint32_t second = Product::PlaceOf(eighth_, column + (apart ? 1 : 2));
    float2 sum = make_float2(0, 0);
#pragma unroll
    for (int warp = 0; warp < kStepWarps; ++warp) {
      const auto* sums = reinterpret_cast<const float*>(
          SumsOf(static_cast<int>(result.tile), static_cast<int>(result.row / 8), warp));
      sum.x += sums[first], sum.y += sums[second];
    }
    sum.x = scale_ * sum.x + FloatOf(result.bias[0]);
    sum.y = scale_ * sum.y + FloatOf(result.bias[1]);
    if (adds_c()) AddC(result, sum);
    // To the exchange first, where others look for it.
    const uint32_t pair = Epilogue(result, sum);
    const StepGemm::Pair& columns = result.columns;
    const bool plain = epilogue_ == StepEpilogue::kStore, rope = epilogue_ == StepEpilogue::kRope;
    if (result.exchanged != 0) StorePair(result.exchanged, columns, pair, plain, rope);
    if (result.target == 0) return;
    const bool by_itself = plain && gemm_.stores_elements();
    StorePair(result.target, columns, pair, plain && !by_itself,
              rope || (by_itself && columns.second < gemm_.n));
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
  // The first of the pair at `to`; the second in the same word, or by itself, or nowhere.
  static __device__ void StorePair(Address to, const StepGemm::Pair& columns, uint32_t pair,
                                   bool whole, bool second_by_itself) {
    StoreWord(to, pair, whole);
    if (second_by_itself)
      StoreWord(to + 2 * (columns.second - columns.first), pair >> 16, /*whole=*/false);
  }

  const StepGemm& gemm_;
  StepMemory& memory_;
  SlotReader& ring_;
  ScratchTurn& scratch_;
  const uint32_t warp_, eighth_, quarter_;
  // Of gemm_, which is in shared memory, and would be read again for each chunk of K.
  const uint32_t k_;
  const uint32_t zero_;  // StepProduct::Take
  const Address a_, gain_;
  const bool a_exchanged_;
  // Of gemm_, too, for what follows the product.
  float scale_;       // of the product: alpha, and after the first pass the row's norm
  const float beta_;  // 0 where there is no C
  const StepEpilogue epilogue_;
  const uint32_t activation_;
  char* sums_ = nullptr;     // of the pass, where the warps leave theirs
  Address rows_[kRowTiles];  // of A, where this lane's part of them begins
  bool is_first_pass_ = true;
  Product product_;  // with A's chunk; from pass to pass where HasA
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_GEMM_STAGE_CUH_
