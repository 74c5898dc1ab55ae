#include "kernels/cuda_api/shared_library.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace concert::kernels::cuda {

absl::StatusOr<SharedLibrary> SharedLibrary::Open(std::initializer_list<const char*> names) {
  std::string errors;
  for (const char* name : names) {
    SharedLibrary library;
    // RTLD_LOCAL: nobody else shall bind to these symbols by accident. RTLD_NODELETE: these
    // libraries start threads and register exit handlers, so their code must outlive every handle.
    library.handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library.handle_ != nullptr) {
      library.name_ = name;
      return library;
    }
    const char* error = dlerror();
    absl::StrAppend(&errors, errors.empty() ? "" : "; ", error != nullptr ? error : name);
  }
  return absl::UnavailableError(errors);
}

SharedLibrary::~SharedLibrary() {
  if (handle_ != nullptr) dlclose(handle_);
}

void* SharedLibrary::Find(const char* symbol) const { return dlsym(handle_, symbol); }

absl::Status SharedLibrary::Missing(const char* symbol) const {
  return absl::FailedPreconditionError(
      absl::StrCat(name_, " has no symbol ", symbol, "; install a newer version of it"));
}

}  // namespace concert::kernels::cuda
