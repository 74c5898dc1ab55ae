// A program: ops that were admitted once, with their addresses, and run in their order as one op.
#ifndef CONCERT_KERNELS_PROGRAM_PROGRAM_H_
#define CONCERT_KERNELS_PROGRAM_PROGRAM_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/op.h"
#include "kernels/program/program_engine.h"
#include "policies/cost/program_cost.h"

namespace concert::kernels {

struct Pass;  // kernels/program/pass.h

// What a device has made of a program's ops, if it makes something of them.
class ProgramExecutable {
 public:
  virtual ~ProgramExecutable() = default;
};

// Never changes once it is registered, but for `pass`; read by the threads that run it.
struct Program {
  struct Binding {
    Address staged = 0;  // where the program's ops have it, in the arena
    uint64_t bytes = 0;
    bool written = false;  // by an op, so copied out, too
  };

  // Of the step kernel, "gemm <- rope_append": an op's kind and what was folded into it.
  struct Stage {
    std::string what;
    policies::StageWork work;
  };

  int gpu = 0;
  ByteRange arena;                // the program's own
  uint64_t slot_bytes = 0;        // that its slots would take if none shared memory
  ByteRange workspace;            // what the device wants behind it
  std::vector<Binding> bindings;  // by number; at most CONCERT_MAX_BINDINGS
  std::vector<Op> ops;            // by order; none is a collective or a run
  ByteRange written;              // holds all that ops write outside of the arena
  std::vector<uint32_t> buffers;  // of the session, by index: those that ops use, each once
  policies::Work work;            // of a run
  std::unique_ptr<ProgramExecutable> executable;  // null: the device needs none
  std::vector<Stage> stages;  // by which the step kernel runs it; empty: none does,
  std::string why_no_step;    // because of this
  // A run of it stalled (stalled_run.h): those to come are graphs. Written by the dispatcher.
  mutable std::atomic<bool> has_stalled{false};
  // Runs of it may be part of these. Null: it has no replicas. Release by the control thread, when
  // the pass is ready; acquire by the scheduler.
  mutable std::atomic<const Pass*> pass{nullptr};
};

// Parts that are told apart; what more there is is one part, "others", of their mean.
inline constexpr size_t kMaxProgramParts = 32;

// Kernels or stages that are alike.
struct ProgramPart {
  std::string what;  // as Program::Stage has it
  uint32_t count = 0;
  double predicted_us = 0;  // each
};

// What a run that is alone takes.
struct EngineTimes {
  ProgramEngine engine = ProgramEngine::kGraph;
  double predicted_us = 0;
  std::vector<ProgramPart> parts;  // in the order in which the first of each comes
};

// A registered program as operators see it.
struct ProgramSummary {
  uint32_t handle = 0;
  int gpu = 0;
  uint32_t op_count = 0, bindings = 0;
  std::vector<std::pair<uint16_t, uint32_t>> kinds;  // concert_op_kind and how many, by kind
  uint64_t arena_bytes = 0, slot_bytes = 0;          // its memory; that if no slots shared any
  uint64_t workspace_bytes = 0;                      // the device's, behind the arena
  double predicted_us = 0;  // of a run that is alone, by the first of these
  // That it has: the step kernel, where it can, and a graph. Never changes; null: nobody knows.
  std::shared_ptr<const std::vector<EngineTimes>> engines;
  std::string why_no_step;  // Program::why_no_step
  bool of_batch = false;    // the client's library made it of a batch that came again and again
  uint32_t replicas = 1;    // programs with which its runs may go together, itself among them
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_PROGRAM_PROGRAM_H_
