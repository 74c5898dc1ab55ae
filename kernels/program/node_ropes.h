// Rotary embeddings that become part of GEMMs in what a graph launches. Pure.
#ifndef CONCERT_KERNELS_PROGRAM_NODE_ROPES_H_
#define CONCERT_KERNELS_PROGRAM_NODE_ROPES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/program/graph_nodes.h"
#include "kernels/step/step_draft.h"

namespace concert::kernels {

// Makes rotary embeddings with the append of k and v, of a program or of all members of a pass,
// part of the skinny GEMM that makes q, k and v, as far as the kernel can. Nodes are those of
// drafts, one each; `owners` as GraphNodesOf's.
void FoldRopes(StepDraft& drafts, std::span<const int8_t> owners, std::vector<GraphNode>& nodes);

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_PROGRAM_NODE_ROPES_H_
