// Copies of bindings, shared by host and device code.
#ifndef CONCERT_KERNELS_PROGRAM_BINDING_COPY_ARGS_H_
#define CONCERT_KERNELS_PROGRAM_BINDING_COPY_ARGS_H_

#include <cstdint>

#include "kernels/program/program_args.h"

namespace concert::kernels::cuda {

// Of all members of a pass. They fit the 4 KB of a kernel's parameters.
inline constexpr uint32_t kMaxBindingCopies = 80;

struct BindingCopyArgs {
  uint32_t* there;   // becomes `members`; null: nothing does
  uint32_t members;  // of a pass, that take part: bit i: member i
  uint32_t count;
  uint32_t blocks_each;  // block b does part b % blocks_each of copy b / blocks_each
  Transfer copies[kMaxBindingCopies];
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_PROGRAM_BINDING_COPY_ARGS_H_
