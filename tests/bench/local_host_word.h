// A word of this process that streams write and this thread polls.
#ifndef CONCERT_TESTS_BENCH_LOCAL_HOST_WORD_H_
#define CONCERT_TESTS_BENCH_LOCAL_HOST_WORD_H_

#include <chrono>
#include <cstdint>

#include "tests/bench/local_context.h"

namespace concert::bench::local {

// The context must outlive it. Used by one thread.
class HostWord {
 public:
  explicit HostWord(const Context& context) : context_(context) {}
  HostWord(const HostWord&) = delete;
  HostWord& operator=(const HostWord&) = delete;
  ~HostWord();

  // Once, before anything else. The word is 0 then.
  absl::Status Prepare();
  // REQUIRES: no stream is to write it any more.
  void Clear();
  // Behind what the stream has so far.
  absl::Status Write(CUstream stream, uint64_t value) const;
  absl::Status Write(int stream, uint64_t value) const {
    return Write(context_.streams[stream], value);
  }
  // Acquire: pairs with the stream's write, which comes after the results before it.
  bool Reached(uint64_t value) const;
  // Microseconds from `begin` until the word is at least `value`.
  absl::StatusOr<double> Await(uint64_t value, std::chrono::steady_clock::time_point begin) const;

 private:
  const Context& context_;
  uint64_t* word_ = nullptr;
  CUdeviceptr address_ = 0;
};

}  // namespace concert::bench::local

#endif  // CONCERT_TESTS_BENCH_LOCAL_HOST_WORD_H_
