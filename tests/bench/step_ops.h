// A decode or prefill step as concert's ops.
#ifndef CONCERT_TESTS_BENCH_STEP_OPS_H_
#define CONCERT_TESTS_BENCH_STEP_OPS_H_

#include <cstdint>
#include <functional>
#include <variant>
#include <vector>

#include "concert/concert.hpp"
#include "tests/bench/step_data.h"

namespace concert::bench {

using StepOp = std::variant<CopyOp, EmbeddingOp, RmsNormOp, GemmOp, RopeAppendOp, AttentionDecodeOp,
                            AttentionPrefillOp, GatedActivationOp, ArgmaxOp>;

Ticket Submit(Queue& queue, const StepOp& op);

struct LayerSlices {
  Slice norm, qkv, out, mlp_norm, gate_up, down, keys, values;
};

// What stays in the client's memory from step to step.
struct StepSlices {
  Slice table, final_norm, cos_sin;
  Slice query_starts, last_rows;  // of role prefill
  Slice logits;                   // with a vocabulary
  std::vector<LayerSlices> layers;
};

// What each step brings and gives. in, positions, slots: [row]; lengths, pages: [sequence]; out: a
// token for each sequence, or without a vocabulary the hidden state of each row.
struct StepBindings {
  Slice in, positions, slots, lengths, pages, out;
};

// The ops in their order, each behind the one before. `intermediate(bytes)` gives memory for what
// ops pass to one another; each place is written before it is read.
std::vector<StepOp> MakeStepOps(const StepData& data, const StepSlices& tensors,
                                const StepBindings& bindings,
                                const std::function<Slice(uint64_t bytes)>& intermediate);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_STEP_OPS_H_
