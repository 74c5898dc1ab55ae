// A short list that lies where it is declared.
#ifndef CONCERT_KERNELS_INLINE_LIST_H_
#define CONCERT_KERNELS_INLINE_LIST_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace concert::kernels {

// At most kCapacity elements. Allocates nothing, and costs what its elements do: the room behind
// them is never touched.
template <typename T, size_t kCapacity>
class InlineList {
 public:
  using value_type = T;
  using const_iterator = const T*;

  InlineList() {}

  uint32_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool full() const { return size_ == kCapacity; }
  T& operator[](size_t index) { return elements_[index]; }
  const T& operator[](size_t index) const { return elements_[index]; }
  T* begin() { return elements_; }
  T* end() { return elements_ + size_; }
  const T* begin() const { return elements_; }
  const T* end() const { return elements_ + size_; }
  std::span<T> span() { return {elements_, size_}; }
  std::span<const T> span() const { return {elements_, size_}; }

  // One more, for the caller to fill in. REQUIRES: !full().
  T& Add() { return elements_[size_++]; }
  void push_back(const T& element) { Add() = element; }
  void clear() { size_ = 0; }

 private:
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
  uint32_t size_ = 0;
  union {
    T elements_[kCapacity];
  };
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_INLINE_LIST_H_
