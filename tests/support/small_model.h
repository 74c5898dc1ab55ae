// A step of a small model, as ops and as a program.
#ifndef CONCERT_TESTS_SUPPORT_SMALL_MODEL_H_
#define CONCERT_TESTS_SUPPORT_SMALL_MODEL_H_

#include <cstdint>
#include <random>
#include <vector>

#include "client/include/concert/concert.hpp"
#include "tests/support/bf16.h"

namespace concert::test {

// kHidden: no multiple of 64, so that the step kernel does not take it and its replicas are worth a
// pass.
inline constexpr uint32_t kRows = 4, kHidden = 72, kInner = 128, kVocabulary = 50;
inline constexpr uint64_t kElement = sizeof(uint16_t);

// A step of a small model: the next token of each row. Its sums and state stay in its weights'
// session.
struct Model {
  Buffer table, norm, up, down;
  Buffer state;  // kRows x kHidden, which each step adds to
};

// What one step works on: buffers for single ops, slots in a program.
struct StepMemory {
  Buffer ids, hidden, normed, gates, inner, sum, logits, next;
};

// The same ops, to whatever queue, over the weights of a model and this state.
inline void SubmitStep(Queue& queue, const Model& model, const StepMemory& memory,
                       const Buffer& state) {
  queue
      .Embedding({.rows = kRows,
                  .columns = kHidden,
                  .vocabulary = kVocabulary,
                  .ids = memory.ids,
                  .table = model.table,
                  .out = memory.hidden})
      .submit_status()
      .Check();
  queue
      .RmsNorm({.rows = kRows,
                .columns = kHidden,
                .x = memory.hidden,
                .weight = model.norm,
                .out = memory.normed})
      .submit_status()
      .Check();
  queue
      .Gemm({.m = kRows,
             .n = 2 * kInner,
             .k = kHidden,
             .a = memory.normed,
             .w = model.up,
             .d = memory.gates})
      .submit_status()
      .Check();
  queue.GatedActivation({.rows = kRows, .columns = kInner, .x = memory.gates, .out = memory.inner})
      .submit_status()
      .Check();
  queue
      .Gemm({.m = kRows,
             .n = kHidden,
             .k = kInner,
             .a = memory.inner,
             .w = model.down,
             .c = memory.hidden,
             .d = memory.sum,
             .beta = 1})
      .submit_status()
      .Check();
  queue
      .Elementwise({.function = kAdd,
                    .rows = kRows,
                    .columns = kHidden,
                    .x = state,
                    .y = memory.sum,
                    .out = model.state})
      .submit_status()
      .Check();
  queue
      .Gemm({.m = kRows,
             .n = kVocabulary,
             .k = kHidden,
             .a = state,
             .w = model.table,
             .d = memory.logits})
      .submit_status()
      .Check();
  queue.Argmax({.rows = kRows, .columns = kVocabulary, .x = memory.logits, .indices = memory.next})
      .submit_status()
      .Check();
}

inline void SubmitStep(Queue& queue, const Model& model, const StepMemory& memory) {
  SubmitStep(queue, model, memory, model.state);
}

inline Buffer RandomBf16(const Session& session, size_t count, std::mt19937& random) {
  std::vector<uint16_t> bits(count);
  for (uint16_t& value : bits) value = ToBf16(static_cast<float>(random() % 2001) / 4000.f - 0.25f);
  Buffer buffer = session.Allocate(count * kElement).value();
  buffer.Write(bits.data(), count * kElement).Check();
  return buffer;
}

inline Model MakeModel(const Session& session, uint32_t seed) {
  std::mt19937 random(seed);
  return {.table = RandomBf16(session, kVocabulary * kHidden, random),
          .norm = RandomBf16(session, kHidden, random),
          .up = RandomBf16(session, 2 * kInner * kHidden, random),
          .down = RandomBf16(session, kHidden * kInner, random),
          .state = RandomBf16(session, kRows * kHidden, random)};
}

inline StepMemory MakeBuffers(const Session& session) {
  const auto rows = [&](uint64_t columns) {
    return session.Allocate(kRows * columns * kElement).value();
  };
  return {.ids = session.Allocate(kRows * 4).value(),
          .hidden = rows(kHidden),
          .normed = rows(kHidden),
          .gates = rows(2 * kInner),
          .inner = rows(kInner),
          .sum = rows(kHidden),
          .logits = rows(kVocabulary),
          .next = session.Allocate(kRows * 4).value()};
}

// Bindings 0 and 1 are the tokens in and out.
inline StepMemory MakeSlots(const Program& program) {
  const auto rows = [&](uint64_t columns) {
    return program.Arena(kRows * columns * kElement).value();
  };
  return {.ids = program.Binding(kRows * 4).value(),
          .hidden = rows(kHidden),
          .normed = rows(kHidden),
          .gates = rows(2 * kInner),
          .inner = rows(kInner),
          .sum = rows(kHidden),
          .logits = rows(kVocabulary),
          .next = program.Binding(kRows * 4).value()};
}

inline Program MakeStep(const Session& session, const Model& model, const Buffer& state) {
  Program program = session.BeginProgram().value();
  SubmitStep(program.queue(), model, MakeSlots(program), state);
  program.End().Check();
  return program;
}
inline Program MakeStep(const Session& session, const Model& model) {
  return MakeStep(session, model, model.state);
}

inline std::vector<int32_t> Tokens(const Buffer& buffer) {
  std::vector<int32_t> tokens(kRows);
  buffer.Read(tokens.data(), kRows * 4).Check();
  return tokens;
}

}  // namespace concert::test

#endif  // CONCERT_TESTS_SUPPORT_SMALL_MODEL_H_
