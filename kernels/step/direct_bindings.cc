#include "kernels/step/direct_bindings.h"

#include "kernels/access.h"
#include "kernels/kv_cache_operand.h"
#include "kernels/op_table.h"
#include "kernels/program/compile.h"

namespace concert::kernels {

DirectBindings::DirectBindings(const Program& program) : bindings_(program.bindings) {
  for (const Op& op : program.ops) {
    const Accesses accesses = AccessesOf(op);
    for (const Access& access : accesses.list()) {
      const ByteRange range = access.memory.Bounds();
      if (!InSlot(access)) {
        used_.Add(range.begin, range.end);
        if (access.writes()) written_.Add(range.begin, range.end);
      } else if (IsOfKvCache(access.field)) {
        never_ = true;
      }
    }
  }
}

bool DirectBindings::Allow(std::span<const Address> given) const {
  if (never_) return false;
  for (size_t i = 0; i < bindings_.size(); ++i) {
    const ByteRange range = {given[i], given[i] + bindings_[i].bytes};
    if (range.begin % kAlignment != 0) return false;
    const ByteSet& others = bindings_[i].written ? used_ : written_;
    if (others.Overlaps(range.begin, range.end)) return false;
    for (size_t j = 0; j < i; ++j) {
      if ((bindings_[i].written || bindings_[j].written) &&
          range.Overlaps({given[j], given[j] + bindings_[j].bytes})) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace concert::kernels
