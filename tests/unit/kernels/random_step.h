// Steps of random models, and the memory that they use, on the CPU.
#ifndef CONCERT_TESTS_UNIT_KERNELS_RANDOM_STEP_H_
#define CONCERT_TESTS_UNIT_KERNELS_RANDOM_STEP_H_

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <random>
#include <vector>

#include "kernels/program/program_op.h"
#include "tests/support/bf16.h"
#include "tests/unit/kernels/step_recorder.h"

namespace concert::kernels {

inline float Load(Address base, uint64_t element) {
  return test::FromBf16(reinterpret_cast<const uint16_t*>(base)[element]);
}
inline void Store(Address base, uint64_t element, float value) {
  reinterpret_cast<uint16_t*>(base)[element] = test::ToBf16(value);
}

// Memory of a program, with random contents.
struct StepMemory {
  explicit StepMemory(std::mt19937& random, uint64_t weight_bytes = 4 * kMiB)
      : weights(weight_bytes / 2), cache(2 * kMiB / 2), bindings(64 * 1024) {
    std::normal_distribution<float> normal(0, 0.1f);
    for (std::vector<uint16_t>* values : {&weights, &cache, &bindings}) {
      for (size_t i = 0; i < values->size(); ++i)
        Store(reinterpret_cast<Address>(values->data()), i, normal(random));
    }
    auto* const tables = reinterpret_cast<char*>(weights.data());
    const auto table = [&](int number) {
      return reinterpret_cast<int32_t*>(tables + StepRecorder::TableAt(number));
    };
    for (int row = 0; row < 32; ++row) {
      table(0)[row] = static_cast<int32_t>(random() % 100);
      table(1)[row] = row % 7 == 6 ? -1 : static_cast<int32_t>(row * 5);  // a row that is none
      for (int page = 0; page < 4; ++page)
        table(2)[row * 4 + page] = static_cast<int32_t>(random() % 10);
      table(3)[row] = static_cast<int32_t>(random() % 61);
    }
    auto* const angles = reinterpret_cast<float*>(tables + StepRecorder::TableAt(4));
    for (int i = 0; i < 100 * 64; ++i) angles[i] = normal(random) * 5;
  }
  std::vector<BufferRange> buffers() {
    return {{},
            {reinterpret_cast<Address>(weights.data()), weights.size() * 2, 0, false},
            {reinterpret_cast<Address>(cache.data()), cache.size() * 2, 0, false}};
  }

  std::vector<uint16_t> weights, cache, bindings;
};

inline StepModel RandomModel(std::mt19937& random) {
  const auto one_of = [&](std::initializer_list<uint32_t> values) {
    return *(values.begin() + random() % values.size());
  };
  StepModel model;
  model.rows = one_of({1, 3, 8, 16, 32});
  model.hidden = one_of({64, 128, 192});
  model.kv_heads = one_of({1, 2});
  model.q_heads = model.kv_heads * one_of({1, 2, 3});
  model.rotary = one_of({16, 32, 64});
  model.inner = one_of({64, 128, 192});
  model.interleaved = random() % 2 == 0;
  model.second_norm = random() % 3 != 0;
  model.one_cache = random() % 3 == 0;
  model.gemms_add = random() % 3 == 0;
  model.gemms_gate = random() % 3 == 0;
  model.makes_gains = random() % 3 == 0;
  return model;
}

// Layers, with what keeps ops apart here and there.
inline void RecordRandom(StepRecorder& recorder, const StepModel& model, std::mt19937& random) {
  const uint32_t residual = recorder.Slot(model.hidden, random() % 2 == 0);
  const uint32_t out = recorder.Slot(model.hidden, /*binding=*/true);
  // What those who look aside have seen, of each layer.
  const uint32_t aside[] = {recorder.Slot(model.hidden, true), recorder.Slot(model.hidden, true)};
  const uint32_t gates[] = {recorder.Slot(2 * model.inner, true),
                            recorder.Slot(2 * model.inner, true)};
  const uint32_t in = recorder.Slot(model.hidden, /*binding=*/true);
  if (random() % 2 == 0) {
    recorder.Copy(in, model.hidden, residual);
  } else {
    recorder.Double(in, model.hidden, residual);
  }
  StepSlots slots = StepSlots::Of(recorder, model);
  const bool slots_again = random() % 2 == 0;
  // Columns that are no whole tiles, and rows that do not begin with words.
  const uint32_t logits[] = {1 + static_cast<uint32_t>(random() % 90),
                             1 + static_cast<uint32_t>(random() % 90)};
  const uint32_t heads[] = {recorder.Slot(logits[0], true), recorder.Slot(logits[1], true)};
  uint32_t update = 0;
  for (int layer = 0; layer < 2; ++layer) {
    if (!slots_again) slots = StepSlots::Of(recorder, model);
    update = RecordLayer(recorder, model, slots, residual, update);
    if (model.advances_slots && random() % 2 == 0) recorder.AdvanceSlots();
    if (random() % 2 == 0) recorder.Double(slots.normed, model.hidden, aside[layer]);
    if (random() % 2 == 0) recorder.Gemm(slots.normed, model.hidden, heads[layer], logits[layer]);
    if (random() % 3 == 0 && !model.gemms_gate)
      recorder.Double(slots.gates, 2 * model.inner, gates[layer]);
    if (random() % 3 == 0) recorder.Double(slots.inner, model.inner, slots.gates);
    if (random() % 3 == 0 && update != 0) recorder.Double(update, model.hidden, update);
    if (random() % 4 == 0) recorder.Double(residual, model.hidden, residual);
    if (random() % 4 == 0)
      recorder.Copy(residual, model.hidden, random() % 2 == 0 ? in : aside[layer]);
  }
  if (update == 0) {
    recorder.Norm(residual, 0, out);
  } else {
    recorder.Norm(update, residual, out);
  }
}

// Records a random program of this model over this memory, and has `follow` do what a run of it
// does.
template <typename Follow>
void RunRandom(const StepModel& model, StepMemory& memory, uint32_t seed, Follow follow) {
  std::mt19937 same(seed);
  const std::vector<BufferRange> buffers = memory.buffers();
  StepRecorder recorder(model, buffers);
  RecordRandom(recorder, model, same);
  std::vector<uint16_t> arena(recorder.PlaceArena() / 2 + 128);
  const Address aligned = (reinterpret_cast<Address>(arena.data()) + 255) / 256 * 256;
  const std::unique_ptr<Program> program = recorder.Bind(aligned);
  ProgramArgs args = {.program = program.get(), .bindings = {}};
  Address next = reinterpret_cast<Address>(memory.bindings.data());
  for (size_t i = 0; i < program->bindings.size(); ++i) {
    args.bindings[i] = next;
    next += program->bindings[i].bytes;
  }
  follow(args);
}

// One op after the other.
inline void ComputeOps(const ProgramArgs& args) {
  Op op;
  op.kind = CONCERT_OP_PROGRAM;
  op.program = args;
  const Op* const part = &op;
  ComputeProgram({&part, 1});
}

inline double Distance(const std::vector<uint16_t>& a, const std::vector<uint16_t>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = Load(reinterpret_cast<Address>(a.data()), i);
    const double y = Load(reinterpret_cast<Address>(b.data()), i);
    difference += (x - y) * (x - y), norm += y * y;
  }
  return std::sqrt(difference / norm);
}

}  // namespace concert::kernels

#endif  // CONCERT_TESTS_UNIT_KERNELS_RANDOM_STEP_H_
