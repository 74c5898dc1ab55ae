// What a pass of replicas takes for a layer of several models: a line each. The figures of
// docs/adr/0032-one-pass-over-the-weights.md are its.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/gpu/measured_models.h"
#include "tests/gpu/pass_fixture.h"
#include "tests/support/seed.h"

namespace concert::test {
namespace {

struct Measured {
  const char* name;
  uint32_t members;
  ModelShape shape;
};
const Measured kModels[] = {
    {"1024", 8, Dense(1024, 4)}, {"2048", 8, Dense(2048, 2)}, {"gqa1536", 4, Gqa1536(3)}};

class GpuPassMeasure : public GpuPassTest, public testing::WithParamInterface<Measured> {
 protected:
  static constexpr int kRuns = 24, kRounds = 8;

  void Measure(const Measured& measured, std::FILE* file) {
    const ModelStep model(measured.shape, Seed());
    std::vector<uint32_t> members;
    for (uint32_t m = 0; m < measured.members; ++m) {
      ASSERT_NO_FATAL_FAILURE(MakeMember(model));
      members.push_back(m);
    }
    ASSERT_NO_FATAL_FAILURE(MakePass());
    double best_us = 0;
    for (int round = 0; round < kRounds; ++round) {
      const auto begin = Clock::now();
      for (int i = 0; i < kRuns; ++i) {
        steps_.assign(members_.size(), 0);
        ASSERT_NO_FATAL_FAILURE(Launch(members));
      }
      ASSERT_NO_FATAL_FAILURE(Finish(kLane));
      const double us = MicrosecondsSince(begin) / kRuns / measured.shape.layers;
      if (round == 0 || us < best_us) best_us = us;
    }
    std::fprintf(file, "%s,%u,%.2f\n", measured.name, measured.members, best_us);
  }
};

TEST_P(GpuPassMeasure, Layers) {
  const char* const path = std::getenv("CONCERT_MEASURE_PASSES");
  if (path == nullptr) GTEST_SKIP() << "CONCERT_MEASURE_PASSES names no file to append to";
  std::FILE* const file = std::fopen(path, "a");
  ASSERT_NE(file, nullptr) << path;
  Measure(GetParam(), file);
  std::fclose(file);
}

INSTANTIATE_TEST_SUITE_P(Models, GpuPassMeasure, testing::ValuesIn(kModels), [](const auto& model) {
  return "Hidden" + std::string(model.param.name);
});

}  // namespace
}  // namespace concert::test
