// Imports of memory by its pointer, with a daemon and without.
#ifndef CONCERT_CLIENT_SRC_POINTER_IMPORT_H_
#define CONCERT_CLIENT_SRC_POINTER_IMPORT_H_

#include "client/src/cuda/driver.h"
#include "concert/concert.h"

namespace concert::client {

// The allocation that the import, a CONCERT_MEMORY_CUDA_POINTER to memory of the GPU, lies in.
// INVALID_ARGUMENT where it does not lie in one of that GPU with all of its bytes.
int FindAllocation(const concert_import& import, const cuda::Uuid& gpu, cuda::PointerInfo* found,
                   concert_error* error);

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_POINTER_IMPORT_H_
