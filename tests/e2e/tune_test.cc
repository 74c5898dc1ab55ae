// concertctl tune against concertd on the simulator: tune, export, import elsewhere, verify.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "client/ctl/concertctl.h"
#include "client/include/concert/concert.hpp"
#include "tests/bench/private_daemon.h"
#include "tests/support/eventually.h"
#include "tests/support/temp_folder.h"

namespace concert::test {
namespace {

using bench::PrivateDaemon;
using testing::HasSubstr;

class TuneTest : public testing::Test {
 protected:
  TuneTest() {
    std::ofstream(Path("shapes.json"))
        << R"([{"m": 4, "n": 16, "k": 16, "count": 3}, {"m": 8, "n": 32, "k": 16}])";
  }

  // A daemon that serves: a session's handshake is answered when all else is up.
  static std::unique_ptr<PrivateDaemon> StartDaemon() {
    auto daemon = PrivateDaemon::Start({.device = "sim"});
    EXPECT_TRUE(daemon.ok()) << daemon.status();
    if (!daemon.ok()) return nullptr;
    EXPECT_TRUE(Session::Connect({.socket_path = (*daemon)->socket()}).ok());
    return *std::move(daemon);
  }
  // The exit status; output in out_.
  int Ctl(const PrivateDaemon& daemon, std::vector<std::string> args) {
    const std::string socket = daemon.admin_socket();
    std::vector<const char*> argv = {"concertctl", "--socket", socket.c_str(), "tune"};
    for (const std::string& arg : args) argv.push_back(arg.c_str());
    std::ostringstream out, err;
    const int code = ctl::RunConcertctl(static_cast<int>(argv.size()), argv.data(),
                                        "concertctl test", out, err, false);
    out_ = out.str() + err.str();
    return code;
  }
  size_t Lines(const std::string& file) {
    std::ifstream in(Path(file));
    return static_cast<size_t>(std::count(std::istreambuf_iterator<char>(in), {}, '\n'));
  }
  std::string Path(const std::string& file) const { return folder_.path() + "/" + file; }

  const TempFolder folder_;
  std::string out_;
};

TEST_F(TuneTest, WhatIsTunedSurvivesAndTravels) {
  const auto first = StartDaemon();
  ASSERT_NE(first, nullptr);
  ASSERT_EQ(Ctl(*first, {"run", "--shapes", Path("shapes.json"), "--budget", "2"}), 0) << out_;
  EXPECT_THAT(out_, HasSubstr("4x16x16 bf16 alone"));
  EXPECT_THAT(out_, HasSubstr("rows written"));
  ASSERT_EQ(Ctl(*first, {"export", Path("rows.jsonl")}), 0) << out_;
  const size_t rows = Lines("rows.jsonl");
  EXPECT_GT(rows, 0u);
  ASSERT_EQ(Ctl(*first, {"status"}), 0);
  EXPECT_THAT(out_, HasSubstr(std::to_string(rows) + " rows, 0 stale"));

  const auto second = StartDaemon();
  ASSERT_NE(second, nullptr);
  ASSERT_EQ(Ctl(*second, {"import", Path("rows.jsonl")}), 0) << out_;
  EXPECT_THAT(out_, HasSubstr(std::to_string(rows) + " rows imported"));
  ASSERT_EQ(Ctl(*second, {"export", Path("again.jsonl")}), 0) << out_;
  EXPECT_EQ(Ctl(*second, {"diff", Path("rows.jsonl"), Path("again.jsonl")}), 0);
  EXPECT_EQ(out_, std::to_string(rows) +
                      " rows alike, 0 with another variant, 0 with another "
                      "time, 0 only in the first, 0 only in the second\n");
  ASSERT_EQ(Ctl(*second, {"verify", "--rows", "1", "--budget", "20"}), 0) << out_;
  EXPECT_THAT(out_, HasSubstr("1 rows measured"));
}

// Tuned on one daemon, the node's curves travel with its rows.
TEST_F(TuneTest, CollectivesAreTunedExportedAndImported) {
  const auto first = StartDaemon();
  ASSERT_NE(first, nullptr);
  ASSERT_EQ(Ctl(*first, {"--collectives", "--budget", "60"}), 0) << out_;
  EXPECT_THAT(out_, HasSubstr("4 rows written"));
  ASSERT_EQ(Ctl(*first, {"status"}), 0);
  EXPECT_THAT(out_, HasSubstr("between 4 curves (2 GPUs: concert simulator, 132 SMs"));
  ASSERT_EQ(Ctl(*first, {"export", Path("curves.jsonl")}), 0) << out_;
  EXPECT_THAT(out_, HasSubstr("0 rows and 4 curves written"));
  EXPECT_EQ(Lines("curves.jsonl"), 4u);

  const auto second = StartDaemon();
  ASSERT_NE(second, nullptr);
  std::ofstream(Path("hostile.jsonl"))
      << R"({"transport": "p2p", "ranks": 2, "floor_us": "NaN"})" << "\n"
      << R"({"transport": "p2p", "ranks": 2, "floor_us": -3})" << "\n"
      << R"({"transport": "p2p", "ranks": 2, "floor_us": 1e300})" << "\n"
      << R"({"transport": "pigeon", "ranks": 2})" << "\n";
  ASSERT_EQ(Ctl(*second, {"import", Path("hostile.jsonl")}), 0) << out_;
  EXPECT_THAT(out_, HasSubstr("0 curves imported, 0 as new already, 4 refused"));
  EXPECT_THAT(out_, HasSubstr("floor_us is nan; it must be 0 to 1e+06"));
  ASSERT_EQ(Ctl(*second, {"import", Path("curves.jsonl")}), 0) << out_;
  EXPECT_THAT(out_, HasSubstr("4 curves imported"));
  ASSERT_EQ(Ctl(*second, {"import", Path("curves.jsonl")}), 0) << out_;
  EXPECT_THAT(out_, HasSubstr("4 curves imported")) << "measured at the same time";
  ASSERT_EQ(Ctl(*second, {"export", Path("again.jsonl")}), 0) << out_;
  std::ifstream a(Path("curves.jsonl")), b(Path("again.jsonl"));
  EXPECT_TRUE(std::equal(std::istreambuf_iterator<char>(a), {}, std::istreambuf_iterator<char>(b)));
  EXPECT_EQ(Ctl(*second, {}), 2);
  EXPECT_EQ(Ctl(*second, {"--collectives", "status"}), 2);
}

TEST_F(TuneTest, Fp8GemmsAreTunedLikeOthers) {
  const auto daemon = StartDaemon();
  ASSERT_NE(daemon, nullptr);
  std::ofstream(Path("fp8.json")) << R"([{"m": 4, "n": 16, "k": 16, "dtype": "fp8_e4m3"}])";
  ASSERT_EQ(Ctl(*daemon, {"run", "--shapes", Path("fp8.json"), "--budget", "2"}), 0) << out_;
  EXPECT_THAT(out_, HasSubstr("4x16x16 fp8_e4m3 alone"));
  ASSERT_EQ(Ctl(*daemon, {"export", Path("fp8.jsonl")}), 0) << out_;
  EXPECT_GT(Lines("fp8.jsonl"), 0u);
}

TEST_F(TuneTest, RefusesBesideClientsWorkAndGoesOnOnceItHasEnded) {
  const auto daemon = StartDaemon();
  ASSERT_NE(daemon, nullptr);
  const Session session = Session::Connect({.socket_path = daemon->socket()}).value();
  Queue queue = session.CreateQueue({}).value();
  const Buffer from = session.Allocate(64).value(), to = session.Allocate(64).value();
  const UserTimeline gate = session.CreateUserTimeline().value();
  const Ticket blocked = queue.Copy({.src = from, .dst = to, .bytes = 64}, {.waits = {gate.At(1)}});
  // The ring's reader has seen the op once a later one of another queue has ended.
  Queue other = session.CreateQueue({}).value();
  ASSERT_TRUE(other.Copy({.src = from, .dst = to, .bytes = 64}).Wait().ok());

  EXPECT_EQ(Ctl(*daemon, {"run", "--shapes", Path("shapes.json"), "--budget", "1"}), 1);
  EXPECT_THAT(out_, HasSubstr("unfinished ops of clients"));
  // With --wait its budget ends before the op.
  EXPECT_EQ(Ctl(*daemon, {"run", "--shapes", Path("shapes.json"), "--budget", "0.2", "--wait"}), 0);
  EXPECT_THAT(out_, HasSubstr("0 rows written"));
  gate.Signal(1).Check();
  ASSERT_TRUE(blocked.Wait().ok());
  EXPECT_EQ(Ctl(*daemon, {"run", "--shapes", Path("shapes.json"), "--budget", "2", "--wait"}), 0)
      << out_;
  // The daemon serves as before.
  EXPECT_TRUE(queue.Copy({.src = from, .dst = to, .bytes = 64}).Wait().ok());
}

// Ops that come while a run goes on are served, and the run still ends well.
TEST_F(TuneTest, ServesClientsWhileItMeasures) {
  const auto daemon = StartDaemon();
  ASSERT_NE(daemon, nullptr);
  const Session session = Session::Connect({.socket_path = daemon->socket()}).value();
  Queue queue = session.CreateQueue({}).value();
  const Buffer from = session.Allocate(64).value(), to = session.Allocate(64).value();
  int code = -1;
  std::atomic<bool> over = false;
  std::thread run([&] {
    code = Ctl(*daemon, {"run", "--shapes", Path("shapes.json"), "--budget", "2", "--wait"});
    over = true;
  });
  int served = 0;
  do {
    ASSERT_TRUE(queue.Copy({.src = from, .dst = to, .bytes = 64}).Wait().ok());
    ++served;
    std::this_thread::yield();
  } while (!over);
  run.join();
  EXPECT_EQ(code, 0) << out_;
  EXPECT_GT(served, 1);
}

TEST_F(TuneTest, IdleTimeIsForWhatClientsHaveUsed) {
  ASSERT_EQ(setenv("CONCERT_TUNE_IDLE", "true", 1), 0);
  const auto daemon = StartDaemon();
  unsetenv("CONCERT_TUNE_IDLE");
  ASSERT_NE(daemon, nullptr);
  const Session session = Session::Connect({.socket_path = daemon->socket()}).value();
  Queue queue = session.CreateQueue({}).value();
  const Buffer a = session.Allocate(64).value(), w = session.Allocate(64).value(),
               d = session.Allocate(64).value();
  ASSERT_TRUE(
      queue.Gemm({.m = 2, .n = 4, .k = 8, .a = a, .w = w, .d = d, .dtype = kFp16}).Wait().ok());
  // It begins after a quiet second.
  ASSERT_TRUE(Eventually([&] {
    EXPECT_EQ(Ctl(*daemon, {"export", Path("idle.jsonl")}), 0) << out_;
    return HasFailure() || Lines("idle.jsonl") > 0;
  }));
  std::ifstream file(Path("idle.jsonl"));
  std::string row;
  std::getline(file, row);
  EXPECT_THAT(row, HasSubstr(R"({"m":2,"n":4,"k":8,"batch":1,"dtype":"fp16")"));
}

TEST_F(TuneTest, BadInputIsRefusedWithASentence) {
  const auto daemon = StartDaemon();
  ASSERT_NE(daemon, nullptr);
  EXPECT_EQ(Ctl(*daemon, {"run", "--shapes", Path("none.json")}), 1);
  EXPECT_THAT(out_, HasSubstr("cannot read"));
  std::ofstream(Path("zero.json")) << R"([{"m": 0, "n": 16, "k": 16}])";
  EXPECT_EQ(Ctl(*daemon, {"run", "--shapes", Path("zero.json")}), 1);
  EXPECT_THAT(out_, HasSubstr("m is 0"));
  EXPECT_EQ(Ctl(*daemon, {"run", "--shapes", Path("shapes.json"), "--gpu", "99"}), 1);
  EXPECT_THAT(out_, HasSubstr("gpu is 99"));
  EXPECT_EQ(Ctl(*daemon, {"run"}), 2);
  std::ofstream(Path("bad.jsonl"))
      << R"({"m": 1, "n": 2, "k": 3, "dtype": "int1", "degree": "solo", "form": "single"})"
      << "\n"
      << R"({"m": 1, "n": 2, "k": 3, "dtype": "bf16", "degree": "solo", "form": "single",)"
      << R"( "median_us": "NaN", "samples": 3, "variant": {"source": "group", "dtype": "bf16"}})"
      << "\n";
  ASSERT_EQ(Ctl(*daemon, {"import", Path("bad.jsonl")}), 0) << out_;
  EXPECT_THAT(out_, HasSubstr("0 rows imported, 0 as good already, 2 refused"));
  EXPECT_THAT(out_, HasSubstr("int1"));
}

}  // namespace
}  // namespace concert::test
