// A DaemonControl with fixed answers that remembers what it was told.
#ifndef CONCERT_TESTS_UNIT_ADMIN_FAKE_DAEMON_CONTROL_H_
#define CONCERT_TESTS_UNIT_ADMIN_FAKE_DAEMON_CONTROL_H_

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "daemon/admin/daemon_control.h"
#include "proto/mutex.h"

namespace concert::daemon {

class FakeDaemonControl final : public DaemonControl {
 public:
  DaemonInfo Info() const override {
    return {.version = "1.2.3",
            .pid = 77,
            .started_at = Now() - 90'500'000'000,
            .backend = "sim",
            .backend_reason = "no usable GPU: libcuda.so.1 not found",
            .client_socket = "/run/c.sock",
            .degraded = degraded};
  }
  // Set before a server is started.
  std::string degraded;

  bool draining() const override {
    MutexLock lock(mutex_);
    return drain_seconds_.has_value();
  }
  policies::Time Now() const override {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  }
  std::vector<DeviceStatus> Devices() const override {
    DeviceStatus good, bad;
    good.info.name = "Simulated GPU";
    good.info.backend = "sim";
    good.info.memory_bytes = 1 << 30;
    good.info.uuid[0] = 0xab;
    good.plans_in_flight = 2;
    good.ready_ops = 5;
    good.sealed_bytes = 3 << 20;
    good.sealed_saved_bytes = 5 << 20;
    bad = good;
    bad.info.gpu = 1;
    bad.health = absl::InternalError("GPU 1 faulted");
    return {good, bad};
  }
  Sensors ReadSensors(int gpu) const override {
    return gpu == 0 ? Sensors{.memory_used_bytes = 1 << 28,
                              .power_watts = 412.5,
                              .power_limit_watts = 700,
                              .sm_clock_mhz = 1980,
                              .memory_clock_mhz = 3201,
                              .temperature_celsius = 54}
                    : Sensors();
  }
  std::vector<SessionInfo> Sessions() const override {
    return {{.id = 3,
             .uid = 1000,
             .pid = 42,
             .client_name = "evil\x1b[2J\xff",
             .connected_at = Now() - 60'000'000'000,
             .queues = 2,
             .buffers = 4,
             .registered_bytes = 1 << 20,
             .sealed_bytes = 1 << 19,
             .shared_bytes = 1 << 18,
             .gpus = {0, 1},
             .programs = {
                 {.handle = 17,
                  .op_count = 2,
                  .kinds = {{CONCERT_OP_ATTENTION_PREFILL, 2}},
                  .engines = std::make_shared<const std::vector<kernels::EngineTimes>>(
                      1, kernels::EngineTimes{.engine = kernels::ProgramEngine::kGraph,
                                              .predicted_us = 40,
                                              .parts = {{"attention_prefill", 2, 20}}}),
                  .why_no_step = "op 0, attention_prefill: the step kernel has no code for it"},
                 {.handle = 18, .op_count = 1, .kinds = {{CONCERT_OP_GEMM, 1}}}}}};
  }
  absl::StatusOr<std::shared_ptr<const CollectiveReport>> Collectives() override {
    auto report = std::make_shared<CollectiveReport>();
    report->communicators = 3;
    report->taken_at = 5'000'000'000;
    report->collectives = {{.communicator = 7,
                            .ranks = 3,
                            .uid = 1000,
                            .sequence = 12,
                            .kind = CONCERT_OP_ALL_REDUCE,
                            .bytes = 1 << 20,
                            .parts_there = 1,
                            .since = 3'000'000'000,
                            .first_rank = 0,
                            .rank_count = 3},
                           {.communicator = 8,
                            .ranks = 1,
                            .uid = 1000,
                            .sequence = 4,
                            .kind = CONCERT_OP_ALL_GATHER,
                            .bytes = 512,
                            .running = true,
                            .parts_there = 1,
                            .since = 4'999'900'000,
                            .choice = {policies::Transport::kPeer, 8},
                            .run_ns = 412'000,
                            .first_rank = 3,
                            .rank_count = 1}};
    using State = ReportedRank::State;
    report->ranks = {
        {0, State::kThere, 0, 3}, {1, State::kMissing, 1, 5}, {2}, {0, State::kThere, 1}};
    return report;
  }
  Accounts& accounts() override { return accounts_; }
  std::vector<PolicyDescription> Policies() const override {
    return {{"auto", "Chooses."}, {"serial", "One by one."}};
  }
  std::string PolicyName() const override {
    MutexLock lock(mutex_);
    return policy_;
  }
  absl::Status SetPolicy(std::string_view name) override {
    MutexLock lock(mutex_);
    if (name != "auto" && name != "serial") {
      return absl::NotFoundError("no policy '" + std::string(name) + "'; there are auto, serial");
    }
    policy_ = name;
    return absl::OkStatus();
  }
  absl::Status Drain(uint32_t seconds) override {
    MutexLock lock(mutex_);
    if (drain_seconds_.has_value())
      return absl::FailedPreconditionError("the daemon drains already");
    drain_seconds_ = seconds;
    return absl::OkStatus();
  }
  std::optional<uint32_t> drain_seconds() const {
    MutexLock lock(mutex_);
    return drain_seconds_;
  }

 private:
  Accounts accounts_{Limits()};
  mutable Mutex mutex_;
  std::string policy_ CONCERT_GUARDED_BY(mutex_) = "auto";
  std::optional<uint32_t> drain_seconds_ CONCERT_GUARDED_BY(mutex_);
};

}  // namespace concert::daemon

#endif  // CONCERT_TESTS_UNIT_ADMIN_FAKE_DAEMON_CONTROL_H_
