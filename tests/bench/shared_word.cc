#include "tests/bench/shared_word.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

#include "absl/strings/str_cat.h"

namespace concert::bench {
namespace {

// Bounds one sleep. How often it is repeated is bounded by the suite's life: clients die with it.
constexpr timespec kNap = {.tv_sec = 0, .tv_nsec = 100'000'000};

// Shared between processes, so not FUTEX_PRIVATE_FLAG.
void Futex(const std::atomic<uint32_t>& word, int operation, uint32_t value,
           const timespec* timeout) {
  syscall(SYS_futex, reinterpret_cast<const uint32_t*>(&word), operation, value, timeout, nullptr,
          0);
}

}  // namespace

void WakeSleepers(const std::atomic<uint32_t>& word) { Futex(word, FUTEX_WAKE, INT_MAX, nullptr); }

void SleepWhile(const std::atomic<uint32_t>& word, uint32_t seen) {
  Futex(word, FUTEX_WAIT, seen, &kNap);
}

absl::StatusOr<void*> MapSharedFile(const std::string& path, size_t bytes, bool create) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | (create ? O_CREAT | O_EXCL : 0), 0600);
  if (fd < 0) return absl::NotFoundError(absl::StrCat("cannot open the board ", path));
  void* mapped = MAP_FAILED;
  if (!create || ftruncate(fd, static_cast<off_t>(bytes)) == 0)
    mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED)
    return absl::ResourceExhaustedError(absl::StrCat("cannot map the board ", path));
  return mapped;
}

uint64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

}  // namespace concert::bench
