// A client that does nothing wrong: it computes GEMMs and checks every number while a test
// mistreats the daemon.
#ifndef CONCERT_TESTS_SUPPORT_HEALTHY_CLIENT_H_
#define CONCERT_TESTS_SUPPORT_HEALTHY_CLIENT_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "tests/support/test_daemon.h"

namespace concert::test {

class HealthyClient {
 public:
  HealthyClient(const TestDaemon& daemon, uint32_t gpu);
  ~HealthyClient() { Stop(); }

  // Waits for results of ops that it submitted after this call. False if they do not come.
  bool Progresses() const;
  // Closes its session. The first thing that went wrong, or "".
  std::string Stop();

 private:
  void Run(Session session, uint32_t gpu);
  std::string Compute(Session& session, uint32_t gpu);

  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> rounds_{0};
  std::string trouble_;  // the thread's until it is joined
  std::thread thread_;
};

}  // namespace concert::test

#endif  // CONCERT_TESTS_SUPPORT_HEALTHY_CLIENT_H_
