// Suite files of "steps": processes that each run whole decode or prefill steps of a Llama-like
// model.
#ifndef CONCERT_TESTS_BENCH_STEP_SCENARIO_H_
#define CONCERT_TESTS_BENCH_STEP_SCENARIO_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/bench/tenant_group.h"

namespace concert::bench {

// Everything is bf16. With a vocabulary the embedding table is the LM head, too.
struct StepModel {
  std::string id;
  uint32_t hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, layers = 0;
  uint32_t vocabulary = 0;  // 0: from hidden state to hidden state

  uint32_t q_columns() const { return heads * head_dim; }
  uint32_t kv_columns() const { return kv_heads * head_dim; }
  uint32_t qkv_columns() const { return q_columns() + 2 * kv_columns(); }
  double parameters() const;
};

struct StepScenario {
  struct Client {
    StepModel model;
    std::vector<uint32_t> lengths;  // of each sequence in the cache, its new tokens included
    uint32_t chunk = 0;             // of role prefill: new tokens of each sequence a step; else 0
    int priority = 0;               // -1 low, 0 normal, 1 high
    bool shares_weights = false;    // with the clients whose weights have the same seed
    uint64_t weights_seed = 0;

    bool is_prefill() const { return chunk > 0; }
    uint32_t new_tokens() const { return is_prefill() ? chunk : 1; }
    uint32_t batch() const { return static_cast<uint32_t>(lengths.size()); }
    uint32_t rows() const { return batch() * new_tokens(); }  // of what goes through the layers
    uint32_t longest() const;
  };

  std::string name;
  std::vector<Client> clients;
};

// "s: 12 layers of 1024, batch 8, context 512", of role prefill ", chunk 2048", and its priority if
// that is not the usual one.
// Clients of one name do the same.
std::string ClientName(const StepScenario::Client& client);
// "own", "shared" or "mixed".
std::string WeightsOf(const StepScenario& scenario);
// A run of a client is one step.
TenantGroup GroupOf(const StepScenario& scenario);

// What all clients together could do: the bytes of a step of each (weights, once per shared set,
// keys and values read and written, logits), or the operations of its GEMMs and its
// attention (a token's over itself and those before it) at 790 TFLOP/s where that takes longer.
double BoundStepsPerS(const StepScenario& scenario, double memory_bytes_per_s);
// What share of that clients come to who do `steps_per_s` each: the part of a second that these
// steps take at least. Steps of clients unlike each other cannot be added up.
double ShareOfBound(const StepScenario& scenario, const std::vector<double>& steps_per_s,
                    double memory_bytes_per_s);

// As ReadGemmScenarios (scenario_file.h).
absl::StatusOr<std::vector<StepScenario>> ReadStepScenarios(const std::string& path,
                                                            const std::string& filter);
absl::StatusOr<std::vector<StepScenario>> ParseStepScenarios(std::string_view text,
                                                             const std::string& path,
                                                             const std::string& filter);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_STEP_SCENARIO_H_
