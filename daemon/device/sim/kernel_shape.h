// How the simulator sees one kernel: tiles that each hold an SM for a while and draw on HBM
// meanwhile. Its own model of a GPU, deliberately not the cost model of policies/: what a policy
// predicts must be able to be wrong (ADR 24).
#ifndef CONCERT_DAEMON_DEVICE_SIM_KERNEL_SHAPE_H_
#define CONCERT_DAEMON_DEVICE_SIM_KERNEL_SHAPE_H_

#include <cstdint>
#include <span>

#include "kernels/op.h"
#include "policies/seam/work.h"

namespace concert::daemon::sim {

struct KernelShape {
  int64_t tiles = 1;
  double tile_ns = 0;     // on an SM of its own, HBM to spare
  double tile_bytes = 0;  // HBM traffic of a tile
  double floor_ns = 0;    // from the first tile's start, the kernel takes at least this long
  // Its blocks go on from tile to tile and keep their SMs meanwhile, as the group kernel's do.
  bool persistent = false;
  double behind_ns = 0;  // from the end of what is before it on its lane to its first tile
};

// The shape of a kernel for ops that run on SMs; of several, tiles cost their mean. For a GEMM,
// what a library would choose: 128 x 128 tiles of D (64 rows for m <= 64), and K split over SMs
// that all tiles of the kernel would leave empty; else a tile for each row. At most kMaxTiles
// tiles, larger ones if need be, so that simulating a kernel takes bounded time.
inline constexpr int64_t kMaxTiles = 16384;
KernelShape ShapeOf(const policies::DeviceModel& device, std::span<const kernels::Op* const> ops);

// The same with what a block on each of `sms` SMs computes as one tile: a library's GEMM kernel
// deals its tiles out in advance, so that beside a kernel that holds some SMs the blocks for those
// come when others have ended, and it takes twice as long.
KernelShape InBlocks(const KernelShape& shape, int sms);

}  // namespace concert::daemon::sim

#endif  // CONCERT_DAEMON_DEVICE_SIM_KERNEL_SHAPE_H_
