// Passes on a GPU: programs over the same weights in one graph, against the CPU references of their
// ops.
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/program/pass.h"
#include "tests/gpu/gpu_model.h"
#include "tests/gpu/model_check.h"
#include "tests/support/seed.h"

namespace concert::test {
namespace {

class GpuPassTest : public GpuTest {
 protected:
  static constexpr policies::Lane kLane = 2;

  ~GpuPassTest() override {
    pass_.reset();
    if (allocation_.bytes != 0) device().Free(allocation_);
  }

  // With a state and blocks of its own, and the weights of the first.
  void MakeMember(const ModelStep& model) {
    const GpuModel* const weights = members_.empty() ? nullptr : members_[0].get();
    members_.push_back(std::make_unique<GpuModel>(device(), model, model.shape().steps, weights));
    ASSERT_OK(members_.back()->Make());
    for (uint32_t step = 0; step < model.shape().steps; ++step)
      members_.back()->Put(model.BlockOf(model.InputsOf(step)), step);
  }

  void MakePass() {
    std::vector<kernels::PassMember> members;
    for (const auto& member : members_) members.push_back(member->member());
    const absl::StatusOr<kernels::PassPlan> plan = kernels::PlanPass(members);
    ASSERT_OK(plan.status());
    const uint64_t workspace_bytes = device().program_workspace_bytes();
    const absl::StatusOr<Allocation> allocation =
        device().Allocate(plan->arena.bytes + workspace_bytes);
    ASSERT_OK(allocation.status());
    allocation_ = *allocation;
    close(allocation_.export_fd);
    absl::StatusOr<std::unique_ptr<kernels::Pass>> pass =
        kernels::BindPass(members, *plan, allocation_.address);
    ASSERT_OK(pass.status());
    pass_ = *std::move(pass);
    const Address end = pass_->program.arena.end;
    pass_->program.workspace = {end, end + workspace_bytes};
    ASSERT_OK(device().Prepare(*pass_));
    const std::vector<uint8_t> poison(plan->arena.bytes, kPoison);
    ASSERT_OK(device().CopyToDevice(allocation_.address, poison.data(), poison.size()));
  }

  // The runs of these members, each for its next step.
  void Launch(const std::vector<uint32_t>& members) {
    std::vector<Op> runs;
    std::vector<const Op*> ops;
    steps_.resize(members_.size());
    for (const uint32_t member : members) {
      runs.push_back(members_[member]->RunOf(steps_[member]++));
      runs.back().program.pass = pass_.get();
      runs.back().program.member = member;
    }
    for (const Op& run : runs) ops.push_back(&run);
    ASSERT_OK(device().Launch(
        {.planned = {.count = static_cast<uint16_t>(ops.size()), .lane = kLane}, .ops = ops}));
  }

  // Every member against the reference after as many steps as it has had.
  void CheckMembers() {
    for (uint32_t m = 0; m < members_.size(); ++m) {
      SCOPED_TRACE("member " + std::to_string(m));
      const ModelStep& model = members_[m]->model();
      HostModel host(model);
      std::vector<int64_t> slots;
      for (uint32_t step = 0; step < steps_[m]; ++step) {
        SCOPED_TRACE("step " + std::to_string(step));
        const StepInputs inputs = model.InputsOf(step);
        ExpectRightBlock(model, inputs, members_[m]->FetchBlock(step), host.Run(inputs));
        slots.insert(slots.end(), inputs.slots.begin(), inputs.slots.end());
      }
      ExpectRightState(model, slots, model.state(), members_[m]->FetchState(), host.state());
    }
  }

  std::vector<std::unique_ptr<GpuModel>> members_;
  std::vector<uint32_t> steps_;
  std::unique_ptr<kernels::Pass> pass_;
  Allocation allocation_;
};

ModelShape SmallShape() {
  return {.hidden = 512,
          .q_heads = 8,
          .kv_heads = 2,
          .ffn = 1088,
          .layers = 2,
          .contexts = {100, 0, 15, kPaddingRow, 700, 1, 16, 63},
          .steps = 6};
}

// Who takes part changes from launch to launch, so that members are at different steps.
TEST_F(GpuPassTest, MembersGetWhatTheyGetAloneWhoeverTakesPart) {
  constexpr uint32_t kMembers = 8;
  std::mt19937 random(test::Seed());
  SCOPED_TRACE("seed " + std::to_string(test::Seed()));
  const ModelStep model(SmallShape(), random());
  for (uint32_t m = 0; m < kMembers; ++m) ASSERT_NO_FATAL_FAILURE(MakeMember(model));
  ASSERT_NO_FATAL_FAILURE(MakePass());
  steps_.resize(kMembers);
  for (uint32_t launch = 0; launch < 12; ++launch) {
    std::vector<uint32_t> members;
    for (uint32_t m = 0; m < kMembers; ++m) {
      if (steps_[m] < model.shape().steps && random() % 3 != 0) members.push_back(m);
    }
    if (members.empty()) continue;
    ASSERT_NO_FATAL_FAILURE(Launch(members));
  }
  ASSERT_NO_FATAL_FAILURE(Finish(kLane));
  ASSERT_OK(device().healthy());
  CheckMembers();
}

// Alone, by whatever engine, and in the pass, in turn.
TEST_F(GpuPassTest, RunsAloneAndTogetherFollowOneAnother) {
  const ModelStep model(SmallShape(), 5);
  for (uint32_t m = 0; m < 2; ++m) ASSERT_NO_FATAL_FAILURE(MakeMember(model));
  ASSERT_NO_FATAL_FAILURE(MakePass());
  ASSERT_NO_FATAL_FAILURE(Launch({0, 1}));
  for (uint32_t turn = 0; turn < 2; ++turn) {
    ASSERT_OK(members_[1]->Launch(kLane, /*sm_budget=*/0, steps_[1]++));
    ASSERT_NO_FATAL_FAILURE(Launch({1, 0}));
  }
  ASSERT_NO_FATAL_FAILURE(Finish(kLane));
  CheckMembers();
}

// Pages that the second's tables name are none of the first's cache.
TEST_F(GpuPassTest, MembersWhoseCachesDifferInPages) {
  constexpr uint32_t kSeed = 6;
  ModelShape larger = SmallShape();
  larger.free_pages = 1000;
  const ModelStep model(SmallShape(), kSeed), other(larger, kSeed);
  ASSERT_NO_FATAL_FAILURE(MakeMember(model));
  ASSERT_NO_FATAL_FAILURE(MakeMember(other));
  ASSERT_NO_FATAL_FAILURE(MakePass());
  steps_.resize(members_.size());
  while (steps_[0] < model.shape().steps) ASSERT_NO_FATAL_FAILURE(Launch({0, 1}));
  ASSERT_NO_FATAL_FAILURE(Finish(kLane));
  CheckMembers();
}

}  // namespace
}  // namespace concert::test
