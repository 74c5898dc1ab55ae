#include "daemon/session/own_memory.h"

#include <array>
#include <span>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "daemon/quota/machine.h"
#include "proto/unique_fd.h"

namespace concert::daemon {
namespace {

std::array<Charge, 2> ChargesOfOwn(uint64_t bytes) {
  return {{{Resource::kMappings, 1}, {Resource::kBufferBytes, bytes}}};
}

}  // namespace

absl::StatusOr<Allocation> AllocateOwn(Device& device, Account& account, uint64_t bytes) {
  if (absl::Status status = account.ChargeAll(ChargesOfOwn(bytes)); !status.ok()) return status;
  absl::Cleanup give_back = [&] { account.ReleaseAll(ChargesOfOwn(bytes)); };
  if (!MemoryReserve::Allows(bytes)) return OutOfMemory();
  absl::StatusOr<Allocation> allocation = device.Allocate(bytes);
  if (!allocation.ok()) return allocation;
  const UniqueFd exported(std::exchange(allocation->export_fd, -1));  // nobody else's
  const Charge rounding{Resource::kBufferBytes, allocation->bytes - bytes};
  if (absl::Status status = account.ChargeAll(std::span(&rounding, 1)); !status.ok()) {
    device.Free(*allocation);
    return status;
  }
  std::move(give_back).Cancel();
  return allocation;
}

void FreeOwn(Device& device, Account& account, const Allocation& allocation) {
  device.Free(allocation);
  account.ReleaseAll(ChargesOfOwn(allocation.bytes));
}

}  // namespace concert::daemon
