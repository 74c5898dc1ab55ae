// The numbers that a client of suite "steps" works on: random, and the same for the same seeds, so
// that whoever needs a tensor makes it again instead of keeping it.
#ifndef CONCERT_TESTS_BENCH_STEP_DATA_H_
#define CONCERT_TESTS_BENCH_STEP_DATA_H_

#include <cstdint>
#include <vector>

#include "tests/bench/step_scenario.h"

namespace concert::bench {

enum class StepTensor : uint32_t {
  kTable = 0,  // embedding and LM head: vocabulary x hidden
  kFinalNorm,  // 1 x hidden
  kHidden,     // what a model without a vocabulary begins with: rows x hidden
  // One of each layer:
  kNorm,     // 1 x hidden
  kQkv,      // (heads + 2 * kv_heads) * head_dim x hidden
  kOut,      // hidden x heads * head_dim
  kMlpNorm,  // 1 x hidden
  kGateUp,   // 2 * ffn x hidden, the gates first
  kDown,     // hidden x ffn
  kKeys,     // tokens of the cache x kv_heads * head_dim
  kValues
};

struct StepExtent {
  uint64_t rows = 0, columns = 0;
  uint64_t bytes() const { return rows * columns * sizeof(uint16_t); }
};

// Keys and values of all tokens in the cache of a layer, [slot][column].
struct LayerCache {
  std::vector<uint16_t> keys, values;
};

// Of pages [page][slow][fast][head_dim], the same as [page][fast][slow][head_dim]. In memory pages
// have a head's tokens side by side, as they are read: slow tokens become fast ones.
std::vector<uint16_t> SwapInPages(const std::vector<uint16_t>& pages, uint32_t slow, uint32_t fast,
                                  uint32_t head_dim);

// Thread-safe. All lengths stay what they are: each step writes the new tokens of each sequence
// anew, and so gives what the step before gave. A step has a row for each new token: those of one
// sequence one behind the other.
class StepData {
 public:
  static constexpr uint32_t kPageSize = 16;
  static constexpr uint64_t kRowsAtOnce = 64;  // of a matrix, what one thread makes in one go

  // `client` is its place in the scenario, the seed of what no two clients share.
  StepData(const StepScenario::Client& client, uint64_t place);

  const StepScenario::Client& client() const { return client_; }
  const StepModel& model() const { return client_.model; }
  uint32_t batch() const { return client_.batch(); }
  uint32_t rows() const { return client_.rows(); }
  uint32_t SequenceOf(uint32_t row) const { return row / client_.new_tokens(); }
  uint32_t PositionOf(uint32_t row) const;  // in its sequence
  // What a step gives: the last hidden state of each row, or with a vocabulary the logits of the
  // last token of each sequence.
  StepExtent results() const;

  // Whether it is the same for all clients that share weights; else it is this client's state.
  static bool IsWeight(StepTensor tensor);
  StepExtent extent(StepTensor tensor) const;
  // bf16. Weights keep values about as large as they are from layer to layer, norms lie in
  // [0.5, 1.5), and keys are such that attention prefers some tokens.
  std::vector<uint16_t> Rows(StepTensor tensor, uint32_t layer, uint64_t first,
                             uint64_t count) const;
  std::vector<uint16_t> Whole(StepTensor tensor, uint32_t layer) const;

  // Pages of all sequences, in an order of their own.
  uint32_t pages() const { return pages_; }
  uint32_t pages_of_sequence() const { return pages_of_sequence_; }  // columns of the page table
  const std::vector<int32_t>& page_table() const { return page_table_; }
  uint64_t SlotOf(uint32_t sequence, uint32_t token) const;
  std::vector<int32_t> tokens() const;        // [row]; with a vocabulary
  std::vector<int32_t> positions() const;     // [row]
  std::vector<int32_t> slots() const;         // [row]
  std::vector<int32_t> lengths() const;       // [sequence]
  std::vector<int32_t> query_starts() const;  // [sequence + 1]: the first row of each, and the end
  std::vector<int32_t> last_rows() const;     // [sequence]
  // A row for each position: head_dim / 2 cosines, then as many sines.
  std::vector<float> CosSin() const;

 private:
  uint64_t SeedOf(StepTensor tensor, uint32_t layer) const;
  void ShufflePages();

  const StepScenario::Client client_;
  const uint64_t place_;
  uint32_t pages_ = 0, pages_of_sequence_ = 0;
  std::vector<int32_t> page_table_;
};

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_STEP_DATA_H_
