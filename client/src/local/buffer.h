// A buffer of a session without a daemon.
#ifndef CONCERT_CLIENT_SRC_LOCAL_BUFFER_H_
#define CONCERT_CLIENT_SRC_LOCAL_BUFFER_H_

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "client/src/handles.h"
#include "client/src/local/session.h"

namespace concert::client {

class LocalBuffer final : public concert_buffer {
 public:
  LocalBuffer(std::shared_ptr<LocalSession> session, uint32_t gpu, CUdeviceptr address,
              uint64_t bytes, bool owned)
      : concert_buffer(bytes, session.get(), nullptr),
        session_(std::move(session)),
        gpu_(gpu),
        address_(address),
        owned_(owned) {
    id = Register();
  }
  ~LocalBuffer() override;
  int Address(void** address, concert_error*) override {
    *address = reinterpret_cast<void*>(address_);
    return CONCERT_OK;
  }
  int Write(uint64_t offset, const void* data, uint64_t bytes, concert_error* error) override;
  int Read(uint64_t offset, void* data, uint64_t bytes, concert_error* error) override;
  int Seal(concert_error* error) override {
    return FailWithoutDaemon("sealed buffers", "need", error);
  }

 private:
  uint32_t Register();

  const std::shared_ptr<LocalSession> session_;
  const uint32_t gpu_;
  const CUdeviceptr address_;
  const bool owned_;
};

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_LOCAL_BUFFER_H_
