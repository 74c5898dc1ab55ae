// Which batches of a ring come again and again, by their descriptors' bytes, and which of them the
// daemon has as programs. Pure: no daemon, no clock. Not thread-safe: under the ring's lock.
#ifndef CONCERT_CLIENT_SRC_REMOTE_REPEATED_BATCHES_H_
#define CONCERT_CLIENT_SRC_REMOTE_REPEATED_BATCHES_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "proto/ring/control_abi.h"

namespace concert::client {

// Descriptors of a ring, from position `begin` on, as they stand in its slots.
struct BatchView {
  const concert_descriptor* slots = nullptr;
  uint64_t mask = 0;  // the ring's capacity - 1
  uint64_t begin = 0;
  uint32_t count = 0;

  const concert_descriptor& operator[](uint32_t i) const { return slots[(begin + i) & mask]; }
};

// A batch that is to become a program: its ops, as concert_create_program wants them.
struct BatchToRegister {
  uint64_t batch = 0;  // what Registered calls it by
  std::vector<concert_descriptor> ops;
};

class RepeatedBatches {
 public:
  // An op costs the dispatcher 0.7 us and its launch some 5; a program has a fixed price in memory.
  static constexpr uint32_t kMinOps = 4;
  // Batches that are remembered, and those of them that may be programs: each takes GPU memory for
  // a workspace.
  static constexpr size_t kBatches = 8, kPrograms = 4;
  // So often a batch is submitted op by op before it becomes a program: one that comes rarely must
  // not pay for its registration, some milliseconds of the daemon's.
  static constexpr uint32_t kTimes = 4;
  // A program makes room for another when so many batches came since its last run, so that more
  // than kPrograms batches that take turns do not push one another out.
  static constexpr uint64_t kIdleAfter = 64;

  // Behind so many batches that were all new, only one in kEvery is looked at, but for those that
  // are programs: comparing and copying one of 200 ops takes 20 us. Odd, as those that take turns
  // are often two or four.
  static constexpr uint32_t kPatience = 16;
  static constexpr uint64_t kEvery = 7;

  struct Program {
    uint32_t handle = 0;         // 0: it is none
    uint32_t better_as_ops = 0;  // concert_company: in any of it, its ops are better single

    bool beside_runs() const { return better_as_ops == CONCERT_COMPANY_OF_OPS; }
  };

  // What stands for such a batch. Allocates nothing. Once for each batch, before Learn.
  Program Find(const BatchView& batch);

  // Counts the batch that Find has found to be no program. What it gives is to be registered, and
  // Registered to be told. `released`: a program that makes room for it, if that is needed; its
  // runs are published.
  std::optional<BatchToRegister> Learn(const BatchView& batch, uint32_t* released);

  // Handle 0: it was refused, and is submitted op by op for as long as it is remembered. False if
  // it was forgotten meanwhile: the program is to be released.
  bool Registered(uint64_t batch, const Program& program);

  // Whether what Learn gave is wanted still: nothing of it was forgotten.
  bool Wants(uint64_t batch) const;
  // It was not registered yet, and is wanted again when it comes again.
  void Postponed(uint64_t batch);

  // Programs to be released.
  struct Released {
    std::array<uint32_t, kPrograms> programs{};
    size_t count = 0;

    std::span<const uint32_t> span() const { return std::span(programs).first(count); }
  };

  // Forgets batches that name the buffer, all of a queue, or all. Allocates nothing.
  Released ForgetBuffer(uint32_t buffer);
  Released ForgetQueue(uint32_t queue);
  Released ForgetAll();

 private:
  enum class State : uint8_t { kNone, kCounted, kAsked, kProgram, kRefused };
  struct Entry {
    State state = State::kNone;
    uint32_t queue = 0;
    uint32_t times = 0;
    uint64_t number = 0;     // of its own, never used again
    uint64_t last_came = 0;  // by came_
    Program program;
    std::vector<concert_descriptor> ops;  // kind and body; the rest is zero
  };

  static bool MayRepeat(const BatchView& batch);
  static bool Same(const Entry& entry, const BatchView& batch);
  static bool IsAsked(const Entry& entry, uint64_t batch);
  static bool Names(const Entry& entry, uint32_t buffer);
  void Remember(const BatchView& batch);
  bool MakeRoom(uint32_t* released);
  template <typename Which>
  Released Forget(Which which);

  std::array<Entry, kBatches> entries_;
  Entry* found_ = nullptr;  // by the last Find
  bool looks_ = false;      // at its batch, also if that is no program
  uint32_t new_ = 0;        // batches in a row that were
  uint64_t came_ = 0;       // batches so far
  uint64_t numbers_ = 0;
};

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_REMOTE_REPEATED_BATCHES_H_
