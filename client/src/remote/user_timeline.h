// A user timeline of a session with a daemon: one word of the client region.
#ifndef CONCERT_CLIENT_SRC_REMOTE_USER_TIMELINE_H_
#define CONCERT_CLIENT_SRC_REMOTE_USER_TIMELINE_H_

#include <memory>
#include <utility>

#include "client/src/handles.h"
#include "client/src/remote/session.h"

namespace concert::client {

class RemoteUserTimeline final : public concert_user_timeline {
 public:
  RemoteUserTimeline(std::shared_ptr<RemoteSession> session, uint32_t index)
      : session_(std::move(session)), index_(index) {}
  ~RemoteUserTimeline() override { session_->ReleaseUserTimeline(index_); }

  concert_ticket At(uint64_t value) const override {
    return {CONCERT_TIMELINE_ID(session_->id(), index_ | CONCERT_TIMELINE_USER), value};
  }
  int Signal(uint64_t value, concert_error* error) override {
    if (int code = session_->CheckOpen(/*thorough=*/false, error)) return code;
    session_->SignalUserTimeline(index_, value);
    return CONCERT_OK;
  }
  int SignalOnStream(uint64_t value, void* stream, concert_error* error) override {
    if (int code = session_->CheckOpen(/*thorough=*/false, error)) return code;
    return session_->SignalUserTimelineOnStream(index_, value, stream, error);
  }

 private:
  const std::shared_ptr<RemoteSession> session_;
  const uint32_t index_;
};

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_REMOTE_USER_TIMELINE_H_
