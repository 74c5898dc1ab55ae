// What was found out about keys met lately.
#ifndef CONCERT_POLICIES_COST_MEMO_H_
#define CONCERT_POLICIES_COST_MEMO_H_

#include <array>
#include <cstdint>

namespace concert::policies {

// Direct-mapped: a new key takes the place of the one in its slot. A hit compares the whole key, so
// that results never depend on the hash. Fixed size; allocates nothing. Not thread-safe.
template <typename Key, typename Value, uint64_t kSlots>
class Memo {
 public:
  // What `find_out()` gave, or gives now. Valid until the next call. `hash`: of the key.
  template <typename FindOut>
  const Value& Of(const Key& key, uint64_t hash, FindOut find_out) {
    Slot& slot = slots_[hash % kSlots];
    if (slot.epoch != epoch_ || !(slot.key == key)) [[unlikely]]
      Fill(slot, key, find_out);
    return slot.value;
  }
  void Clear() { ++epoch_; }

 private:
  struct Slot {
    uint32_t epoch = 0;  // in which it was filled; 0: never
    Key key;
    Value value;
  };

  // Not inline, so that finding is.
  template <typename FindOut>
  [[gnu::noinline]] void Fill(Slot& slot, const Key& key, FindOut find_out) {
    slot = {.epoch = epoch_, .key = key, .value = find_out()};
  }

  uint32_t epoch_ = 1;
  std::array<Slot, kSlots> slots_;
};

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_COST_MEMO_H_
