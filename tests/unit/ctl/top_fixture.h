// A daemon with GPUs and sessions of chosen numbers, as `top` sees it.
#ifndef CONCERT_TESTS_UNIT_CTL_TOP_FIXTURE_H_
#define CONCERT_TESTS_UNIT_CTL_TOP_FIXTURE_H_

#include <string>

#include "client/ctl/top/sample.h"

namespace concert::ctl {

inline void FillTopOps(uint64_t count, double gpu_seconds, v1::OpStats* ops) {
  ops->set_op_count(count);
  ops->set_moved_bytes(count << 20);
  ops->set_flop_count(count * 1'000'000'000);
  ops->set_gpu_seconds(gpu_seconds);
  ops->set_company_op_count(count / 2);
  ops->mutable_queue_wait()->set_p50_us(8.2);
  ops->mutable_queue_wait()->set_p99_us(1530);
  ops->mutable_run_time()->set_p50_us(41);
  ops->mutable_run_time()->set_p99_us(2400);
}

inline v1::SessionStats* AddSessionOps(uint32_t id, const std::string& priority, uint64_t count,
                                       double gpu_seconds, TopSample* sample) {
  v1::SessionStats* stats = nullptr;
  for (v1::SessionStats& known : *sample->delta.mutable_stats()->mutable_sessions())
    if (known.session_id() == id) stats = &known;
  if (stats == nullptr) stats = sample->delta.mutable_stats()->add_sessions();
  stats->set_session_id(id);
  if (stats->gpus().empty()) stats->add_gpus(0);
  FillTopOps(stats->ops().op_count() + count, stats->ops().gpu_seconds() + gpu_seconds,
             stats->mutable_ops());
  v1::ClassStats* of_class = stats->add_classes();
  of_class->set_priority(priority);
  FillTopOps(count, gpu_seconds, of_class->mutable_ops());
  of_class->mutable_ops()->clear_queue_wait();
  of_class->mutable_ops()->clear_run_time();
  return stats;
}

inline v1::Session* AddSession(uint32_t id, uint32_t uid, const std::string& name,
                               TopSample* sample) {
  v1::Session* session = sample->sessions.add_sessions();
  session->set_session_id(id);
  session->set_uid(uid);
  session->set_pid(5000 + id);
  session->set_client_name(name);
  session->add_gpus(0);
  return session;
}

inline void SetSensors(v1::Device* device) {
  device->set_memory_used_bytes(uint64_t{12} << 30);
  device->set_power_watts(412.4);
  device->set_power_limit_watts(700);
  device->set_sm_clock_mhz(1980);
  device->set_memory_clock_mhz(3201);
  device->set_temperature_celsius(54);
}

// An interval of 2 s in which GPU 0 was busy and the others idle.
inline TopSample SampleOf(int gpus) {
  TopSample sample;
  sample.status.set_version("0.1.0");
  sample.status.set_state(v1::DAEMON_STATE_RUNNING);
  sample.status.set_uptime_seconds(7805);
  sample.status.set_policy("auto");
  sample.status.set_op_count(1'234'567);
  sample.delta.set_interval_seconds(2);
  for (int i = 0; i < gpus; ++i) {
    v1::Device* device = sample.devices.add_devices();
    device->set_gpu(static_cast<uint32_t>(i));
    device->set_name("NVIDIA H200");
    device->set_memory_bytes(uint64_t{141} << 30);
    device->set_sm_count(132);
    device->set_memory_bytes_per_second(4.2e12);
    device->set_healthy(true);
    if (i == 0) SetSensors(device);
    v1::DeviceStats* stats = sample.delta.mutable_stats()->add_devices();
    stats->set_gpu(static_cast<uint32_t>(i));
  }
  if (gpus > 0) {
    v1::DeviceStats* busy = sample.delta.mutable_stats()->mutable_devices(0);
    FillTopOps(1000, 0.86, busy->mutable_ops());
    busy->mutable_ops()->set_moved_bytes(2'100'000'000'000);
    busy->set_planned_sm_seconds(0.31 * 132 * 2);
    sample.devices.mutable_devices(0)->set_ready_op_count(5);
    sample.devices.mutable_devices(0)->set_queued_op_count(7);
  }
  return sample;
}

}  // namespace concert::ctl

#endif  // CONCERT_TESTS_UNIT_CTL_TOP_FIXTURE_H_
