// A simulator's engine with round numbers, which tests run to its end.
#ifndef CONCERT_TESTS_UNIT_SIM_SIM_ENGINE_FIXTURE_H_
#define CONCERT_TESTS_UNIT_SIM_SIM_ENGINE_FIXTURE_H_

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "daemon/device/sim/sim_engine.h"

namespace concert::daemon::sim {

using policies::DeviceModel;

// Round numbers; nothing has a latency or a floor.
inline DeviceModel PlainModel() {
  DeviceModel model;
  model.sm_count = 8;
  model.hbm_bytes_per_s = 1000e9;  // 1000 bytes per ns
  model.link_bytes_per_s = 100e9;  // 100 bytes per ns
  model.launch_us = 0;
  model.kernel_floor_us = 0;
  model.collective_floor_us = 0;
  model.copy_engines = 2;
  model.transport_curves.Of(policies::Transport::kNccl, 2) = {};
  return model;
}

inline KernelShape Tiles(int64_t count, double ns, double bytes = 0) {
  return {.tiles = count, .tile_ns = ns, .tile_bytes = bytes, .floor_ns = 0};
}

class SimEngineTest : public testing::Test {
 protected:
  explicit SimEngineTest(int gpus = 2, DeviceModel model = PlainModel())
      : engine_(std::vector(static_cast<size_t>(gpus), model), 64) {}

  // Runs everything; ends_[cookie] is when it ended.
  void Run() {
    std::vector<Completion> done;
    for (Time next = engine_.NextEvent(); next != kNever; next = engine_.NextEvent()) {
      engine_.AdvanceTo(next, done);
    }
    for (const Completion& completion : done) ends_[completion.cookie] = completion.time;
  }

  SimEngine engine_;
  std::array<Time, 64> ends_{};
};

}  // namespace concert::daemon::sim

#endif  // CONCERT_TESTS_UNIT_SIM_SIM_ENGINE_FIXTURE_H_
