// What the driver's own tool says of the GPUs, for error messages.
#ifndef CONCERT_TESTS_BENCH_GPU_STATE_H_
#define CONCERT_TESTS_BENCH_GPU_STATE_H_

#include <string>

namespace concert::bench {

// One line: each GPU's free and total memory, and the memory of each process that computes on one,
// by its id. Says so where there is no nvidia-smi. A client whose context could not be made cannot
// ask for itself.
std::string GpuState();

// The highest clocks and the power limit of each GPU, for a result's header: machines with the same
// GPU differ by them. Empty where nobody says.
std::string GpuClocks();

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_GPU_STATE_H_
