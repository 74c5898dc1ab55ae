// A latency histogram of fixed size. Buckets are log-linear, as HdrHistogram's: every octave of
// nanoseconds is cut into 16 equal buckets, so that a bucket is at most 1/16 (6.25 %) as wide as
// its lower end and its middle is at most 3.2 % off. Covers 64 ns to 1100 s; what lies outside
// counts in the first or last bucket. A value type; histograms can be added and, for deltas,
// subtracted. Not thread-safe.
#ifndef CONCERT_DAEMON_TELEMETRY_HISTOGRAM_H_
#define CONCERT_DAEMON_TELEMETRY_HISTOGRAM_H_

#include <array>
#include <bit>
#include <cstdint>

namespace concert::daemon {

class Histogram {
 public:
  static constexpr int kSubBits = 4;      // 16 buckets per octave
  static constexpr int kFirstOctave = 6;  // 64 ns
  static constexpr int kLastOctave = 39;  // up to 2^40 ns, 1100 s
  static constexpr int kBucketCount = (kLastOctave - kFirstOctave + 1) << kSubBits;

  // Negative durations count as 0.
  void Add(int64_t duration_ns) {
    const uint64_t ns = duration_ns < 0 ? 0 : static_cast<uint64_t>(duration_ns);
    ++buckets_[BucketOf(ns)];
    ++count_;
    sum_ns_ += ns;
  }

  void Merge(const Histogram& other) {
    for (int i = 0; i < kBucketCount; ++i) buckets_[i] += other.buckets_[i];
    count_ += other.count_;
    sum_ns_ += other.sum_ns_;
  }

  // What was added since `earlier`. REQUIRES: `earlier` is an older copy of this histogram.
  void Subtract(const Histogram& earlier) {
    for (int i = 0; i < kBucketCount; ++i) buckets_[i] -= earlier.buckets_[i];
    count_ -= earlier.count_;
    sum_ns_ -= earlier.sum_ns_;
  }

  uint64_t count() const { return count_; }
  // Of durations below 2^octave ns. REQUIRES: kFirstOctave < octave <= kLastOctave.
  uint64_t CountBelow(int octave) const {
    uint64_t count = 0;
    for (int i = 0; i < (octave - kFirstOctave) << kSubBits; ++i) count += buckets_[i];
    return count;
  }
  uint64_t sum_ns() const { return sum_ns_; }
  double MeanUs() const { return count_ == 0 ? 0 : static_cast<double>(sum_ns_) / count_ / 1e3; }

  // The middle of the bucket that holds the value of rank ceil(quantile * count); 0 if empty.
  double QuantileUs(double quantile) const {
    if (count_ == 0) return 0;
    const double rank = quantile * static_cast<double>(count_);
    uint64_t seen = 0;
    for (int i = 0; i < kBucketCount; ++i) {
      seen += buckets_[i];
      if (seen > 0 && static_cast<double>(seen) >= rank) {
        return (LowerNs(i) + LowerNs(i + 1)) / 2e3;
      }
    }
    return MaxUs();
  }

  // Upper end of the highest bucket in use; 0 if empty.
  double MaxUs() const {
    for (int i = kBucketCount; i-- > 0;) {
      if (buckets_[i] != 0) return LowerNs(i + 1) / 1e3;
    }
    return 0;
  }

  bool operator==(const Histogram&) const = default;

 private:
  static int BucketOf(uint64_t ns) {
    if (ns < (1ull << kFirstOctave)) return 0;
    const int octave = 63 - std::countl_zero(ns);
    if (octave > kLastOctave) return kBucketCount - 1;
    const int sub = static_cast<int>(ns >> (octave - kSubBits)) & ((1 << kSubBits) - 1);
    return ((octave - kFirstOctave) << kSubBits) + sub;
  }
  static double LowerNs(int bucket) {
    const int octave = kFirstOctave + (bucket >> kSubBits);
    const int sub = bucket & ((1 << kSubBits) - 1);
    return static_cast<double>(((1ull << kSubBits) + sub) << (octave - kSubBits));
  }

  std::array<uint64_t, kBucketCount> buckets_{};
  uint64_t count_ = 0;
  uint64_t sum_ns_ = 0;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TELEMETRY_HISTOGRAM_H_
