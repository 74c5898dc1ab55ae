// What the step kernel takes for a layer of several models, alone on its SMs: a line each. The
// figures of docs/adr/0029-a-step-is-one-launch.md are its.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/gpu/gpu_program_fixture.h"
#include "tests/gpu/measured_models.h"
#include "tests/support/seed.h"

namespace concert::test {
namespace {

struct Measured {
  const char* name;
  ModelShape shape;
};
ModelShape WithRows(ModelShape shape, uint32_t rows) {
  shape.contexts.assign(rows, shape.contexts[0]);
  return shape;
}
const Measured kModels[] = {{"1024", Dense(1024, 6)},
                            {"2048", Dense(2048, 3)},
                            {"gqa1536", Gqa1536(3)},
                            {"qwen05b",
                             {.hidden = 896,
                              .q_heads = 14,
                              .kv_heads = 2,
                              .ffn = 4864,
                              .layers = 6,
                              .contexts = std::vector<int32_t>(4, 1024)}},
                            {"4096",
                             {.hidden = 4096,
                              .q_heads = 32,
                              .kv_heads = 8,
                              .head_dim = 128,
                              .ffn = 14336,
                              .layers = 1,
                              .contexts = std::vector<int32_t>(16, 1024)}},
                            {"1024-32rows", WithRows(Dense(1024, 6), 32)}};

class GpuStepMeasure : public GpuProgramTest {
 protected:
  // Fewer than 32 launches are under way at once: more would go as graphs.
  static constexpr int kRuns = 30, kFewer = 6, kRounds = 12;

  void SetUp() override {
    GpuProgramTest::SetUp();
    if (IsSkipped()) return;
    const char* const path = std::getenv("CONCERT_MEASURE_STEPS");
    if (path == nullptr) GTEST_SKIP() << "CONCERT_MEASURE_STEPS names no file to write to";
    if (!HasStepKernel()) GTEST_SKIP() << "no step kernel for this GPU";
    file_ = std::fopen(path, "w");
    ASSERT_NE(file_, nullptr) << path;
    std::fputs("model,sms,layer_us\n", file_);
  }
  void TearDown() override {
    if (file_ != nullptr) std::fclose(file_);
  }

  void Measure(const Measured& measured) {
    const ModelStep model(measured.shape, Seed());
    const std::unique_ptr<GpuModel> gpu = Make(model);
    ASSERT_NE(gpu, nullptr);
    gpu->Put(model.BlockOf(model.InputsOf(0)));
    const int all = device().info().model.sm_count;
    for (const int sms : {all, all / 2, all / 4, 16}) {
      double best_us = 0;
      for (int round = 0; round < kRounds; ++round) {
        double more_us = 0, fewer_us = 0;
        ASSERT_NO_FATAL_FAILURE(Time(*gpu, sms, kRuns, more_us));
        ASSERT_NO_FATAL_FAILURE(Time(*gpu, sms, kFewer, fewer_us));
        // What goes by before the first run and behind the last is in both.
        const double us = (more_us - fewer_us) / (kRuns - kFewer) / measured.shape.layers;
        if (round == 0 || us < best_us) best_us = us;
      }
      ASSERT_TRUE(gpu->StepKernelHasRun());
      std::fprintf(file_, "%s,%d,%.2f\n", measured.name, sms, best_us);
      std::fflush(file_);
    }
  }

 private:
  void Time(GpuModel& gpu, int sms, int runs, double& us) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < runs; ++i) ASSERT_OK(gpu.Launch(kLane, sms));
    ASSERT_NO_FATAL_FAILURE(Finish(kLane));
    us =
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  }

  std::FILE* file_ = nullptr;
};

TEST_F(GpuStepMeasure, Layers) {
  for (const Measured& measured : kModels) {
    SCOPED_TRACE(measured.name);
    ASSERT_NO_FATAL_FAILURE(Measure(measured));
  }
}

}  // namespace
}  // namespace concert::test
