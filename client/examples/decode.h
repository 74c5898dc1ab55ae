// A small Llama-like model whose whole decode step is one op: recorded once as a program, then run
// for each token. demo.cc runs it, decode_reference.h checks it, and decode.py does the same.
#ifndef CONCERT_EXAMPLES_DECODE_H_
#define CONCERT_EXAMPLES_DECODE_H_

#include <concert/concert.hpp>
#include <cstdint>
#include <vector>

namespace demo {

inline constexpr uint32_t kLayers = 2, kHidden = 256, kInner = 512, kVocabulary = 1000;
inline constexpr uint32_t kHeads = 4, kKvHeads = 2, kHeadDim = 64;
inline constexpr uint32_t kQColumns = kHeads * kHeadDim, kKvColumns = kKvHeads * kHeadDim;
inline constexpr uint32_t kQkvColumns = kQColumns + 2 * kKvColumns;
inline constexpr double kTheta = 10'000;  // of the rotary embedding

// bf16. Matrices are row-major and have a row for each output.
template <typename Tensor>
struct LayerWeights {
  Tensor norm, qkv, out, mlp_norm, gate_up, down;
};
template <typename Tensor>
struct ModelWeights {
  Tensor table, norm, head;  // table: of the embedding
  std::vector<LayerWeights<Tensor>> layers;
};

// What a checkpoint would bring.
using Weights = ModelWeights<std::vector<uint16_t>>;
Weights RandomWeights(uint32_t seed);

// Sequences that grow by a token with each step, their keys and values in a paged cache. Aborts
// with a sentence where something cannot be made.
class Decoder {
 public:
  // length_max: tokens that a sequence may come to.
  Decoder(const concert::Session& session, const Weights& weights, uint32_t gpu, uint32_t sequences,
          uint32_t length_max);

  // From the newest token of each sequence to the one that follows, in place. A sequence whose
  // token is below 0 rests: it does not grow, and what follows means nothing.
  concert::Status Step(std::vector<int32_t>& tokens);

  // Of the last step: [sequence][vocabulary], bf16.
  std::vector<uint16_t> Logits() const;
  uint32_t ops() const { return ops_; }  // of the program

 private:
  struct Cache {
    concert::Buffer keys, values;
  };
  class Recorder;

  const uint32_t sequences_, pages_of_sequence_;
  std::vector<int32_t> lengths_;
  concert::Queue queue_;
  ModelWeights<concert::Buffer> weights_;
  std::vector<Cache> caches_;  // of each layer
  concert::Buffer cos_sin_, pages_, inputs_, following_, logits_;
  concert::Program program_;
  uint32_t ops_ = 0;
};

}  // namespace demo

#endif  // CONCERT_EXAMPLES_DECODE_H_
