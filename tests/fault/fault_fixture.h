// A daemon, a healthy client beside whatever the test does to it, and the proof at the end that
// neither was harmed and nothing is left behind.
#ifndef CONCERT_TESTS_FAULT_FAULT_FIXTURE_H_
#define CONCERT_TESTS_FAULT_FAULT_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/healthy_client.h"
#include "tests/support/raw_client.h"
#include "tests/support/test_daemon.h"

namespace concert::test {

// Descriptors that this process has open.
size_t CountFds();

class FaultTest : public testing::Test {
 protected:
  static constexpr int kNobody = -1;

  // A healthy client works on `healthy_gpu`, unless that is kNobody.
  explicit FaultTest(const TestDaemonOptions& options = {}, int healthy_gpu = 0);
  // Sessions of the test must be closed by then.
  void TearDown() override;

  // A private buffer of 4 KiB, for MakeGemm.
  static concert_descriptor MakeGemm(uint32_t queue, uint64_t ticket, uint32_t buffer);
  static concert_descriptor MakeBarrier(uint32_t queue, uint64_t ticket, uint32_t communicator,
                                        uint64_t sequence);

  TestDaemon daemon_;
  const size_t fds_before_;
  std::unique_ptr<HealthyClient> healthy_;
};

// Status and sentence of an op in one line.
inline std::string Outcome(const Ticket& ticket) {
  return ticket.Wait(std::chrono::seconds(30)).ToString();
}

inline Buffer FloatBuffer(const Session& session, size_t count, float value, uint32_t gpu = 0) {
  const std::vector<float> values(count, value);
  Buffer buffer = session.Allocate(count * sizeof(float), gpu).value();
  buffer.Write(values.data(), count * sizeof(float)).Check();
  return buffer;
}

}  // namespace concert::test

#endif  // CONCERT_TESTS_FAULT_FAULT_FIXTURE_H_
