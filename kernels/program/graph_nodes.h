// What a program's graph launches: its ops one by one, but for GEMMs of few rows, which take in
// what stands beside them. Pure.
#ifndef CONCERT_KERNELS_PROGRAM_GRAPH_NODES_H_
#define CONCERT_KERNELS_PROGRAM_GRAPH_NODES_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/program/program.h"
#include "kernels/skinny/skinny_gemm.h"

namespace concert::kernels {

// Places where rows are while their norm is half done, of so many columns at most: a chain needs
// one at a time.
inline constexpr uint8_t kMaxHandovers = 2;
inline constexpr uint32_t kMaxHandoverColumns = 16384;

struct GraphNode {
  enum class Kind : uint8_t {
    kOp,      // by its kind
    kSkinny,  // a GEMM by the skinny kernel
    kNone,    // it is part of a GEMM
  };
  Kind kind = Kind::kOp;
  // As the program has it, but for a norm's residual, which the GEMM ahead of it may add.
  Op op;
  SkinnyGemm skinny = {};      // of kSkinny
  bool weights_ahead = false;  // of kSkinny: nobody in the program writes W or the gain
  // Of kSkinny: by which of kMaxHandovers it has its norm done ahead, and leaves one so: what is
  // normed lies there, and the sizes of both are the launcher's.
  std::optional<uint8_t> takes, leaves;
  std::vector<uint32_t> ops;  // those of the program that it does, its own first

  bool IsLaunched() const { return kind != Kind::kNone; }
};

// The places that nodes use, which are alike. Multiples of kArenaAlignment.
struct HandoverSpace {
  uint64_t count = 0, rows_bytes = 0, squares_bytes = 0;

  uint64_t bytes() const { return count * (rows_bytes + squares_bytes); }
};

// One for each op. `owners`: as Pass has them, of a pass, since what members have by themselves
// stays as it is; empty: of a program by itself.
std::vector<GraphNode> GraphNodesOf(const Program& program, std::span<const int8_t> owners = {});
// Each op by itself: of a GPU without the skinny kernel.
std::vector<GraphNode> NodesOfOps(const Program& program);

HandoverSpace HandoversOf(std::span<const GraphNode> nodes);
// What nodes that are ops launch with as their workspace, one behind the other, but for those of a
// pass's `members`, which are side by side. A multiple of kArenaAlignment.
uint64_t LaunchBytesOf(std::span<const GraphNode> nodes, std::span<const int8_t> owners = {},
                       size_t members = 1);

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_PROGRAM_GRAPH_NODES_H_
