// Waiting for a word in memory that processes of a benchmark share.
#ifndef CONCERT_TESTS_BENCH_SHARED_WORD_H_
#define CONCERT_TESTS_BENCH_SHARED_WORD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace concert::bench {

// Wakes everybody who sleeps on the word, in any process that maps it.
void WakeSleepers(const std::atomic<uint32_t>& word);
// Returns when the word is no longer `seen`, or after a tenth of a second, or now and then earlier.
void SleepWhile(const std::atomic<uint32_t>& word, uint32_t seen);

// Maps a file of `bytes` bytes, all zero at first, which `create` makes. Unmap it with munmap.
absl::StatusOr<void*> MapSharedFile(const std::string& path, size_t bytes, bool create);

// CLOCK_MONOTONIC, which is the same in all processes.
uint64_t NowNs();

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_SHARED_WORD_H_
