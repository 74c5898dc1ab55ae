// Programs on a GPU that run behind and beside one another, and which engine runs them then.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/gpu_program_fixture.h"
#include "tests/support/repetitions.h"
#include "tests/support/seed.h"

namespace concert::test {
namespace {

class GpuProgramsAtOnceTest : public GpuProgramTest {
 protected:
  struct Tenant {
    std::unique_ptr<ModelStep> model;
    std::unique_ptr<References> references;
    std::unique_ptr<GpuModel> gpu;
    policies::Lane lane = 0;
    int sm_budget = 0;
  };
  void MakeTenant(const ModelShape& shape, int sm_budget, std::vector<Tenant>& tenants);
  void CheckTenant(Tenant& tenant);
  void RunTenants(std::vector<Tenant>& tenants);
  void RunBesideOneAnother(uint32_t count, const std::vector<int>& sm_budgets);
};

// A program of a session of its own on a lane of its own, beside those that are there.
void GpuProgramsAtOnceTest::MakeTenant(const ModelShape& shape, int sm_budget,
                                       std::vector<Tenant>& tenants) {
  const auto number = static_cast<uint32_t>(tenants.size());
  Tenant& tenant = tenants.emplace_back();
  tenant.model = std::make_unique<ModelStep>(shape, Seed() + number);
  tenant.references = std::make_unique<References>(*tenant.model, /*each_state=*/false);
  tenant.gpu = Make(*tenant.model, shape.steps);
  ASSERT_NE(tenant.gpu, nullptr);
  tenant.gpu->set_session(number + 1);
  tenant.lane = static_cast<policies::Lane>(kLane + number);
  tenant.sm_budget = sm_budget;
  for (uint32_t step = 0; step < shape.steps; ++step)
    tenant.gpu->Put(tenant.model->BlockOf(tenant.references->inputs[step]), step);
}

void GpuProgramsAtOnceTest::CheckTenant(Tenant& tenant) {
  const ModelStep& model = *tenant.model;
  std::vector<int64_t> slots;
  for (uint32_t step = 0; step < model.shape().steps; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const StepInputs& inputs = tenant.references->inputs[step];
    ExpectRightBlock(model, inputs, tenant.gpu->FetchBlock(step),
                     tenant.references->left[step].block);
    slots.insert(slots.end(), inputs.slots.begin(), inputs.slots.end());
  }
  ExpectRightState(model, slots, model.state(), tenant.gpu->FetchState(),
                   tenant.references->left.back().state);
  EXPECT_EQ(tenant.gpu->StepKernelHasRun(), engine_ == ProgramEngine::kStep);
}

// Nothing waits for a run but what follows it on its lane. All have as many steps.
void GpuProgramsAtOnceTest::RunTenants(std::vector<Tenant>& tenants) {
  // More than 32 launches that have not ended would go as graphs.
  const uint32_t batch = std::max(1u, 30 / static_cast<uint32_t>(tenants.size()));
  const uint32_t steps = tenants[0].model->shape().steps;
  for (uint32_t first = 0; first < steps; first += batch) {
    for (uint32_t step = first; step < std::min(steps, first + batch); ++step) {
      for (Tenant& tenant : tenants)
        ASSERT_OK(tenant.gpu->Launch(tenant.lane, tenant.sm_budget, step));
    }
    for (Tenant& tenant : tenants) ASSERT_NO_FATAL_FAILURE(Finish(tenant.lane));
  }
  ASSERT_OK(device().healthy());
  for (Tenant& tenant : tenants) {
    SCOPED_TRACE("lane " + std::to_string(tenant.lane) + ": " + tenant.model->shape().Describe());
    CheckTenant(tenant);
  }
}

void GpuProgramsAtOnceTest::RunBesideOneAnother(uint32_t count,
                                                const std::vector<int>& sm_budgets) {
  for (const ProgramEngine engine : Engines()) {
    SCOPED_TRACE(std::string(NameOf(engine)) + ", programs: " + std::to_string(count));
    Use(engine);
    std::vector<Tenant> tenants;
    for (uint32_t i = 0; i < count; ++i) {
      const ModelShape shape{.hidden = 512 + 64 * i,
                             .q_heads = 8,
                             .kv_heads = i % 2 == 0 ? 2u : 8u,
                             .ffn = 1088,
                             .layers = 2,
                             .contexts = Contexts(i % 2 == 0 ? 4 : 17),
                             .steps = 24};
      ASSERT_NO_FATAL_FAILURE(MakeTenant(shape, sm_budgets[i % sm_budgets.size()], tenants));
    }
    ASSERT_NO_FATAL_FAILURE(RunTenants(tenants));
  }
}

TEST_F(GpuProgramsAtOnceTest, RunsBehindOneAnotherAreRight) { RunBesideOneAnother(1, {0}); }

// Contexts that grew token by token, on both engines. Nobody looks before the last step.
TEST_F(GpuProgramsAtOnceTest, SequencesGrowForTwoThousandSteps) {
  SCOPED_TRACE("seed " + std::to_string(Seed()));
  const ModelShape shape{.contexts = {0, 20, kPaddingRow, 300},
                         .steps = std::min(2000u, Repetitions(2000))};
  for (const ProgramEngine engine : Engines()) {
    SCOPED_TRACE(NameOf(engine));
    Use(engine);
    std::vector<Tenant> tenants;
    ASSERT_NO_FATAL_FAILURE(MakeTenant(shape, 0, tenants));
    ASSERT_NO_FATAL_FAILURE(RunTenants(tenants));
  }
}

TEST_F(GpuProgramsAtOnceTest, TwoProgramsAtOnceAreRight) { RunBesideOneAnother(2, {0}); }

TEST_F(GpuProgramsAtOnceTest, FiveProgramsAtOnceAreRight) { RunBesideOneAnother(5, {0}); }

TEST_F(GpuProgramsAtOnceTest, ProgramsAtOnceOnFewSmsAreRight) {
  RunBesideOneAnother(4, {16, 32, 0});
}

// By who else is at work: nobody, programs or single ops (docs/adr/0035-shares-of-the-sms.md). When
// exactly depends on the time that runs take, and is what unit tests of AtWork and EngineContest
// have.
TEST_F(GpuProgramsAtOnceTest, AutomaticallyTheEngineFollowsWhoIsAtWork) {
  if (!HasStepKernel()) GTEST_SKIP() << "no step kernel for this GPU";
  Use(ProgramEngine::kAuto);
  const ModelStep model({}, Seed());
  const References references(model);
  const std::unique_ptr<GpuModel> gpu = Make(model);
  ASSERT_NE(gpu, nullptr);
  const auto by_step_kernel = [&](uint32_t session) {
    gpu->set_session(session);
    Left left;
    Run(*gpu, model.BlockOf(references.inputs[0]), 0, left);
    if (HasFatalFailure()) return false;
    ExpectRight(model, references.inputs[0], model.state(), left, references.left[0]);
    return gpu->StepKernelHasRun();
  };
  EXPECT_TRUE(by_step_kernel(0));
  const auto becomes = [&](bool step, const auto& sessions) {
    for (uint64_t i = 0; i < AtWork::kIdleAfter; ++i) {
      for (const uint32_t session : sessions)
        if (by_step_kernel(session) == step) return true;
    }
    return false;
  };
  // Beside another session's programs: a contest of both engines.
  EXPECT_TRUE(becomes(false, std::array{1u, 0u}));
  // Beside single ops a graph, until these are forgotten.
  RunCopies(0, 1);
  EXPECT_FALSE(by_step_kernel(1));
  EXPECT_TRUE(becomes(true, std::array{1u}));
}

}  // namespace
}  // namespace concert::test
