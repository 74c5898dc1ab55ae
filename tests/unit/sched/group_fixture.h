// A scheduler whose policy launches all ready GEMMs as one group.
#ifndef CONCERT_TESTS_UNIT_SCHED_GROUP_FIXTURE_H_
#define CONCERT_TESTS_UNIT_SCHED_GROUP_FIXTURE_H_

#include <memory>
#include <utility>
#include <vector>

#include "kernels/group/plan/work_list.h"
#include "tests/unit/sched/scheduler_fixture.h"

namespace concert::daemon {

// All ready GEMMs in one group on lane 0; remembers what it is told.
class OneGroup : public policies::Policy {
 public:
  explicit OneGroup(std::vector<policies::Outcome>* learned, float predicted_us = 20,
                    const kernels::GroupWorkList* work_list = nullptr)
      : learned_(learned), predicted_us_(predicted_us), work_list_(work_list) {}
  void Decide(const Snapshot& snapshot, Plan& plan) override {
    plan.Clear();
    for (uint16_t i = 0; i < snapshot.ready.size(); ++i) plan.ops[plan.op_count++] = i;
    plan.launches[plan.launch_count++] = {.count = plan.op_count,
                                          .form = Form::kGroup,
                                          .lane = 0,
                                          .sm_budget = 66,
                                          .work_list = work_list_,
                                          .predicted_us = predicted_us_};
    plan.predicted_us = predicted_us_;
    plan.serial_us = 2.5f * predicted_us_;
    plan.tag = ++tag_;
  }
  void Learn(const policies::Outcome& outcome) override { learned_->push_back(outcome); }

 private:
  std::vector<policies::Outcome>* learned_;
  const float predicted_us_;
  const kernels::GroupWorkList* const work_list_;
  uint64_t tag_ = 0;
};

class GroupTest : public SchedulerTest {
 protected:
  explicit GroupTest(SchedulerOptions options = {.depth = 2,
                                                 .backlog_ns = 0,
                                                 .wait_timeout_ns = 1'000'000'000})
      : SchedulerTest(options) {
    UseGroups(&learned_);
  }
  void UseGroups(std::vector<policies::Outcome>* learned,
                 const kernels::GroupWorkList* work_list = nullptr) {
    std::unique_ptr<policies::Policy> policy = std::make_unique<OneGroup>(learned, 20, work_list);
    scheduler_.SetPolicy(policy);
  }
  void Use(std::unique_ptr<policies::Policy> policy) { scheduler_.SetPolicy(policy); }
  // How many outcomes there are after each of plans of one op that end one by one, two at a time in
  // flight.
  std::vector<size_t> LearnedAfterEach(const std::vector<int>& times_us) {
    std::vector<QueueId> queues;
    const auto submit = [&] {
      if (queues.size() == times_us.size()) return;
      queues.push_back(AddQueue(static_cast<uint32_t>(queues.size() + 1)));
      SubmitGemm(queues.back(), 0x1000, 0x2000, 0x3000 + 0x1000 * queues.size());
      Step();
    };
    std::vector<size_t> learned;
    submit(), submit();
    for (size_t i = 0; i < times_us.size(); ++i) {
      now_ += Time{1000} * times_us[i];
      Finish(queues[i], 1);
      Step();
      learned.push_back(learned_.size());
      submit();
    }
    return learned;
  }
  // A 16 x 16 x 16 GEMM with operands at the addresses.
  OpId SubmitGemm(QueueId queue, kernels::Address a, kernels::Address w, kernels::Address d,
                  std::vector<OpSlot::LocalWait> waits = {}) {
    gemm_ = {.m = 16,
             .n = 16,
             .k = 16,
             .batch = 1,
             .a = a,
             .w = w,
             .d = d,
             .lda = 16,
             .ldw = 16,
             .ldd = 16,
             .dtype = policies::Dtype::kBf16};
    const OpId op = Submit(queue, std::move(waits));
    scheduler_.slot(op).op.kind = CONCERT_OP_GEMM;
    scheduler_.slot(op).op.gemm = gemm_;
    return op;
  }

  kernels::GemmArgs gemm_;
  std::vector<policies::Outcome> learned_;
};

}  // namespace concert::daemon

#endif  // CONCERT_TESTS_UNIT_SCHED_GROUP_FIXTURE_H_
