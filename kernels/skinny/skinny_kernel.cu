// A GEMM of up to 64 rows. A cluster of blocks makes a tile of D's columns, each block a part of K:
// so all SMs have their share of W, which comes from memory once, and none reads all of A. Blocks
// leave their sums in shared memory, and each adds up those of some rows (in a fixed order: results
// have the same bits each time).
//
// W, which nobody writes meanwhile, is on its way before the launch ahead has ended.
#include <cuda_bf16.h>

#include "kernels/activation.cuh"
#include "kernels/cuda_api/element.cuh"
#include "kernels/cuda_api/matrices.cuh"
#include "kernels/group/async.cuh"
#include "kernels/group/wgmma.cuh"
#include "kernels/skinny/skinny_args.h"

namespace concert::kernels::cuda {
namespace {

constexpr int kRowBytes = kSkinnyStep * 2;  // of a tile in shared memory
constexpr int kABytes = static_cast<int>(kMaxSkinnyRows) * kRowBytes;
constexpr int kMultipliersBarrier = 1;  // named; 0 is __syncthreads'

__device__ __forceinline__ float4 LoadOfBlock(uint32_t shared, int rank) {
  float4 value;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(InBlock(shared, rank)));
  return value;
}
__device__ __forceinline__ float LoadFloatOfBlock(uint32_t shared, int rank) {
  float value;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(InBlock(shared, rank)));
  return value;
}

__device__ __forceinline__ void PrefetchMap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

template <typename T>
__device__ T* At(Address address) {
  return reinterpret_cast<T*>(address);
}

// kColumns: of the product, by a cluster.
template <int kColumns>
class SkinnyBlock {
 public:
  static constexpr int kStages = static_cast<int>(SkinnyStages(kColumns));
  static constexpr int kWBytes = kColumns * kRowBytes;
  static constexpr int kStageBytes = kWBytes + kABytes;
  // Between rows of sums, so that eight rows lie in different banks.
  static constexpr int kSumsStride = kColumns + 8;
  static_assert(kMaxSkinnyRows * kSumsStride * sizeof(float) <= kSkinnyRingBytes);

  __device__ explicit SkinnyBlock(const SkinnyArgs& args)
      : args_(args), gemm_(args.skinny.gemm), parts_(static_cast<int>(args.parts)) {
    extern __shared__ __align__(1024) uint8_t shared[];
    ring_ = SharedAddress(shared);
    rank_ = parts_ > 1 ? ClusterRank() : 0;
    tile_ = blockIdx.x / args.parts;
    const int steps = static_cast<int>(gemm_.k / kSkinnyStep);
    first_step_ = steps * rank_ / parts_;
    steps_ = steps * (rank_ + 1) / parts_ - first_step_;
  }

  __device__ void Run() {
    if (threadIdx.x == 0) {
      for (int i = 0; i < kStages; ++i) {
        InitBarrier(Full(i), 1);
        InitBarrier(Empty(i), kSkinnyMultipliers / 32);
        InitBarrier(Scaled(i), kSkinnyScalers / 32);
      }
      PublishBarriers();
    }
    __syncthreads();
    if (threadIdx.x < kSkinnyMultipliers) {
      Multiply();
    } else if (threadIdx.x < kSkinnyScalers) {
      if (HasHeads()) FindPlaces();
      if (HasNorm()) HelpToScale();
      if (IsNormedAhead()) AddUpSquares();
    } else {
      if (Elect().is_leader) Load();
      __syncwarp();
    }
    SyncBlocks();
    WaitForPreviousLaunch();  // for C, and for who reads what D takes the place of
    if (HasHeads()) {
      if constexpr (kColumns % 64 == 0) FinishHeads();
    } else if (args_.wide) {
      gemm_.gated ? Finish<true, true>() : Finish<false, true>();
    } else {
      gemm_.gated ? Finish<true, false>() : Finish<false, false>();
    }
    if (parts_ > 1) WaitForReaders();
  }

 private:
  // Shared memory: the ring, which sums take the place of; gains; barriers; sums of squares.
  __device__ uint32_t StageAt(int stage) const { return ring_ + stage * kStageBytes; }
  __device__ uint32_t GainsAt(int stage) const {
    return ring_ + kSkinnyRingBytes + stage * kRowBytes;
  }
  __device__ uint32_t Full(int stage) const { return GainsAt(kStages) + 24 * stage; }
  __device__ uint32_t Empty(int stage) const { return Full(stage) + 8; }
  __device__ uint32_t Scaled(int stage) const { return Full(stage) + 16; }
  __device__ uint32_t SquaresAt(int row) const { return Full(kStages) + 4 * row; }

  __device__ bool HasNorm() const { return args_.skinny.gain != 0; }
  __device__ uint32_t PlaceAt(int row) const { return SquaresAt(kMaxSkinnyRows) + 16 * row; }

  __device__ bool HasHeads() const { return args_.skinny.rope.parts != 0; }
  __device__ bool IsNormedAhead() const { return args_.skinny.a_normed.rows != 0; }

  // --- Who loads ---

  __device__ void Load() {
    const int ahead = min(steps_, kStages);
    for (int i = 0; i < ahead; ++i) LoadW(i);
    PrefetchMap(&args_.a);
    WaitForPreviousLaunch();
    for (int i = 0; i < ahead; ++i) LoadA(i);
    for (int i = ahead; i < steps_; ++i) {
      WaitParity(Empty(i % kStages), (i / kStages - 1) & 1);
      LoadW(i);
      LoadA(i);
    }
  }
  // W's, and all that is asked of the stage's barrier.
  __device__ void LoadW(int i) {
    const int stage = i % kStages;
    const uint32_t full = Full(stage), to = StageAt(stage);
    const int k = (first_step_ + i) * static_cast<int>(kSkinnyStep);
    ArriveExpecting(full, kStageBytes + (HasNorm() ? kRowBytes : 0));
    constexpr int kHalf = kColumns / 2;
    const bool apart = gemm_.gated && !gemm_.interleaved;
    const int first = tile_ * (apart ? kHalf : kColumns);
    LoadTile(to, &args_.w, full, k, first);
    LoadTile(to + kWBytes / 2, &args_.w, full, k,
             first + (apart ? static_cast<int>(gemm_.n / 2) : kHalf));
    if (HasNorm()) LoadBytes(GainsAt(stage), args_.skinny.gain + k * 2, kRowBytes, full);
  }
  __device__ void LoadA(int i) {
    const int stage = i % kStages;
    LoadTile(StageAt(stage) + kWBytes, &args_.a, Full(stage),
             (first_step_ + i) * static_cast<int>(kSkinnyStep), 0);
  }

  // --- Who multiplies ---

  __device__ void Multiply() {
    float sums[kColumns / 2];
    float squares = 0;
    for (int i = 0; i < steps_; ++i) {
      const int stage = i % kStages;
      WaitParity(Full(stage), (i / kStages) & 1);
      if (HasNorm()) {
        Scale(stage, squares);
        WaitParity(Scaled(stage), (i / kStages) & 1);
      }
      const uint64_t w = OperandDescriptor(StageAt(stage));
      const uint64_t a = OperandDescriptor(StageAt(stage) + kWBytes);
      WgmmaFence();
#pragma unroll
      for (int j = 0; j < kRowBytes / 32; ++j)
        Wgmma<Bf16, kColumns>::Run(sums, a + 2 * j, w + 2 * j, i + j > 0);
      WgmmaCommit();
      if (i == 0) continue;
      WgmmaWait<1>();
      if (threadIdx.x % 32 == 0) Arrive(Empty((i - 1) % kStages));
    }
    WgmmaWait<0>();
    // Nobody's tensor cores read what sums take the place of.
    NamedSync(kMultipliersBarrier, kSkinnyMultipliers);
    // Not before: the weights of the next launch would be in the way of this one's A and sums
    // (3072x1024, 96 blocks, one H200: 5.4 instead of 4.2 us).
    ReleaseNextLaunch();
    LeaveSums(sums, squares);
  }

  // The second half of what the multipliers do by themselves is too much for their pace.
  __device__ void HelpToScale() {
    float squares = 0;
    for (int i = 0; i < steps_; ++i) {
      WaitParity(Full(i % kStages), (i / kStages) & 1);
      Scale(i % kStages, squares);
    }
    LeaveSquares(squares);
  }
  // Multiplies this warp's rows of a stage's A by the gain, and adds up the squares of what they
  // were. A thread has a quarter of a row; 16 bytes of eight threads lie in different banks.
  __device__ void Scale(int stage, float& squares) const {
    constexpr int kUnits = kRowBytes / 16 / 4;
    const int row = static_cast<int>(threadIdx.x) / 4, quarter = static_cast<int>(threadIdx.x) % 4;
    const uint32_t a = StageAt(stage) + kWBytes + row * kRowBytes;
#pragma unroll
    for (int j = 0; j < kUnits; ++j) {
      const int unit = quarter * kUnits + j;
      const uint32_t at = a + ((unit ^ (row & 7)) * 16);
      uint4 x = LoadShared(at);
      const uint4 gain = LoadShared(GainsAt(stage) + unit * 16);
      ScalePair(x.x, gain.x, squares);
      ScalePair(x.y, gain.y, squares);
      ScalePair(x.z, gain.z, squares);
      ScalePair(x.w, gain.w, squares);
      StoreShared(at, x);
    }
    PublishShared();  // the tensor cores read what threads have written
    __syncwarp();
    if (threadIdx.x % 32 == 0) Arrive(Scaled(stage));
  }
  __device__ static void ScalePair(uint32_t& x, uint32_t gain, float& squares) {
    const float2 values = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(x));
    squares = fmaf(values.x, values.x, squares);
    squares = fmaf(values.y, values.y, squares);
    auto& pair = reinterpret_cast<__nv_bfloat162&>(x);
    pair = __hmul2(pair, reinterpret_cast<const __nv_bfloat162&>(gain));
  }

  // A thread of the warpgroup has two rows of each eight columns, two neighbours of each (PTX ISA,
  // "wgmma", the accumulator's fragment).
  __device__ void LeaveSums(const float (&sums)[kColumns / 2], float squares) {
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
    const int row = thread / 32 * 16 + lane / 4, column = lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(SumsAt(row + 8 * h, 8 * j + column)),
                     "f"(sums[4 * j + 2 * h]), "f"(sums[4 * j + 2 * h + 1])
                     : "memory");
      }
    }
    if (HasNorm()) LeaveSquares(squares);
  }
  __device__ void LeaveSquares(float squares) const {
    squares += __shfl_xor_sync(~0u, squares, 1);
    squares += __shfl_xor_sync(~0u, squares, 2);
    if (threadIdx.x % 4 == 0) StoreSquares(threadIdx.x / 4, squares);
  }
  __device__ void StoreSquares(int row, float squares) const {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(SquaresAt(row)), "f"(squares) : "memory");
  }
  // Of A's rows as a whole, two threads a row, while others multiply.
  __device__ void AddUpSquares() const {
    const NormedAhead& normed = args_.skinny.a_normed;
    const int thread = static_cast<int>(threadIdx.x) - kSkinnyMultipliers, row = thread / 2;
    const auto* const of_row = At<const float>(normed.squares) + row;
    WaitForPreviousLaunch();
    float squares = 0;
#pragma unroll 8
    for (uint32_t tile = thread % 2; tile < normed.tiles; tile += 2)
      squares += of_row[tile * kMaxSkinnyRows];
    squares += __shfl_xor_sync(~0u, squares, 1);
    if (thread % 2 == 0) StoreSquares(row, squares);
  }
  __device__ uint32_t SumsAt(int row, int column) const {
    return ring_ + (row * kSumsStride + column) * static_cast<int>(sizeof(float));
  }

  __device__ void SyncBlocks() {
    if (parts_ > 1) {
      SyncCluster();
    } else {
      __syncthreads();
    }
  }

  // Until all blocks of the cluster are here, and so have read this one's sums. Nobody reads what
  // they wrote meanwhile, so that there is nothing to release: to wait until D is in the L2 cache
  // took 0.4 us.
  __device__ static void WaitForReaders() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
  }

  // --- What becomes of sums ---

  // Rows rank_, rank_ + parts_ and so on, each by neighbouring lanes of a warp, of which each takes
  // four columns. All threads take part: with one warp for each of the SM's four parts it took
  // twice as long.
  template <bool kGated, bool kWide>
  __device__ void Finish() {
    constexpr int kOutputs = kGated ? kColumns / 2 : kColumns, kPacks = kOutputs / 4;
    constexpr int kLanes = kPacks <= 8 ? 8 : kPacks <= 16 ? 16 : 32;  // for a row
    constexpr int kRowsAtOnce = kSkinnyThreads / kLanes;
    const int lane = static_cast<int>(threadIdx.x) % kLanes, column = tile_ * kOutputs + lane * 4;
    const bool has_columns = lane < kPacks && column < Columns<kGated>();
    const int rows = (static_cast<int>(gemm_.m) - rank_ + parts_ - 1) / parts_;
    for (int first = 0; first < rows; first += kRowsAtOnce) {
      const int i = first + static_cast<int>(threadIdx.x) / kLanes, row = rank_ + i * parts_;
      const bool is_there = i < rows && has_columns;
      float4 x = make_float4(0, 0, 0, 0);
      if (is_there) {
        x = kGated ? Gated<kWide>(row, lane * 4, column) : Plain<kWide>(row, lane * 4, column);
        StorePack<kWide>(gemm_.d + 2 * row * gemm_.ldd, x, column);
      }
      if constexpr (!kGated) {
        if (args_.skinny.d_normed.rows != 0) NormAhead<kLanes, kWide>(x, i < rows, row, column);
      }
    }
  }
  // Of a row of D four columns; lanes with none, which are there for the sum, have zeros.
  template <int kLanes, bool kWide>
  __device__ void NormAhead(float4 x, bool is_row, int row, int column) const {
    const NormedAhead& normed = args_.skinny.d_normed;
    const bool is_there = is_row && column < Columns<false>() &&
                          static_cast<int>(threadIdx.x) % kLanes < kColumns / 4;
    // As D has it.
    x = make_float4(Rounded(x.x), Rounded(x.y), Rounded(x.z), Rounded(x.w));
    float squares = x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w;
#pragma unroll
    for (int lane = kLanes / 2; lane > 0; lane /= 2) squares += __shfl_xor_sync(~0u, squares, lane);
    if (is_row && threadIdx.x % kLanes == 0)
      At<float>(normed.squares)[tile_ * kMaxSkinnyRows + row] = squares;
    if (!is_there) return;
    const float4 gain = LoadPack<kWide>(args_.skinny.d_gain, 0, column);
    x = make_float4(x.x * gain.x, x.y * gain.y, x.z * gain.z, x.w * gain.w);
    StorePack<kWide>(normed.rows + 2 * row * uint64_t{gemm_.n}, x, column);
  }
  __device__ static float Rounded(float x) { return __bfloat162float(__float2bfloat16(x)); }
  // --- What becomes of heads ---

  // Where a row's token begins, an element of k and v, and the cosines that rotate it, then sines.
  struct Place {
    static constexpr uint64_t kNowhere = ~uint64_t{0};
    uint64_t token, angles;
  };
  // Each row's, by a thread for each, while others multiply.
  __device__ void FindPlaces() const {
    const SkinnyRope& rope = args_.skinny.rope;
    const uint32_t row = threadIdx.x - kSkinnyMultipliers, part = row / rope.op.rows;
    WaitForPreviousLaunch();
    if (row >= gemm_.m) return;
    const SkinnyRope::Place& at = rope.places[part];
    const uint32_t of_part = row - part * rope.op.rows;
    const int64_t slot = LoadIndex(at.slots, of_part, rope.op.slot_type);
    const int64_t position = LoadIndex(at.positions, of_part, rope.op.position_type);
    const bool is_there = rope.there == nullptr || (*rope.there >> part & 1) != 0;
    Place place = {Place::kNowhere, at.cos_sin};
    const KvCacheArgs& cache = rope.op.cache;
    const uint64_t token = Clamped(slot, cache.tokens()), page = token / cache.page_size;
    if (slot >= 0 && is_there) place.token = cache.TokenAt(page, token - page * cache.page_size);
    place.angles += Clamped(position, rope.op.positions_max) * rope.op.rotary_dim * sizeof(float);
    asm volatile("st.shared.u64 [%0], %1;" ::"r"(PlaceAt(row)), "l"(place.token) : "memory");
    asm volatile("st.shared.u64 [%0], %1;" ::"r"(PlaceAt(row) + 8), "l"(place.angles) : "memory");
  }
  __device__ Place PlaceOf(int row) const {
    Place place;
    asm volatile("ld.shared.u64 %0, [%1];" : "=l"(place.token) : "r"(PlaceAt(row)));
    asm volatile("ld.shared.u64 %0, [%1];" : "=l"(place.angles) : "r"(PlaceAt(row) + 8));
    return place;
  }

  // As Finish.
  __device__ void FinishHeads() {
    constexpr int kLanes = kColumns / 4, kRowsAtOnce = kSkinnyThreads / kLanes;
    const RopeAppendArgs& op = args_.skinny.rope.op;
    const int lane = static_cast<int>(threadIdx.x) % kLanes, column = tile_ * kColumns + lane * 4;
    const int rows = (static_cast<int>(gemm_.m) - rank_ + parts_ - 1) / parts_;
    if (column >= static_cast<int>(gemm_.n)) return;
    const int head = column / op.head_dim, within = column - head * op.head_dim;
    const bool rotates = head < op.q_heads + op.kv_heads && within < op.rotary_dim;
    for (int i = static_cast<int>(threadIdx.x) / kLanes; i < rows; i += kRowsAtOnce) {
      const int row = rank_ + i * parts_;
      const Place place = PlaceOf(row);
      const float factor = FactorOf(row);
      float4 x = AddBias<true>(Sum(row, lane * 4, factor), column);
      if (rotates) x = Rotated(row, lane * 4, column, within, factor, place.angles, x);
      StoreHead(x, row, column, head, place.token);
    }
  }
  // The order of what is multiplied is RotatePairs' (kernels/rope_append/rope_append.cuh).
  __device__ float4 Rotated(int row, int at, int column, int within, float factor, Address angles,
                            float4 x) const {
    const RopeAppendArgs& op = args_.skinny.rope.op;
    const int half = op.rotary_dim / 2;
    const auto* const cosines = At<const float>(angles);
    const float* const sines = cosines + half;
    if (op.interleaved) {
      const int i = within / 2;
      return make_float4(x.x * cosines[i] - x.y * sines[i], x.y * cosines[i] + x.x * sines[i],
                         x.z * cosines[i + 1] - x.w * sines[i + 1],
                         x.w * cosines[i + 1] + x.z * sines[i + 1]);
    }
    const bool is_first = within < half;
    const int away = is_first ? half : -half, i = is_first ? within : within - half;
    const float sign = is_first ? -1.0f : 1.0f;
    const float4 y = AddBias<true>(Sum(row, at + away, factor), column + away);
    return make_float4(x.x * cosines[i] + sign * y.x * sines[i],
                       x.y * cosines[i + 1] + sign * y.y * sines[i + 1],
                       x.z * cosines[i + 2] + sign * y.z * sines[i + 2],
                       x.w * cosines[i + 3] + sign * y.w * sines[i + 3]);
  }
  __device__ void StoreHead(float4 x, int row, int column, int head, uint64_t token) const {
    const SkinnyRope& rope = args_.skinny.rope;
    if (head < rope.op.q_heads) return StorePack<true>(gemm_.d + 2 * row * gemm_.ldd, x, column);
    if (token == Place::kNowhere) return;
    const bool is_k = head < rope.op.q_heads + rope.op.kv_heads;
    const int of_cache = head - rope.op.q_heads - (is_k ? 0 : rope.op.kv_heads);
    const SkinnyRope::Place& at = rope.places[row / rope.op.rows];
    const uint64_t begin = token + static_cast<uint64_t>(of_cache) * rope.op.cache.head_stride;
    StorePack<true>((is_k ? at.k : at.v) + 2 * begin, x, column - head * rope.op.head_dim);
  }

  // Of D.
  template <bool kGated>
  __device__ int Columns() const {
    return static_cast<int>(kGated ? gemm_.n / 2 : gemm_.n);
  }

  // D's columns from `column` on, which the tile has from `at` on. The order of what is added and
  // multiplied is concert_gemm_body's.
  template <bool kWide>
  __device__ float4 Plain(int row, int at, int column) const {
    float4 x = Sum(row, at, FactorOf(row));
    const bool adds_c = gemm_.beta != 0.0f;
    float4 c = make_float4(0, 0, 0, 0);
    if (adds_c) c = LoadPack<kWide>(gemm_.c, row * gemm_.ldc, column);
    if (adds_c && !gemm_.residual) x = AddScaled(x, c, gemm_.beta);
    x = Activated(AddBias<kWide>(x, column));
    return adds_c && gemm_.residual ? AddScaled(x, c, gemm_.beta) : x;
  }
  template <bool kWide>
  __device__ float4 Gated(int row, int at, int column) const {
    const float factor = FactorOf(row);
    const bool by_turns = gemm_.interleaved;
    float4 gate = Sum(row, by_turns ? 2 * at : at, factor);
    float4 up = Sum(row, by_turns ? 2 * at + 4 : kColumns / 2 + at, factor);
    const int half = static_cast<int>(gemm_.n / 2);
    gate = AddBias<kWide>(gate, by_turns ? 2 * column : column);
    up = AddBias<kWide>(up, by_turns ? 2 * column + 4 : half + column);
    if (by_turns) {
      const float4 first = gate, second = up;
      gate = make_float4(first.x, first.z, second.x, second.z);
      up = make_float4(first.y, first.w, second.y, second.w);
    }
    gate = Activated(gate);
    return make_float4(gate.x * up.x, gate.y * up.y, gate.z * up.z, gate.w * up.w);
  }

  // Four columns of all parts' sums.
  __device__ float4 Sum(int row, int at, float factor) const {
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 4
    for (int part = 0; part < parts_; ++part) {
      const float4 one = LoadOfBlock(SumsAt(row, at), part);
      sum.x += one.x, sum.y += one.y, sum.z += one.z, sum.w += one.w;
    }
    return make_float4(sum.x * factor, sum.y * factor, sum.z * factor, sum.w * factor);
  }
  __device__ float FactorOf(int row) const {
    float factor = gemm_.alpha;
    if (gemm_.a_scales != 0) factor *= At<const float>(gemm_.a_scales)[row];
    float squares = 0;
    if (IsNormedAhead()) {
      squares = LoadFloatOfBlock(SquaresAt(row), rank_);
    } else if (!HasNorm()) {
      return factor;
    }
#pragma unroll 4
    for (int part = 0; HasNorm() && part < parts_; ++part)
      squares += LoadFloatOfBlock(SquaresAt(row), part);
    return factor * rsqrtf(squares / static_cast<float>(gemm_.k) + args_.skinny.epsilon);
  }
  __device__ float4 Activated(float4 x) const {
    const auto activation = static_cast<uint32_t>(gemm_.activation);
    if (activation == 0) return x;
    return make_float4(Activate(x.x, activation), Activate(x.y, activation),
                       Activate(x.z, activation), Activate(x.w, activation));
  }
  __device__ static float4 AddScaled(float4 x, float4 c, float beta) {
    return make_float4(fmaf(beta, c.x, x.x), fmaf(beta, c.y, x.y), fmaf(beta, c.z, x.z),
                       fmaf(beta, c.w, x.w));
  }
  // `column`: of the product.
  template <bool kWide>
  __device__ float4 AddBias(float4 x, int column) const {
    return gemm_.bias == 0 ? x : AddScaled(x, LoadPack<kWide>(gemm_.bias, 0, column), 1);
  }

  // Four elements of a row that begins `offset` elements behind `begin`, as far as there are some.
  template <bool kWide>
  __device__ float4 LoadPack(Address begin, uint64_t offset, int column) const {
    const auto* const from = At<const __nv_bfloat16>(begin) + offset + column;
    float x[4] = {};
    if constexpr (kWide) {
      const auto pack = *reinterpret_cast<const Pack<__nv_bfloat16, 4>*>(from);
#pragma unroll
      for (int j = 0; j < 4; ++j) x[j] = __bfloat162float(pack.values[j]);
    } else {
      for (int j = 0; j < 4 && column + j < static_cast<int>(gemm_.n); ++j)
        x[j] = __bfloat162float(from[j]);
    }
    return make_float4(x[0], x[1], x[2], x[3]);
  }
  template <bool kWide>
  __device__ void StorePack(Address row, float4 x, int column) const {
    auto* const to = At<__nv_bfloat16>(row) + column;
    const Pack<__nv_bfloat16, 4> pack = {__float2bfloat16(x.x), __float2bfloat16(x.y),
                                         __float2bfloat16(x.z), __float2bfloat16(x.w)};
    if constexpr (kWide) {
      *reinterpret_cast<Pack<__nv_bfloat16, 4>*>(to) = pack;
    } else {
      const int columns = gemm_.gated ? Columns<true>() : Columns<false>();
      for (int j = 0; j < 4 && column + j < columns; ++j) to[j] = pack.values[j];
    }
  }

  const SkinnyArgs& args_;
  const GemmArgs& gemm_;
  const int parts_;
  uint32_t ring_;
  int rank_, tile_, first_step_, steps_;
};

}  // namespace

#define CONCERT_SKINNY(columns)                                           \
  extern "C" __global__ void __launch_bounds__(kSkinnyThreads, 2)         \
      concert_skinny_##columns(const __grid_constant__ SkinnyArgs args) { \
    SkinnyBlock<columns>(args).Run();                                     \
  }
CONCERT_SKINNY(32)
CONCERT_SKINNY(64)
CONCERT_SKINNY(96)
CONCERT_SKINNY(128)

}  // namespace concert::kernels::cuda
