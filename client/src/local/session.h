// A session without a daemon: GPUs, buffers, queues and timelines of this process.
#ifndef CONCERT_CLIENT_SRC_LOCAL_SESSION_H_
#define CONCERT_CLIENT_SRC_LOCAL_SESSION_H_

#include <cuda.h>

#include <array>
#include <atomic>
#include <bitset>
#include <cstdint>
#include <span>
#include <vector>

#include "client/src/cuda/api.h"
#include "client/src/handles.h"
#include "client/src/local/cublas_lt.h"
#include "client/src/local/operands.h"
#include "proto/mutex.h"
#include "proto/ring/ring_abi.h"

namespace concert::client {

// UNIMPLEMENTED, in a sentence that begins with `who` and `needs`, as "programs" and "need".
int FailWithoutDaemon(const char* who, const char* needs, concert_error* error);

// Timelines of queues and user timelines: host memory that streams wait on and write to.
struct Timelines {
  concert_timeline queues[CONCERT_MAX_QUEUES];
  concert_timeline user[CONCERT_MAX_USER_TIMELINES];
};

class LocalSession final : public concert_session {
 public:
  LocalSession();
  int Open(concert_error* error);
  ~LocalSession() override;

  uint32_t id() const override { return id_; }
  bool is_local() const override { return true; }
  std::span<const concert_gpu> gpus() const override { return gpus_; }
  void Close() override { closed_.store(true); }

  int Allocate(uint32_t gpu, uint64_t bytes, concert_buffer** buffer,
               concert_error* error) override;
  int Import(const concert_import& import, concert_buffer** buffer, concert_error* error) override;
  int CreateQueue(uint32_t gpu, int32_t priority, concert_queue** queue,
                  concert_error* error) override;
  int Join(const concert_join& join, concert_communicator** communicator,
           concert_error* error) override;
  int BeginProgram(uint32_t gpu, concert_program** program, concert_queue** queue,
                   concert_error* error) override;
  int CreateUserTimeline(concert_user_timeline** timeline, concert_error* error) override;
  int BeginBatch(uint32_t gpu, concert_error* error) override { return CheckGpu(gpu, error); }
  int EndBatch(uint32_t gpu, concert_error* error) override { return CheckGpu(gpu, error); }
  int Poll(concert_ticket ticket, bool* done, concert_error* error) override;
  int Wait(concert_ticket ticket, int64_t timeout_ns, concert_error* error) override;
  int WaitOnStream(concert_ticket ticket, void* stream, concert_error* error) override;

  const cuda::Api& api() const { return *api_; }
  const CublasLt& lt() const { return *lt_; }
  CUdevice device(uint32_t gpu) const { return devices_[gpu]; }
  const concert_gpu& gpu(uint32_t gpu) const { return gpus_[gpu]; }
  Timelines& timelines() { return *timelines_; }
  BufferTable& buffers() { return buffers_; }
  int CheckGpu(uint32_t gpu, concert_error* error) const;
  int CheckOpen(concert_error* error) const;
  // The word that a ticket watches; null, with an error, for a foreign or unknown timeline.
  uint64_t* Word(concert_ticket ticket, concert_error* error);
  // The cuBLASLt handle of a GPU, made when it is asked for first: it serves all threads.
  int LtHandle(uint32_t gpu, cublasLtHandle_t* handle, concert_error* error);
  // `last`: the last ticket that the queue's stream will write to its timeline.
  void ReleaseQueue(uint32_t index, uint64_t last);
  void ReleaseUserTimeline(uint32_t index);

 private:
  // A queue's timeline.
  struct Line {
    bool used = false;
    CUstream stream = nullptr;  // the queue's, to notice a failed device; null: it has gone
    uint64_t last = 0;          // what the stream of a queue that has gone still writes
  };

  int OpenGpus(concert_error* error);
  bool HasEnded(uint32_t line) const CONCERT_REQUIRES(mutex_);
  // `thorough`: asks the driver, too, whether the ticket can still be reached.
  int Look(concert_ticket ticket, bool thorough, bool* done, concert_error* error);
  // Whether the device of the ticket's queue, if it has one, still runs.
  int CheckDevice(concert_ticket ticket, concert_error* error);

  const uint32_t id_;
  const cuda::Api* api_ = nullptr;
  const CublasLt* lt_ = nullptr;
  std::vector<CUdevice> devices_;
  std::vector<concert_gpu> gpus_;
  Timelines* timelines_ = nullptr;
  bool registered_ = false;
  std::atomic<bool> closed_{false};
  BufferTable buffers_;
  Mutex mutex_;
  std::array<Line, CONCERT_MAX_QUEUES> lines_ CONCERT_GUARDED_BY(mutex_);
  std::bitset<CONCERT_MAX_USER_TIMELINES> user_used_ CONCERT_GUARDED_BY(mutex_);
  std::vector<cublasLtHandle_t> lt_handles_ CONCERT_GUARDED_BY(mutex_);  // by GPU
};

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_LOCAL_SESSION_H_
