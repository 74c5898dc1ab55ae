#include "kernels/step/stage_addresses.h"

#include <cstddef>

namespace concert::kernels::cuda {
namespace {

void Append(std::vector<Address*>& all, std::initializer_list<Address*> some) {
  all.insert(all.end(), some);
}

void AppendOf(RowTask& task, std::vector<Address*>& all) {
  switch (task.kind) {
    case RowKind::kRmsNorm: {
      RmsNormArgs& op = task.rms_norm;
      return Append(all, {&op.x, &op.residual, &op.weight, &op.out});
    }
    case RowKind::kGatedActivation:
      return Append(all, {&task.gated_activation.x, &task.gated_activation.out});
    case RowKind::kEmbedding:
      return Append(all, {&task.embedding.ids, &task.embedding.table, &task.embedding.out});
    case RowKind::kArgmax:
      return Append(all, {&task.argmax.x, &task.argmax.indices});
    case RowKind::kRopeAppend: {
      RopeAppendArgs& op = task.rope_append;
      return Append(all, {&op.q, &op.k, &op.v, &op.positions, &op.slots, &op.cos_sin, &op.cache.k,
                          &op.cache.v});
    }
    case RowKind::kLayerNorm: {
      LayerNormArgs& op = task.layer_norm;
      return Append(all, {&op.x, &op.residual, &op.weight, &op.bias, &op.out});
    }
    case RowKind::kElementwise:
      return Append(all, {&task.elementwise.x, &task.elementwise.y, &task.elementwise.out});
    case RowKind::kAdvance:
      return Append(all, {&task.advance.counters, &task.advance.slots});
    case RowKind::kQuantize:
      return Append(all, {&task.quantize.x, &task.quantize.out, &task.quantize.scales});
    case RowKind::kSample: {
      SampleArgs& op = task.sample;
      return Append(all, {&op.x, &op.indices, &op.temperatures, &op.top_ks, &op.top_ps, &op.seeds,
                          &op.steps});
    }
  }
}

}  // namespace

std::vector<Address*> AddressesOf(Stage& stage) {
  std::vector<Address*> all;
  switch (stage.kind) {
    case StageKind::kGemm: {
      StepGemm& gemm = stage.gemm;
      Append(all, {&gemm.a, &gemm.c, &gemm.d, &gemm.bias, &gemm.gain});
      if (gemm.epilogue != StepEpilogue::kRope) break;
      RopeAppendArgs& rope = gemm.rope;
      Append(all, {&rope.positions, &rope.slots, &rope.cos_sin, &rope.cache.k, &rope.cache.v});
      break;
    }
    case StageKind::kAttention: {
      AttentionDecodeArgs& op = stage.attention.op;
      Append(all, {&op.q, &op.page_table, &op.lengths, &op.out, &stage.attention.append.slots});
      break;
    }
    case StageKind::kCopy:
      for (uint32_t i = 0; i < stage.copy.count; ++i)
        Append(all, {&stage.copy.pieces[i].from, &stage.copy.pieces[i].to});
      break;
    case StageKind::kRows:
      AppendOf(stage.row, all);
      break;
  }
  return all;
}

StageBindings FindBindings(Stage& stage, std::span<const Program::Binding> bindings) {
  StageBindings found = {};
  for (const Address* address : AddressesOf(stage)) {
    const auto at =
        reinterpret_cast<const std::byte*>(address) - reinterpret_cast<const std::byte*>(&stage);
    for (size_t i = 0; i < bindings.size(); ++i) {
      const Program::Binding& binding = bindings[i];
      if (*address - binding.staged < binding.bytes)
        found.of_word[static_cast<size_t>(at) / sizeof(Address)] = static_cast<uint8_t>(i + 1);
    }
  }
  return found;
}

}  // namespace concert::kernels::cuda
