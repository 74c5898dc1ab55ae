// What waits for what in the graph of a pass.
#include "kernels/program/pass_graph.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/unit/kernels/fake_cuda.h"
#include "tests/unit/kernels/step_recorder.h"

namespace concert::test {
namespace {

using kernels::Address;
using kernels::kMiB;
using kernels::PassMember;
using kernels::StepModel;
using kernels::StepRecorder;

constexpr Address kArenas = 0x300000000, kPassArena = 0x500000000, kPassWorkspace = 0x700000000,
                  kApart = 0x10000000;

// A program, of memory whose weights others have, too.
class Member {
 public:
  explicit Member(uint64_t number)
      : buffers_(kernels::kStepMemory), recorder_(model_, buffers_), number_(number) {
    buffers_[kernels::kStepCache].address += number * kApart;
  }

  StepRecorder& recorder() { return recorder_; }
  const StepModel& model() const { return model_; }
  PassMember Bind() {
    recorder_.PlaceArena();
    program_ = recorder_.Bind(kArenas + number_ * kApart);
    return {program_.get(), recorder_.Source()};
  }

 private:
  const StepModel model_;
  std::vector<kernels::BufferRange> buffers_;
  StepRecorder recorder_;
  const uint64_t number_;
  std::unique_ptr<kernels::Program> program_;
};

// Members copy what is theirs through slots that share memory, one's with another's; only a copy
// for all of them stands between the two, which the GEMM does without.
void RecordCopies(Member& member) {
  StepRecorder& recorder = member.recorder();
  const uint32_t columns = member.model().hidden;
  const uint32_t first = recorder.Slot(columns), second = recorder.Slot(columns / 2);
  // Placed before them, and so where neither is.
  const uint32_t wide = 2 * columns;
  const uint32_t in = recorder.Slot(wide, /*binding=*/true), hidden = recorder.Slot(wide);
  recorder.Copy(kernels::kStepCache, wide, recorder.Slot(wide));
  recorder.Copy(kernels::kStepCache, columns, first);
  concert_copy_body& back = recorder.Add(kernels::GoodCopy()).body.copy;
  back.src = {first, 0, 0}, back.dst = {kernels::kStepCache, 0, kMiB};
  back.bytes = uint64_t{member.model().rows} * columns * 2;
  recorder.Copy(in, wide, hidden);
  recorder.Copy(kernels::kStepCache, columns / 2, second);
  recorder.Gemm(hidden, wide, recorder.Slot(columns), columns);
}

TEST(PassGraphTest, MembersCopiesWaitForThoseWhoseMemoryTheyTake) {
  FakeCuda fake;
  fake.offers[0] = {FakeAlgo{}};
  fake.AddSkinny();
  std::vector<std::unique_ptr<Member>> owners;
  std::vector<PassMember> members;
  for (uint64_t i = 0; i < 3; ++i) {
    owners.push_back(std::make_unique<Member>(i));
    RecordCopies(*owners.back());
    members.push_back(owners.back()->Bind());
  }
  const auto plan = kernels::PlanPass(members);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto pass = kernels::BindPass(members, *plan, kPassArena);
  ASSERT_TRUE(pass.ok()) << pass.status();
  kernels::cuda::LaunchContext context = fake.Context();
  context.workspace = kPassWorkspace;
  context.workspace_bytes = kernels::cuda::PassGraph::WorkspaceBytes(context, **pass);
  const auto graph = kernels::cuda::PassGraph::Capture(context, **pass);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const std::vector<FakeCopy>& copies = fake.copies;
  ASSERT_EQ(copies.size(), 4 * members.size()) << "and the one for all is part of the GEMM";
  size_t conflicts = 0;
  for (size_t later = 0; later < copies.size(); ++later) {
    for (size_t earlier = 0; earlier < later; ++earlier) {
      const FakeCopy &a = copies[earlier], &b = copies[later];
      if (!a.to.Overlaps(b.to) && !a.to.Overlaps(b.from) && !a.from.Overlaps(b.to)) continue;
      ++conflicts;
      EXPECT_TRUE(b.behind.contains(earlier)) << "copy " << later << " and copy " << earlier;
    }
  }
  EXPECT_GT(conflicts, 2 * members.size()) << "slots share memory";
}

}  // namespace
}  // namespace concert::test
