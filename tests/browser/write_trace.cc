// Writes a made-up trace, which no daemon could be brought to record in a test:
//
//   write_trace hostile FILE   clients whose names try to become part of a page
//   write_trace large FILE     as many ops as concertctl takes
#include <cstdint>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "client/ctl/trace.h"
#include "client/ctl/trace_file.h"

namespace concert::test {
namespace {

using ctl::Recording;

constexpr uint64_t kUs = 1000;

// Launched at once; `plan` has `width` ops, which are one launch on the lane.
void AddPlan(Recording& recording, uint64_t plan, uint32_t width, uint32_t lane, uint64_t at_us,
             uint32_t sessions) {
  for (uint32_t i = 0; i < width; ++i) {
    v1::TracedOp& op = recording.ops.emplace_back();
    op.set_session_id(1 + (plan + i) % sessions);
    op.set_queue(i);
    op.set_kind("gemm");
    op.set_dtype("bf16");
    op.set_status("OK");
    op.set_plan_id(plan);
    op.set_lane(lane);
    op.set_admitted_at_ns(at_us * kUs);
    op.set_ready_at_ns(at_us * kUs);
    op.set_launched_at_ns((at_us + 2) * kUs);
    op.set_started_at_ns((at_us + 3) * kUs);
    op.set_finished_at_ns((at_us + 8) * kUs);
    op.set_flop_count(1'000'000);
    op.set_moved_bytes(4096);
    op.set_gpu_us(5.0 / width);
  }
  v1::Plan& made = recording.plans.emplace_back();
  made.set_plan_id(plan);
  made.set_predicted_us(4.5);
  made.set_actual_us(5);
  made.set_serial_us(4.5 * width);
  made.set_reason("together is predicted faster");
  made.set_text("plan " + std::to_string(plan) + " of " + std::to_string(width) + " GEMMs");
}

Recording Large() {
  constexpr uint32_t kWidth = 4, kSessions = 64, kLanes = 14;
  Recording recording;
  recording.simulated = true;
  for (uint32_t plan = 1; recording.ops.size() < ctl::TraceOptions::kMaxOps; ++plan)
    AddPlan(recording, plan, kWidth, plan % kLanes, plan * 10, kSessions);
  return recording;
}

Recording Hostile() {
  const std::vector<std::string> names = {
      "</script><script>window.hacked = 1</script>",
      "--><img src=x onerror=\"window.hacked = 1\">",
      "\"'`];window.hacked = 1;//",
      "<!--<script>",
      "\u202Egnisrever\u2066 \u200E",
      std::string("bell\a newline\n escape\x1b zero") + '\0',
      "${window.hacked = 1}@DATA@@NONCE@",
      "\u0627\u0644\u0639\u0631\u0628\u064A\u0629 \u05E2\u05D1\u05E8\u05D9\u05EA",
      std::string(5000, 'w'),
      "https://example.com/?<link rel=stylesheet href=https://example.com/x.css>",
  };
  Recording recording;
  for (uint32_t i = 0; i < names.size(); ++i) {
    AddPlan(recording, i + 1, 1, 0, (i + 1) * 100, names.size());
    recording.client_names[recording.ops.back().session_id()] = names[i];
    recording.ops.back().set_kind(i % 2 == 0 ? "gemm" : names[i]);
    recording.plans.back().set_reason(names[i]);
  }
  recording.gpu_names[0] = names[0];
  recording.lost_count = 3;
  return recording;
}

}  // namespace
}  // namespace concert::test

int main(int argc, char** argv) {
  const std::string what = argc == 3 ? argv[1] : "";
  if (what != "hostile" && what != "large") {
    std::cerr << "usage: write_trace hostile|large FILE\n";
    return 2;
  }
  concert::ctl::Recording recording =
      what == "hostile" ? concert::test::Hostile() : concert::test::Large();
  std::ofstream file(argv[2], std::ios::binary);
  concert::ctl::WriteTrace(recording, file);
  file.close();
  if (!file) std::cerr << "write_trace: cannot write " << argv[2] << "\n";
  return file ? 0 : 1;
}
