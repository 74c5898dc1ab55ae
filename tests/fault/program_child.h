// A client that is killed in the middle of programs.
#ifndef CONCERT_TESTS_FAULT_PROGRAM_CHILD_H_
#define CONCERT_TESTS_FAULT_PROGRAM_CHILD_H_

#include <cstdint>
#include <functional>
#include <string>

#include "tests/support/small_model.h"

namespace concert::test {

// Where runs have their tokens: of step i at i * kTokensStride, and behind the last step what
// follows.
inline constexpr uint64_t kTokensStride = 256;

// The model that all have, with sealed weights, so that what they register are replicas.
Model SealedModel(const Session& session, uint32_t seed);

// Seals the weights of that seed, registers replicas, runs them, several at a time, frees some in
// mid-run, and submits batches that repeat. Calls `go_on` behind everything that it does, until
// that says no.
void RunProgramChild(const std::string& socket, uint32_t seed, const std::function<bool()>& go_on);

}  // namespace concert::test

#endif  // CONCERT_TESTS_FAULT_PROGRAM_CHILD_H_
