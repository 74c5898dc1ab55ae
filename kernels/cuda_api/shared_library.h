// A library opened at run time. Once opened it stays mapped until the process ends, so that
// addresses found in it never die.
#ifndef CONCERT_KERNELS_CUDA_API_SHARED_LIBRARY_H_
#define CONCERT_KERNELS_CUDA_API_SHARED_LIBRARY_H_

#include <initializer_list>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace concert::kernels::cuda {

class SharedLibrary {
 public:
  // Opens the first of `names` that the dynamic linker finds. UNAVAILABLE, with the linker's words,
  // if none is.
  static absl::StatusOr<SharedLibrary> Open(std::initializer_list<const char*> names);

  SharedLibrary() = default;
  SharedLibrary(SharedLibrary&& other) noexcept { *this = std::move(other); }
  SharedLibrary& operator=(SharedLibrary&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(name_, other.name_);
    return *this;
  }
  ~SharedLibrary();

  const std::string& name() const { return name_; }

  // Stores the address of `symbol` in `function`. FAILED_PRECONDITION, naming both, if the library
  // lacks it.
  template <typename Function>
  absl::Status Resolve(const char* symbol, Function& function) const {
    function = reinterpret_cast<Function>(Find(symbol));
    return function != nullptr ? absl::OkStatus() : Missing(symbol);
  }
  // Null if the library lacks it.
  void* Find(const char* symbol) const;

 private:
  absl::Status Missing(const char* symbol) const;

  void* handle_ = nullptr;
  std::string name_;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_CUDA_API_SHARED_LIBRARY_H_
