// An all-reduce in two steps: every rank reduces a share, then all get every share.
#ifndef CONCERT_KERNELS_COMM_PEER_SHARES_H_
#define CONCERT_KERNELS_COMM_PEER_SHARES_H_

#include <algorithm>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/cuda_api/launch_context.h"
#include "kernels/op.h"

namespace concert::kernels::cuda {

struct Share {
  uint64_t begin = 0, bytes = 0;  // within src and dst; whole 16 bytes
};

// All but the last are as large; with few bytes the last may be empty. REQUIRES: the op's bytes are
// a multiple of 16.
inline uint64_t ShareStep(const Op& op, uint64_t ranks) {
  const uint64_t packs = op.collective.count * DtypeBytes(op.collective.dtype) / 16;
  return (packs + ranks - 1) / ranks * 16;
}
inline Share ShareOf(const Op& op, uint64_t rank, uint64_t ranks) {
  const uint64_t bytes = op.collective.count * DtypeBytes(op.collective.dtype);
  const uint64_t begin = std::min(rank * ShareStep(op, ranks), bytes);
  return {begin, std::min(ShareStep(op, ranks), bytes - begin)};
}

// Copies every rank's share of its dst to all others', behind what the rank's stream has done.
absl::Status SpreadShares(CollectiveContext& context, std::span<const Op* const> parts);

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_COMM_PEER_SHARES_H_
