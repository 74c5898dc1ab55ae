// Does on the CPU what a graph launches, node by node, as the skinny kernel's parts do it: norms
// half done ahead, heads rotated and appended by the GEMM that makes them.
#ifndef CONCERT_TESTS_UNIT_KERNELS_NODE_RUNNER_H_
#define CONCERT_TESTS_UNIT_KERNELS_NODE_RUNNER_H_

#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/op_table.h"
#include "kernels/program/graph_nodes.h"
#include "tests/unit/kernels/random_step.h"

namespace concert::kernels {

class NodeRunner {
 public:
  void Run(std::span<const GraphNode> nodes) {
    for (const GraphNode& node : nodes) {
      if (node.kind == GraphNode::Kind::kOp) Compute(node.op);
      if (node.kind == GraphNode::Kind::kSkinny) RunSkinny(node);
    }
  }

 private:
  struct Handover {
    std::vector<float> rows, squares;  // times the gain; of each row
  };

  static void Compute(const Op& op) {
    const Op* const part = &op;
    FindOpKind(op.kind)->compute({&part, 1});
  }

  void RunSkinny(const GraphNode& node) {
    Op op;
    op.kind = CONCERT_OP_GEMM;
    op.gemm = node.skinny.gemm;
    std::vector<uint16_t> a;
    if (node.takes || node.skinny.gain != 0) {
      a = Normed(node);
      op.gemm.a = reinterpret_cast<Address>(a.data()), op.gemm.lda = op.gemm.k;
    }
    Compute(op);
    if (node.leaves) Leave(node);
    RotateHeads(node.skinny);
  }

  std::vector<uint16_t> Normed(const GraphNode& node) const {
    const SkinnyGemm& skinny = node.skinny;
    const GemmArgs& gemm = skinny.gemm;
    std::vector<uint16_t> normed(uint64_t{gemm.m} * gemm.k);
    for (uint64_t row = 0; row < gemm.m; ++row) {
      const Handover* const taken = node.takes ? &handovers_[*node.takes] : nullptr;
      const double squares =
          taken != nullptr ? taken->squares[row] : SumOfSquares(gemm.a, row * gemm.lda, gemm.k);
      const double factor = 1 / std::sqrt(squares / gemm.k + skinny.epsilon);
      for (uint64_t k = 0; k < gemm.k; ++k) {
        const double scaled = taken != nullptr
                                  ? taken->rows[row * gemm.k + k]
                                  : Load(gemm.a, row * gemm.lda + k) * Load(skinny.gain, k);
        normed[row * gemm.k + k] = test::ToBf16(static_cast<float>(scaled * factor));
      }
    }
    return normed;
  }

  void Leave(const GraphNode& node) {
    const GemmArgs& gemm = node.skinny.gemm;
    Handover& left = handovers_[*node.leaves];
    left = {};
    for (uint64_t row = 0; row < gemm.m; ++row) {
      left.squares.push_back(static_cast<float>(SumOfSquares(gemm.d, row * gemm.ldd, gemm.n)));
      for (uint64_t n = 0; n < gemm.n; ++n)
        left.rows.push_back(Load(gemm.d, row * gemm.ldd + n) * Load(node.skinny.d_gain, n));
    }
  }

  static double SumOfSquares(Address base, uint64_t first, uint64_t count) {
    double sum = 0;
    for (uint64_t i = first; i < first + count; ++i) sum += double{Load(base, i)} * Load(base, i);
    return sum;
  }

  static void RotateHeads(const SkinnyGemm& skinny) {
    for (uint32_t part = 0; part < skinny.rope.parts; ++part) {
      const SkinnyRope::Place& place = skinny.rope.places[part];
      Op op;
      op.kind = CONCERT_OP_ROPE_APPEND;
      RopeAppendArgs& rope = op.rope_append;
      rope = skinny.rope.op;
      const uint64_t further = uint64_t{part} * rope.rows * skinny.gemm.ldd * sizeof(uint16_t);
      rope.q += further, rope.k += further, rope.v += further;
      rope.positions = place.positions, rope.slots = place.slots, rope.cos_sin = place.cos_sin;
      rope.cache.k = place.k, rope.cache.v = place.v;
      Compute(op);
    }
  }

  std::array<Handover, kMaxHandovers> handovers_;
};

}  // namespace concert::kernels

#endif  // CONCERT_TESTS_UNIT_KERNELS_NODE_RUNNER_H_
