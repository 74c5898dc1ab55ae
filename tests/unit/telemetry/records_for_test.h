// Records with chosen numbers.
#ifndef CONCERT_TESTS_UNIT_TELEMETRY_RECORDS_FOR_TEST_H_
#define CONCERT_TESTS_UNIT_TELEMETRY_RECORDS_FOR_TEST_H_

#include <initializer_list>

#include "daemon/telemetry/records.h"
#include "proto/ring/ring_abi.h"

namespace concert::daemon {

// Ready at 1 ms, waited `wait_us`, ran `run_us`.
inline OpRecord GoodOp(uint32_t session, uint16_t kind = CONCERT_OP_GEMM, int64_t wait_us = 10,
                       int64_t run_us = 40, uint16_t others = 0) {
  OpRecord op{};
  op.session = session;
  op.kind = kind;
  op.others = others;
  op.dtype = policies::Dtype::kBf16;
  op.reason = policies::Reason::kOnlyOneReady;
  op.plan = 1;
  op.flops = 1'000'000;
  op.bytes = 4096;
  op.admitted_at = 900'000;
  op.ready_at = 1'000'000;
  op.launched_at = op.ready_at + wait_us * 1000;
  op.started_at = op.launched_at;
  op.finished_at = op.started_at + run_us * 1000;
  op.gpu_us = 20;
  op.serial_us = 32;
  return op;
}

inline OpRecord FailedOp(uint32_t session, uint16_t status) {
  OpRecord op = GoodOp(session);
  op.status = status;
  op.plan = 0;
  return op;
}

// One GEMM per entry of `sessions`, side by side.
inline PlanRecord PlanOf(uint64_t id, std::initializer_list<uint32_t> sessions) {
  PlanRecord plan{};
  plan.plan = id;
  plan.decided_at = 1'000'000;
  plan.started_at = 1'010'000;
  plan.finished_at = 1'053'000;
  plan.predicted_us = 41;
  plan.serial_us = 96;
  plan.op_count = sessions.size();
  plan.launch_count = sessions.size();
  plan.reason =
      sessions.size() > 1 ? policies::Reason::kTogetherFaster : policies::Reason::kOnlyOneReady;
  plan.form = sessions.size() > 1 ? policies::Form::kStreams : policies::Form::kSingle;
  plan.ops_by_form[static_cast<size_t>(plan.form)] = plan.op_count;
  int i = 0;
  for (const uint32_t session : sessions) {
    plan.ops[i] = {.session = session,
                   .kind = CONCERT_OP_GEMM,
                   .runs_on = policies::RunsOn::kSms,
                   .problem = {.m = 64, .n = 4096, .k = 1024}};
    ++i;
  }
  return plan;
}

}  // namespace concert::daemon

#endif  // CONCERT_TESTS_UNIT_TELEMETRY_RECORDS_FOR_TEST_H_
