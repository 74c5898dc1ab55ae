// When a run may use its bindings where they are given.
#include "kernels/step/direct_bindings.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/unit/kernels/step_recorder.h"

namespace concert::kernels {
namespace {

constexpr Address kWeights = 0x100000000, kCache = 0x200000000, kArena = 0x300000000;
constexpr Address kElsewhere = 0x400000000;

// A layer whose input is binding 0 and whose output is binding 1.
class DirectBindingsTest : public testing::Test {
 protected:
  DirectBindingsTest() {
    const StepModel model;
    const std::vector<BufferRange> buffers = {
        {}, {kWeights, 256 * kMiB, 0, false}, {kCache, 64 * kMiB, 0, false}};
    StepRecorder recorder(model, buffers);
    const uint32_t in = recorder.Slot(model.hidden, /*binding=*/true);
    const uint32_t out = recorder.Slot(model.hidden, /*binding=*/true);
    const uint32_t residual = recorder.Slot(model.hidden);
    recorder.Copy(in, model.hidden, residual);
    const uint32_t update =
        RecordLayer(recorder, model, StepSlots::Of(recorder, model), residual, 0);
    recorder.Norm(update, residual, out);
    recorder.PlaceArena();
    program_ = recorder.Bind(kArena);
    bytes_ = program_->bindings[0].bytes;
  }
  bool Allows(Address in, Address out) const {
    return DirectBindings(*program_).Allow(std::vector<Address>{in, out});
  }

  std::unique_ptr<Program> program_;
  uint64_t bytes_ = 0;  // of either
};

TEST_F(DirectBindingsTest, BindingsOfTheirOwnAreUsedWhereTheyAre) {
  EXPECT_TRUE(Allows(kElsewhere, kElsewhere + bytes_));
  EXPECT_TRUE(Allows(kElsewhere + bytes_, kElsewhere));
}

TEST_F(DirectBindingsTest, WhatIsWrittenMustBeApartFromOtherBindings) {
  EXPECT_FALSE(Allows(kElsewhere, kElsewhere));
  EXPECT_FALSE(Allows(kElsewhere + bytes_ - 16, kElsewhere));
  EXPECT_FALSE(Allows(kElsewhere, kElsewhere + bytes_ - 16));
}

TEST_F(DirectBindingsTest, BindingsMustBeApartFromWhatOpsUse) {
  EXPECT_FALSE(Allows(kElsewhere, kWeights)) << "it would be written before the last has read it";
  EXPECT_TRUE(Allows(kWeights, kElsewhere)) << "both only read it";
  EXPECT_FALSE(Allows(kCache, kElsewhere)) << "the step appends to it";
  EXPECT_FALSE(Allows(kCache - 16, kElsewhere));
  EXPECT_TRUE(Allows(kCache - bytes_, kElsewhere));
}

TEST_F(DirectBindingsTest, OperandsNeedTheirAlignment) {
  EXPECT_FALSE(Allows(kElsewhere + 8, kElsewhere + 2 * bytes_));
  EXPECT_TRUE(Allows(kElsewhere + 16, kElsewhere + 2 * bytes_));
}

TEST_F(DirectBindingsTest, TensorMapsHaveAddressesOfCaches) {
  EXPECT_TRUE(DirectBindings(*program_).possible());
  const StepModel model;
  StepRecorder recorder(model, kStepMemory);
  const uint32_t heads = recorder.Slot(model.head_columns(), /*binding=*/true);
  const uint32_t cache = recorder.Slot(kMiB, /*binding=*/true);
  concert_attention_decode_body& body =
      recorder.Attend(heads, recorder.Slot(model.q_heads * model.dim));
  body.cache.k = {cache, 0, 0}, body.cache.v = {cache, 0, kMiB};
  recorder.PlaceArena();
  const DirectBindings bindings(*recorder.Bind(kArena));
  EXPECT_FALSE(bindings.possible());
  EXPECT_FALSE(bindings.Allow(std::vector<Address>{kElsewhere, kElsewhere + 64 * kMiB}));
}

}  // namespace
}  // namespace concert::kernels
