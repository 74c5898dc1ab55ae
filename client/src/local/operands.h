// Where the operands of an op lie, and the checks that a daemon makes when it admits one, in its
// order and with its sentences: what runs here is not refused there. And a kernel past the end of a
// buffer would take the process's CUDA context down.
#ifndef CONCERT_CLIENT_SRC_LOCAL_OPERANDS_H_
#define CONCERT_CLIENT_SRC_LOCAL_OPERANDS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "concert/concert.h"
#include "proto/mutex.h"
#include "proto/ring/ring_abi.h"

namespace concert::client {

struct LocalMemory {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint32_t gpu = 0;
};

// The buffers of a local session by the id that descriptors carry. Thread-safe.
class BufferTable {
 public:
  uint32_t Add(const LocalMemory& memory);
  void Remove(uint32_t id);
  // Nothing, of 0 bytes, for an unknown id.
  LocalMemory Find(uint32_t id) const;

 private:
  mutable Mutex mutex_;
  std::vector<std::optional<LocalMemory>> buffers_ CONCERT_GUARDED_BY(mutex_);  // by id - 1
};

// Makes addresses of the offsets of an op's operands, 0 of those that are absent. As a daemon where
// it refuses the op; UNIMPLEMENTED for memory of another GPU than `gpu`, the queue's, which a
// daemon may take.
int LocateGemm(concert_descriptor& descriptor, const BufferTable& buffers, uint32_t gpu,
               concert_error* error);
int LocateCopy(concert_descriptor& descriptor, const BufferTable& buffers, uint32_t gpu,
               concert_error* error);

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_LOCAL_OPERANDS_H_
