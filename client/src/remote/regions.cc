#include "client/src/remote/regions.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "client/src/failure.h"

namespace concert::client {
namespace {

constexpr uint64_t kRegionBytesMax = 1ull << 30;
constexpr uint32_t kRingCapacityMax = 1u << 20;

int BadLayout(concert_error* error, const char* field, uint64_t value, const char* rule) {
  return Fail(error, CONCERT_FAILED_PRECONDITION,
              "the daemon's layout cannot be used: %s is %llu; it must be %s", field,
              static_cast<unsigned long long>(value), rule);
}

// `count` items of `size` bytes from `offset` lie in a region of `region_bytes`. All factors are
// bounded by the checks before (count <= 2^20, size <= 320, offset <= 2^30), so nothing overflows.
int CheckArray(const char* field, uint64_t offset, uint64_t count, uint64_t size,
               uint64_t region_bytes, concert_error* error) {
  if (offset % 64 != 0) return BadLayout(error, field, offset, "a multiple of 64");
  if (offset > region_bytes || count * size > region_bytes - offset) {
    return BadLayout(error, field, offset, "so small that its array fits in the region");
  }
  return CONCERT_OK;
}

bool IsPowerOfTwo(uint32_t value) { return value != 0 && (value & (value - 1)) == 0; }

int CheckRing(const concert_layout& layout, uint32_t index, concert_error* error) {
  const concert_ring_layout& ring = layout.rings[index];
  if (ring.gpu >= CONCERT_MAX_RINGS) return BadLayout(error, "rings.gpu", ring.gpu, "below 16");
  for (uint32_t other = 0; other < index; ++other) {
    if (layout.rings[other].gpu == ring.gpu) {
      return BadLayout(error, "rings.gpu", ring.gpu, "different for every ring");
    }
  }
  if (!IsPowerOfTwo(ring.capacity) || ring.capacity > kRingCapacityMax) {
    return BadLayout(error, "rings.capacity", ring.capacity, "a power of two up to 2^20");
  }
  if (!IsPowerOfTwo(ring.completion_capacity) || ring.completion_capacity > kRingCapacityMax ||
      ring.completion_capacity < ring.capacity) {
    return BadLayout(error, "rings.completion_capacity", ring.completion_capacity,
                     "a power of two up to 2^20 and at least the capacity");
  }
  if (int code = CheckArray("rings.descriptors_offset", ring.descriptors_offset, ring.capacity,
                            sizeof(concert_descriptor), layout.client_bytes, error)) {
    return code;
  }
  return CheckArray("rings.completions_offset", ring.completions_offset, ring.completion_capacity,
                    sizeof(concert_completion), layout.daemon_bytes, error);
}

int CheckLayout(const concert_layout& layout, concert_error* error) {
  const auto bytes_ok = [](uint64_t bytes) { return bytes >= 4096 && bytes <= kRegionBytesMax; };
  const auto in_range = [](uint32_t value, uint32_t max) { return value >= 1 && value <= max; };
  if (!bytes_ok(layout.client_bytes)) {
    return BadLayout(error, "client_bytes", layout.client_bytes, "between 4096 and 2^30");
  }
  if (!bytes_ok(layout.daemon_bytes)) {
    return BadLayout(error, "daemon_bytes", layout.daemon_bytes, "between 4096 and 2^30");
  }
  if (!in_range(layout.ring_count, CONCERT_MAX_RINGS)) {
    return BadLayout(error, "ring_count", layout.ring_count, "between 1 and 16");
  }
  if (!in_range(layout.max_queues, CONCERT_MAX_QUEUES)) {
    return BadLayout(error, "max_queues", layout.max_queues, "between 1 and 256");
  }
  if (layout.max_user_timelines > CONCERT_MAX_USER_TIMELINES) {
    return BadLayout(error, "max_user_timelines", layout.max_user_timelines, "at most 64");
  }
  const struct {
    const char* field;
    uint64_t offset, count, size, region_bytes;
  } arrays[] = {
      {"submit_controls", 0, layout.ring_count, sizeof(concert_submit_control),
       layout.client_bytes},
      {"waiters_offset", layout.waiters_offset, layout.max_queues, sizeof(uint32_t),
       layout.client_bytes},
      {"user_timelines_offset", layout.user_timelines_offset, layout.max_user_timelines,
       sizeof(concert_timeline), layout.client_bytes},
      {"ring_states_offset", layout.ring_states_offset, layout.ring_count,
       sizeof(concert_ring_state), layout.daemon_bytes},
      {"timelines_offset", layout.timelines_offset, layout.max_queues, sizeof(concert_timeline),
       layout.daemon_bytes},
  };
  for (const auto& array : arrays) {
    if (int code = CheckArray(array.field, array.offset, array.count, array.size,
                              array.region_bytes, error)) {
      return code;
    }
  }
  for (uint32_t i = 0; i < layout.ring_count; ++i) {
    if (int code = CheckRing(layout, i, error)) return code;
  }
  return CONCERT_OK;
}

// Without the seals, a daemon that dies in the middle of a resize could make our accesses fault.
int CheckSealed(const char* name, int fd, uint64_t bytes, concert_error* error) {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return Fail(error, CONCERT_FAILED_PRECONDITION,
                "the daemon's %s region is not sealed against resizing", name);
  }
  struct stat status;
  if (fstat(fd, &status) != 0 || static_cast<uint64_t>(status.st_size) < bytes) {
    return Fail(error, CONCERT_FAILED_PRECONDITION,
                "the daemon's %s region is smaller than the %llu bytes of its layout", name,
                static_cast<unsigned long long>(bytes));
  }
  return CONCERT_OK;
}

}  // namespace

int Regions::Map(const concert_layout& layout, const UniqueFd& client_fd, const UniqueFd& daemon_fd,
                 concert_error* error) {
  if (int code = CheckLayout(layout, error)) return code;
  if (int code = CheckSealed("client", client_fd.get(), layout.client_bytes, error)) return code;
  if (int code = CheckSealed("daemon", daemon_fd.get(), layout.daemon_bytes, error)) return code;
  layout_ = layout;
  client_ = Mapping(client_fd.get(), layout.client_bytes, PROT_READ | PROT_WRITE);
  daemon_ = Mapping(daemon_fd.get(), layout.daemon_bytes, PROT_READ);
  if (!client_.valid() || !daemon_.valid()) {
    return Fail(error, CONCERT_RESOURCE_EXHAUSTED, "cannot map the session's memory: %s",
                strerror(errno));
  }
  return CONCERT_OK;
}

}  // namespace concert::client
