// Hopper's asynchronous copies, the barriers in shared memory that they arrive at, and what else
// the group kernel needs of PTX. One function per instruction.
#ifndef CONCERT_KERNELS_GROUP_ASYNC_CUH_
#define CONCERT_KERNELS_GROUP_ASYNC_CUH_

#include <cuda.h>

#include <cstdint>

namespace concert::kernels::cuda {

__device__ __forceinline__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// --- mbarriers ---

__device__ __forceinline__ void InitBarrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
// Makes initialised barriers known to the copy engine of the SM.
__device__ __forceinline__ void PublishBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// As so many arrivals.
__device__ __forceinline__ void ArriveTimes(uint32_t barrier, uint32_t times) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(times)
               : "memory");
}
__device__ __forceinline__ void ArriveExpecting(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// At a barrier of a block of the cluster (InBlock).
__device__ __forceinline__ void ArriveInCluster(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Until the phase of this parity has ended. Ends for certain: what it waits for are copies already
// issued and threads of this block that wait for nothing else.
__device__ __forceinline__ void WaitParity(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Whether that phase has ended. Not try_wait, which keeps its thread for a microsecond or more,
// however short a time it is told: of 32 2048x1024x1024 in one launch, the first then signals after
// 240 us, with the last, instead of 50 (one H200).
__device__ __forceinline__ bool TestParity(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n.reg .pred done;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// How the L2 cache is to treat what a copy brings: as the first to give up, since it is read once.
class CacheHint {
 public:
  static __device__ __forceinline__ CacheHint ReadOnce() {
    CacheHint hint;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(hint.policy_));
    return hint;
  }
  __device__ __forceinline__ uint64_t policy() const { return policy_; }

 private:
  uint64_t policy_;
};

// --- Copies by threads ---

// 16 bytes; 0 `bytes`: zeros. Not through the L1 cache.
__device__ __forceinline__ void CopyUnit(uint32_t shared, uint64_t from, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void CopyUnit(uint32_t shared, uint64_t from, CacheHint hint) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared),
               "l"(from), "l"(hint.policy())
               : "memory");
}
// Until all that this thread has copied so far is there, for itself.
__device__ __forceinline__ void WaitUnitsCopied() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}
// What this thread has copied since the last call is a group.
__device__ __forceinline__ void CommitUnits() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until at most the last kGroups of this thread's groups are not there, for itself.
template <int kGroups>
__device__ __forceinline__ void WaitForUnits() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}
// Once all that this thread has copied so far is there; the barrier counts it as it does Arrive.
__device__ __forceinline__ void ArriveWhenCopied(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// --- Bulk copies ---

// Multiples of 16 bytes, from and to multiples of 16 bytes.
__device__ __forceinline__ void LoadBytes(uint32_t shared, uint64_t from, uint32_t bytes,
                                          uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// --- Tensor copies ---

__device__ __forceinline__ void LoadTile(uint32_t shared, const CUtensorMap* map, uint32_t barrier,
                                         int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
      "%4}], [%2];" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}
__device__ __forceinline__ void LoadTile(uint32_t shared, const CUtensorMap* map, uint32_t barrier,
                                         int x, int y, CacheHint hint) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "l"(hint.policy())
      : "memory");
}
__device__ __forceinline__ void LoadBox(uint32_t shared, const CUtensorMap* map, uint32_t barrier,
                                        const uint32_t (&place)[3], CacheHint hint) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(place[0]), "r"(place[1]), "r"(place[2]), "l"(hint.policy())
      : "memory");
}
__device__ __forceinline__ void LoadBox(uint32_t shared, const CUtensorMap* map, uint32_t barrier,
                                        const uint32_t (&place)[4], CacheHint hint) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(place[0]), "r"(place[1]), "r"(place[2]), "r"(place[3]),
      "l"(hint.policy())
      : "memory");
}
// Multiples of 16 bytes, on their way to the L2 cache.
__device__ __forceinline__ void PrefetchBytes(uint64_t from, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
// Into both blocks of a pair, at the same place in each; each one's barrier counts its bytes.
__device__ __forceinline__ void LoadTileForPair(uint32_t shared, const CUtensorMap* map,
                                                uint32_t barrier, int x, int y) {
  constexpr uint16_t kBoth = 0b11;
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(kBoth)
      : "memory");
}
__device__ __forceinline__ void StoreTile(const CUtensorMap* map, uint32_t shared, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
      "r"(shared), "r"(x), "r"(y)
      : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until this thread's stores have read their shared memory.
__device__ __forceinline__ void WaitStoresRead() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
// Until this thread's stores are done and visible to it.
__device__ __forceinline__ void WaitStoresDone() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
// Maps in global memory are read through a proxy of their own; the host wrote them by a copy (CUDA
// C++ Programming Guide, "Tensor map in global memory"). Every use needs it, however old the copy:
// an SM may keep what lay here before, beyond the launch.
__device__ __forceinline__ void AcquireMap(const CUtensorMap* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(map) : "memory");
}
// Orders this thread's accesses to global memory with tensor copies of the same memory.
__device__ __forceinline__ void FenceTensorCopies() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}
// Makes this thread's writes to shared memory visible to tensor stores.
__device__ __forceinline__ void PublishShared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// --- Pairs of blocks (clusters) ---

// This block's place in its cluster.
__device__ __forceinline__ int ClusterRank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
// The same place in the shared memory of the cluster's block `rank`.
__device__ __forceinline__ uint32_t InBlock(uint32_t shared, int rank) {
  uint32_t mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(shared), "r"(rank));
  return mapped;
}
// As __syncthreads, of all blocks of the cluster.
__device__ __forceinline__ void SyncCluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// --- Named barriers ---

__device__ __forceinline__ void NamedSync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// One thread of a warp, the same one every time. The compiler knows by `is_leader` that only one
// thread goes on, so that copies, whose operands are in registers that a warp shares, need no loop
// over threads.
struct Election {
  uint32_t leader;  // lane
  bool is_leader;
};
// REQUIRES: all threads of the warp call it.
__device__ __forceinline__ Election Elect() {
  uint32_t leader, is_leader;
  asm volatile(
      "{\n.reg .pred elected;\n"
      "elect.sync %0|elected, 0xffffffff;\n"
      "selp.u32 %1, 1, 0, elected;\n}"
      : "=r"(leader), "=r"(is_leader));
  return {leader, is_leader != 0};
}

// --- Programmatic dependent launch ---

// Dependent launches exist on compute capability 9.0 and later; elsewhere launches do not overlap.

// Lets the next launch of the stream start as soon as SMs are free.
__device__ __forceinline__ void ReleaseNextLaunch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Until the previous launch of the stream has ended and all it wrote is visible.
__device__ __forceinline__ void WaitForPreviousLaunch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// --- Registers of a warpgroup ---

template <int kCount>
__device__ __forceinline__ void ReleaseRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ __forceinline__ void ClaimRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// Four 8x8 matrices of 16-bit elements, transposed on the way.
__device__ __forceinline__ void StoreTransposed(uint32_t shared, uint32_t a, uint32_t b, uint32_t c,
                                                uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

// --- Time ---

// The same on all SMs.
__device__ __forceinline__ uint64_t NowNs() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// --- Memory ordering ---

__device__ __forceinline__ void AddRelease(uint32_t* address, uint32_t value) {
  asm volatile("red.add.release.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}
// The value before.
__device__ __forceinline__ uint32_t AddAcquireRelease(uint32_t* address, uint32_t value) {
  uint32_t before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(address), "r"(value)
               : "memory");
  return before;
}
// Element by element, each addition for itself.
__device__ __forceinline__ void AddVector(float4* address, float4 value) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(address),
               "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w)
               : "memory");
}
__device__ __forceinline__ uint32_t LoadRelaxed(const uint32_t* address) {
  uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}
__device__ __forceinline__ uint32_t LoadAcquire(const uint32_t* address) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}
__device__ __forceinline__ uint64_t LoadRelaxedSystem(uint64_t address) {
  uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  return value;
}
__device__ __forceinline__ void StoreRelaxedSystem(uint64_t address, uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}
__device__ __forceinline__ void FenceSystem() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GROUP_ASYNC_CUH_
