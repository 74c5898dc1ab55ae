// What becomes of a tile's sums where they are heads of q, k and v (SkinnyRope).
#ifndef CONCERT_KERNELS_SKINNY_SKINNY_HEADS_CUH_
#define CONCERT_KERNELS_SKINNY_SKINNY_HEADS_CUH_

#include "kernels/skinny/skinny_sums.cuh"

namespace concert::kernels::cuda {

template <int kColumns>
class SkinnyHeads {
 public:
  __device__ explicit SkinnyHeads(const SkinnyTile<kColumns>& tile) : tile_(tile), sums_(tile) {}

  // Each row's, by a thread for each, while others multiply.
  __device__ void FindPlaces() const {
    const SkinnyRope& rope = tile_.args.skinny.rope;
    const uint32_t row = threadIdx.x - kSkinnyMultipliers, part = row / rope.op.rows;
    WaitForPreviousLaunch();
    if (row >= tile_.gemm.m) return;
    const SkinnyRope::Place& at = rope.places[part];
    const uint32_t of_part = row - part * rope.op.rows;
    const int64_t slot = LoadIndex(at.slots, of_part, rope.op.slot_type);
    const int64_t position = LoadIndex(at.positions, of_part, rope.op.position_type);
    const bool is_there = rope.there == nullptr || (*rope.there >> part & 1) != 0;
    Place place = {Place::kNowhere, at.cos_sin};
    const KvCacheArgs& cache = rope.op.cache;
    if (slot >= 0 && is_there) place.token = cache.SlotAt(Clamped(slot, cache.tokens()));
    place.angles += Clamped(position, rope.op.positions_max) * rope.op.rotary_dim * sizeof(float);
    asm volatile("st.shared.u64 [%0], %1;" ::"r"(tile_.PlaceAt(row)), "l"(place.token) : "memory");
    asm volatile("st.shared.u64 [%0], %1;" ::"r"(tile_.PlaceAt(row) + 8), "l"(place.angles)
                 : "memory");
  }

  // Rotates the block's rows, keeps q in D and appends k and v. REQUIRES: as SkinnyFinish::Run, and
  // places have been found.
  __device__ void Run() const {
    constexpr int kLanes = kColumns / 4, kRowsAtOnce = kSkinnyThreads / kLanes;
    const RopeAppendArgs& op = tile_.args.skinny.rope.op;
    const int lane = static_cast<int>(threadIdx.x) % kLanes,
              column = tile_.index * kColumns + lane * 4;
    const int rows = tile_.rows();
    if (column >= static_cast<int>(tile_.gemm.n)) return;
    const int head = column / op.head_dim, within = column - head * op.head_dim;
    const bool rotates = head < op.q_heads + op.kv_heads && within < op.rotary_dim;
    for (int i = static_cast<int>(threadIdx.x) / kLanes; i < rows; i += kRowsAtOnce) {
      const int row = tile_.rank + i * tile_.parts;
      const Place place = PlaceOf(row);
      const float factor = sums_.FactorOf(row);
      float4 x = sums_.template AddBias<true>(sums_.Sum(row, lane * 4, factor), column);
      if (rotates) x = Rotated(row, lane * 4, column, within, factor, place.angles, x);
      StoreHead(x, row, column, head, place.token);
    }
  }

 private:
  // Where a row's token begins, an element of k and v, and the cosines that rotate it, then sines.
  struct Place {
    static constexpr uint64_t kNowhere = ~uint64_t{0};
    uint64_t token, angles;
  };
  __device__ Place PlaceOf(int row) const {
    Place place;
    asm volatile("ld.shared.u64 %0, [%1];" : "=l"(place.token) : "r"(tile_.PlaceAt(row)));
    asm volatile("ld.shared.u64 %0, [%1];" : "=l"(place.angles) : "r"(tile_.PlaceAt(row) + 8));
    return place;
  }

  // The order of what is multiplied is RotatePairs' (kernels/rope_append/rope_append.cuh).
  __device__ float4 Rotated(int row, int at, int column, int within, float factor, Address angles,
                            float4 x) const {
    const RopeAppendArgs& op = tile_.args.skinny.rope.op;
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
    const float4 y = sums_.template AddBias<true>(sums_.Sum(row, at + away, factor), column + away);
    return make_float4(x.x * cosines[i] + sign * y.x * sines[i],
                       x.y * cosines[i + 1] + sign * y.y * sines[i + 1],
                       x.z * cosines[i + 2] + sign * y.z * sines[i + 2],
                       x.w * cosines[i + 3] + sign * y.w * sines[i + 3]);
  }
  __device__ void StoreHead(float4 x, int row, int column, int head, uint64_t token) const {
    const SkinnyRope& rope = tile_.args.skinny.rope;
    if (head < rope.op.q_heads)
      return sums_.template StorePack<true>(tile_.gemm.d + 2 * row * tile_.gemm.ldd, x, column);
    if (token == Place::kNowhere) return;
    const bool is_k = head < rope.op.q_heads + rope.op.kv_heads;
    const int of_cache = head - rope.op.q_heads - (is_k ? 0 : rope.op.kv_heads);
    const SkinnyRope::Place& at = rope.places[row / rope.op.rows];
    const uint64_t begin = token + static_cast<uint64_t>(of_cache) * rope.op.cache.head_stride;
    sums_.template StorePack<true>((is_k ? at.k : at.v) + 2 * begin, x,
                                   column - head * rope.op.head_dim);
  }

  const SkinnyTile<kColumns>& tile_;
  const SkinnySums<kColumns> sums_;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_SKINNY_SKINNY_HEADS_CUH_
