#include "tests/bench/planned_step.h"

#include <utility>

namespace concert::bench {
namespace {

Slice Take(Session& session, uint64_t bytes, std::vector<Buffer>& buffers) {
  buffers.push_back(session.Allocate(bytes).value());
  return Slice(buffers.back());
}

}  // namespace

PlannedWeights::PlannedWeights(Session& session, const StepData& data) {
  const auto take = [&](uint64_t bytes) { return Take(session, bytes, buffers); };
  const auto tensor = [&](StepTensor which) { return take(data.extent(which).bytes()); };
  tensors.final_norm = tensor(StepTensor::kFinalNorm);
  tensors.cos_sin = take(data.CosSin().size() * sizeof(float));
  if (data.client().is_prefill()) {
    tensors.query_starts = take(data.query_starts().size() * sizeof(int32_t));
    tensors.last_rows = take(data.last_rows().size() * sizeof(int32_t));
  }
  if (data.model().vocabulary > 0) tensors.table = tensor(StepTensor::kTable);
  tensors.layers.resize(data.model().layers);
  for (LayerSlices& layer : tensors.layers) {
    layer.norm = tensor(StepTensor::kNorm), layer.qkv = tensor(StepTensor::kQkv);
    layer.out = tensor(StepTensor::kOut), layer.mlp_norm = tensor(StepTensor::kMlpNorm);
    layer.gate_up = tensor(StepTensor::kGateUp), layer.down = tensor(StepTensor::kDown);
  }
}

PlannedStep::PlannedStep(Session& session, const StepData& data, const PlannedWeights& weights) {
  const auto take = [&](uint64_t bytes) { return Take(session, bytes, buffers_); };
  StepSlices tensors = weights.tensors;
  for (LayerSlices& layer : tensors.layers) {
    layer.keys = take(data.extent(StepTensor::kKeys).bytes());
    layer.values = take(data.extent(StepTensor::kValues).bytes());
  }
  const bool has_tokens = data.model().vocabulary > 0;
  if (has_tokens) tensors.logits = take(data.results().bytes());
  program_ = session.BeginProgram().value();
  std::vector<Buffer> slots;
  const auto keep = [&](Result<Buffer> slot) {
    slots.push_back(std::move(slot).value());
    return Slice(slots.back());
  };
  const auto binding = [&](uint64_t bytes) { return keep(program_.Binding(bytes)); };
  StepBindings bindings;
  bindings.in = binding(has_tokens ? data.tokens().size() * sizeof(int32_t)
                                   : data.extent(StepTensor::kHidden).bytes());
  bindings.positions = binding(data.positions().size() * sizeof(int32_t));
  bindings.slots = binding(data.slots().size() * sizeof(int32_t));
  bindings.lengths = binding(data.lengths().size() * sizeof(int32_t));
  bindings.pages = binding(data.page_table().size() * sizeof(int32_t));
  bindings.out = binding(has_tokens ? data.batch() * sizeof(int32_t) : data.results().bytes());
  const auto arena = [&](uint64_t bytes) { return keep(program_.Arena(bytes)); };
  for (const StepOp& op : MakeStepOps(data, tensors, bindings, arena))
    Submit(program_.queue(), op).submit_status().Check();
  program_.End().Check();
}

}  // namespace concert::bench
