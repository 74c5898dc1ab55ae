// What an op reads and what it writes, operand by operand. For checks; what must be fast asks for
// OpRanges.
#ifndef CONCERT_KERNELS_ACCESS_H_
#define CONCERT_KERNELS_ACCESS_H_

#include <array>
#include <cstdint>
#include <span>

#include "kernels/op.h"
#include "kernels/strided_range.h"
#include "proto/ring/messages.h"

namespace concert::kernels {

struct Access {
  StridedRange memory;
  concert_field field = CONCERT_FIELD_NONE;  // the operand
  bool writes = false;
  uint32_t buffer = 0;  // as Op::buffers
};

// The present operands of one op, in the order of Op::buffers.
class Accesses {
 public:
  void Add(const Op& op, concert_field field, bool writes, const StridedRange& memory) {
    list_[count_] = {memory, field, writes, op.buffers[count_]};
    ++count_;
  }
  std::span<const Access> list() const { return {list_.data(), count_}; }

 private:
  std::array<Access, kMaxOperands> list_;
  size_t count_ = 0;
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_ACCESS_H_
