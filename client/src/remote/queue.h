// A queue and a communicator of a session with a daemon.
#ifndef CONCERT_CLIENT_SRC_REMOTE_QUEUE_H_
#define CONCERT_CLIENT_SRC_REMOTE_QUEUE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "client/src/handles.h"
#include "client/src/remote/session.h"

namespace concert::client {

class RemoteCommunicator final : public concert_communicator {
 public:
  RemoteCommunicator(std::shared_ptr<RemoteSession> session, uint32_t id, uint32_t gpu)
      : concert_communicator(session.get()), session_(std::move(session)), id_(id), gpu_(gpu) {}
  ~RemoteCommunicator() override;

  uint32_t id() const { return id_; }
  uint32_t gpu() const { return gpu_; }
  // This rank's next op number. Guarded by the ring of gpu(), the only one that takes its
  // collectives.
  uint64_t* next_sequence() { return &next_sequence_; }

 private:
  const std::shared_ptr<RemoteSession> session_;
  const uint32_t id_;
  const uint32_t gpu_;
  uint64_t next_sequence_ = 0;
};

class RemoteQueue final : public concert_queue {
 public:
  // `ticket`: where the queue's timeline stands.
  RemoteQueue(std::shared_ptr<RemoteSession> session, Ring* ring, uint32_t index, uint64_t ticket)
      : concert_queue(session.get(), nullptr),
        session_(std::move(session)),
        ring_(ring),
        index_(index),
        ticket_(ticket) {}
  ~RemoteQueue() override;

  concert_ticket last() const override {
    return {CONCERT_TIMELINE_ID(session_->id(), index_), ticket_};
  }
  int Submit(EncodedOp& op, const concert_submit_options& options, concert_ticket* ticket,
             concert_error* error) override;

 private:
  // Names the communicator in the op. Yields where its next sequence is.
  int Enter(EncodedOp& op, uint64_t** collective_sequence, concert_error* error);
  int PushWhenThereIsRoom(concert_descriptor* descriptor, uint64_t* collective_sequence,
                          concert_error* error);

  const std::shared_ptr<RemoteSession> session_;
  Ring* const ring_;  // owned by the session
  const uint32_t index_;
  uint64_t ticket_;  // of the last op
};

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_REMOTE_QUEUE_H_
