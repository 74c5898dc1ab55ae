#include "client/ctl/live.h"

#include <functional>
#include <thread>

#include "client/ctl/json.h"
#include "client/ctl/render.h"
#include "client/ctl/top/live_top.h"
#include "proto/mutex.h"

namespace concert::ctl {
namespace {

// A deadline for each message of a stream: cancels the call when Touch() has not been called for
// `limit`.
class MessageDeadline {
 public:
  MessageDeadline(grpc::ClientContext& context, std::chrono::milliseconds limit)
      : context_(context), limit_(limit), thread_(&MessageDeadline::Run, this) {}
  ~MessageDeadline() {
    {
      MutexLock lock(mutex_);
      done_ = true;
    }
    changed_.NotifyAll();
    thread_.join();
  }

  void Touch() {
    MutexLock lock(mutex_);
    ++touches_;
    changed_.NotifyAll();
  }
  bool expired() {
    MutexLock lock(mutex_);
    return expired_;
  }

 private:
  void Run() {
    const MutexLock lock(mutex_);
    while (!done_) {
      const uint64_t before = touches_;
      const auto deadline = std::chrono::steady_clock::now() + limit_;
      while (!done_ && touches_ == before && changed_.WaitUntil(mutex_, deadline)) {
      }
      if (done_ || touches_ != before) continue;
      expired_ = true;
      context_.TryCancel();
      return;
    }
  }

  grpc::ClientContext& context_;
  const std::chrono::milliseconds limit_;
  Mutex mutex_;
  CondVar changed_;
  uint64_t touches_ CONCERT_GUARDED_BY(mutex_) = 0;
  bool done_ CONCERT_GUARDED_BY(mutex_) = false;
  bool expired_ CONCERT_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Calls `on_message` for each message until it returns false (OK) or the stream fails.
grpc::Status Follow(Connection& connection, const LiveOptions& options,
                    grpc::ClientContext& context,
                    const std::function<bool(const v1::WatchStatsResponse&)>& on_message) {
  v1::WatchStatsRequest request;
  request.set_interval_ms(options.interval_ms);
  const auto limit = connection.timeout() + std::chrono::milliseconds(options.interval_ms);
  MessageDeadline deadline(context, limit);
  const auto reader = connection.stub().WatchStats(&context, request);
  v1::WatchStatsResponse message;
  while (reader->Read(&message)) {
    deadline.Touch();
    if (on_message(message)) continue;
    context.TryCancel();
    while (reader->Read(&message)) {
    }
    reader->Finish();
    return grpc::Status::OK;
  }
  grpc::Status status = reader->Finish();
  if (deadline.expired()) {
    return {grpc::StatusCode::DEADLINE_EXCEEDED,
            "no message from the daemon for " + std::to_string(limit.count()) + " ms"};
  }
  if (status.ok()) return {grpc::StatusCode::UNAVAILABLE, "the daemon ended the watch"};
  return EndedIfCutOff(status);
}

}  // namespace

grpc::Status Watch(Connection& connection, const LiveOptions& options, std::ostream& out) {
  uint64_t shown = 0;
  grpc::ClientContext context;
  return Follow(connection, options, context, [&](const v1::WatchStatsResponse& message) {
    if (options.json) {
      out << ToJson(message).dump() << std::endl;
    } else if (message.interval_seconds() > 0) {
      if (shown == 0) out << SimulatedNote(message.stats().simulated());
      if (shown % 20 == 0) out << WatchTitle();
      out << RenderWatchLine(message) << std::flush;
    }
    // The first message holds the totals: no interval yet, so no rates.
    if (message.interval_seconds() > 0) ++shown;
    return out.good() && (options.count == 0 || shown < options.count);
  });
}

grpc::Status FollowTop(Connection& connection, const LiveOptions& options,
                       grpc::ClientContext& context,
                       const std::function<bool(TopSample)>& on_sample) {
  uint64_t intervals = 0;
  grpc::Status failure;
  const auto ask = [&](auto method, const auto& request, auto* response) {
    if (failure.ok()) failure = connection.Call(method, request, response);
  };
  const grpc::Status status =
      Follow(connection, options, context, [&](const v1::WatchStatsResponse& message) {
        TopSample sample;
        ask(&Connection::Stub::GetStatus, v1::GetStatusRequest(), &sample.status);
        ask(&Connection::Stub::ListDevices, v1::ListDevicesRequest(), &sample.devices);
        ask(&Connection::Stub::ListSessions, v1::ListSessionsRequest(), &sample.sessions);
        if (!failure.ok()) return false;
        // The first message holds the totals: no interval yet, so no rates.
        if (message.interval_seconds() > 0) {
          sample.delta = message;
          ++intervals;
        }
        return on_sample(std::move(sample)) && (options.count == 0 || intervals < options.count);
      });
  return failure.ok() ? status : failure;
}

grpc::Status Top(Connection& connection, const LiveOptions& options, std::ostream& out) {
  if (options.terminal && !options.json) {
    if (auto terminal = Terminal::Open()) return ShowTop(connection, options, std::move(terminal));
  }
  bool first = true;
  grpc::ClientContext context;
  return FollowTop(connection, options, context, [&](const TopSample& sample) {
    if (sample.delta.interval_seconds() <= 0) return true;
    if (options.json) {
      const nlohmann::ordered_json object = {{"status", ToJson(sample.status)},
                                             {"devices", ToJson(sample.devices)["devices"]},
                                             {"sessions", ToJson(sample.sessions)["sessions"]},
                                             {"delta", ToJson(sample.delta)}};
      out << object.dump() << std::endl;
    } else {
      out << (first ? "" : "\n") << RenderTop(sample.status, sample.sessions, sample.delta)
          << std::flush;
    }
    first = false;
    return out.good();
  });
}

}  // namespace concert::ctl
