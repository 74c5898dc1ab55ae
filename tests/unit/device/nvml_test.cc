#include "daemon/device/cuda/nvml.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace concert::daemon::cuda {
namespace {

class NvmlTest : public testing::Test {
 protected:
  NvmlTest() {
    void* const fake = dlopen(CONCERT_FAKE_NVML, RTLD_NOW);
    EXPECT_NE(fake, nullptr) << dlerror();
    users_ = reinterpret_cast<int (*)()>(dlsym(fake, "FakeNvmlUsers"));
    questions_ = reinterpret_cast<int (*)()>(dlsym(fake, "FakeNvmlQuestions"));
    set_power_ = reinterpret_cast<void (*)(bool)>(dlsym(fake, "FakeNvmlSetPower"));
    known_.uuid[0] = 1;
    known_.uuid[15] = 0xff;
    other_.uuid[0] = 2;
  }

  int (*users_)();
  int (*questions_)();
  void (*set_power_)(bool);
  DeviceInfo known_, other_;
};

TEST_F(NvmlTest, SaysWhatTheSensorsOfTheGpuSay) {
  const std::vector<DeviceInfo> gpus = {other_, known_};
  auto nvml = Nvml::Open(gpus, CONCERT_FAKE_NVML);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  const Sensors sensors = (*nvml)->Read(1, 0);
  EXPECT_EQ(sensors.memory_used_bytes, uint64_t{12} << 30);
  EXPECT_DOUBLE_EQ(sensors.power_watts.value(), 412.5);
  EXPECT_DOUBLE_EQ(sensors.power_limit_watts.value(), 700);
  EXPECT_EQ(sensors.sm_clock_mhz, 1980u);
  EXPECT_EQ(sensors.memory_clock_mhz, 3201u);
  EXPECT_EQ(sensors.temperature_celsius, 54u);
  const Sensors none = (*nvml)->Read(0, 0);  // NVML does not know the other
  EXPECT_FALSE(none.memory_used_bytes.has_value());
  EXPECT_FALSE(none.power_watts.has_value());
}

TEST_F(NvmlTest, WhatAGpuDoesNotSayIsAbsent) {
  set_power_(false);
  const auto nvml = Nvml::Open({&known_, 1}, CONCERT_FAKE_NVML);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  const Sensors sensors = (*nvml)->Read(0, 0);
  EXPECT_FALSE(sensors.power_watts.has_value());
  EXPECT_EQ(sensors.temperature_celsius, 54u);
  set_power_(true);
}

TEST_F(NvmlTest, AGpuIsNotAskedMoreOftenThanItMayBe) {
  const auto nvml = Nvml::Open({&known_, 1}, CONCERT_FAKE_NVML);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  const int before = questions_();
  constexpr policies::Time kStart = 5'000'000'000;
  for (int i = 0; i <= 10; ++i) (*nvml)->Read(0, kStart + i * Nvml::kLeastAgeNs / 10);
  EXPECT_EQ(questions_(), before + 1);
  (*nvml)->Read(0, kStart + Nvml::kLeastAgeNs + 1);
  EXPECT_EQ(questions_(), before + 2);
}

TEST_F(NvmlTest, WhatIsStartedIsStopped) {
  {
    const auto nvml = Nvml::Open({&known_, 1}, CONCERT_FAKE_NVML);
    ASSERT_TRUE(nvml.ok()) << nvml.status();
    EXPECT_EQ(users_(), 1);
  }
  EXPECT_EQ(users_(), 0);
}

TEST_F(NvmlTest, WithoutTheLibraryThereIsAReason) {
  const absl::Status missing = Nvml::Open({&known_, 1}, "libno-such-nvml.so.1").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(missing.message()), testing::HasSubstr("libno-such-nvml.so.1"));
  const absl::Status other = Nvml::Open({&known_, 1}, "libm.so.6").status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.message()), testing::HasSubstr("nvmlInit_v2"));
}

}  // namespace
}  // namespace concert::daemon::cuda
