#include "kernels/copy/copy_op.h"
#include "kernels/cuda_api/launch_context.h"

namespace concert::kernels::cuda {

absl::Status LaunchCopy(LaunchContext& context, const Op& op) {
  // Unified addressing: the driver sees from the addresses whether the copy stays on the GPU.
  const CUresult result =
      context.api.driver.cuMemcpyDtoDAsync(op.copy.dst, op.copy.src, op.copy.bytes, context.stream);
  return context.api.driver.ToStatus(result, "cuMemcpyDtoDAsync", context.gpu);
}

}  // namespace concert::kernels::cuda
