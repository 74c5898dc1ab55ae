// What a dispatcher tells the rest of the daemon about what it did. Plain data through a bounded
// single-producer ring (record_ring.h): the hot path writes numbers and never formats, counts or
// locks. The telemetry thread owns everything made of them.
#ifndef CONCERT_DAEMON_TELEMETRY_RECORDS_H_
#define CONCERT_DAEMON_TELEMETRY_RECORDS_H_

#include <array>
#include <cstdint>

#include "policies/plan.h"
#include "policies/work.h"

namespace concert::daemon {

using policies::Time;

// One op that ended.
struct OpRecord {
  uint32_t session;
  uint16_t kind;    // concert_op_kind
  uint16_t status;  // concert_status_abi
  uint32_t queue;
  uint16_t company;  // other ops in its plan
  policies::Dtype dtype;
  policies::Category category;
  uint64_t plan;  // 0: it failed before any plan
  uint64_t flops, bytes;
  Time admitted_at, ready_at, launched_at;
  Time started_at;   // launched_at, or when its lane's previous work was seen to end if later
  Time finished_at;  // when the dispatcher saw its timeline
  float gpu_us;      // its share of the plan's time, by predicted solo time
};

// One plan whose last op ended.
struct PlanRecord {
  static constexpr int kMaxListed = 16;

  // As policies::Work; zero where it means nothing.
  struct Shape {
    uint32_t m, n, k, batch;
    policies::Dtype dtype;
  };

  uint64_t plan;  // counts from 1 per GPU
  Time decided_at, started_at, finished_at;
  float predicted_us, serial_us;
  uint16_t op_count, launch_count;
  uint16_t session_count;  // distinct sessions
  policies::Reason reason;
  policies::Form form;                           // of its largest launch
  // Of the first ops.
  std::array<uint32_t, kMaxListed> sessions;
  std::array<uint16_t, kMaxListed> kinds;
  std::array<Shape, kMaxListed> shapes;
};

struct Record {
  enum class Type : uint8_t { kOp, kPlan, kWake };
  Type type;
  uint8_t gpu;
  union {
    OpRecord op;
    PlanRecord plan;
  };
  Record() : type(Type::kWake), gpu(0), op{} {}
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TELEMETRY_RECORDS_H_
