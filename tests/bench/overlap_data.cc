#include "tests/bench/overlap_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "Eigen/Core"
#include "tests/bench/random_numbers.h"

namespace concert::bench {
namespace {

using Bf16 = Eigen::bfloat16;

constexpr uint8_t kNan = 0xFF;                      // every byte of a poisoned output
constexpr uint64_t kPartBytes = uint64_t{1} << 20;  // of work for one core

// Calls work(begin, end) for parts of [0, bytes) on all cores.
template <typename Work>
void ForEachPart(uint64_t bytes, const Work& work) {
  const auto parts = static_cast<int>((bytes + kPartBytes - 1) / kPartBytes);
  if (parts == 0) return;
  ForEach(parts, [&](int part) {
    const uint64_t begin = static_cast<uint64_t>(part) * kPartBytes;
    work(begin, std::min(bytes, begin + kPartBytes));
  });
}

float Load(const uint8_t* element) {
  Bf16 value;
  std::memcpy(&value, element, sizeof(value));
  return static_cast<float>(value);
}

}  // namespace

OverlapData::OverlapData(uint32_t ranks, uint64_t most_bytes, uint64_t seed)
    : period_bytes_(std::min(kPeriodBytes, most_bytes)) {
  for (uint64_t rank = 0; rank < ranks; ++rank) {
    std::vector<uint8_t>& sequence = sequences_.emplace_back(period_bytes_);
    ForEachPart(period_bytes_, [&](uint64_t begin, uint64_t end) {
      Random random(seed ^ (rank << 56) ^ (begin << 8));
      for (uint64_t i = begin; i < end; i += sizeof(Bf16)) {
        const Bf16 value(random.Uniform());
        std::memcpy(&sequence[i], &value, sizeof(value));
      }
    });
  }
}

std::span<const uint8_t> OverlapData::Input(uint32_t rank, uint64_t bytes) const {
  return std::span(sequences_[rank]).first(std::min(bytes, period_bytes_));
}

std::vector<uint8_t> OverlapData::Part(uint32_t rank, uint64_t offset, uint64_t bytes) const {
  std::vector<uint8_t> part(bytes);
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t from = (offset + done) % period_bytes_;
    const uint64_t length = std::min(bytes - done, period_bytes_ - from);
    std::memcpy(&part[done], &sequences_[rank][from], length);
    done += length;
  }
  return part;
}

std::vector<uint8_t> OverlapData::Sum(uint64_t offset, uint64_t bytes, uint32_t ranks) const {
  std::vector<uint8_t> sums(bytes);
  ForEachPart(bytes, [&](uint64_t begin, uint64_t end) {
    std::vector<float> row((end - begin) / sizeof(Bf16));
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const std::vector<uint8_t> part = Part(rank, offset + begin, end - begin);
      for (size_t i = 0; i < row.size(); ++i) row[i] += Load(&part[i * sizeof(Bf16)]);
    }
    for (size_t i = 0; i < row.size(); ++i) {
      const Bf16 value(row[i]);
      std::memcpy(&sums[begin + i * sizeof(Bf16)], &value, sizeof(value));
    }
  });
  return sums;
}

std::vector<uint8_t> OverlapData::Before(const CollectiveShape& shape, uint32_t rank) const {
  std::vector<uint8_t> output(shape.dst_bytes(), kNan);
  if (shape.kind == CollectiveKind::kAllGather) {
    const std::vector<uint8_t> own = Part(rank, 0, shape.slot_bytes());
    std::copy(own.begin(), own.end(), output.begin() + static_cast<int64_t>(rank * own.size()));
  }
  if (shape.kind == CollectiveKind::kBroadcast && rank == 0) return Part(0, 0, shape.bytes);
  return output;
}

std::vector<uint8_t> OverlapData::After(const CollectiveShape& shape, uint32_t rank) const {
  const uint64_t slot = shape.slot_bytes();
  switch (shape.kind) {
    case CollectiveKind::kAllReduce:
      return Sum(0, shape.bytes, shape.ranks);
    case CollectiveKind::kReduceScatter:
      return Sum(rank * slot, slot, shape.ranks);
    case CollectiveKind::kBroadcast:
      return Part(0, 0, shape.bytes);
    case CollectiveKind::kAllGather:
    case CollectiveKind::kAllToAll:
      break;
  }
  const bool gathers = shape.kind == CollectiveKind::kAllGather;
  std::vector<uint8_t> output;
  for (uint32_t from = 0; from < shape.ranks; ++from) {
    const std::vector<uint8_t> part = Part(from, gathers ? 0 : rank * slot, slot);
    output.insert(output.end(), part.begin(), part.end());
  }
  return output;
}

double RelativeErrorOfBf16(std::span<const uint8_t> expected, std::span<const uint8_t> got) {
  const uint64_t parts = (expected.size() + kPartBytes - 1) / kPartBytes;
  std::vector<double> errors(parts), norms(parts);
  ForEachPart(expected.size(), [&](uint64_t begin, uint64_t end) {
    if (std::memcmp(&expected[begin], &got[begin], end - begin) == 0) return;
    for (uint64_t i = begin; i < end; i += sizeof(Bf16)) {
      const double wanted = Load(&expected[i]), difference = Load(&got[i]) - wanted;
      errors[begin / kPartBytes] += difference * difference;
      norms[begin / kPartBytes] += wanted * wanted;
    }
  });
  const double error = std::accumulate(errors.begin(), errors.end(), 0.0);
  if (error == 0) return 0;
  return std::sqrt(error / std::accumulate(norms.begin(), norms.end(), 0.0));
}

}  // namespace concert::bench
