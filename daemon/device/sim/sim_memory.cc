#include "daemon/device/sim/sim_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "proto/ring/control_abi.h"

namespace concert::daemon::sim {
namespace {

uint64_t PageSize() {
  static const uint64_t size = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return size;
}
uint64_t PageFloor(uint64_t x) { return x & ~(PageSize() - 1); }
// REQUIRES: no overflow, which the memory limit ensures.
uint64_t PageCeil(uint64_t x) { return PageFloor(x + PageSize() - 1); }

// The mapping that holds an allocation; an import may begin and end within a page.
struct Mapping {
  Address begin;
  uint64_t bytes;
};
Mapping MappingOf(Address address, uint64_t bytes) {
  const Address begin = PageFloor(address);
  return {begin, PageCeil(address + bytes) - begin};
}

absl::Status CheckImportable(const ImportRequest& request) {
  if (request.kind != CONCERT_IMPORT_MEMFD) {
    return absl::InvalidArgumentError(absl::StrCat(
        "import kind is ", request.kind,
        ", but the simulator has no CUDA memory; pass a memfd (kind ", CONCERT_IMPORT_MEMFD, ")"));
  }
  const int seals = fcntl(request.fd, F_GET_SEALS);
  if (seals < 0) return absl::InvalidArgumentError("the imported file descriptor is not a memfd");
  if ((seals & F_SEAL_SHRINK) == 0) {
    return absl::InvalidArgumentError(
        "the imported memfd is not sealed; add F_SEAL_SHRINK to it first");
  }
  struct statfs file_system;
  if (fstatfs(request.fd, &file_system) != 0 || file_system.f_type != TMPFS_MAGIC) {
    return absl::InvalidArgumentError(
        "the imported memfd has huge pages; make it without MFD_HUGETLB");
  }
  struct stat file;
  if (fstat(request.fd, &file) != 0)
    return absl::ErrnoToStatus(errno, "fstat of the imported memfd");
  const uint64_t file_bytes = static_cast<uint64_t>(file.st_size);
  uint64_t end;
  if (request.bytes == 0 || request.allocation_bytes > file_bytes ||
      __builtin_add_overflow(request.offset, request.bytes, &end) ||
      end > request.allocation_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "import of ", request.bytes, " bytes at offset ", request.offset, " of an allocation of ",
        request.allocation_bytes, " bytes does not fit the memfd of ", file_bytes, " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Allocation> SimMemory::Map(int fd, uint64_t offset, uint64_t bytes) {
  const uint64_t skip = offset - PageFloor(offset);
  // Compared before rounding up, which may overflow for absurd sizes.
  const uint64_t left = limit_bytes_ - used_bytes_;
  if (bytes > left || PageCeil(skip + bytes) > left) {
    return absl::ResourceExhaustedError(absl::StrCat("GPU ", gpu_, " has ", left, " of ",
                                                     limit_bytes_, " bytes left, but ", bytes,
                                                     " were asked for"));
  }
  const uint64_t mapped = PageCeil(skip + bytes);
  void* data = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                    static_cast<off_t>(offset - skip));
  if (data == MAP_FAILED) {
    const int error = errno;
    // EPERM and EACCES: sealed against writing or opened read-only; both the client's doing.
    if (error == ENOMEM) return absl::ResourceExhaustedError("mmap: out of memory or mappings");
    return absl::InvalidArgumentError(
        absl::StrCat("the memfd cannot be mapped for writing (errno ", error, ")"));
  }
  used_bytes_ += mapped;
  Allocation allocation;
  allocation.address = reinterpret_cast<Address>(data) + skip;
  allocation.bytes = bytes;
  allocation.gpu = gpu_;
  return allocation;
}

absl::StatusOr<Allocation> SimMemory::Allocate(uint64_t bytes) {
  if (bytes == 0) return absl::InvalidArgumentError("an allocation of 0 bytes was asked for");
  if (bytes > limit_bytes_ - used_bytes_) return Map(-1, 0, bytes);  // for its sentence
  const int fd = memfd_create("concert-sim", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return absl::ErrnoToStatus(errno, "memfd_create");
  absl::Cleanup close_fd = [fd] { close(fd); };
  const uint64_t rounded = PageCeil(bytes);
  if (ftruncate(fd, static_cast<off_t>(rounded)) != 0)
    return absl::ErrnoToStatus(errno, "ftruncate of a memfd");
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return absl::ErrnoToStatus(errno, "sealing a memfd");
  }
  absl::StatusOr<Allocation> allocation = Map(fd, 0, rounded);
  if (!allocation.ok()) return allocation;
  allocation->pool = true;
  allocation->export_fd = fd;
  std::move(close_fd).Cancel();
  return allocation;
}

absl::StatusOr<Allocation> SimMemory::Import(const ImportRequest& request) {
  if (absl::Status status = CheckImportable(request); !status.ok()) return status;
  return Map(request.fd, request.offset, request.bytes);
}

void SimMemory::Free(const Allocation& allocation) {
  const Mapping mapping = MappingOf(allocation.address, allocation.bytes);
  munmap(reinterpret_cast<void*>(mapping.begin), mapping.bytes);
  used_bytes_ -= mapping.bytes;
}

}  // namespace concert::daemon::sim
