// NCCL as a table of functions, resolved once from libnccl.so.2.
#ifndef CONCERT_KERNELS_CUDA_API_NCCL_H_
#define CONCERT_KERNELS_CUDA_API_NCCL_H_

#include <cuda_runtime_api.h>  // nccl.h names cudaStream_t
#include <nccl.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda_api/shared_library.h"

#define CONCERT_NCCL_FUNCTIONS(X)                                                             \
  X(ncclGetVersion)                                                                           \
  X(ncclGetErrorString)                                                                       \
  X(ncclGetUniqueId)                                                                          \
  X(ncclCommInitRankConfig) X(ncclCommInitAll) X(ncclCommDestroy) X(ncclGroupStart)           \
      X(ncclGroupEnd) X(ncclAllReduce) X(ncclAllGather) X(ncclReduceScatter) X(ncclBroadcast) \
          X(ncclSend) X(ncclRecv)

namespace concert::kernels::cuda {

// Immutable once loaded; any thread may call, but NCCL wants one thread at a time per communicator.
class Nccl {
 public:
  // Sets NCCL_LAUNCH_ORDER_IMPLICIT=1, unless the user has set it (several communicators on one GPU
  // keep the host's launch order), and NCCL_RUNTIME_CONNECT=0, whatever the user wants (a
  // communicator connects when it is made: connecting during traffic allocates, waits for the GPU
  // and, where ranks are launched one by one, for ranks whose turn is yet to come). REQUIRES: no
  // other thread reads or writes the environment.
  static absl::StatusOr<Nccl> Load();

#define X(name) decltype(&::name) name = nullptr;
  CONCERT_NCCL_FUNCTIONS(X)
#undef X
  // Null before NCCL 2.28; then grouped sends and receives do.
  ncclResult_t (*ncclAlltoAll)(const void*, void*, size_t, ncclDataType_t, ncclComm_t,
                               cudaStream_t) = nullptr;

  // The one translation of NCCL errors.
  absl::Status ToStatus(ncclResult_t result, const char* call) const {
    return result == ncclSuccess ? absl::OkStatus() : Failed(result, call);
  }

 private:
  absl::Status Failed(ncclResult_t result, const char* call) const;

  SharedLibrary library_;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_CUDA_API_NCCL_H_
