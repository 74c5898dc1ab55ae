#include "kernels/step/direct_bindings.h"

#include <algorithm>
#include <utility>

#include "kernels/access.h"
#include "kernels/op_table.h"
#include "kernels/program/compile.h"

namespace concert::kernels {

DirectBindings::DirectBindings(const Program& program) : bindings_(program.bindings) {
  Ranges used, written;
  for (const Op& op : program.ops) {
    const Accesses accesses = AccessesOf(op);
    for (const Access& access : accesses.list()) {
      const ByteRange range = access.memory.Bounds();
      if (!InSlot(access)) {
        used.push_back(range);
        if (access.writes()) written.push_back(range);
      } else if (access.field == CONCERT_FIELD_K_CACHE || access.field == CONCERT_FIELD_V_CACHE) {
        never_ = true;
      }
    }
  }
  used_ = Merged(std::move(used));
  written_ = Merged(std::move(written));
}

DirectBindings::Ranges DirectBindings::Merged(Ranges ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  Ranges merged;
  for (const ByteRange& range : ranges) {
    if (!merged.empty() && range.begin <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, range.end);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

bool DirectBindings::AnyOverlaps(const Ranges& ranges, const ByteRange& range) {
  const auto behind =
      std::lower_bound(ranges.begin(), ranges.end(), range.end,
                       [](const ByteRange& one, Address end) { return one.begin < end; });
  return behind != ranges.begin() && std::prev(behind)->end > range.begin;
}

bool DirectBindings::Allow(std::span<const Address> given) const {
  if (never_) return false;
  for (size_t i = 0; i < bindings_.size(); ++i) {
    const ByteRange range = {given[i], given[i] + bindings_[i].bytes};
    if (range.begin % kAlignment != 0) return false;
    if (AnyOverlaps(bindings_[i].written ? used_ : written_, range)) return false;
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
