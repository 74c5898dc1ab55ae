// How a collective moves its bytes: what the cost model has curves for, what the coordinator
// decides and what devices do.
#ifndef CONCERT_POLICIES_SEAM_TRANSPORT_H_
#define CONCERT_POLICIES_SEAM_TRANSPORT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace concert::policies {

enum class Transport : uint8_t {
  kNccl,        // the library's kernels; where ranks share a GPU, the kernel for that
  kPeer,        // kernels of ours that read and write the peers' memory
  kCopyEngine,  // copies: no SMs between GPUs, and nothing is reduced
  kHybrid,      // peer kernels reduce each rank's share, copies spread it
};
inline constexpr int kTransportCount = 4;
// What people call it.
inline constexpr std::array<std::string_view, kTransportCount> kTransportNames = {"nccl", "p2p",
                                                                                  "ce", "hybrid"};

// Of that name, if there is one.
constexpr std::optional<Transport> FindTransport(std::string_view name) {
  for (int i = 0; i < kTransportCount; ++i) {
    if (kTransportNames[static_cast<size_t>(i)] == name) return static_cast<Transport>(i);
  }
  return std::nullopt;
}

// Which transports can carry something.
class TransportSet {
 public:
  constexpr TransportSet() = default;
  static constexpr TransportSet All() {
    TransportSet all;
    all.bits_ = (1 << kTransportCount) - 1;
    return all;
  }
  constexpr TransportSet& Add(Transport transport) {
    bits_ |= Bit(transport);
    return *this;
  }
  constexpr bool Has(Transport transport) const { return (bits_ & Bit(transport)) != 0; }
  constexpr TransportSet operator&(TransportSet other) const {
    TransportSet both;
    both.bits_ = bits_ & other.bits_;
    return both;
  }
  friend constexpr bool operator==(const TransportSet&, const TransportSet&) = default;

 private:
  static constexpr uint8_t Bit(Transport transport) {
    return static_cast<uint8_t>(1 << static_cast<int>(transport));
  }
  uint8_t bits_ = 0;
};

// One collective's way, the same on all its GPUs.
struct TransportChoice {
  Transport transport = Transport::kNccl;
  // SMs of each GPU that its kernels hold, a block each. kNccl: what its communicators are held to;
  // 0: what the library likes. kCopyEngine: for what ranks copy to themselves; 0: engines do that,
  // too, over the links.
  uint16_t sms = 0;
  friend bool operator==(const TransportChoice&, const TransportChoice&) = default;
};

// What becomes of the ranks' bytes. Kinds use the links differently.
enum class CollectiveKind : uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBroadcast,
};
inline constexpr int kCollectiveKindCount = 5;

// What a transport takes for a collective of which a rank sends so many bytes to its peers:
// floor_us + the longer of bytes / (link_share of the links) and what the blocks store /
// (sms * bytes_per_s_per_sm), of the hybrid each half; where a rank sends up to small_bytes to all
// peers, each of them its message, small_floor_us and twice the bytes, since words carry their
// tags.
struct TransportCurve {
  double floor_us = 0;
  // Of DeviceModel::link_bytes_per_s, by CollectiveKind.
  std::array<double, kCollectiveKindCount> link_share = {1, 1, 1, 1, 1};
  double bytes_per_s_per_sm = 0;  // 0: SMs do not bound it
  double small_floor_us = 0;
  uint64_t small_bytes = 0;  // 0: there is no faster way for small ones
  // Beside GEMMs on all other SMs its bytes take so many times as long.
  double beside_gemm = 1;
  // And GEMMs lose so much of the rate that they have alone on all SMs: gemm_per_sms * (its share
  // of the SMs) + gemm_per_link * (its share of the links' rate).
  double gemm_per_sms = 1, gemm_per_link = 0;

  friend bool operator==(const TransportCurve&, const TransportCurve&) = default;
};

// An SM that reduces loads 70 GB/s of its own and peers' memory, and stores 46 (two H100s): what it
// could store while it loads so much.
constexpr uint64_t StoresLike(uint64_t loaded_bytes) { return loaded_bytes / 3 * 2; }

// Of a node, by Transport; those of two ranks and those of more.
struct TransportCurves {
  std::array<TransportCurve, kTransportCount> of_two, of_more;

  constexpr const TransportCurve& Of(Transport transport, int ranks) const {
    return (ranks > 2 ? of_more : of_two)[static_cast<size_t>(transport)];
  }
  constexpr TransportCurve& Of(Transport transport, int ranks) {
    return (ranks > 2 ? of_more : of_two)[static_cast<size_t>(transport)];
  }
};

constexpr std::array<double, kCollectiveKindCount> AllKinds(double share) {
  return {share, share, share, share, share};
}

// What holds where nothing has been measured. Fitted to all five kinds, 1 KiB to 768 MiB, between
// two H200s, and four H100s (docs/adr/0023-transports.md), from the launch until the host sees all
// ranks' ends; floors of ours to two and four H100s.
inline constexpr TransportCurves kTransportCurves = {
    .of_two = {{// The library's own number of blocks; each of fewer moves 17 to 20 GB/s, of
                // all-to-all and broadcast up to 31 (suite collectives, 8 CTAs; c3, 4 to 12). Small
                // ones take 20 us, those of some MiB 40 more than their bytes.
                {.floor_us = 30,
                 .link_share = {0.85, 0.74, 0.69, 0.87, 0.93},
                 .bytes_per_s_per_sm = 20e9},
                {.floor_us = 19,
                 .link_share = {0.91, 0.95, 0.88, 0.88, 0.95},
                 .bytes_per_s_per_sm = 46e9,
                 .small_floor_us = 13,
                 .small_bytes = 512 << 10,
                 .beside_gemm = 1.1},
                // What a rank copies to itself: 40 GB/s an SM beside 8192x8192x8192, 70 to 90
                // beside decode.
                {.floor_us = 23, .bytes_per_s_per_sm = 40e9},
                // Beside GEMMs: 1.14 to 1.2 (suite c3, two H100s).
                {.floor_us = 34,
                 .link_share = AllKinds(0.92),
                 .bytes_per_s_per_sm = 46e9,
                 .beside_gemm = 1.15}}},
    .of_more = {
        {{.floor_us = 42, .link_share = {0.93, 0.87, 0.83, 0.82, 0.85}, .bytes_per_s_per_sm = 20e9},
         // Of a broadcast each peer stores a share everywhere while it fetches it.
         {.floor_us = 22,
          .link_share = {0.88, 0.94, 0.86, 0.84, 0.8},
          .bytes_per_s_per_sm = 42e9,
          .small_floor_us = 14,
          .small_bytes = 512 << 10,
          .beside_gemm = 1.1},
         {.floor_us = 48, .bytes_per_s_per_sm = 40e9},
         {.floor_us = 43,
          .link_share = AllKinds(0.93),
          .bytes_per_s_per_sm = 42e9,
          .beside_gemm = 1.15}}}};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_SEAM_TRANSPORT_H_
