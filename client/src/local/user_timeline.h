// A user timeline of a session without a daemon.
#ifndef CONCERT_CLIENT_SRC_LOCAL_USER_TIMELINE_H_
#define CONCERT_CLIENT_SRC_LOCAL_USER_TIMELINE_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "client/src/cuda/driver.h"
#include "client/src/handles.h"
#include "client/src/local/session.h"
#include "client/src/remote/shared_word.h"
#include "proto/ring/ring_abi.h"

namespace concert::client {

class LocalUserTimeline final : public concert_user_timeline {
 public:
  LocalUserTimeline(std::shared_ptr<LocalSession> session, uint32_t index)
      : session_(std::move(session)),
        index_(index),
        word_(&session_->timelines().user[index].value) {}
  ~LocalUserTimeline() override { session_->ReleaseUserTimeline(index_); }
  concert_ticket At(uint64_t value) const override {
    return {CONCERT_TIMELINE_ID(session_->id(), index_ | CONCERT_TIMELINE_USER), value};
  }
  int Signal(uint64_t value, concert_error*) override {
    RaiseRelease(word_, value);
    return CONCERT_OK;
  }
  int SignalOnStream(uint64_t value, void* stream, concert_error* error) override {
    return cuda::StreamWrite(stream, word_, value, error);
  }

 private:
  const std::shared_ptr<LocalSession> session_;
  const uint32_t index_;
  uint64_t* const word_;
};

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_LOCAL_USER_TIMELINE_H_
