// The part of a group kernel's block that stores results and signals timelines: one thread per
// computing warpgroup.
#ifndef CONCERT_KERNELS_GROUP_STORE_CUH_
#define CONCERT_KERNELS_GROUP_STORE_CUH_

#include <cstdint>

#include "kernels/group/async.cuh"
#include "kernels/group/block.cuh"
#include "kernels/group/group_args.h"

namespace concert::kernels::cuda {

inline constexpr int kPollsBeforeCounting = 8;  // some 0.2 us
inline constexpr int kLooksBeforeLeaving = 64;  // some 40 us

// Counts wrap.
__device__ __forceinline__ bool Reached(uint32_t count, uint32_t target) {
  return static_cast<int32_t>(count - target) >= 0;
}

// Problems whose timelines this thread must write: those of which it has stored the last tile.
// Other blocks may still be at work on their other tiles.
class Watch {
 public:
  __device__ __forceinline__ Watch(const GroupArgs& args, uint16_t* problems)
      : args_(args), problems_(problems) {}

  __device__ __forceinline__ bool empty() const { return count_ == 0; }
  __device__ __forceinline__ void Add(int problem) {
    if (count_ == kGroupMaxWatched) Look();
    if (count_ == kGroupMaxWatched) return HandOver(problem);  // more than as many: hand_over
    problems_[count_++] =
        static_cast<uint16_t>(problem | (Follows(TaskOf(args_, problem)) ? 0 : kIsNext));
  }
  // Looks at one of the problems, each time at another one, and signals it if it is stored and next
  // on its timeline: of two stores to one word from two SMs, the second waits until the first is
  // seen. That read goes to the host, so it is under way while the count is read.
  __device__ __forceinline__ void Look() {
    if (next_ >= count_) next_ = 0;
    const int problem = problems_[next_] & ~kIsNext;
    bool is_next = (problems_[next_] & kIsNext) != 0;
    const GroupTask& task = TaskOf(args_, problem);
    const uint64_t timeline = is_next ? task.signal_value : LoadRelaxedSystem(task.signal_address);
    const bool stored = Reached(LoadRelaxed(&args_.own().stored[problem]), task.stored);
    is_next |= timeline + 1 >= task.signal_value;
    if (stored && is_next) {
      Signal(task);
      problems_[next_] = problems_[--count_];
      return;
    }
    if (is_next) problems_[next_] = static_cast<uint16_t>(problem | kIsNext);
    ++next_;
  }

  // After the last problem has been stored and counted: ends when all are signalled or handed over.
  __device__ __forceinline__ void Leave() {
    for (int looks = 0; !empty() && !(args_.hand_over && looks == kLooksBeforeLeaving); ++looks) {
      Look();
    }
    if (!args_.hand_over) return;
    while (!empty()) HandOver(problems_[--count_] & ~kIsNext);
    GroupCounters& counters = args_.own();
    // Releases what this thread has counted and handed over to the last one, which acquires it.
    if (AddAcquireRelease(&counters.left, 1) != 2 * gridDim.x - 1) return;
    counters.left = 0;
    for (int word = 0; word < kMaxGroupProblems / 32; ++word) {
      uint32_t bits = atomicExch(&counters.handed_over[word], 0u);
      for (; bits != 0; bits &= bits - 1) {
        const GroupTask& task = TaskOf(args_, 32 * word + __ffs(bits) - 1);
        while (Follows(task) && LoadRelaxedSystem(task.signal_address) + 1 < task.signal_value) {
        }
        Signal(task);
      }
    }
  }

 private:
  static constexpr int kIsNext = 1 << 15;  // in problems_, with the problem

  // Whether the timeline's value before this one may not have been written yet.
  __device__ __forceinline__ bool Follows(const GroupTask& task) const {
    return args_.inputs_early && (task.flags & GroupRecord::kNextOnTimeline) != 0;
  }
  __device__ __forceinline__ void HandOver(int problem) const {
    atomicOr(&args_.own().handed_over[problem / 32], 1u << problem % 32);
  }
  __device__ __forceinline__ void Signal(const GroupTask& task) const {
    // Acquires what was stored before it was counted, releases it to whoever acquires the timeline.
    FenceSystem();
    StoreRelaxedSystem(task.signal_address, task.signal_value);
  }

  const GroupArgs& args_;
  uint16_t* problems_;
  int count_ = 0, next_ = 0;
};

// Halves of tiles of one problem that this thread has stored but not yet counted.
struct Uncounted {
  int problem = 0, halves = 0;

  // They happen before the count (release: Watch, WaitForPredecessor).
  __device__ __forceinline__ void Count(const GroupArgs& args) {
    if (halves == 0) return;
    WaitStoresDone();
    FenceTensorCopies();
    AddRelease(&args.own().stored[problem], halves);
    halves = 0;
  }
};

// Stores what the computing warpgroup hands over. Counting waits for memory, so it is put off until
// nothing has been handed over for a moment or another problem's turn has come.
template <class Config>
__device__ __forceinline__ void Store(const GroupArgs& args, const Shared& shared, int warpgroup) {
  const volatile Message& message = shared.tail->message[warpgroup];
  const uint32_t staging = shared.staging + warpgroup * Config::kStagingBytes;
  const uint32_t handed_over = shared.handed_over + 8 * warpgroup;
  const uint32_t taken = shared.taken + 8 * warpgroup;
  // The first item's map is acquired while the first tile is computed.
  int map_problem = -1;
  const CUtensorMap* map = nullptr;
  if (const Item first = Items<Config>(args).Next(); !first.end()) {
    map_problem = first.problem();
    map = MapOf(args, map_problem, &GroupMaps::d);
  }
  Uncounted uncounted;
  Watch watch(args, shared.tail->watched[warpgroup]);
  for (uint32_t parity = 0;; parity ^= 1) {
    for (int polls = 0; !TestParity(handed_over, parity); ++polls) {
      if (polls == kPollsBeforeCounting) uncounted.Count(args);
      if (polls > kPollsBeforeCounting && !watch.empty()) watch.Look();
    }
    const int flags = message.flags, problem = message.problem;
    if (flags & Message::kExit) break;
    if (problem != uncounted.problem) uncounted.Count(args);
    if (flags & Message::kStore) {
      if (problem != map_problem) map = MapOf(args, problem, &GroupMaps::d);
      map_problem = problem;
      StoreTile(map, staging, message.x, message.y);
      WaitStoresRead();
    }
    if (flags & Message::kTileDone) {
      uncounted.problem = problem;
      ++uncounted.halves;
      const bool signals = TaskOf(args, problem).signal_address != 0;
      if ((flags & Message::kLastTile) && signals) watch.Add(problem);
    }
    Arrive(taken);
  }
  uncounted.Count(args);
  watch.Leave();
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GROUP_STORE_CUH_
