#include "kernels/cuda_api/nccl.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

namespace concert::kernels::cuda {

absl::StatusOr<Nccl> Nccl::Load() {
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);
  setenv("NCCL_RUNTIME_CONNECT", "0", /*overwrite=*/1);
  absl::StatusOr<SharedLibrary> library = SharedLibrary::Open({"libnccl.so.2"});
  if (!library.ok()) return library.status();
  Nccl nccl;
  nccl.library_ = *std::move(library);
#define X(name) \
  if (absl::Status status = nccl.library_.Resolve(#name, nccl.name); !status.ok()) return status;
  CONCERT_NCCL_FUNCTIONS(X)
#undef X
  nccl.ncclAlltoAll =
      reinterpret_cast<decltype(nccl.ncclAlltoAll)>(nccl.library_.Find("ncclAlltoAll"));
  return nccl;
}

absl::Status Nccl::Failed(ncclResult_t result, const char* call) const {
  const std::string message = absl::StrCat(call, ": ", ncclGetErrorString(result));
  switch (result) {
    case ncclInvalidArgument:
    case ncclInvalidUsage:
      return absl::InvalidArgumentError(message);
    default:  // nccl.h's enum, which grows
      return absl::InternalError(message);
  }
}

}  // namespace concert::kernels::cuda
