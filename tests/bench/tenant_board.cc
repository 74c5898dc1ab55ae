#include "tests/bench/tenant_board.h"

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

const char* StepName(TenantStep step) {
  switch (step) {
    case TenantStep::kInputs:
      return "making its inputs";
    case TenantStep::kTurn:
      return "waiting for its turn to open the GPU";
    case TenantStep::kGpu:
      return "opening the GPU";
    case TenantStep::kFirstChains:
      return "running its first chains";
    case TenantStep::kFirstCheck:
      return "checking its first results";
    case TenantStep::kLaps:
      return "running laps";
    case TenantStep::kLastCheck:
      return "checking its last results";
  }
  return "?";
}

void UnmapBoard::operator()(TenantBoard* board) const { munmap(board, sizeof(TenantBoard)); }

absl::StatusOr<MappedBoard> MapBoard(const std::string& path, bool create) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | (create ? O_CREAT | O_EXCL : 0), 0600);
  if (fd < 0) return absl::NotFoundError(absl::StrCat("cannot open the board ", path));
  void* mapped = MAP_FAILED;
  if (!create || ftruncate(fd, sizeof(TenantBoard)) == 0)
    mapped = mmap(nullptr, sizeof(TenantBoard), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED)
    return absl::ResourceExhaustedError(absl::StrCat("cannot map the board ", path));
  // A new file reads as zeros, which is what every field begins with.
  return MappedBoard(static_cast<TenantBoard*>(mapped));
}

void CallLap(TenantBoard& board, uint32_t lap) {
  board.lap.store(lap, std::memory_order_release);  // for AwaitLap's acquire
  Futex(board.lap, FUTEX_WAKE, INT_MAX, nullptr);
}

uint32_t AwaitLap(const TenantBoard& board, uint32_t done) {
  for (;;) {
    const uint32_t lap = board.lap.load(std::memory_order_acquire);  // of CallLap's release
    if (lap != done) return lap;
    Futex(board.lap, FUTEX_WAIT, done, &kNap);
  }
}

void AwaitTurn(const TenantBoard& board, uint32_t index) {
  for (;;) {
    const uint32_t turn = board.turn.load(std::memory_order_acquire);  // of PassTurn's release
    if (turn >= index) return;
    Futex(board.turn, FUTEX_WAIT, turn, &kNap);
  }
}

void PassTurn(TenantBoard& board) {
  board.turn.fetch_add(1, std::memory_order_release);  // for AwaitTurn's acquire
  Futex(board.turn, FUTEX_WAKE, INT_MAX, nullptr);
}

uint64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

}  // namespace concert::bench
