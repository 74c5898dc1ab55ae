// What the peer kernels (peer_kernels.cu) and their launcher share. By value.
#ifndef CONCERT_KERNELS_COMM_PEER_ARGS_H_
#define CONCERT_KERNELS_COMM_PEER_ARGS_H_

#include <cstdint>

namespace concert::kernels {

// Bulk copies move multiples of it, from and to multiples of it.
inline constexpr uint64_t kPeerAlignment = 16;
// Ranks that send up to so much to all peers together do it through inboxes: as words that carry
// their tag, so that nobody waits for a flag (docs/adr/0023-transports.md).
inline constexpr uint64_t kInboxBytes = 512 << 10;
// `message_bytes`: to each peer. REQUIRES: two ranks at least.
constexpr bool FitsInboxes(uint64_t message_bytes, uint64_t ranks) {
  return message_bytes <= kInboxBytes / (ranks - 1);
}

namespace cuda {

// GPUs of a collective that peer kernels carry: what NVSwitch joins in one node.
inline constexpr int kMaxPeers = 8;
inline constexpr int kMaxPeerBlocks = 32;
inline constexpr int kPeerThreads = 512;     // of a kernel for small messages
inline constexpr int kSmallBlocksPerSm = 2;  // of such a kernel

// ---- Memory that ranks exchange through: one piece on every rank's GPU, all ranks may touch it.

// 8 bytes of a message: two words of 4, each below its tag.
struct alignas(16) TaggedWords {
  uint64_t low, high;
};
// Of messages from all ranks, where a rank keeps the place of its own free: twice what comes, where
// there are two.
inline constexpr uint64_t kInboxWords = 2 * kInboxBytes / 8;

struct PeerExchange {
  // [meeting][block][rank]: the epoch that the rank's block has come to.
  uint32_t arrived[2][kMaxPeerBlocks][kMaxPeers];
  // [epoch % 2][rank that sends * words of a message + word]. Two, so that a rank may send for the
  // next collective while its peer still reads this one's; it cannot be further ahead
  // (peer_inbox.cuh).
  TaggedWords inbox[2][kInboxWords];
  uint32_t ended;  // blocks of this GPU's kernel; zero between kernels
};

// ---- Shared memory of a block that moves by bulk copies: a ring of stages.

inline constexpr int kPushThreads = 32;  // one of which issues copies
// Of a block that reduces: warps that add, and a warp each for the thread that loads and the one
// that stores.
inline constexpr int kAddingThreads = 512;
inline constexpr int kLoadingThread = kAddingThreads, kStoringThread = kAddingThreads + 32;
inline constexpr int kReduceThreads = kAddingThreads + 64;
inline constexpr uint32_t kStageBytes = 32 << 10, kMinTileBytes = 4 << 10;
inline constexpr int kStages = 6;
struct alignas(128) BulkMemory {
  char stages[kStages][kStageBytes];
  // Barriers: the stage's bytes are there; its parts are added; its sum is stored.
  uint64_t loaded[kStages], added[kStages], freed[kStages];
};

// ---- Arguments

// What a rank waits for in vain. Written by a kernel before it ends its context.
struct PeerReport {
  uint32_t missing;  // 1 + the rank that did not come; 0: all is well
  uint32_t block;
  uint32_t epoch;
};

// One rank's launch. Sizes are bytes. A message is what one rank needs of another.
struct PeerArgs {
  const char* src[kMaxPeers];         // of every rank; through inboxes only this rank's is used
  char* dst[kMaxPeers];               // likewise
  PeerExchange* exchange[kMaxPeers];  // of every rank
  PeerReport* report;                 // of this GPU, in host memory
  uint64_t bytes;                     // of a message
  uint32_t tile_bytes;                // bulk copies that reduce nothing: moved at once
  // Where rank p's message begins in src: p * src_step; where rank r's lies in dst: r * dst_step.
  uint64_t src_step, dst_step;
  uint32_t ranks, rank;
  uint32_t root;       // broadcast: the only rank that sends; else kNoRoot
  uint32_t fetches;    // bulk copies: whether this rank's src lies in another's memory
  uint32_t epoch;      // of this collective; never 0, one more than the one before
  uint32_t reduction;  // kernels::Reduction
  // What the kernel writes in host memory when the rank's share is done; address 0: nothing.
  uint64_t signal_address, signal_value;
};
inline constexpr uint32_t kNoRoot = ~0u;

}  // namespace cuda
}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_COMM_PEER_ARGS_H_
