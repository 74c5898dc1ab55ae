// A queue of a session without a daemon: a stream, on which cuBLASLt computes.
#ifndef CONCERT_CLIENT_SRC_LOCAL_QUEUE_H_
#define CONCERT_CLIENT_SRC_LOCAL_QUEUE_H_

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "client/src/handles.h"
#include "client/src/local/cublas_lt.h"
#include "client/src/local/session.h"
#include "client/src/remote/shared_word.h"
#include "proto/ring/ring_abi.h"

namespace concert::client {

class LocalQueue final : public concert_queue {
 public:
  LocalQueue(std::shared_ptr<LocalSession> session, uint32_t gpu, uint32_t index)
      : concert_queue(session.get(), nullptr),
        session_(std::move(session)),
        gpu_(gpu),
        index_(index),
        word_(&session_->timelines().queues[index].value),
        ticket_(LoadAcquire(word_)) {}
  ~LocalQueue() override;
  int Open(int32_t priority, concert_error* error);
  CUstream stream() const { return stream_; }

  concert_ticket last() const override {
    return {CONCERT_TIMELINE_ID(session_->id(), index_), ticket_};
  }
  int Submit(EncodedOp& op, const concert_submit_options& options, concert_ticket* ticket,
             concert_error* error) override;

 private:
  struct Waits {
    struct {
      const uint64_t* word;
      uint64_t value;
    } of[CONCERT_WAITS_MAX];
    uint32_t count = 0;
  };
  // What the fallback computes of a kind.
  struct Kind {
    uint16_t kind;
    int (*locate)(concert_descriptor&, const BufferTable&, uint32_t gpu, concert_error*);
    // Of a descriptor that was located: what computes it, behind its waits.
    int (LocalQueue::*submit)(const concert_descriptor&, const Waits&, concert_error*);
  };
  static const Kind* FindKind(uint16_t kind);  // null: it is not for the fallback
  int FindWaits(const concert_submit_options& options, Waits* waits, concert_error* error);
  int EnqueueWaits(const Waits& waits, concert_error* error);
  int SubmitGemm(const concert_descriptor& descriptor, const Waits& waits, concert_error* error);
  int SubmitCopy(const concert_descriptor& descriptor, const Waits& waits, concert_error* error);

  const std::shared_ptr<LocalSession> session_;
  const uint32_t gpu_;
  const uint32_t index_;
  uint64_t* const word_;
  uint64_t ticket_;
  CUstream stream_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;  // the session's
  CUdeviceptr workspace_ = 0;
};

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_LOCAL_QUEUE_H_
