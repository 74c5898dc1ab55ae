#include "daemon/metrics/metrics_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "proto/unique_fd.h"
#include "tests/unit/admin/fake_daemon_control.h"

namespace concert::daemon {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

size_t CountEntries(const char* folder) {
  const std::filesystem::directory_iterator entries(folder);
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}
size_t OpenFiles() { return CountEntries("/proc/self/fd"); }
size_t Threads() { return CountEntries("/proc/self/task"); }

class MetricsServerTest : public testing::Test {
 protected:
  void SetUp() override {
    auto server = MetricsServer::Start(0, control_, telemetry_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  UniqueFd Connect() const {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server_->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    return fd;
  }
  // The whole answer; empty if the server ended the connection without one.
  std::string Ask(std::string_view request) const {
    const UniqueFd fd = Connect();
    std::string answer;
    char buffer[4096];
    bool sent = false;
    for (;;) {
      // What cannot be sent or read yet is tried again: a full queue of connections is no error.
      if (!sent)
        sent = send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) >= 0 || errno == EPIPE;
      const ssize_t got = recv(fd.get(), buffer, sizeof(buffer), 0);
      if (got > 0) {
        answer.append(buffer, static_cast<size_t>(got));
      } else if (got == 0 || (errno != EAGAIN && errno != ENOTCONN)) {
        return answer;
      } else {
        std::this_thread::yield();
      }
    }
  }
  std::string Scrape() const { return Ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"); }

  FakeDaemonControl control_;
  Telemetry telemetry_{[] { return Time{1}; }};
  RecordRing* const ring_ = telemetry_.AddRing(0);
  std::unique_ptr<MetricsServer> server_;
};

TEST_F(MetricsServerTest, ServesMetricsAndNothingElse) {
  const std::string answer = Scrape();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK"));
  EXPECT_THAT(answer, HasSubstr("\nconcert_sessions 1\n"));
  for (const char* path : {"/", "/metrics/../../etc/passwd", "/etc/passwd", "//"}) {
    EXPECT_THAT(Ask(std::string("GET ") + path + " HTTP/1.1\r\nHost: x\r\n\r\n"),
                StartsWith("HTTP/1.1 404"))
        << path;
  }
  for (const char* method : {"PUT", "DELETE", "POST", "BREW"}) {
    const std::string refused =
        Ask(std::string(method) + " /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    EXPECT_THAT(refused, testing::Not(HasSubstr("concert_"))) << method;
  }
}

TEST_F(MetricsServerTest, APortThatIsTakenIsAnErrorThatSaysSo) {
  const auto second = MetricsServer::Start(server_->port(), control_, telemetry_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("metrics_port"));
}

TEST_F(MetricsServerTest, NonsenseIsRefused) {
  for (const std::string& request :
       {std::string("\0\xff\x16\x03\x01", 5) + "\r\n\r\n", std::string("GET\r\n\r\n"),
        "GET " + std::string(100'000, 'a') + " HTTP/1.1\r\n\r\n",
        "GET /metrics HTTP/1.1\r\n" + std::string(100'000, 'h') + ": x\r\n\r\n",
        std::string("GET /metrics HTTP/9.9\r\n\r\n"),
        std::string("POST /metrics HTTP/1.1\r\nContent-Length: 99999999999999\r\n\r\nx"),
        std::string("GET /metrics HTTP/1.1\r\nContent-Length: -1\r\n\r\n")}) {
    EXPECT_THAT(Ask(request), testing::Not(HasSubstr("concert_sessions"))) << request.substr(0, 40);
  }
  EXPECT_THAT(Scrape(), HasSubstr("concert_sessions 1"));
}

// Clients that connect and say nothing, half a request, or ask and do not read.
TEST_F(MetricsServerTest, ClientsThatHoldConnectionsCostLittleAndGiveWay) {
  constexpr size_t kClients = 36;
  const size_t files = OpenFiles(), threads = Threads();
  std::vector<UniqueFd> hostile;
  for (size_t i = 0; i < kClients; ++i) {
    hostile.push_back(Connect());
    const std::string_view words[] = {"", "GET /metr", "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"};
    const std::string_view word = words[i % std::size(words)];
    send(hostile.back().get(), word.data(), word.size(), MSG_NOSIGNAL);
  }
  EXPECT_THAT(Scrape(), HasSubstr("concert_sessions 1"));  // in its turn
  // One of each thread, the queue, and one at hand of the thread that accepts.
  EXPECT_LE(OpenFiles(),
            files + kClients + MetricsServer::kThreads + MetricsServer::kQueuedConnections + 1);
  EXPECT_EQ(Threads(), threads);
}

TEST_F(MetricsServerTest, StopsWhileClientsHoldConnections) {
  std::vector<UniqueFd> hostile;
  for (int i = 0; i < 40; ++i) hostile.push_back(Connect());
  server_.reset();
}

}  // namespace
}  // namespace concert::daemon
