// The operands of a scenario's GEMMs: random inputs, poisoned outputs, and the check of results.
#ifndef CONCERT_TESTS_BENCH_GEMM_WORKLOAD_H_
#define CONCERT_TESTS_BENCH_GEMM_WORKLOAD_H_

#include <cstdint>
#include <span>
#include <vector>

#include "tests/bench/scenario_file.h"

namespace concert::bench {

// Byte offsets of one GEMM's operands in the workload's one range of memory. Rows have no gaps.
struct GemmPlace {
  uint64_t a = 0, w = 0, d = 0;
  uint64_t a_scales = 0, w_scales = 0;  // fp8: one fp32 number each; nothing else has scales
};

// Several operand sets for one scenario, all in one range of memory. Batches take the sets in turn,
// so that by the time a set comes round again its weights have left the L2 cache.
//
// Independent GEMMs read inputs of their own. A chained GEMM reads its predecessor's output where
// the shapes allow (its dtype that of the predecessor's D, same m, its k the predecessor's n), and
// its weights are so small that values keep their size from one to the next.
//
// The check is the Freivalds projection: for random x of +-1, D x must equal A (W^T x). It costs a
// matrix-vector product instead of a GEMM, covers every element of D, and for independent signs the
// mean of |(D - R) x|^2 is |D - R|^2 in the Frobenius norm, so that the ratio below estimates the
// relative Frobenius error against the result R of exact arithmetic on the rounded inputs (computed
// in double precision); in fp8 these are the quantised inputs times their scales.
class GemmWorkload {
 public:
  // Of a pipeline of batches of independent GEMMs. The number of operand sets is a multiple of it,
  // so that batches in flight never share a set and a set always meets the same queues.
  static constexpr int kBatchesInFlight = 4;
  static constexpr int kMinRound = 16;  // batches_per_round()
  enum class Layout {
    kIndependent,  // batches in flight, each with a set of its own
    kRepeated,     // the same, one batch after the other
    kChained
  };

  // Deterministic for a seed. The scenario must outlive the workload.
  GemmWorkload(const GemmScenario& scenario, uint64_t seed, Layout layout = Layout::kIndependent);

  const GemmScenario& scenario() const { return *scenario_; }
  int sets() const { return static_cast<int>(places_.size()); }
  int gemms() const { return static_cast<int>(scenario_->gemms.size()); }
  const GemmShape& shape(int gemm) const { return scenario_->gemms[gemm]; }
  const GemmPlace& place(int set, int gemm) const { return places_[set][gemm]; }
  uint64_t bytes() const { return bytes_; }
  // Batches of the shortest run that computes all sets equally often and has at least kMinRound, so
  // that its ends do not matter. What every contender does before its clock starts: whoever had the
  // GPU before has left another context, empty translation caches and other clocks.
  int batches_per_round() const { return (kMinRound + sets() - 1) / sets() * sets(); }
  uint64_t input_bytes(int gemm) const;  // of A
  uint64_t output_bytes(int gemm) const;
  int largest_output() const;  // whose
  uint64_t largest_output_bytes() const { return output_bytes(largest_output()); }

  // The whole range: inputs random in [-1, 1), outputs all NaN. fp8: quantised from [-448, 448),
  // with scales of their own in every set. Computes the references as it goes.
  std::vector<uint8_t> MakeImage();
  // What outputs hold before a run: NaN in every element.
  std::vector<uint8_t> Poison(int gemm) const {
    return std::vector<uint8_t>(output_bytes(gemm), 0xFF);
  }

  // Relative Frobenius error of `output`, D of this GEMM in this set; NaN if any element is.
  // REQUIRES: MakeImage was called, and the layout is not kChained.
  double RelativeError(int set, int gemm, std::span<const uint8_t> output) const;
  // The same against `input`, the A that the GEMM has read. REQUIRES: MakeImage was called, and the
  // layout is kChained.
  double RelativeError(int set, int gemm, const std::vector<uint8_t>& input,
                       const std::vector<uint8_t>& output) const;

  // The largest error a right result of GEMMs in `dtype` may have: rounding of D to its dtype, with
  // room for the order of sums, and in fp8 for tensor cores that add in less than fp32.
  static double Tolerance(Dtype dtype);

 private:
  // W^T x for the projections, times the GEMM's scales, [projection][column of A].
  using Projected = std::vector<double>;
  // R x for the projections, [projection][row].
  using Reference = std::vector<double>;

  bool ReadsPredecessor(int gemm) const;
  void MakeInputs(int set, int gemm, std::vector<uint8_t>& image) const;
  Projected ProjectWeights(int set, int gemm, const std::vector<uint8_t>& image) const;
  // `a`: the rows of A.
  Reference MakeReference(int gemm, const Projected& projected, const uint8_t* a) const;
  double ErrorAgainst(const Reference& reference, int gemm, const uint8_t* output) const;

  const GemmScenario* scenario_;
  uint64_t seed_;
  Layout layout_;
  uint64_t bytes_ = 0;
  std::vector<std::vector<GemmPlace>> places_;      // [set][gemm]
  std::vector<std::vector<Reference>> references_;  // [set][gemm], of independent GEMMs
  std::vector<std::vector<Projected>> projected_;   // [set][gemm], of chained GEMMs
};

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_GEMM_WORKLOAD_H_
