// A client of concert that runs decode or prefill steps.
#ifndef CONCERT_TESTS_BENCH_STEP_CLIENT_H_
#define CONCERT_TESTS_BENCH_STEP_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "concert/concert.hpp"
#include "tests/bench/step_data.h"
#include "tests/bench/step_ops.h"

namespace concert::bench {

// Used by one thread.
class StepClient {
 public:
  enum class Form {
    kProgram,  // a step is recorded once and runs as one op
    kOps       // a step is a batch of single ops
  };

  // Connects to the daemon at `socket`. The data must outlive the client.
  static absl::StatusOr<std::unique_ptr<StepClient>> Connect(const std::string& socket,
                                                             const StepData& data, Form form);
  // Makes the weights and the cache, and fills what steps give with NaN.
  absl::Status MakeMemory();
  // Lists the ops of a step; of a program, registers it.
  absl::Status ListStep();
  // Runs a step and returns when it has ended.
  absl::Status RunStep();
  // Of the last step: the hidden state behind the last norm, or the logits. DATA_LOSS where the
  // tokens are not those of the logits.
  absl::StatusOr<std::vector<uint16_t>> Results() const;
  // [layer]: the cache as the last step has left it.
  absl::StatusOr<std::vector<LayerCache>> Cache() const;

 private:
  StepClient(const StepData& data, Form form, Session session, Queue queue)
      : data_(data), form_(form), session_(std::move(session)), queue_(std::move(queue)) {}
  absl::StatusOr<Slice> Allocate(uint64_t bytes);
  // A buffer with `values` in it.
  template <typename T>
  absl::Status Upload(const std::vector<T>& values, Slice& slice);
  // Weights that clients share are sealed, so that the daemon has them once.
  absl::Status UploadTensor(StepTensor tensor, uint32_t layer, Slice& slice);
  absl::Status MakeTensors();
  absl::Status MakeBindings();
  absl::Status RecordProgram();
  absl::Status ListOps();
  absl::Status Download(const Slice& slice, StepExtent extent, std::vector<uint16_t>& values) const;
  absl::Status CheckTokens(const std::vector<uint16_t>& logits) const;
  const Buffer& BufferOf(const Slice& slice) const;

  const StepData& data_;
  const Form form_;
  Session session_;  // declared first of what is concert's: closed last
  std::vector<Buffer> buffers_;
  StepSlices tensors_;
  StepBindings bindings_;
  Queue queue_;
  Program program_;          // kProgram
  std::vector<StepOp> ops_;  // kOps
};

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_STEP_CLIENT_H_
