// What runs programs on a GPU.
#ifndef CONCERT_KERNELS_PROGRAM_PROGRAM_ENGINE_H_
#define CONCERT_KERNELS_PROGRAM_PROGRAM_ENGINE_H_

#include <cstdint>

namespace concert::kernels {

enum class ProgramEngine : uint8_t {
  kAuto,   // the step kernel where it can, while no other session is at work; else the graph
  kStep,   // the step kernel where it can
  kGraph,  // always a CUDA graph of the program's ops
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_PROGRAM_PROGRAM_ENGINE_H_
