// The part of a group kernel's block that stores results and signals timelines: one thread per
// computing warpgroup, but for a block's last tile, which who computes it stores.
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

// Problems whose timelines this thread must write: those whose last tile its warpgroup has
// computed. Other blocks may still be at work on their other tiles.
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

  // After the last message, when what this thread has stored is counted: ends when all are
  // signalled or handed over.
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
    // Acquires what was stored before it was counted (release: CountStored), releases it to whoever
    // acquires the timeline.
    FenceSystem();
    StoreRelaxedSystem(task.signal_address, task.signal_value);
  }

  const GroupArgs& args_;
  uint16_t* problems_;
  int count_ = 0, next_ = 0;
};

// Counts halves of tiles that this thread has stored, or its warpgroup element by element. They
// happen before the count (release; acquire: Watch::Signal, WaitForPredecessor).
__device__ __forceinline__ void CountStored(const GroupArgs& args, int problem, int halves) {
  WaitStoresDone();
  FenceTensorCopies();
  AddRelease(&args.own().stored[problem], halves);
}

// Halves of tiles of one problem that this thread has stored but not yet counted.
struct Uncounted {
  int problem = 0, halves = 0;

  __device__ __forceinline__ void Count(const GroupArgs& args) {
    if (halves == 0) return;
    CountStored(args, problem, halves);
    halves = 0;
  }
};

// Tells the thread that stores for the warpgroup (release; acquire: TestParity in Store). REQUIRES:
// it has taken the last message.
__device__ __forceinline__ void Tell(const Shared& shared, int warpgroup, const Message& message) {
  volatile Message& told = shared.tail->message[warpgroup];
  told.problem = message.problem;
  told.x = message.x;
  told.y = message.y;
  told.flags = message.flags;
  Arrive(shared.handed_over + 8 * warpgroup);
}

// Whether who computes a block's last tile stores and counts it, unless it is split: handing it
// over took 0.1 to 0.4 us of each step of a chain (one H200). Not where maps are in memory, since a
// thread that computes has no time to acquire them. Nor where blocks hand problems over:
// Watch::Leave takes a storing thread that has left for one whose warpgroup's tiles are all
// counted.
__device__ __forceinline__ bool WhoComputesLastStores(const GroupArgs& args) {
  return args.maps_inline && !args.hand_over;
}

// In place of telling the storing thread, for each chunk of a block's last tile: stores it and, if
// the tile is done, counts it. Left to the storing thread, which is told to exit, are counting
// earlier tiles and watching. REQUIRES: WhoComputesLastStores(); the storing thread has taken all
// messages before; the computing warpgroup's leading thread calls it.
__device__ __forceinline__ void StoreLast(const GroupArgs& args, const Shared& shared,
                                          int warpgroup, uint32_t staging, const Message& message) {
  if (message.flags & Message::kStore) {
    StoreTile(&args.few.maps[message.problem].d, staging, message.x, message.y);
  }
  if (!(message.flags & Message::kTileDone)) {
    WaitStoresRead();
    Arrive(shared.taken + 8 * warpgroup);
    return;
  }
  // While the store goes on: the storing thread, if it is to watch, waits for the count, as it does
  // for other blocks'.
  Tell(shared, warpgroup,
       {message.problem, 0, 0, Message::kExit | (message.flags & Message::kLastTile)});
  CountStored(args, message.problem, 1);
}

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
    }
    if ((flags & Message::kLastTile) && TaskOf(args, problem).signal_address != 0) {
      watch.Add(problem);
    }
    if (flags & Message::kExit) break;
    Arrive(taken);
  }
  uncounted.Count(args);
  watch.Leave();
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GROUP_STORE_CUH_
