#include "kernels/cuda_api/grid_probe.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace concert::kernels::cuda {
namespace {

// A GEMM is one kernel; with K split, the sum and a memset beside it.
constexpr size_t kMaxNodes = 16;

}  // namespace

GridProbe::GridProbe(const Driver& driver, CUstream stream) : driver_(driver), stream_(stream) {
  capturing_ = stream != nullptr &&
               driver_.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS;
}

GridProbe::~GridProbe() {
  EndCapture();
  if (graph_ != nullptr) driver_.cuGraphDestroy(graph_);
}

uint32_t GridProbe::Blocks() {
  EndCapture();
  return graph_ != nullptr ? LargestGrid() : 0;
}

void GridProbe::EndCapture() {
  if (!capturing_) return;
  capturing_ = false;
  // A capture that something invalidated ends here too, with an error and no graph.
  if (driver_.cuStreamEndCapture(stream_, &graph_) != CUDA_SUCCESS) graph_ = nullptr;
}

uint32_t GridProbe::LargestGrid() const {
  std::array<CUgraphNode, kMaxNodes> nodes;
  size_t count = nodes.size();
  if (driver_.cuGraphGetNodes(graph_, nodes.data(), &count) != CUDA_SUCCESS) return 0;
  uint64_t largest = 0;
  for (size_t i = 0; i < std::min(count, nodes.size()); ++i) {
    CUgraphNodeType type;
    if (driver_.cuGraphNodeGetType(nodes[i], &type) != CUDA_SUCCESS) return 0;
    if (type != CU_GRAPH_NODE_TYPE_KERNEL) continue;
    CUDA_KERNEL_NODE_PARAMS params = {};
    if (driver_.cuGraphKernelNodeGetParams(nodes[i], &params) != CUDA_SUCCESS) return 0;
    const uint64_t blocks = uint64_t{params.gridDimX} * params.gridDimY * params.gridDimZ;
    largest = std::max(largest, blocks);
  }
  return static_cast<uint32_t>(std::min<uint64_t>(largest, UINT32_MAX));
}

}  // namespace concert::kernels::cuda
