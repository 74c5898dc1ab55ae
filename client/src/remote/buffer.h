// A buffer of a session with a daemon.
#ifndef CONCERT_CLIENT_SRC_REMOTE_BUFFER_H_
#define CONCERT_CLIENT_SRC_REMOTE_BUFFER_H_

#include <memory>

#include "client/src/cuda/driver.h"
#include "client/src/fork.h"
#include "client/src/handles.h"
#include "client/src/mapping.h"
#include "client/src/remote/session.h"
#include "proto/mutex.h"
#include "proto/unique_fd.h"

namespace concert::client {

class RemoteBuffer final : public concert_buffer {
 public:
  static int Allocate(std::shared_ptr<RemoteSession> session, const concert_gpu& info, uint32_t gpu,
                      uint64_t bytes, concert_buffer** buffer, concert_error* error);
  static int Import(std::shared_ptr<RemoteSession> session, const concert_gpu& info,
                    const concert_import& import, concert_buffer** buffer, concert_error* error);
  ~RemoteBuffer() override;

  int Address(void** address, concert_error* error) override;
  int Write(uint64_t offset, const void* data, uint64_t bytes, concert_error* error) override;
  int Read(uint64_t offset, void* data, uint64_t bytes, concert_error* error) override;
  int Seal(concert_error* error) override;

 private:
  // `memory` says how Address finds it; `fd` is for MEMFD and CUDA_VMM.
  RemoteBuffer(std::shared_ptr<RemoteSession> session, const concert_gpu& info, uint64_t bytes,
               concert_memory memory);
  void SetFd(UniqueFd fd);
  int MapMemory(concert_error* error) CONCERT_REQUIRES(mutex_);
  bool on_host() const { return memory_ == CONCERT_MEMORY_MEMFD; }

  const std::shared_ptr<RemoteSession> session_;
  const concert_gpu& info_;  // the session's
  const concert_memory memory_;
  uint64_t offset_ = 0;  // of the buffer in the allocation
  uint64_t allocation_bytes_ = 0;
  UniqueFd fd_;
  ClosedInChildren closed_in_children_;  // ends before the fd's number is somebody else's

  Mutex mutex_;
  bool sealed_ CONCERT_GUARDED_BY(mutex_) = false;
  uint64_t address_ CONCERT_GUARDED_BY(mutex_) = 0;  // 0: not mapped yet, or sealed
  Mapping host_ CONCERT_GUARDED_BY(mutex_);
  cuda::VmmMapping vmm_ CONCERT_GUARDED_BY(mutex_);
};

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_REMOTE_BUFFER_H_
