// Whether a run's bindings may be used where they are given, instead of by way of the arena.
#ifndef CONCERT_KERNELS_STEP_DIRECT_BINDINGS_H_
#define CONCERT_KERNELS_STEP_DIRECT_BINDINGS_H_

#include <span>
#include <vector>

#include "kernels/op.h"
#include "kernels/program/arena.h"
#include "kernels/program/program.h"

namespace concert::kernels {

// A plan knows what ops do to bindings where the arena has them: apart from one another and from
// all that ops use by themselves. Where a run's bindings are given they may not be, and then must
// be copied. Immutable.
class DirectBindings {
 public:
  // Bindings begin at multiples of it, as operands in the arena do; others must be copied.
  static constexpr uint64_t kAlignment = 16;

  explicit DirectBindings(const Program& program);

  // Whether any run's may.
  bool possible() const { return !never_; }
  // `given`: one address for each of the program's bindings. Takes less than a microsecond.
  bool Allow(std::span<const Address> given) const;

 private:
  const std::vector<Program::Binding> bindings_;
  // What ops use outside of the arena.
  ByteSet used_, written_;
  bool never_ = false;  // a cache is a binding: tensor maps have the addresses of caches
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_STEP_DIRECT_BINDINGS_H_
