#include "client/src/local/buffer.h"

#include "client/src/cuda/api.h"
#include "client/src/cuda/driver.h"

namespace concert::client {

uint32_t LocalBuffer::Register() { return session_->buffers().Add({address_, bytes, gpu_}); }

LocalBuffer::~LocalBuffer() {
  session_->buffers().Remove(id);
  if (!owned_) return;
  const cuda::PrimaryContext context(session_->api(), session_->device(gpu_), nullptr);
  if (context.code() == CONCERT_OK) session_->api().cuMemFree(address_);
}

int LocalBuffer::Write(uint64_t offset, const void* data, uint64_t bytes, concert_error* error) {
  return cuda::CopyToDevice(session_->gpu(gpu_).uuid, address_ + offset, data, bytes, error);
}

int LocalBuffer::Read(uint64_t offset, void* data, uint64_t bytes, concert_error* error) {
  return cuda::CopyToHost(session_->gpu(gpu_).uuid, data, address_ + offset, bytes, error);
}

}  // namespace concert::client
