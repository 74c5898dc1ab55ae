// Passes on a GPU: programs of models' decode steps over the same weights, made one.
#ifndef CONCERT_TESTS_GPU_PASS_FIXTURE_H_
#define CONCERT_TESTS_GPU_PASS_FIXTURE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/program/pass.h"
#include "tests/gpu/gpu_model.h"
#include "tests/gpu/model_check.h"

namespace concert::test {

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
    absl::StatusOr<std::unique_ptr<kernels::Pass>> pass =
        kernels::BindPass(members, *plan, kernels::kUnplacedArena);
    ASSERT_OK(pass.status());
    const uint64_t workspace_bytes = device().WorkspaceBytes(**pass);
    const absl::StatusOr<Allocation> allocation =
        device().Allocate(plan->arena.bytes + workspace_bytes);
    ASSERT_OK(allocation.status());
    allocation_ = *allocation;
    close(allocation_.export_fd);
    pass = kernels::BindPass(members, *plan, allocation_.address);
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

}  // namespace concert::test

#endif  // CONCERT_TESTS_GPU_PASS_FIXTURE_H_
