// Collectives between GPUs by kernels of ours, one launch a rank, over memory that every GPU has
// mapped: small messages through inboxes, large ones by bulk copies.
//
// Reductions add in rank order, in fp32, and round once: every rank has the same bits, run after
// run.
//
// Every wait has a bound. A rank that waits in vain reports whom it missed and ends its context:
// what would come after it on the stream must not run, and the peers' results are lost as well.
#include "kernels/comm/peer_bulk.cuh"
#include "kernels/comm/peer_inbox.cuh"

namespace concert::kernels::cuda {

#define CONCERT_SMALL(name, Element, reduces)                                   \
  extern "C" __global__ void __launch_bounds__(kPeerThreads, kSmallBlocksPerSm) \
      peer_small_##name(const __grid_constant__ PeerArgs args) {                \
    LowLatency<Element, reduces>(args);                                         \
  }
CONCERT_SMALL(move_2, uint16_t, false)
CONCERT_SMALL(move_4, uint32_t, false)
CONCERT_SMALL(reduce_bf16, __nv_bfloat16, true)
CONCERT_SMALL(reduce_fp16, __half, true)
CONCERT_SMALL(reduce_fp32, float, true)

#define CONCERT_BULK(name, threads, call)                  \
  extern "C" __global__ void __launch_bounds__(threads, 1) \
      peer_##name(const __grid_constant__ PeerArgs args) { \
    extern __shared__ __align__(128) BulkMemory memory[];  \
    call(args, *memory);                                   \
  }
CONCERT_BULK(push, kPushThreads, Push)
CONCERT_BULK(reduce_bf16, kReduceThreads, (Reduce<__nv_bfloat162, false>))
CONCERT_BULK(reduce_fp16, kReduceThreads, (Reduce<__half2, false>))
CONCERT_BULK(reduce_fp32, kReduceThreads, (Reduce<float2, false>))
CONCERT_BULK(all_reduce_bf16, kReduceThreads, (Reduce<__nv_bfloat162, true>))
CONCERT_BULK(all_reduce_fp16, kReduceThreads, (Reduce<__half2, true>))
CONCERT_BULK(all_reduce_fp32, kReduceThreads, (Reduce<float2, true>))

}  // namespace concert::kernels::cuda
