// Order statistics of repeated measurements.
#ifndef CONCERT_TESTS_BENCH_STATISTICS_H_
#define CONCERT_TESTS_BENCH_STATISTICS_H_

#include <span>
#include <vector>

namespace concert::bench {

// The q-quantile (q in [0, 1]) with linear interpolation between neighbours, as numpy's default
// ("type 7" of Hyndman and Fan, 1996). NaN for no samples.
double Quantile(std::span<const double> samples, double q);

// exp of the mean logarithm. NaN for no samples. REQUIRES: all are positive.
double GeometricMean(std::span<const double> samples);

// The same quantile of two interleaved series.
class PairedBlocks {
 public:
  void Add(std::vector<double> baseline, std::vector<double> candidate);

  // Over all blocks' samples together.
  double Baseline(double q) const { return Quantile(all_baseline_, q); }
  double Candidate(double q) const { return Quantile(all_candidate_, q); }
  // Candidate(q) - Baseline(q): what a user sees, the blocks that went badly included.
  double PooledDifference(double q) const { return Candidate(q) - Baseline(q); }
  // Median over blocks of (candidate's quantile - baseline's quantile): what moves both of a block
  // (clocks, neighbours) cancels out, and so does what befalls fewer than half of the blocks.
  double BlockDifference(double q) const;

 private:
  struct Block {
    std::vector<double> baseline, candidate;
  };
  std::vector<Block> blocks_;
  std::vector<double> all_baseline_, all_candidate_;
};

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_STATISTICS_H_
