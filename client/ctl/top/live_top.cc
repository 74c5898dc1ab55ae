#include "client/ctl/top/live_top.h"

#include <pwd.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "client/ctl/top/draw.h"
#include "proto/mutex.h"

namespace concert::ctl {
namespace {

// Follows the daemon on a thread of its own, so that keys are answered meanwhile.
class Feed {
 public:
  Feed(Connection& connection, const LiveOptions& options, Terminal& terminal)
      : terminal_(terminal), thread_([this, &connection, &options] { Run(connection, options); }) {}
  // Takes as long as one call of the connection may.
  ~Feed() {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    context_.TryCancel();
    thread_.join();
  }

  // Samples that came since the last call, oldest first.
  std::vector<TopSample> Take() {
    const MutexLock lock(mutex_);
    return std::exchange(samples_, {});
  }
  // How it ended; nothing while it goes on.
  std::optional<grpc::Status> ended() {
    const MutexLock lock(mutex_);
    return ended_;
  }

 private:
  // More than a terminal that takes nothing for a while needs; then the oldest go.
  static constexpr size_t kMaxSamples = 64;

  void Run(Connection& connection, const LiveOptions& options) {
    const grpc::Status status = FollowTop(connection, options, context_, [this](TopSample sample) {
      const MutexLock lock(mutex_);
      if (samples_.size() == kMaxSamples) samples_.erase(samples_.begin());
      samples_.push_back(std::move(sample));
      terminal_.Wake();
      return !stopping_;
    });
    const MutexLock lock(mutex_);
    ended_ = status;
    terminal_.Wake();
  }

  Terminal& terminal_;
  grpc::ClientContext context_;
  Mutex mutex_;
  bool stopping_ CONCERT_GUARDED_BY(mutex_) = false;
  std::vector<TopSample> samples_ CONCERT_GUARDED_BY(mutex_);
  std::optional<grpc::Status> ended_ CONCERT_GUARDED_BY(mutex_);
  std::thread thread_;
};

std::optional<uint32_t> UidOfName(const std::string& name) {
  char buffer[16384];
  passwd entry;
  passwd* found = nullptr;
  getpwnam_r(name.c_str(), &entry, buffer, sizeof(buffer), &found);
  return found == nullptr ? std::nullopt : std::optional<uint32_t>(found->pw_uid);
}

}  // namespace

grpc::Status ShowTop(Connection& connection, const LiveOptions& options,
                     std::unique_ptr<Terminal> terminal) {
  std::optional<Feed> feed(std::in_place, connection, options, *terminal);
  TopSample sample;
  History history;
  TopState state;
  std::optional<grpc::Status> ended;
  while (!state.quit && !ended.has_value()) {
    ended = feed->ended();  // before Take: what came before its end is shown
    for (TopSample& next : feed->Take()) {
      if (next.delta.interval_seconds() > 0) history.Add(next);
      sample = std::move(next);
    }
    const Frame frame = DrawTop(sample, history, state, terminal->traits());
    terminal->Show(frame);
    NoteShown(frame, &state);
    if (ended.has_value()) break;
    const Event event = terminal->Wait();
    if (event.kind == Event::Kind::kKey) Press(event.key, UidOfName, &state);
    if (event.kind == Event::Kind::kSignal) terminal->EndBy(event.signal);
  }
  terminal->Close();
  feed.reset();
  return ended.value_or(grpc::Status::OK);
}

}  // namespace concert::ctl
