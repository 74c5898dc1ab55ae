#include "daemon/quota/machine.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <string>

namespace concert::daemon {
namespace {

constexpr uint64_t kDefaultMaxMappings = 65'530;  // of Linux, where it does not say
// What operator new gets when it would fail: some tens of times what one request allocates.
constexpr uint64_t kReserveBytes = uint64_t{32} << 20;
// What clients leave to threads' stacks (8 MiB each, gRPC makes up to eight) and malloc's arenas
// (64 MiB).
constexpr uint64_t kHeadroomBytes = uint64_t{128} << 20;

std::atomic<void*> g_reserve{nullptr};

uint64_t MaxMappings() {
  std::ifstream file("/proc/sys/vm/max_map_count");
  uint64_t count = 0;
  return file >> count ? count : kDefaultMaxMappings;
}

uint64_t MappingsInUse() {
  std::ifstream file("/proc/self/maps");
  return static_cast<uint64_t>(
      std::count(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>(), '\n'));
}

uint64_t DescriptorsInUse() {
  std::error_code error;
  const std::filesystem::directory_iterator fds("/proc/self/fd", error);
  return error ? 0 : static_cast<uint64_t>(std::distance(begin(fds), end(fds)));
}

void Fit(Limit& limit, uint64_t most, uint64_t in_use) {
  const uint64_t kept = in_use + most / 8;
  limit.in_all = std::min(limit.in_all, most > kept ? most - kept : 0);
  limit.per_user = std::min(limit.per_user, limit.in_all / 2);
}

void* MapUntouched(uint64_t bytes, int protection) {
  void* data = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data == MAP_FAILED ? nullptr : data;
}

// The new_handler: called where operator new would throw; when it returns, the allocation is tried
// again.
void GiveReserve() {
  if (void* data = g_reserve.exchange(nullptr)) {
    munmap(data, kReserveBytes);
  } else {
    std::set_new_handler(nullptr);
  }
}

bool HoldReserve() {
  if (g_reserve.load() != nullptr) return true;
  void* data = MapUntouched(kReserveBytes, PROT_READ | PROT_WRITE);
  if (data == nullptr) return false;
  void* none = nullptr;
  if (!g_reserve.compare_exchange_strong(none, data)) munmap(data, kReserveBytes);
  std::set_new_handler(GiveReserve);
  return true;
}

}  // namespace

void FitToMachine(Limits& limits) {
  Fit(limits[Resource::kMappings], MaxMappings(), MappingsInUse());
  rlimit descriptors{};
  if (getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
    Fit(limits[Resource::kDescriptors], descriptors.rlim_cur, DescriptorsInUse());
  }
}

MemoryReserve::MemoryReserve() { HoldReserve(); }

MemoryReserve::~MemoryReserve() {
  std::set_new_handler(nullptr);
  if (void* data = g_reserve.exchange(nullptr)) munmap(data, kReserveBytes);
}

bool MemoryReserve::Allows(uint64_t bytes) {
  uint64_t wanted;
  if (__builtin_add_overflow(bytes, kHeadroomBytes, &wanted)) return false;
  // PROT_NONE: takes address space and a mapping, but no promise of memory that would count.
  void* probe = MapUntouched(wanted, PROT_NONE);
  if (probe == nullptr) return false;
  munmap(probe, wanted);
  return HoldReserve();
}

absl::Status OutOfMemory() {
  return absl::ResourceExhaustedError(
      "the daemon is short of memory; try again when others have released theirs, or give it more "
      "address space (ulimit -v, LimitAS=)");
}

}  // namespace concert::daemon
