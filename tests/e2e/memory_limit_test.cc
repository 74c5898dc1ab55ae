// A daemon whose address space is limited: clients are refused before it is gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/include/concert/concert.hpp"
#include "tests/bench/child_process.h"
#include "tests/bench/private_daemon.h"
#include "tests/support/eventually.h"

namespace concert::test {
namespace {

using testing::HasSubstr;

class MemoryLimitTest : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "sanitizers need all of the address space";
#endif
    auto daemon = bench::PrivateDaemon::Start({.device = "sim"});
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    // It serves clients a moment before operators.
    nlohmann::json status;
    ASSERT_TRUE(Eventually([&] { return !(status = Ctl("status")).is_null(); }))
        << daemon_->LogTail();
    pid_ = status["pid"];
  }

  // Null if the daemon does not answer.
  nlohmann::json Ctl(const std::string& command) {
    const std::string line = bench::ProgramFolder() + "/concertctl --socket " +
                             daemon_->admin_socket() + " --json " + command;
    FILE* pipe = popen(line.c_str(), "r");
    std::string output;
    std::array<char, 4096> buffer;
    for (size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
      output.append(buffer.data(), n);
    return pclose(pipe) == 0 ? nlohmann::json::parse(output) : nlohmann::json();
  }
  // The row of `concertctl quotas`; null if there is none, or no answer.
  nlohmann::json Quota(const std::string& resource) {
    const nlohmann::json answer = Ctl("quotas");
    if (answer.is_null()) return {};
    for (const nlohmann::json& quota : answer["quotas"])
      if (quota["resource"] == resource) return quota;
    return {};
  }
  // Lets the daemon map `bytes` more than it has mapped now.
  void Leave(uint64_t bytes) {
    uint64_t pages = 0;
    std::ifstream("/proc/" + std::to_string(pid_) + "/statm") >> pages;
    const rlim_t most = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + bytes;
    const rlimit limit{.rlim_cur = most, .rlim_max = RLIM_INFINITY};
    ASSERT_EQ(prlimit(pid_, RLIMIT_AS, &limit, nullptr), 0);
  }
  void LeaveAll() {
    const rlimit limit{.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    ASSERT_EQ(prlimit(pid_, RLIMIT_AS, &limit, nullptr), 0);
  }
  Result<Session> Connect() const { return Session::Connect({.socket_path = daemon_->socket()}); }
  // The answer to the first request that is refused.
  static Status Fill(const Session& session, std::vector<Buffer>& buffers) {
    for (int i = 0; i < 1000; ++i) {
      Result<Buffer> buffer = session.Allocate(8 << 20);
      if (!buffer.ok()) return buffer.status();
      buffers.push_back(std::move(*buffer));
    }
    return {};
  }

  std::unique_ptr<bench::PrivateDaemon> daemon_;
  pid_t pid_ = 0;
};

TEST_F(MemoryLimitTest, ClientsAreRefusedAndServedAgainWhenMemoryIsBack) {
  const Session session = Connect().value();
  Leave(512 << 20);
  for (int round = 0; round < 3; ++round) {
    // What the round before released is given back after that has been answered.
    ASSERT_TRUE(Eventually(
        [&] { return Quota("buffers")["used"] == 0 && Quota("sessions")["used"] == 1; }));
    std::vector<Buffer> buffers;
    const Status refusal = Fill(session, buffers);
    EXPECT_EQ(refusal.code(), CONCERT_RESOURCE_EXHAUSTED);
    EXPECT_THAT(std::string(refusal.message()), HasSubstr("the daemon is short of memory"));
    EXPECT_FALSE(buffers.empty());
    // Less than a buffer is left; sessions take that.
    std::vector<Session> sessions;
    Status connected;
    while (sessions.size() < 100 && connected.ok()) {
      Result<Session> next = Connect();
      connected = next.status();
      if (next.ok()) sessions.push_back(std::move(*next));
    }
    EXPECT_EQ(connected.code(), CONCERT_RESOURCE_EXHAUSTED);
    EXPECT_THAT(std::string(connected.message()), HasSubstr("the daemon is short of memory"));
    // Operators are served from what clients may not have.
    EXPECT_EQ(Ctl("status")["pid"], pid_);
  }
  EXPECT_TRUE(Eventually([&] { return Connect().ok(); }));
}

TEST_F(MemoryLimitTest, TheDaemonOutlivesALimitThatLeavesNothing) {
  const Session session = Connect().value();
  Queue queue = session.CreateQueue({}).value();
  const Buffer from = session.Allocate(4096).value(), to = session.Allocate(4096).value();
  Leave(0);
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(Connect().status().code(), CONCERT_RESOURCE_EXHAUSTED) << daemon_->LogTail();
    ASSERT_EQ(session.Allocate(4096).status().code(), CONCERT_RESOURCE_EXHAUSTED)
        << daemon_->LogTail();
  }
  // What needs nothing new goes on.
  EXPECT_TRUE(queue.Copy({.src = from, .dst = to, .bytes = 4096}).Wait().ok());
  LeaveAll();
  EXPECT_TRUE(Connect().ok());
  EXPECT_TRUE(session.Allocate(4096).ok());
}

TEST_F(MemoryLimitTest, MappingsAndDescriptorsAreLimitedBelowWhatTheMachineAllows) {
  uint64_t most = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> most;
  const nlohmann::json mappings = Quota("mappings"), descriptors = Quota("descriptors");
  EXPECT_GT(mappings["node_limit"], 0);
  EXPECT_LT(mappings["node_limit"], most - most / 8);
  EXPECT_GT(descriptors["node_limit"], 0);
  for (const nlohmann::json& quota : {mappings, descriptors}) {
    EXPECT_EQ(quota["user_limit"].get<uint64_t>(), quota["node_limit"].get<uint64_t>() / 2);
  }
}

}  // namespace
}  // namespace concert::test
