#include "daemon/admin/trace_stream.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "daemon/admin/to_proto.h"
#include "daemon/check.h"

namespace concert::daemon::admin {

// gRPC destroys it (OnDone) only after Finish, which is the last thing that its thread does with
// it.
class TraceStreams::Stream final : public Reactor {
 public:
  Stream(TraceStreams& owner, grpc::CallbackServerContext& context, std::chrono::seconds length)
      : owner_(owner), context_(&context), end_(Clock::now() + length) {}

  // One that is refused.
  Stream(TraceStreams& owner, const grpc::Status& refusal) : owner_(owner), context_(nullptr) {
    Finish(refusal);
  }

  // On the stream's thread. What is kept is sent when the trace is over: to make messages of it
  // takes ten times as long as to keep it, which would be taken from those who are traced.
  void Run() {
    bool reading = Send({});
    while (reading && WaitForPeriod()) reading = Send({});
    const Trace trace = owner_.telemetry_.EndTrace();
    if (reading) SendAll(trace);
    Finish(Outcome());
  }

  void OnWriteDone(bool ok) override {
    const MutexLock lock(owner_.mutex_);
    writing_ = false;
    cancelled_ |= !ok;
    owner_.changed_.NotifyAll();
  }
  void OnCancel() override {
    const MutexLock lock(owner_.mutex_);
    cancelled_ = true;
    owner_.changed_.NotifyAll();
  }
  void OnDone() override {
    if (context_ != nullptr) {
      const MutexLock lock(owner_.mutex_);
      owner_.open_ = false;
      owner_.account_.Release(Resource::kWatches);
      // Notified under the lock: the owner may be destroyed as soon as it is released.
      owner_.changed_.NotifyAll();
    }
    delete this;
  }

 private:
  // False: it is over.
  bool WaitForPeriod() {
    {
      const MutexLock lock(owner_.mutex_);
      const auto due = std::min(Clock::now() + kPeriod, end_);
      while (!cancelled_ && !owner_.stopping_ && owner_.changed_.WaitUntil(owner_.mutex_, due)) {
      }
      if (cancelled_ || owner_.stopping_ || Clock::now() >= end_) return false;
    }
    return !owner_.telemetry_.TraceIsFull();
  }

  // In messages of a bounded size, as long as somebody reads them.
  void SendAll(const Trace& trace) {
    v1::TraceResponse message;
    bool reading = true;
    const auto send_when = [&](bool due) {
      if (!due) return true;
      message.set_lost_count(trace.lost_count);
      reading = Send(std::exchange(message, {}));
      return reading;
    };
    trace.records.ForEach([&](uint8_t gpu, const auto& record) {
      if constexpr (std::is_same_v<decltype(record), const OpRecord&>) {
        FillTracedOp(gpu, record, message.add_ops());
      } else {
        FillPlan({gpu, record}, message.add_plans());
      }
      return send_when(message.ops_size() == kMaxOpsPerMessage ||
                       message.plans_size() == kMaxPlansPerMessage);
    });
    if (reading) send_when(true);
  }

  // Waits until it is written. False: the reader is gone, or has been cut off.
  bool Send(v1::TraceResponse message) {
    message_ = std::move(message);
    message_.set_simulated(owner_.simulated_);
    {
      const MutexLock lock(owner_.mutex_);
      if (cancelled_ || owner_.stopping_) return false;
      writing_ = true;
    }
    StartWrite(&message_);
    const MutexLock lock(owner_.mutex_);
    while (writing_ && owner_.changed_.WaitUntil(owner_.mutex_, CutOff())) {
    }
    if (writing_) context_->TryCancel();  // then the write ends
    while (writing_) owner_.changed_.Wait(owner_.mutex_);
    return !cancelled_;
  }

  // When a write is given up. A reader that does read learns why a trace ends: cut off at once, it
  // would see a cancelled call whenever a message was under way as the daemon stopped.
  Clock::time_point CutOff() CONCERT_REQUIRES(owner_.mutex_) {
    return owner_.stopping_ ? owner_.stop_by_ : end_ + kGrace;
  }

  grpc::Status Outcome() {
    const MutexLock lock(owner_.mutex_);
    if (owner_.stopping_) return {grpc::StatusCode::UNAVAILABLE, "the daemon is shutting down"};
    if (cancelled_) return {grpc::StatusCode::CANCELLED, "the reader went away"};
    return grpc::Status::OK;
  }

  TraceStreams& owner_;
  grpc::CallbackServerContext* const context_;  // null: refused
  const Clock::time_point end_;
  v1::TraceResponse message_;  // of its thread and, while writing_, of gRPC
  bool writing_ CONCERT_GUARDED_BY(owner_.mutex_) = false;
  bool cancelled_ CONCERT_GUARDED_BY(owner_.mutex_) = false;
};

grpc::Status TraceStreams::Admit(uint32_t seconds) {
  if (seconds > kMaxSeconds) {
    return {grpc::StatusCode::INVALID_ARGUMENT, "seconds is " + std::to_string(seconds) +
                                                    "; it must be at most " +
                                                    std::to_string(kMaxSeconds)};
  }
  if (stopping_) return {grpc::StatusCode::UNAVAILABLE, "the daemon is shutting down"};
  if (open_) {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED,
            "somebody else's trace is under way; try again when it is over, in " +
                std::to_string(kMaxSeconds) + " s at most"};
  }
  if (!account_.TryCharge(Resource::kWatches)) {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED,
            "all " + std::to_string(account_.limit(Resource::kWatches).in_all) +
                " watches are in use; end one"};
  }
  CONCERT_CHECK(telemetry_.BeginTrace());  // only a stream begins one
  return grpc::Status::OK;
}

TraceStreams::Reactor* TraceStreams::Open(grpc::CallbackServerContext& context, uint32_t seconds) {
  const MutexLock lock(mutex_);
  if (const grpc::Status admitted = Admit(seconds); !admitted.ok())
    return new Stream(*this, admitted);
  open_ = true;
  Stream* stream =
      new Stream(*this, context, std::chrono::seconds(seconds == 0 ? kDefaultSeconds : seconds));
  if (thread_.joinable()) thread_.join();  // the last one's has finished its stream
  thread_ = std::thread(&Stream::Run, stream);
  return stream;
}

void TraceStreams::Stop() {
  std::thread thread;
  {
    const MutexLock lock(mutex_);
    if (!stopping_) stop_by_ = Clock::now() + kStopGrace;
    stopping_ = true;
    changed_.NotifyAll();
    thread = std::move(thread_);
  }
  if (thread.joinable()) thread.join();
}

}  // namespace concert::daemon::admin
