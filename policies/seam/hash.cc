#include "policies/seam/hash.h"

#include <bit>

namespace concert::policies {
namespace {

constexpr uint64_t Pack(uint32_t high, uint32_t low) { return uint64_t{high} << 32 | low; }

}  // namespace

uint64_t HashWork(const Work& work) {
  const uint32_t kind =
      static_cast<uint32_t>(work.runs_on) << 24 | static_cast<uint32_t>(work.dtype) << 16 |
      static_cast<uint32_t>(work.carrier) << 9 | uint32_t{work.allow_tf32} << 8 | work.ranks;
  const uint64_t sum =
      (Pack(work.m, work.n) + kind) * 0x9e3779b97f4a7c15u +
      Pack(work.k, work.batch) * 0xc2b2ae3d27d4eb4fu + work.flops * 0x165667b19e3779f9u +
      work.hbm_bytes * 0xd6e8feb86659fd93u + work.link_bytes * 0xa0761d6478bd642fu +
      Pack(work.repack_bytes ^ std::bit_cast<uint32_t>(work.run_us), kind) * 0xe7037ed1a0b428dbu;
  const uint64_t folded = (sum ^ sum >> 32) * 0x9e3779b97f4a7c15u;
  return folded ^ folded >> 32;
}

}  // namespace concert::policies
