// What a trace keeps until it is over: records behind each other in chunks, so that to keep one is
// a copy of what it holds, and none is copied again. Bounded. Not thread-safe.
#ifndef CONCERT_DAEMON_TELEMETRY_TRACE_BUFFER_H_
#define CONCERT_DAEMON_TELEMETRY_TRACE_BUFFER_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "daemon/telemetry/records.h"

namespace concert::daemon {

class TraceBuffer {
 public:
  // A huge page of x86-64, where the kernel has them to give: an op and its plan took 42 ns to
  // keep, but 150 where pages of 4 KiB were faulted in (a virtual machine on an EPYC).
  static constexpr size_t kChunkBytes = size_t{2} << 20;

  // Holds `max_chunks` chunks at most, each allocated when it is needed.
  explicit TraceBuffer(size_t max_chunks) : max_chunks_(max_chunks) {}

  // Keeps a record of `gpu`. False: there is no room, now and later.
  bool Add(uint8_t gpu, const OpRecord& op) { return Add(gpu, false, &op, sizeof(op)); }
  // Of what it lists, and no more.
  bool Add(uint8_t gpu, const PlanRecord& plan) { return Add(gpu, true, &plan, plan.bytes()); }

  bool full() const { return full_; }

  // Calls `visit` with the GPU and the record, an OpRecord or a PlanRecord, for each that was kept,
  // in that order, until it returns false.
  template <typename Visit>
  void ForEach(Visit&& visit) const {
    OpRecord op;
    PlanRecord plan;
    for (const Chunk& chunk : chunks_) {
      const std::byte* at = chunk.bytes.get();
      const std::byte* const end = at + chunk.used;
      for (Header header; at < end; at += sizeof(header) + header.bytes) {
        std::memcpy(&header, at, sizeof(header));
        std::memcpy(header.is_plan ? static_cast<void*>(&plan) : &op, at + sizeof(header),
                    header.bytes);
        if (!(header.is_plan ? visit(header.gpu, std::as_const(plan))
                             : visit(header.gpu, std::as_const(op)))) {
          return;
        }
      }
    }
  }

 private:
  struct Header {
    uint32_t bytes;  // of the record
    uint8_t gpu;
    bool is_plan;
  };
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  struct Chunk {
    std::unique_ptr<std::byte[], Free> bytes;
    size_t used = 0;
  };
  static_assert(std::is_trivially_copyable_v<OpRecord>);
  static_assert(sizeof(Header) + sizeof(PlanRecord) <= kChunkBytes);

  bool Add(uint8_t gpu, bool is_plan, const void* record, size_t bytes) {
    if (chunks_.empty() || chunks_.back().used + sizeof(Header) + bytes > kChunkBytes) {
      full_ = chunks_.size() == max_chunks_;
      if (full_) return false;
      auto* const bytes = static_cast<std::byte*>(std::aligned_alloc(kChunkBytes, kChunkBytes));
      full_ = bytes == nullptr;
      if (full_) return false;
      madvise(bytes, kChunkBytes, MADV_HUGEPAGE);  // advice; without huge pages it fails
      chunks_.emplace_back().bytes.reset(bytes);
    }
    Chunk& chunk = chunks_.back();
    const Header header = {static_cast<uint32_t>(bytes), gpu, is_plan};
    std::memcpy(chunk.bytes.get() + chunk.used, &header, sizeof(header));
    std::memcpy(chunk.bytes.get() + chunk.used + sizeof(header), record, bytes);
    chunk.used += sizeof(header) + bytes;
    return true;
  }

  size_t max_chunks_;
  std::vector<Chunk> chunks_;
  bool full_ = false;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TELEMETRY_TRACE_BUFFER_H_
