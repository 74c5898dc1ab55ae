// The owner of a memory mapping.
#ifndef CONCERT_CLIENT_SRC_MAPPING_H_
#define CONCERT_CLIENT_SRC_MAPPING_H_

#include <sys/mman.h>

#include <cstddef>
#include <utility>

namespace concert::client {

class Mapping {
 public:
  Mapping() = default;
  // Shared. Not valid() when mmap fails; errno says why.
  Mapping(int fd, size_t bytes, int protection)
      : data_(mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0)), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, MAP_FAILED)), bytes_(other.bytes_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping() {
    if (valid()) munmap(data_, bytes_);
  }
  bool valid() const { return data_ != MAP_FAILED; }
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = MAP_FAILED;
  size_t bytes_ = 0;
};

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_MAPPING_H_
