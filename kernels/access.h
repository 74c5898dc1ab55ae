// What an op reads and what it writes, operand by operand.
#ifndef CONCERT_KERNELS_ACCESS_H_
#define CONCERT_KERNELS_ACCESS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/op.h"
#include "kernels/strided_range.h"
#include "proto/ring/messages.h"

namespace concert::kernels {

enum class AccessMode : uint8_t {
  kRead,
  // Read, perhaps before the op that this one follows has ended: what that one is not known to
  // make, as the weights of a GEMM.
  kReadEarly,
  kWrite,      // and never read
  kReadWrite,  // in place
};

struct Access {
  StridedRange memory;
  concert_field field;  // the operand
  AccessMode mode;
  uint32_t buffer;  // as Op::buffers

  bool writes() const { return mode == AccessMode::kWrite || mode == AccessMode::kReadWrite; }
};

// The present operands of one op, in the order of Op::buffers.
class Accesses {
 public:
  Accesses() {}  // the list stays as it is: it is long, and made anew for each op of a plan

  // The next operand's. The caller says which memory it is.
  StridedRange& Add(const Op& op, concert_field field, AccessMode mode) {
    Access& access = list_[count_];
    access.field = field;
    access.mode = mode;
    access.buffer = op.buffers[count_];
    ++count_;
    return access.memory;
  }
  std::span<const Access> list() const { return {list_, count_}; }

 private:
  size_t count_ = 0;
  union {
    Access list_[kMaxOperands];
  };
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_ACCESS_H_
