// The simulated node beyond what every backend promises: virtual time, bounds, imports, injected
// faults.
#include "daemon/device/sim/sim_node.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "daemon/device/device.h"
#include "daemon/device/nvidia_hardware.h"
#include "policies/cost/cost_model.h"
#include "proto/ring/control_abi.h"
#include "tests/support/heap_use.h"

namespace concert::daemon::sim {
namespace {

using testing::HasSubstr;

std::unique_ptr<SimNode> Open(SimOptions options = {}) {
  options.pace = Pace::kVirtual;
  return *SimNode::Open(options);
}

// A copy whose operands are in `bytes`, which it moves by `bytes.size() / 2`.
Op HalfCopy(std::vector<uint8_t>& bytes) {
  Op op;
  op.kind = CONCERT_OP_COPY;
  op.work.runs_on = policies::RunsOn::kCopyEngine;
  op.copy.src = reinterpret_cast<Address>(bytes.data());
  op.copy.dst = op.copy.src + bytes.size() / 2;
  op.copy.bytes = bytes.size() / 2;
  op.work.hbm_bytes = bytes.size();
  return op;
}

absl::Status LaunchOne(SimNode& node, const Op& op, Lane lane = 0) {
  const Op* ops[] = {&op};
  return node.gpu(0).Launch({.planned = {.lane = lane}, .ops = ops});
}

absl::Status SignalOne(SimNode& node, uint64_t& word, uint64_t value, Lane lane = 0) {
  const TimelineWrite write{reinterpret_cast<Address>(&word), value};
  return node.gpu(0).Signal(lane, {&write, 1});
}

TEST(SimNodeTest, NothingHappensBeforeItsTime) {
  const std::unique_ptr<SimNode> node = Open();
  std::vector<uint8_t> bytes(8192, 0);
  bytes[0] = 1;
  uint64_t word = 0;
  ASSERT_TRUE(LaunchOne(*node, HalfCopy(bytes)).ok());
  ASSERT_TRUE(SignalOne(*node, word, 5).ok());
  const policies::DeviceModel model;
  // 4096 bytes take less than the floor: latency and floor are all there is.
  const Time end = static_cast<Time>((model.launch_us + model.kernel_floor_us) * 1e3);
  node->AdvanceTo(end - 1);
  EXPECT_EQ(word, 0u);
  EXPECT_EQ(bytes[4096], 0);
  EXPECT_EQ(node->NextEvent(), end);
  node->AdvanceTo(end);
  EXPECT_EQ(word, 5u);
  EXPECT_EQ(bytes[4096], 1);
  EXPECT_EQ(node->NextEvent(), kNever);
  EXPECT_EQ(node->Now(), end);
}

TEST(SimNodeTest, ACopyTakesWhatIsPredictedOfItWithinAGpuAndAcrossTwo) {
  const policies::DeviceModel model;
  std::vector<uint8_t> bytes(64 << 20, 0);
  Op op = HalfCopy(bytes);
  for (const bool crosses : {false, true}) {
    const std::unique_ptr<SimNode> node = Open();
    op.work.link_bytes = crosses ? op.copy.bytes : 0;
    ASSERT_TRUE(LaunchOne(*node, op).ok());
    while (node->NextEvent() != kNever) node->AdvanceTo(node->NextEvent());
    const double us = static_cast<double>(node->Now()) * 1e-3 - model.launch_us;
    EXPECT_NEAR(us, policies::SoloUs(model, op.work), model.kernel_floor_us + 1e-3) << crosses;
  }
}

// A 512 x 512 x 512 fp32 GEMM of ones; all its operands are in `data`.
Op GemmOfOnes(std::vector<float>& data) {
  constexpr uint32_t kExtent = 512, kElements = kExtent * kExtent;
  data.assign(3 * kElements, 1);
  std::fill_n(data.begin() + 2 * kElements, kElements, 0.0f);
  Op op;
  op.kind = CONCERT_OP_GEMM;
  op.work = {.runs_on = policies::RunsOn::kSms,
             .dtype = policies::Dtype::kFp32,
             .m = kExtent,
             .n = kExtent,
             .k = kExtent,
             .batch = 1,
             .hbm_bytes = 3 * kElements * sizeof(float)};
  const Address a = reinterpret_cast<Address>(data.data());
  op.gemm = {.m = kExtent,
             .n = kExtent,
             .k = kExtent,
             .batch = 1,
             .a = a,
             .w = a + kElements * sizeof(float),
             .d = a + 2 * kElements * sizeof(float),
             .lda = kExtent,
             .ldw = kExtent,
             .ldd = kExtent,
             .alpha = 1,
             .dtype = policies::Dtype::kFp32};
  return op;
}

TEST(SimNodeTest, AScheduledGroupEndsItsOpsOneByOneEachWithItsResult) {
  const std::unique_ptr<SimNode> node = Open();
  std::vector<float> data[3];
  const Op gemms[] = {GemmOfOnes(data[0]), GemmOfOnes(data[1]), GemmOfOnes(data[2])};
  const Op* ops[] = {&gemms[0], &gemms[1], &gemms[2]};
  uint64_t words[3] = {};
  const auto at = [&](int i) { return reinterpret_cast<Address>(&words[i]); };
  const TimelineWrite writes[] = {{at(0), 1}, {at(1), 1}, {at(2), 1}};
  const float ends_us[] = {30, 10, 20};
  kernels::GroupWorkList list;
  list.blocks = 4;
  list.problem_count = 3;
  list.ends_us = ends_us;
  ASSERT_TRUE(node->gpu(0)
                  .Launch({.planned = {.form = policies::Form::kGroup, .work_list = &list},
                           .ops = ops,
                           .writes = writes})
                  .ok());
  std::vector<int> order;
  std::vector<Time> times;
  for (Time next = node->NextEvent(); next != kNever; next = node->NextEvent()) {
    node->AdvanceTo(next);
    for (int i = 0; i < 3; ++i) {
      if (words[i] == 0 || std::find(order.begin(), order.end(), i) != order.end()) continue;
      EXPECT_EQ(data[i].back(), 512) << i;
      order.push_back(i);
      times.push_back(next);
    }
    for (int i = 0; i < 3; ++i) EXPECT_EQ(data[i].back() == 512, words[i] == 1) << i;
  }
  EXPECT_THAT(order, testing::ElementsAre(1, 2, 0));
  // 48 tiles on 4 SMs: 16 of them each.
  const Time wave = (times[2] - times[0]) / 8;
  EXPECT_NEAR(times[1] - times[0], 4 * wave, 4);
  EXPECT_GT(wave, 0);
}

TEST(SimNodeTest, AGroupWithoutAScheduleEndsAsAWhole) {
  const std::unique_ptr<SimNode> node = Open();
  std::vector<float> data[2];
  const Op gemms[] = {GemmOfOnes(data[0]), GemmOfOnes(data[1])};
  const Op* ops[] = {&gemms[0], &gemms[1]};
  uint64_t words[2] = {};
  const TimelineWrite writes[] = {{reinterpret_cast<Address>(&words[0]), 1},
                                  {reinterpret_cast<Address>(&words[1]), 1}};
  ASSERT_TRUE(
      node->gpu(0)
          .Launch({.planned = {.form = policies::Form::kGroup}, .ops = ops, .writes = writes})
          .ok());
  for (Time next = node->NextEvent(); next != kNever; next = node->NextEvent()) {
    node->AdvanceTo(next);
    EXPECT_EQ(words[0], words[1]);
  }
  EXPECT_EQ(words[0], 1u);
  EXPECT_EQ(data[0].back(), 512);
  EXPECT_EQ(data[1].back(), 512);
}

TEST(SimNodeTest, AScheduleOfAnotherSizeIsRefused) {
  const std::unique_ptr<SimNode> node = Open();
  std::vector<float> data;
  const Op gemm = GemmOfOnes(data);
  const Op* ops[] = {&gemm};
  kernels::GroupWorkList list;
  list.problem_count = 2;
  EXPECT_TRUE(absl::IsInvalidArgument(node->gpu(0).Launch(
      {.planned = {.form = policies::Form::kGroup, .work_list = &list}, .ops = ops})));
}

TEST(SimNodeTest, AFullLaneIsRefusedAndDrains) {
  SimOptions options;
  options.lane_capacity = 4;
  const std::unique_ptr<SimNode> node = Open(options);
  std::vector<uint8_t> bytes(64);
  const Op op = HalfCopy(bytes);
  for (int round = 0; round < 50; ++round) {  // more than any pool holds: places come back
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(LaunchOne(*node, op).ok());
    EXPECT_EQ(LaunchOne(*node, op).code(), absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(LaunchOne(*node, op, 1).ok()) << "other lanes have room";
    node->RunUntilIdle();
  }
}

TEST(SimNodeTest, SteadyStateAllocatesNothing) {
  const std::unique_ptr<SimNode> node = Open();
  std::vector<uint8_t> bytes(64);
  const Op op = HalfCopy(bytes);
  uint64_t word = 0;
  Op barrier;
  barrier.kind = CONCERT_OP_BARRIER;
  barrier.collective.dtype = policies::Dtype::kFp32;
  const RankPart parts[] = {{0, policies::kCollectiveLane, &barrier, {}},
                            {1, policies::kCollectiveLane, &barrier, {}}};
  const int64_t before = test::Allocations();
  for (uint64_t i = 1; i <= 100; ++i) {
    ASSERT_TRUE(LaunchOne(*node, op).ok());
    ASSERT_TRUE(node->gpu(0).Order(1, 0).ok());
    ASSERT_TRUE(SignalOne(*node, word, i, 1).ok());
    ASSERT_TRUE(node->LaunchCollective(parts, {}).ok());
    node->RunUntilIdle();
    ASSERT_EQ(word, i);
  }
  EXPECT_EQ(test::Allocations(), before);
}

TEST(SimNodeTest, InjectedLaunchFailuresStartNothing) {
  const std::unique_ptr<SimNode> node = Open();
  std::vector<uint8_t> bytes(64);
  const Op op = HalfCopy(bytes);
  node->gpu(0).FailLaunches(2);
  EXPECT_EQ(LaunchOne(*node, op).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(LaunchOne(*node, op).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(node->NextEvent(), kNever);
  EXPECT_TRUE(node->gpu(0).healthy().ok());
  EXPECT_TRUE(LaunchOne(*node, op).ok());
}

TEST(SimNodeTest, AFaultDropsWhatIsInFlight) {
  const std::unique_ptr<SimNode> node = Open();
  std::vector<uint8_t> bytes(64, 1);
  uint64_t word = 0;
  ASSERT_TRUE(LaunchOne(*node, HalfCopy(bytes)).ok());
  ASSERT_TRUE(SignalOne(*node, word, 1).ok());
  node->gpu(0).Fault();
  node->RunUntilIdle();
  EXPECT_EQ(word, 0u);
  EXPECT_FALSE(node->gpu(0).healthy().ok());
  EXPECT_TRUE(node->gpu(1).healthy().ok());
}

TEST(SimNodeTest, MemoryIsLimitedAndComesBack) {
  SimOptions options;
  options.memory_bytes = 1 << 20;
  const std::unique_ptr<SimNode> node = Open(options);
  SimDevice& gpu = node->gpu(0);
  const absl::StatusOr<Allocation> most = gpu.Allocate((1 << 20) - 4096);
  ASSERT_TRUE(most.ok()) << most.status();
  const absl::Status full = gpu.Allocate(4097).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(full.message(),
              HasSubstr("GPU 0 has 4096 of 1048576 bytes left, but 4097 were asked for"));
  close(most->export_fd);
  gpu.Free(*most);
  EXPECT_EQ(gpu.used_bytes(), 0u);
}

// A memfd of 8192 bytes with these seals.
int Memfd(unsigned flags, int seals) {
  const int fd = memfd_create("test", MFD_CLOEXEC | flags);
  if (fd >= 0 && ftruncate(fd, (flags & MFD_HUGETLB) ? 2 << 20 : 8192) != 0) std::abort();
  if (seals != 0 && fcntl(fd, F_ADD_SEALS, seals) != 0) std::abort();
  return fd;
}

TEST(SimMemoryTest, ImportsOnlyWhatCannotHurt) {
  const std::unique_ptr<SimNode> node = Open();
  SimDevice& gpu = node->gpu(0);
  const auto import = [&gpu](int fd, uint32_t kind = CONCERT_IMPORT_MEMFD,
                             uint64_t allocation_bytes = 8192) {
    const absl::StatusOr<Allocation> allocation =
        gpu.Import({.kind = kind,
                    .fd = fd,
                    .offset = 100,
                    .bytes = 5000,
                    .allocation_bytes = allocation_bytes});
    if (!allocation.ok()) return allocation.status();
    EXPECT_FALSE(allocation->pool);
    EXPECT_EQ(allocation->address % 4096, 100u);
    gpu.Free(*allocation);
    return absl::OkStatus();
  };
  const int good = Memfd(MFD_ALLOW_SEALING, F_SEAL_SHRINK);
  EXPECT_TRUE(import(good).ok()) << import(good);
  EXPECT_THAT(import(good, CONCERT_IMPORT_CUDA_IPC).message(), HasSubstr("import kind is 1"));
  EXPECT_THAT(import(good, CONCERT_IMPORT_MEMFD, 8193).message(),
              HasSubstr("does not fit the memfd of 8192 bytes"));
  EXPECT_THAT(import(good, CONCERT_IMPORT_MEMFD, 5099).message(), HasSubstr("does not fit"));
  const int open = Memfd(MFD_ALLOW_SEALING, 0);
  EXPECT_THAT(import(open).message(), HasSubstr("is not sealed; add F_SEAL_SHRINK"));
  const int read_only = Memfd(MFD_ALLOW_SEALING, F_SEAL_SHRINK | F_SEAL_WRITE);
  EXPECT_THAT(import(read_only).message(), HasSubstr("cannot be mapped for writing"));
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  EXPECT_THAT(import(pipes[0]).message(), HasSubstr("is not a memfd"));
  const int huge = Memfd(MFD_ALLOW_SEALING | MFD_HUGETLB, 0);
  if (huge >= 0) {  // where the kernel has huge pages
    ASSERT_EQ(fcntl(huge, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    EXPECT_THAT(import(huge).message(), HasSubstr("make it without MFD_HUGETLB"));
    close(huge);
  }
  for (const int fd : {good, open, read_only, pipes[0], pipes[1]}) close(fd);
  EXPECT_EQ(gpu.used_bytes(), 0u);
}

TEST(OpenNodeTest, SaysWhatItTookAndWhy) {
  const absl::StatusOr<NodeChoice> sim = OpenNode({.device = "sim", .sim_gpus = 3});
  ASSERT_TRUE(sim.ok()) << sim.status();
  EXPECT_EQ(sim->node->gpu_count(), 3);
  EXPECT_EQ(sim->why, "the configuration asks for it; using the simulator with 3 GPUs");

  const absl::StatusOr<NodeChoice> automatic = OpenNode({.sim_gpus = 1});
  ASSERT_TRUE(automatic.ok()) << automatic.status();
  if (automatic->node->gpu(0).info().backend == "sim") {
    EXPECT_THAT(automatic->why, testing::StartsWith("no usable GPU: "));
    EXPECT_THAT(automatic->why, testing::EndsWith("; using the simulator with 1 GPU"));
    EXPECT_FALSE(OpenNode({.device = "cuda"}).ok());
  }
}

// A folder that looks to the probe as a machine does.
class Machine {
 public:
  Machine() {
    std::filesystem::remove_all(root_);
    AddPci("0000:00:00.0", "0x8086", "0x060000");
  }
  ~Machine() { std::filesystem::remove_all(root_); }

  void AddPci(const std::string& address, const std::string& vendor, const std::string& of_class) {
    const std::string folder = root_ + "/sys/bus/pci/devices/" + address;
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/vendor") << vendor << "\n";
    std::ofstream(folder + "/class") << of_class << "\n";
  }
  void AddNode(const std::string& name) {
    std::filesystem::create_directories(root_ + "/dev");
    std::ofstream(root_ + "/dev/" + name) << "";
  }
  void AddModule() { std::filesystem::create_directories(root_ + "/sys/module/nvidia"); }
  const std::string& root() const { return root_; }

 private:
  const std::string root_ = testing::TempDir() + "concert_machine_" + std::to_string(getpid());
};

TEST(NvidiaHardwareTest, FindsEverySignAndNothingElse) {
  EXPECT_EQ(FindNvidiaHardware("/nonexistent"), "");
  Machine machine;
  machine.AddPci("0000:1b:00.1", "0x10de", "0x040300");  // a GPU's sound
  machine.AddPci("0000:1c:00.0", "0x10de", "0x068000");  // an NVSwitch
  machine.AddPci("0000:1d:00.0", "0x1002", "0x030000");  // another vendor's GPU
  machine.AddNode("nvidiactl");
  machine.AddNode("nvidia-uvm");
  EXPECT_EQ(FindNvidiaHardware(machine.root()), "");
  machine.AddModule();
  EXPECT_EQ(FindNvidiaHardware(machine.root()), "the kernel module nvidia");
  machine.AddPci("0000:1e:00.0", "0x10de", "0x030200");
  machine.AddNode("nvidia1");
  machine.AddNode("nvidia0");
  EXPECT_EQ(FindNvidiaHardware(machine.root()),
            "PCI device 0000:1e:00.0, /dev/nvidia0 (and 1 more), the kernel module nvidia");
}

TEST(OpenNodeTest, AGpuThatCannotBeUsedIsNoMachineWithoutOne) {
  if (OpenNode({.device = "cuda"}).ok()) GTEST_SKIP() << "the GPU here can be used";
  Machine machine;
  const absl::StatusOr<NodeChoice> without = OpenNode({.hardware_root = machine.root()});
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->degraded, "");
  const std::string plain(
      OpenNode({.device = "cuda", .hardware_root = machine.root()}).status().message());
  EXPECT_THAT(plain, testing::Not(HasSubstr("this machine has")));

  machine.AddPci("0000:1e:00.0", "0x10de", "0x030200");
  const std::string sentence =
      "this machine has an NVIDIA GPU (PCI device 0000:1e:00.0) that cannot be used: " + plain;
  const absl::StatusOr<NodeChoice> broken = OpenNode({.hardware_root = machine.root()});
  ASSERT_TRUE(broken.ok()) << broken.status();
  EXPECT_EQ(broken->degraded, sentence);
  EXPECT_EQ(OpenNode({.device = "cuda", .hardware_root = machine.root()}).status().message(),
            sentence);
  const auto refused =
      OpenNode({.refuse_unusable_gpu = true, .hardware_root = machine.root()}).status();
  EXPECT_EQ(refused.message(),
            sentence +
                ". Repair the driver (nvidia-smi should work), or say device = \"sim\"; "
                "unusable_gpu = \"error\" asks for this");
  EXPECT_TRUE(OpenNode({.refuse_unusable_gpu = true, .hardware_root = "/nonexistent"}).ok());
  // Who asks for the simulator gets what was asked for.
  EXPECT_TRUE(
      OpenNode({.device = "sim", .refuse_unusable_gpu = true, .hardware_root = machine.root()})
          .ok());
  EXPECT_EQ(OpenNode({.device = "sim", .hardware_root = machine.root()})->degraded, "");
}

TEST(OpenNodeTest, RefusesBadOptions) {
  EXPECT_EQ(OpenNode({.device = "tpu"}).status().message(),
            "device is 'tpu'; it must be auto, cuda or sim");
  EXPECT_EQ(OpenNode({.device = "sim", .sim_gpus = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenNode({.device = "sim", .sim_gpus = 17}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace concert::daemon::sim
