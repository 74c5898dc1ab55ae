// What runs programs on a GPU.
#ifndef CONCERT_KERNELS_PROGRAM_PROGRAM_ENGINE_H_
#define CONCERT_KERNELS_PROGRAM_PROGRAM_ENGINE_H_

#include <cstdint>

namespace concert::kernels {

enum class ProgramEngine : uint8_t {
  kAuto,   // what is faster: the step kernel, where it can, or the graph
  kStep,   // the step kernel where it can
  kGraph,  // always a CUDA graph of the program's ops
};

// As `program_engine` has it.
constexpr const char* NameOf(ProgramEngine engine) {
  if (engine == ProgramEngine::kStep) return "step";
  return engine == ProgramEngine::kGraph ? "graph" : "auto";
}

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_PROGRAM_PROGRAM_ENGINE_H_
