// A GEMM's stage: activations of few rows times weights that stream through the ring. The warps
// share K, so that each has its part of A in registers, and add up through shared memory.
//
// In a product of m16n8k16 which elements of K meet is free as long as A and W agree: a lane takes
// 16 bytes of a row of A and of W, so that W's come straight from where they landed, without a
// conflict of banks and without having been laid out anew.
#ifndef CONCERT_KERNELS_STEP_GEMM_STAGE_CUH_
#define CONCERT_KERNELS_STEP_GEMM_STAGE_CUH_

#include "kernels/activation.cuh"
#include "kernels/attention_decode/attention_block.cuh"
#include "kernels/cuda_api/element.cuh"
#include "kernels/rows/row_threads.cuh"
#include "kernels/step/exchange_words.cuh"
#include "kernels/step/weight_feeder.cuh"

namespace concert::kernels::cuda {

// d += a * b of m16n8k16, all 16 rows.
__device__ __forceinline__ void MultiplyBoth(float (&upper)[2], float (&lower)[2], uint32_t a0,
                                             uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                             uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(upper[0]), "+f"(upper[1]), "+f"(lower[0]), "+f"(lower[1])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ float LowOf(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float HighOf(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}
__device__ __forceinline__ float FloatOf(uint16_t bits) {
  return __uint_as_float(uint32_t{bits} << 16);
}
__device__ __forceinline__ float LoadElement(Address base, uint64_t element) {
  return FloatOf(LoadBits(base, element));
}
__device__ __forceinline__ void StoreElement(Address base, uint64_t element, float value) {
  reinterpret_cast<__nv_bfloat16*>(base)[element] = __float2bfloat16_rn(value);
}

// `kRowTiles`: rows of A in eights: 1, 2 or 4.
template <int kRowTiles>
class GemmStage {
 public:
  __device__ GemmStage(const StepArgs& args, const StepGemm& gemm, StepMemory& memory,
                       SlotReader& ring)
      : args_(args),
        a_(gemm.a + (gemm.a_exchanged ? args.exchange : 0)),
        gemm_(gemm),
        memory_(memory),
        ring_(ring),
        warp_(threadIdx.x / 32),
        eighth_(threadIdx.x % 32 / 4),
        quarter_(threadIdx.x % 4) {}

  __device__ void Run(UnitRange units) {
    for (uint32_t begin = units.begin; begin < units.end; begin += kTiles) {
      if (begin > units.begin) SyncRowThreads();  // the pass before has been added up
      Pass(begin, min(begin + kTiles, units.end));
    }
  }

 private:
  static constexpr int kTiles = StepPassTiles(kRowTiles);
  // Packs of a warp in a chunk of K: 32 elements each, 8 a lane.
  static constexpr int kPacks = kSlotColumns / 32 / kStepWarps;
  // Results of a unit that a thread finishes.
  static constexpr int kResults = kTiles * kRowTiles * 32 / kStepComputeThreads;

  // Chunks of A that are on their way at once, as far as registers reach.
  static constexpr int kAhead = kRowTiles == 1 ? 2 : 1;

  struct Chunk {
    uint4 a[kPacks][kRowTiles];
    uint4 gain[kPacks];
  };
  // What a thread finishes: a pair of a unit's columns, of one row.
  struct Result {
    uint32_t unit, row;
    uint32_t first, second;  // columns
    bool there, apart, rotates;
    float added[2];      // beta * C + bias
    float cosine, sine;  // of kRope
    int64_t slot;        // of kRope: the cache's, of the row
  };

  // This warp's packs in a chunk of so many columns.
  __device__ int PacksOf(uint32_t columns) const {
    return (static_cast<int>(columns / 32) - static_cast<int>(warp_) + kStepWarps - 1) / kStepWarps;
  }
  // Bytes from one of a warp's packs to the next.
  static constexpr uint32_t kPackStep = 2 * 32 * kStepWarps;

  // A's packs of a chunk: where the first is, and how many there are.
  struct Packs {
    Address first;
    int count;
  };
  __device__ Packs PacksAt(uint32_t k) const {
    const Address row = a_ + 2 * (uint64_t{eighth_} * gemm_.lda);
    return {row + OffsetOf(k), k < gemm_.k ? PacksOf(min(kSlotColumns, gemm_.k - k)) : 0};
  }
  __device__ uint32_t OffsetOf(uint32_t k) const { return 2 * (k + 32 * warp_ + 8 * quarter_); }
  // Of a tile of rows: those behind A's last are zeros.
  __device__ int PresentOf(const Packs& packs, int row_tile) const {
    return 8 * row_tile + eighth_ < gemm_.m ? packs.count : 0;
  }
  __device__ Address PackAt(const Packs& packs, int row_tile, int i) const {
    return packs.first + 16 * row_tile * uint64_t{gemm_.lda} + i * kPackStep;
  }

  // Zeros, from the end of K on.
  __device__ void LoadA(const Packs& packs, Chunk& chunk) const {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      const int present = PresentOf(packs, r);
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        chunk.a[i][r] = i < present ? LoadPack(PackAt(packs, r, i)) : uint4{};
      }
    }
  }
  __device__ void LoadChunk(uint32_t k, Chunk& chunk) const {
    const Packs packs = PacksAt(k);
    LoadA(packs, chunk);
    if (gemm_.gain == 0) return;
    const auto* gain = reinterpret_cast<const char*>(gemm_.gain + OffsetOf(k));
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      chunk.gain[i] =
          i < packs.count ? *reinterpret_cast<const uint4*>(gain + i * kPackStep) : uint4{};
    }
  }

  // Until all of it is there. A lane looks at one pack that it lacks, not at all of them: what many
  // blocks ask for again and again is in the way of what they wait for.
  __device__ void Complete(uint32_t k, Chunk& chunk) const {
    const Packs packs = PacksAt(k);
    for (;;) {
      Address missing = 0;
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
          if (!IsThere(chunk.a[i][r])) missing = PackAt(packs, r, i);
        }
      }
      if (!__any_sync(kAll, missing != 0)) return;
      if (missing != 0 && !IsThere(AwaitPack(args_, missing))) return;  // in vain
      __syncwarp();
      LoadA(packs, chunk);
    }
  }

  // Rows times the norm's gain; their squares are added to `squares`. What rows are divided by is
  // the same for all of a row, so it waits for the product.
  __device__ void Normalise(Chunk& chunk, float (&squares)[kRowTiles]) const {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        uint32_t* words = &chunk.a[i][r].x;
        const uint32_t* gains = &chunk.gain[i].x;
#pragma unroll
        for (int word = 0; word < 4; ++word) {
          const float low = LowOf(words[word]), high = HighOf(words[word]);
          squares[r] += low * low + high * high;
          words[word] = PackBf16(low * LowOf(gains[word]), high * HighOf(gains[word]));
        }
      }
    }
  }

  // The loop over tiles is not unrolled: a stage runs through most of its code once, and what comes
  // from the instruction cache for the first time comes slowly.
  __device__ void Pass(uint32_t begin, uint32_t end) {
    const int tiles = static_cast<int>(end - begin);
    float squares[kRowTiles] = {};
    Chunk chunks[kAhead];
    Result results[kResults];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) LoadChunk(i * kSlotColumns, chunks[i]);
    Prepare(begin, end, results);
#pragma unroll 1
    for (uint32_t k = 0; k < gemm_.k; k += kAhead * kSlotColumns) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const uint32_t at = k + i * kSlotColumns;
        if (at < gemm_.k) {
          if (gemm_.a_exchanged) Complete(at, chunks[i]);
          if (gemm_.gain != 0) Normalise(chunks[i], squares);
          const int packs = PacksOf(min(kSlotColumns, gemm_.k - at));
#pragma unroll 1
          for (int tile = 0; tile < tiles; ++tile) Multiply(chunks[i], packs, tile, at == 0);
          if (at + kAhead * kSlotColumns < gemm_.k)
            LoadChunk(at + kAhead * kSlotColumns, chunks[i]);
        }
      }
    }
    if (gemm_.gain != 0) ShareSquares(squares);
    SyncRowThreads();
#pragma unroll
    for (int i = 0; i < kResults; ++i) {
      if (results[i].there) Finish(results[i], begin);
    }
  }

  // A tile's chunk of W times A's, added to what the lane has of the tile in shared memory.
  __device__ void Multiply(const Chunk& chunk, int packs, int tile, bool is_first) {
    float sums[kRowTiles][2][2] = {};  // two each, so that products need not wait for each other
    const uint32_t slot =
        SharedAddress(ring_.Wait()) + eighth_ * kSlotRowBytes + 2 * (32 * warp_ + 8 * quarter_);
    uint4 w[kPacks];
#pragma unroll
    for (int i = 0; i < kPacks; ++i) w[i] = i < packs ? LoadShared(slot + i * kPackStep) : uint4{};
    ring_.Release();
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if constexpr (kRowTiles == 1) {
        MultiplyUpper(sums[0][0], chunk.a[i][0].x, chunk.a[i][0].y, w[i].x, w[i].y);
        MultiplyUpper(sums[0][1], chunk.a[i][0].z, chunk.a[i][0].w, w[i].z, w[i].w);
      } else {
#pragma unroll
        for (int r = 0; r < kRowTiles; r += 2) {
          const uint4 &up = chunk.a[i][r], &low = chunk.a[i][r + 1];
          MultiplyBoth(sums[r][0], sums[r + 1][0], up.x, low.x, up.y, low.y, w[i].x, w[i].y);
          MultiplyBoth(sums[r][1], sums[r + 1][1], up.z, low.z, up.w, low.w, w[i].z, w[i].w);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      float2& sum = SumsOf(tile, r, warp_)[threadIdx.x % 32];
      const float2 before = is_first ? float2{} : sum;
      sum = make_float2(before.x + sums[r][0][0] + sums[r][1][0],
                        before.y + sums[r][0][1] + sums[r][1][1]);
    }
  }

  // A warp's sums of a tile and eight rows, row by row: two a lane.
  __device__ float2* SumsOf(int tile, int row_tile, int warp) const {
    auto* sums = reinterpret_cast<float2*>(memory_.scratch);
    return sums + ((tile * kRowTiles + row_tile) * kStepWarps + warp) * 32;
  }
  static_assert(kTiles * kRowTiles * kStepWarps * 32 * sizeof(float2) <= kStepScratchBytes);

  __device__ void ShareSquares(float (&squares)[kRowTiles]) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      squares[r] += __shfl_xor_sync(kAll, squares[r], 1);
      squares[r] += __shfl_xor_sync(kAll, squares[r], 2);
      if (quarter_ == 0) memory_.squares[warp_][8 * r + eighth_] = squares[r];
    }
  }

  // Loads ahead of the product what is added to it and turned by.
  __device__ void Prepare(uint32_t begin, uint32_t end, Result (&results)[kResults]) const {
#pragma unroll
    for (int i = 0; i < kResults; ++i) {
      Result& result = results[i];
      const uint32_t index = threadIdx.x + i * kStepComputeThreads;
      result.unit = begin + index / (32 * kRowTiles);
      result.row = 8 * (index / 32 % kRowTiles) + index % 32 / 4;
      result.there = result.unit < end && result.row < gemm_.m;
      result.added[0] = result.added[1] = 0;
      if (!result.there) continue;
      const uint32_t pair = index % 4;
      result.apart = gemm_.PairsApart(result.unit);
      result.first = gemm_.ColumnOf(result.unit, result.apart ? pair : 2 * pair);
      result.second = gemm_.ColumnOf(result.unit, result.apart ? pair + 4 : 2 * pair + 1);
      LoadAdded(result);
      if (gemm_.epilogue == StepEpilogue::kRope) LoadPlace(result);
    }
  }
  __device__ void LoadAdded(Result& result) const {
    if (gemm_.c != 0 && gemm_.beta != 0) {
      const uint64_t row = uint64_t{result.row} * gemm_.ldc;
      const Address c = gemm_.c + (gemm_.c_exchanged ? args_.exchange : 0);
      const auto load = [&](uint32_t column) {
        return gemm_.beta * FloatOf(gemm_.c_exchanged ? AwaitBits(args_, c, row + column)
                                                      : LoadBits(c, row + column));
      };
      result.added[0] = load(result.first);
      result.added[1] = load(result.second);
    }
    if (gemm_.bias != 0) {
      result.added[0] += LoadElement(gemm_.bias, result.first);
      result.added[1] += LoadElement(gemm_.bias, result.second);
    }
  }
  __device__ void LoadPlace(Result& result) const {
    const RopeAppendArgs& rope = gemm_.rope;
    result.slot = LoadIndex(rope.slots, result.row, rope.slot_type);
    result.rotates = gemm_.Rotates(result.unit);
    if (!result.rotates) return;
    const uint64_t position =
        Clamped(LoadIndex(rope.positions, result.row, rope.position_type), rope.positions_max);
    const uint32_t within = result.first - gemm_.HeadOf(result.unit) * rope.head_dim;
    const float* cosine = reinterpret_cast<const float*>(rope.cos_sin) +
                          position * rope.rotary_dim + (rope.interleaved ? within / 2 : within);
    result.cosine = cosine[0];
    result.sine = cosine[rope.rotary_dim / 2];
  }

  __device__ void Finish(const Result& result, uint32_t begin) {
    const uint32_t pair = threadIdx.x % 4, row = 8 * (result.row % 8);
    const uint32_t first = row + (result.apart ? pair : 2 * pair);
    const uint32_t second = result.apart ? first + 4 : first + 1;
    float2 sum = make_float2(0, 0);
#pragma unroll
    for (int warp = 0; warp < kStepWarps; ++warp) {
      const auto* sums = reinterpret_cast<const float*>(
          SumsOf(static_cast<int>(result.unit - begin), static_cast<int>(result.row / 8), warp));
      sum.x += sums[first], sum.y += sums[second];
    }
    const float scale = gemm_.alpha * (gemm_.gain != 0 ? InverseNorm(result.row) : 1.0f);
    Store(result, scale * sum.x + result.added[0], scale * sum.y + result.added[1]);
  }

  __device__ float InverseNorm(uint32_t row) const {
    float squares = 0;
#pragma unroll
    for (int warp = 0; warp < kStepWarps; ++warp) squares += memory_.squares[warp][row];
    return rsqrtf(squares * gemm_.k_inverse + gemm_.epsilon);
  }

  __device__ void Store(const Result& result, float first, float second) {
    if (gemm_.epilogue == StepEpilogue::kRope) return StoreHead(result, first, second);
    if (const auto activation = static_cast<uint32_t>(gemm_.activation); activation != 0) {
      first = Activate(first, activation);
      if (gemm_.epilogue == StepEpilogue::kStore) second = Activate(second, activation);
    }
    const bool pair = gemm_.epilogue == StepEpilogue::kStore;
    const bool neighbours = gemm_.epilogue == StepEpilogue::kGatedNeighbours;
    const uint32_t column = neighbours ? result.first / 2 : result.first;
    const uint32_t value = pair ? PackBf16(first, second) : PackBf16(first * second, 0);
    if (gemm_.stores_d)
      StoreWord(gemm_.d + 2 * (uint64_t{result.row} * gemm_.ldd + column), value, pair);
    if (gemm_.exchanged == 0) return;
    const uint32_t columns = pair ? gemm_.n : gemm_.n / 2;
    const Address to = gemm_.exchanged + 2 * (uint64_t{result.row} * columns + column);
    StoreWord(to + args_.exchange, value, pair);
    StoreWord(to + args_.emptied, ~0u, pair);
  }

  // q, k and v: for who looks for them, and to D and the cache, for who comes later.
  __device__ void StoreHead(const Result& result, float first, float second) {
    if (result.rotates) {
      const float x = first, y = second;
      first = x * result.cosine - y * result.sine;
      second = y * result.cosine + x * result.sine;
    }
    const uint32_t pair = PackBf16(first, second);
    if (gemm_.exchanged != 0) {
      const Address row = gemm_.exchanged + 2 * (uint64_t{result.row} * gemm_.n);
      StoreApart(row + args_.exchange, result.first, result.second, pair);
      StoreApart(row + args_.emptied, result.first, result.second, ~0u);
    }
    const uint32_t head = gemm_.HeadOf(result.unit);
    const Address target = TargetOf(result, head);
    if (target == 0) return;
    const uint32_t begin = head * gemm_.rope.head_dim;
    StoreApart(target, result.first - begin, result.second - begin, pair);
  }
  // Where a row's head belongs; 0: nowhere.
  __device__ Address TargetOf(const Result& result, uint32_t head) const {
    const RopeAppendArgs& rope = gemm_.rope;
    if (head < rope.q_heads) {
      const uint64_t at = uint64_t{result.row} * gemm_.ldd + head * rope.head_dim;
      return gemm_.stores_d ? gemm_.d + 2 * at : 0;
    }
    if (result.slot < 0) return 0;  // a row that is no sequence
    const auto slot = static_cast<uint32_t>(Clamped(result.slot, rope.cache.tokens()));
    const uint32_t page = slot / rope.cache.page_size, kv_head = head - rope.q_heads;
    const bool is_k = kv_head < rope.kv_heads;
    return (is_k ? rope.cache.k : rope.cache.v) +
           2 * (rope.cache.TokenAt(page, slot - page * rope.cache.page_size) +
                uint64_t{is_k ? kv_head : kv_head - rope.kv_heads} * rope.cache.head_stride);
  }
  // Two elements of a row, wherever each of them belongs.
  static __device__ void StoreApart(Address row, uint32_t first, uint32_t second, uint32_t pair) {
    StoreWord(row + 2 * first, pair, /*whole=*/false);
    StoreWord(row + 2 * second, pair >> 16, /*whole=*/false);
  }

  const StepArgs& args_;
  const Address a_;
  const StepGemm& gemm_;
  StepMemory& memory_;
  SlotReader& ring_;
  const uint32_t warp_, eighth_, quarter_;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_STEP_GEMM_STAGE_CUH_
