// Where a row's tokens are: a warp has the numbers of 32 neighbouring pages in registers, so that
// who asks for one token after another seldom waits for the page table.
#ifndef CONCERT_KERNELS_ATTENTION_DECODE_PAGE_WINDOW_CUH_
#define CONCERT_KERNELS_ATTENTION_DECODE_PAGE_WINDOW_CUH_

#include "kernels/attention/attention.cuh"
#include "kernels/attention_decode/attention_decode_args.h"

namespace concert::kernels::cuda {

// All lanes call each function together. What the client writes to the page table meanwhile is seen
// or not.
class PageWindow {
 public:
  static constexpr uint32_t kPages = 32;

  __device__ PageWindow(const AttentionDecodeArgs& op, uint64_t row) : op_(op), row_(row) {}

  // Asks for pages, from that of `token` on.
  __device__ void MoveTo(uint32_t token) {
    first_ = token / op_.cache.page_size;
    const uint32_t last = (op_.length_max - 1) / op_.cache.page_size;
    page_ = static_cast<uint32_t>(op_.PageOf(row_, min(first_ + threadIdx.x % kPages, last)));
  }
  // Whether it has a token's page. REQUIRES: the token is none before that of MoveTo().
  __device__ bool Has(uint32_t token) const {
    return token / op_.cache.page_size - first_ < kPages;
  }
  // The element of k and of v at which head 0 of this lane's token begins. REQUIRES: it has it.
  __device__ uint64_t TokenAt(uint32_t token) const {
    const uint32_t page = token / op_.cache.page_size;
    return op_.cache.TokenAt(__shfl_sync(kAll, page_, page - first_),
                             token - page * op_.cache.page_size);
  }

 private:
  const AttentionDecodeArgs& op_;
  const uint64_t row_;
  uint32_t first_ = 0;  // its number among the row's
  uint32_t page_ = 0;   // this lane's of them, among the cache's
};

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_ATTENTION_DECODE_PAGE_WINDOW_CUH_
