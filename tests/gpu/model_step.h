// The decode step of a small Llama-like model as a program: recorded as a client would, with random
// weights and a paged cache, and run by the CPU references of its ops.
#ifndef CONCERT_TESTS_GPU_MODEL_STEP_H_
#define CONCERT_TESTS_GPU_MODEL_STEP_H_

#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/program/compile.h"

namespace concert::test {

inline constexpr int32_t kPaddingRow = -1;  // as a context

struct ModelShape {
  uint32_t hidden = 256, q_heads = 4, kv_heads = 2, head_dim = 64, ffn = 512, layers = 1;
  uint32_t rotary_dim = 0;  // 0: head_dim
  uint32_t page_size = 16;
  // By row: tokens of its sequence before the first step; kPaddingRow: there is none.
  std::vector<int32_t> contexts = {100};
  uint32_t steps = 1;       // for which there are pages; each makes sequences a token longer
  uint32_t more_pages = 0;  // columns of the page table that no sequence comes to
  uint32_t free_pages = 0;  // of the cache, that no table names
  uint32_t vocabulary = 0;  // of logits behind the last norm; 0: there are none
  uint32_t window = 0;
  float soft_cap = 0;
  bool heads_first = false;  // of a page: [head][token][dim] instead of [token][head][dim]
  bool interleaved = false;  // pairs of the rotary embedding, and gates with what they gate
  bool qkv_bias = false;
  bool shared_prefix = false;  // the first two rows' sequences begin alike, in the same pages
  bool wide_indices = false;   // positions and slots are int64
  bool odd_bindings = false;   // they begin at odd addresses
  bool whole_cache = false;    // tokens that no sequence has are numbers, too, instead of NaN

  uint32_t rows() const { return static_cast<uint32_t>(contexts.size()); }
  uint32_t rotary() const { return rotary_dim == 0 ? head_dim : rotary_dim; }
  uint32_t q_columns() const { return q_heads * head_dim; }
  uint32_t kv_columns() const { return kv_heads * head_dim; }
  uint32_t qkv_columns() const { return q_columns() + 2 * kv_columns(); }
  std::string Describe() const;
};

// Bindings of the program, by number.
enum class Binding : uint32_t { kIn, kPositions, kSlots, kLengths, kPages, kOut };
inline constexpr size_t kBindings = 6;

// What a run brings.
struct StepInputs {
  std::vector<uint16_t> hidden;           // [row][column], bf16
  std::vector<int64_t> positions, slots;  // [row]
  std::vector<int32_t> lengths, pages;    // [row], [row][page of the sequence]
};

// Where bytes lie that nothing may touch, and what they are.
inline constexpr uint64_t kGuardBytes = 16 * 1024;
inline constexpr uint8_t kGuard = 0xa5;
inline constexpr uint8_t kPoison = 0xff;  // an element of it is NaN

class ModelStep {
 public:
  ModelStep(const ModelShape& shape, uint32_t seed);

  const ModelShape& shape() const { return shape_; }

  // Contents at the beginning. Weights: with biases, cosines and sines, the same for models of one
  // seed that differ in their caches only. State: each layer's keys and values with guards around
  // them.
  const std::vector<uint8_t>& weights() const { return weights_; }
  const std::vector<uint8_t>& state() const { return state_; }

  // Where layer's keys, then values begin in the state, and the bytes of either.
  uint64_t CacheAt(uint32_t layer, bool values) const {
    return kGuardBytes + (2 * uint64_t{layer} + (values ? 1 : 0)) * (cache_bytes_ + kGuardBytes);
  }
  uint64_t cache_bytes() const { return cache_bytes_; }
  uint64_t cache_tokens() const { return uint64_t{pages_} * shape_.page_size; }
  uint32_t pages() const { return pages_; }
  uint32_t pages_of_row() const { return pages_of_row_; }
  uint32_t length_max() const { return pages_of_row_ * shape_.page_size; }
  // Where the head_dim elements of a token's head begin, in elements from CacheAt.
  uint64_t HeadAt(uint64_t token, uint32_t head) const;

  // Of step 0 to shape().steps - 1.
  StepInputs InputsOf(uint32_t step) const;

  // A block is a run's bindings, each with guards around it. Out is poisoned in it.
  uint64_t block_bytes() const { return block_bytes_; }
  uint64_t OffsetOf(Binding binding) const { return offsets_[static_cast<size_t>(binding)]; }
  uint64_t BytesOf(Binding binding) const { return slots_[static_cast<size_t>(binding)].bytes; }
  std::vector<uint8_t> BlockOf(const StepInputs& inputs) const;
  // Of a block after a run: the normalised hidden states, or what they were before their norm; what
  // was made of the former.
  std::vector<uint16_t> HiddenOf(std::span<const uint8_t> block, bool normed) const;
  std::vector<uint16_t> LogitsOf(std::span<const uint8_t> block) const;

  // The program with these addresses of weights and state.
  struct Memory {
    kernels::Address weights = 0, state = 0;
  };
  std::array<kernels::BufferRange, 3> Buffers(const Memory& memory) const;
  // What the program is made of; valid as long as the model and the buffers, which it has them of.
  kernels::ProgramSource SourceOf(std::span<const kernels::BufferRange> buffers) const {
    return {.buffers = buffers, .slots = slots_, .ops = ops_};
  }
  uint64_t ArenaBytes(const Memory& memory) const;
  absl::StatusOr<std::unique_ptr<kernels::Program>> Bind(const Memory& memory,
                                                         kernels::Address arena) const;
  // A run of it with the bindings of a block.
  kernels::ProgramArgs RunOf(const kernels::Program& program, kernels::Address block) const;

 private:
  friend class ModelRecorder;

  // Numbers among the weights: uniform in [middle - reach, middle + reach).
  struct Tensor {
    uint64_t offset, elements;
    float middle, reach;
  };

  uint64_t RowsBytes(uint64_t columns) const { return 2 * shape_.rows() * columns; }
  // Of bf16, behind so many bytes of kOut.
  std::vector<uint16_t> ElementsOf(std::span<const uint8_t> block, uint64_t offset,
                                   uint64_t columns) const;
  void PlacePages(std::mt19937& random);
  void PlaceBindings();
  void FillWeights(std::mt19937& random);
  void FillState(std::mt19937& random);
  void FillToken(std::mt19937& random, uint64_t token, float value_scale);
  float ValueScale(uint32_t row, uint32_t token) const;
  // The slot of a row's token; -1 where the row is padding.
  int64_t SlotOf(uint32_t row, uint32_t token) const;

  const ModelShape shape_;
  const uint32_t seed_;
  std::vector<concert_program_slot> slots_;
  std::vector<concert_descriptor> ops_;
  std::vector<Tensor> tensors_;
  uint64_t cos_sin_at_ = 0, weight_bytes_ = 0, cache_bytes_ = 0, block_bytes_ = 0;
  std::array<uint64_t, kBindings> offsets_ = {};
  uint32_t pages_ = 0, pages_of_row_ = 0;
  std::vector<int32_t> page_table_;
  std::vector<uint8_t> weights_, state_;
};

// The model with CPU references.
class HostModel {
 public:
  explicit HostModel(const ModelStep& model);

  // The block after a run.
  std::vector<uint8_t> Run(const StepInputs& inputs);
  std::vector<uint8_t>& state() { return state_; }
  const kernels::Program& program() const { return *program_; }

 private:
  const ModelStep& model_;
  std::vector<uint8_t> state_, arena_;
  std::unique_ptr<kernels::Program> program_;
};

}  // namespace concert::test

#endif  // CONCERT_TESTS_GPU_MODEL_STEP_H_
