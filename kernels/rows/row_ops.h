// Ops that the row kernel carries.
#ifndef CONCERT_KERNELS_ROWS_ROW_OPS_H_
#define CONCERT_KERNELS_ROWS_ROW_OPS_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/op.h"

namespace concert::kernels::cuda {

struct LaunchContext;
struct RowArgs;

// Whether one launch can carry them all.
bool AreRows(std::span<const Op* const> ops);

// Fills in the tasks of `ops` but for their places in chains, with about `max_blocks` blocks in
// all, at least one for each. Returns how many. REQUIRES: AreRows(ops).
unsigned LowerRows(std::span<const Op* const> ops, unsigned max_blocks, RowArgs& args);

// One launch behind all that the context's stream has; OpKind::launch_together. REQUIRES:
// AreRows(ops).
absl::Status LaunchRows(LaunchContext& context, std::span<const Op* const> ops,
                        const uint32_t* there = nullptr);
// OpKind::launch.
absl::Status LaunchRow(LaunchContext& context, const Op& op);

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_ROWS_ROW_OPS_H_
