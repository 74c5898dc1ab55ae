// What an op reads and what it writes, operand by operand.
#ifndef CONCERT_KERNELS_ACCESS_H_
#define CONCERT_KERNELS_ACCESS_H_

#include <cstdint>
#include <span>

#include "kernels/inline_list.h"
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
  // Some of it, with gaps that are not known: what a program's ops write. No operand of the op's
  // own.
  kWriteSome,
};

struct Access {
  StridedRange memory;
  concert_field field;  // the operand
  AccessMode mode;
  uint32_t buffer;  // as Op::buffers

  bool writes() const { return mode >= AccessMode::kWrite; }
};

// The present operands of one op, in the order of Op::buffers.
class Accesses {
 public:
  // The next operand's. The caller says which memory it is.
  StridedRange& Add(const Op& op, concert_field field, AccessMode mode) {
    const uint32_t buffer = op.buffers[list_.size()];
    Access& access = list_.Add();
    access.field = field;
    access.mode = mode;
    access.buffer = buffer;
    return access.memory;
  }
  // What is no operand: AccessMode::kWriteSome.
  void AddBound(const ByteRange& range) {
    Access& access = list_.Add();
    access.field = CONCERT_FIELD_NONE;
    access.mode = AccessMode::kWriteSome;
    access.buffer = 0;
    access.memory.Set(range.begin, range.end - range.begin);
  }
  std::span<const Access> list() const& { return list_.span(); }
  std::span<const Access> list() && = delete;  // it would outlive what it shows

 private:
  InlineList<Access, kMaxOperands> list_;
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_ACCESS_H_
