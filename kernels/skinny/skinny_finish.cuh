// What becomes of a tile's sums: D, with C, bias, activation and gate, and a norm's beginning.
#ifndef CONCERT_KERNELS_SKINNY_SKINNY_FINISH_CUH_
#define CONCERT_KERNELS_SKINNY_SKINNY_FINISH_CUH_

#include "kernels/activation.cuh"
#include "kernels/skinny/skinny_sums.cuh"

namespace concert::kernels::cuda {

template <int kColumns>
class SkinnyFinish {
 public:
  __device__ explicit SkinnyFinish(const SkinnyTile<kColumns>& tile) : tile_(tile), sums_(tile) {}

  // Makes D of the block's rows, and what is normed ahead. REQUIRES: all blocks have left their
  // sums; all threads call it.
  __device__ void Run() const {
    if (tile_.args.wide) {
      tile_.gemm.gated ? Finish<true, true>() : Finish<false, true>();
    } else {
      tile_.gemm.gated ? Finish<true, false>() : Finish<false, false>();
    }
  }

 private:
  // Rows tile_.rank, tile_.rank + tile_.parts and so on, each by neighbouring lanes of a warp, of
  // which each takes four columns. All threads take part: with one warp for each of the SM's four
  // parts it took twice as long.
  template <bool kGated, bool kWide>
  __device__ void Finish() const {
    constexpr int kOutputs = kGated ? kColumns / 2 : kColumns, kPacks = kOutputs / 4;
    constexpr int kLanes = kPacks <= 8 ? 8 : kPacks <= 16 ? 16 : 32;  // for a row
    constexpr int kRowsAtOnce = kSkinnyThreads / kLanes;
    const int lane = static_cast<int>(threadIdx.x) % kLanes,
              column = tile_.index * kOutputs + lane * 4;
    const bool has_columns = lane < kPacks && column < tile_.template Columns<kGated>();
    const int rows = tile_.rows();
    for (int first = 0; first < rows; first += kRowsAtOnce) {
      const int i = first + static_cast<int>(threadIdx.x) / kLanes,
                row = tile_.rank + i * tile_.parts;
      const bool is_there = i < rows && has_columns;
      float4 x = make_float4(0, 0, 0, 0);
      if (is_there) {
        x = kGated ? Gated<kWide>(row, lane * 4, column) : Plain<kWide>(row, lane * 4, column);
        sums_.template StorePack<kWide>(tile_.gemm.d + 2 * row * tile_.gemm.ldd, x, column);
      }
      if constexpr (!kGated) {
        if (tile_.args.skinny.d_normed.rows != 0)
          NormAhead<kLanes, kWide>(x, is_there, i < rows, row, column);
      }
    }
  }
  // Of a row of D four columns; lanes with none, which are there for the sum, have zeros.
  template <int kLanes, bool kWide>
  __device__ void NormAhead(float4 x, bool is_there, bool is_row, int row, int column) const {
    const NormedAhead& normed = tile_.args.skinny.d_normed;
    // As D has it.
    x = make_float4(Rounded(x.x), Rounded(x.y), Rounded(x.z), Rounded(x.w));
    float squares = x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w;
#pragma unroll
    for (int lane = kLanes / 2; lane > 0; lane /= 2) squares += __shfl_xor_sync(~0u, squares, lane);
    if (is_row && threadIdx.x % kLanes == 0)
      At<float>(normed.squares)[tile_.index * kMaxSkinnyRows + row] = squares;
    if (!is_there) return;
    const float4 gain = sums_.template LoadPack<kWide>(tile_.args.skinny.d_gain, 0, column);
    x = make_float4(x.x * gain.x, x.y * gain.y, x.z * gain.z, x.w * gain.w);
    sums_.template StorePack<kWide>(normed.rows + 2 * row * uint64_t{tile_.gemm.n}, x, column);
  }
  __device__ static float Rounded(float x) { return __bfloat162float(__float2bfloat16(x)); }

  // D's columns from `column` on, which the tile has from `at` on. The order of what is added and
  // multiplied is concert_gemm_body's.
  template <bool kWide>
  __device__ float4 Plain(int row, int at, int column) const {
    float4 x = sums_.Sum(row, at, sums_.FactorOf(row));
    const bool adds_c = tile_.gemm.beta != 0.0f;
    float4 c = make_float4(0, 0, 0, 0);
    if (adds_c) c = sums_.template LoadPack<kWide>(tile_.gemm.c, row * tile_.gemm.ldc, column);
    if (adds_c && !tile_.gemm.residual) x = sums_.AddScaled(x, c, tile_.gemm.beta);
    x = Activated(sums_.template AddBias<kWide>(x, column));
    return adds_c && tile_.gemm.residual ? sums_.AddScaled(x, c, tile_.gemm.beta) : x;
  }
  template <bool kWide>
  __device__ float4 Gated(int row, int at, int column) const {
    const float factor = sums_.FactorOf(row);
    const bool by_turns = tile_.gemm.interleaved;
    float4 gate = sums_.Sum(row, by_turns ? 2 * at : at, factor);
    float4 up = sums_.Sum(row, by_turns ? 2 * at + 4 : kColumns / 2 + at, factor);
    const int half = static_cast<int>(tile_.gemm.n / 2);
    gate = sums_.template AddBias<kWide>(gate, by_turns ? 2 * column : column);
    up = sums_.template AddBias<kWide>(up, by_turns ? 2 * column + 4 : half + column);
    if (by_turns) {
      const float4 first = gate, second = up;
      gate = make_float4(first.x, first.z, second.x, second.z);
      up = make_float4(first.y, first.w, second.y, second.w);
    }
    gate = Activated(gate);
    return make_float4(gate.x * up.x, gate.y * up.y, gate.z * up.z, gate.w * up.w);
  }

  __device__ float4 Activated(float4 x) const {
    const auto activation = static_cast<uint32_t>(tile_.gemm.activation);
    if (activation == 0) return x;
    return make_float4(Activate(x.x, activation), Activate(x.y, activation),
                       Activate(x.z, activation), Activate(x.w, activation));
  }

  const SkinnyTile<kColumns>& tile_;
  const SkinnySums<kColumns> sums_;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_SKINNY_SKINNY_FINISH_CUH_
