#include <utility>

#include "concert/concert.hpp"
#include "tests/bench/daemon_contender.h"
#include "tests/bench/tiny_gemm.h"

namespace concert::bench {
namespace {

class RingTinyGemm : public TinyGemm {
 public:
  RingTinyGemm(Queue queue, Buffer buffer) : queue_(std::move(queue)), buffer_(std::move(buffer)) {}

  absl::Status LaunchAndWait() override {
    const Ticket ticket = queue_.Gemm({.m = kTinyExtent,
                                       .n = kTinyExtent,
                                       .k = kTinyExtent,
                                       .a = Slice(buffer_, 0),
                                       .w = Slice(buffer_, kTinyOperandBytes),
                                       .d = Slice(buffer_, 2 * kTinyOperandBytes)});
    if (absl::Status done = PollTinyGemm([&] { return ticket.Done(); }); !done.ok()) return done;
    return ToAbsl(ticket.Wait());
  }
  std::string form() const override { return ""; }

 private:
  Queue queue_;
  Buffer buffer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TinyGemm>> MakeRingTinyGemm(const Session& session) {
  Result<Queue> queue = session.CreateQueue();
  if (!queue.ok()) return ToAbsl(queue.status());
  Result<Buffer> buffer = session.Allocate(kTinyBytes);
  if (!buffer.ok()) return ToAbsl(buffer.status());
  return std::make_unique<RingTinyGemm>(std::move(queue).value(), std::move(buffer).value());
}

}  // namespace concert::bench
