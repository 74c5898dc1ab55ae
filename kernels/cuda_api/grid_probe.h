// How many blocks a library launches, seen without running anything: the launch is captured into a
// graph, which is read and thrown away.
#ifndef CONCERT_KERNELS_CUDA_API_GRID_PROBE_H_
#define CONCERT_KERNELS_CUDA_API_GRID_PROBE_H_

#include <cstdint>

#include "kernels/cuda_api/driver.h"

namespace concert::kernels::cuda {

// Begins a capture of `stream`, which the caller's thread alone uses and on which nothing ever
// runs; the destructor ends it. Relaxed mode: the library may load its kernels meanwhile, and other
// threads launch, query and allocate as if nothing were captured.
class GridProbe {
 public:
  GridProbe(const Driver& driver, CUstream stream);
  GridProbe(const GridProbe&) = delete;
  GridProbe& operator=(const GridProbe&) = delete;
  ~GridProbe();

  bool capturing() const { return capturing_; }
  // Ends the capture. The blocks of the largest kernel enqueued on the stream since (several of one
  // stream run one after the other); 0 where the driver does not say.
  uint32_t Blocks();

 private:
  void EndCapture();
  uint32_t LargestGrid() const;

  const Driver& driver_;
  const CUstream stream_;
  CUgraph graph_ = nullptr;
  bool capturing_ = false;
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_CUDA_API_GRID_PROBE_H_
