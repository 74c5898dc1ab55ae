#include "tests/fault/fault_fixture.h"

#include <filesystem>

namespace concert::test {

size_t CountFds() {
  const std::filesystem::directory_iterator fds("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(fds), end(fds)));
}

FaultTest::FaultTest(const TestDaemonOptions& options, int healthy_gpu)
    : daemon_(options), fds_before_(CountFds()) {
  if (healthy_gpu == kNobody) return;
  healthy_ = std::make_unique<HealthyClient>(daemon_, static_cast<uint32_t>(healthy_gpu));
}

void FaultTest::TearDown() {
  if (healthy_ != nullptr) {
    EXPECT_TRUE(healthy_->Progresses());
    EXPECT_EQ(healthy_->Stop(), "");
  }
  EXPECT_TRUE(daemon_.WaitUntilEmpty());
  for (int gpu = 0; gpu < daemon_.engine().gpu_count(); ++gpu) {
    const daemon::DispatcherGauges& gauges = daemon_.engine().dispatcher(gpu).gauges();
    EXPECT_TRUE(Eventually([&] {
      return gauges.unfinished_ops == 0 && gauges.queues == 0 && gauges.sessions == 0 &&
             gauges.plans_in_flight == 0;
    })) << "GPU "
        << gpu << " holds " << gauges.unfinished_ops << " ops, " << gauges.queues << " queues, "
        << gauges.sessions << " sessions, " << gauges.plans_in_flight << " plans";
    EXPECT_EQ(daemon_.node().gpu(gpu).used_bytes(), 0u) << "GPU " << gpu;
  }
  // Connections that never said Hello are not sessions; they may take a moment longer.
  EXPECT_TRUE(Eventually([&] { return CountFds() <= fds_before_; }))
      << CountFds() << " descriptors instead of " << fds_before_;
}

concert_descriptor FaultTest::MakeGemm(uint32_t queue, uint64_t ticket, uint32_t buffer) {
  concert_descriptor descriptor{};
  descriptor.queue = queue;
  descriptor.ticket = ticket;
  descriptor.kind = CONCERT_OP_GEMM;
  concert_gemm_body& gemm = descriptor.body.gemm;
  gemm.m = gemm.n = gemm.k = 4;
  gemm.batch = 1;
  gemm.a = {buffer, 0, 0};
  gemm.w = {buffer, 0, 256};
  gemm.d = {buffer, 0, 512};
  gemm.lda = gemm.ldw = gemm.ldc = gemm.ldd = 4;
  gemm.alpha = 1;
  gemm.dtype = CONCERT_ABI_FP32;
  return descriptor;
}

concert_descriptor FaultTest::MakeBarrier(uint32_t queue, uint64_t ticket, uint32_t communicator,
                                          uint64_t sequence) {
  concert_descriptor descriptor{};
  descriptor.queue = queue;
  descriptor.ticket = ticket;
  descriptor.kind = CONCERT_OP_BARRIER;
  descriptor.body.collective.communicator = communicator;
  descriptor.body.collective.sequence = sequence;
  return descriptor;
}

}  // namespace concert::test
