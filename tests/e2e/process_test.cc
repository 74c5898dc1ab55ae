// The programs as they are shipped: concertd, demo clients that reduce together or decode, a drain.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "client/include/concert/concert.hpp"
#include "tests/bench/child_process.h"
#include "tests/bench/private_daemon.h"
#include "tests/support/eventually.h"
#include "tests/support/perfetto_check.h"
#include "tests/support/test_device.h"

namespace concert::test {
namespace {

// Runs a shell command; its exit status and output.
std::pair<int, std::string> RunShell(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::string output;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) output.append(buffer, n);
  return {WEXITSTATUS(pclose(pipe)), output};
}

TEST(ProcessTest, TwoClientProcessesComputeAndReduceTogether) {
  const auto daemon = bench::PrivateDaemon::Start({.device = test::TestDevice()});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  const Session session = Session::Connect({.socket_path = (*daemon)->socket()}).value();
  const uint32_t second_gpu = session.gpu_count() > 1 ? 1 : 0;
  const std::string demo = bench::ProgramFolder() + "/concert_demo --socket " +
                           (*daemon)->socket() +
                           " --steps 20 --layers 32x256x128,32x128x256 --ranks 2";
  std::pair<int, std::string> one, two;
  std::thread first([&] { one = RunShell(demo + " --rank 0"); });
  two = RunShell(demo + " --rank 1 --gpu " + std::to_string(second_gpu));
  first.join();
  EXPECT_EQ(one.first, 0) << one.second << (*daemon)->LogTail();
  EXPECT_EQ(two.first, 0) << two.second << (*daemon)->LogTail();
  EXPECT_NE(one.second.find("\"checks_failed\": 0"), std::string::npos) << one.second;

  const std::string ctl =
      bench::ProgramFolder() + "/concertctl --socket " + (*daemon)->admin_socket() + " ";
  const std::pair<int, std::string> plans = RunShell(ctl + "plans --json");
  EXPECT_EQ(plans.first, 0) << plans.second;
  EXPECT_NE(plans.second.find("all_reduce"), std::string::npos);
}

// Results are right, and the daemon saw one op for each step and no others.
TEST(ProcessTest, ADemoClientDecodesWithOneOpAToken) {
  constexpr int kSteps = 20;  // past a page of the cache
  const auto daemon = bench::PrivateDaemon::Start({.device = test::TestDevice()});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  const std::pair<int, std::string> demo =
      RunShell(bench::ProgramFolder() + "/concert_demo --socket " + (*daemon)->socket() +
               " --decode 3 --steps " + std::to_string(kSteps));
  ASSERT_EQ(demo.first, 0) << demo.second << (*daemon)->LogTail();
  const auto told = nlohmann::json::parse(demo.second);
  // Logits and token behind the first and the last token of three sequences.
  EXPECT_EQ(told["checks_passed"], 2 * 2 * 3) << demo.second;
  EXPECT_EQ(told["checks_failed"], 0) << demo.second;
  EXPECT_EQ(told["submissions_per_step"], 1) << demo.second;
  EXPECT_GT(told["ops_per_step"], 20) << demo.second;
  EXPECT_GT(told["us_per_step"], 0) << demo.second;

  std::pair<int, std::string> stats;
  const auto seen = [&] {
    stats = RunShell(bench::ProgramFolder() + "/concertctl --socket " + (*daemon)->admin_socket() +
                     " stats --json");
    const auto kinds = nlohmann::json::parse(stats.second)["stats"]["kinds"];
    return kinds.size() == 1 && kinds[0]["kind"] == "program" &&
           kinds[0]["ops"]["op_count"] == kSteps;
  };
  EXPECT_TRUE(Eventually(seen)) << stats.second;
}

// When the daemon is told to `end`, what it has accepted runs, and what comes later is refused.
void ExpectAcceptedToRun(const bench::PrivateDaemon& daemon, const std::function<void()>& end) {
  constexpr std::chrono::seconds kLimit(60);
  const Session session = Session::Connect({.socket_path = daemon.socket()}).value();
  Queue gated = session.CreateQueue({}).value(), other = session.CreateQueue({}).value();
  const Buffer from = session.Allocate(64).value();
  const Buffer to = session.Allocate(64).value(), also_to = session.Allocate(64).value();
  const UserTimeline gate = session.CreateUserTimeline().value();
  const Ticket accepted =
      gated.Copy({.src = from, .dst = to, .bytes = 64}, {.waits = {gate.At(1)}});
  const auto run_other = [&] {
    return other.Copy({.src = from, .dst = also_to, .bytes = 64}).Wait(kLimit);
  };
  run_other().Check();  // ops are accepted in their order
  {
    std::jthread opener([&] {
      Status status;
      do status = run_other();
      while (status.ok());
      EXPECT_EQ(status.code(), CONCERT_UNAVAILABLE) << status.ToString();
      gate.Signal(1).Check();
    });
    end();
  }
  EXPECT_EQ(accepted.Wait(kLimit).ToString(), "OK");
}

TEST(ProcessTest, AClientIsToldThatItHasTheAdminSocket) {
  const auto daemon = bench::PrivateDaemon::Start({.device = "sim"});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  const Result<Session> session = Session::Connect({.socket_path = (*daemon)->admin_socket()});
  EXPECT_EQ(session.status().ToString(),
            "INVALID_ARGUMENT: " + (*daemon)->admin_socket() +
                " is no socket for clients; give the daemon's socket, not its admin_socket "
                "(CONCERT_SOCKET)");
}

TEST(ProcessTest, DrainFinishesWhatWasAccepted) {
  const auto daemon = bench::PrivateDaemon::Start({.device = test::TestDevice()});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  const std::string ctl =
      bench::ProgramFolder() + "/concertctl --socket " + (*daemon)->admin_socket();
  ExpectAcceptedToRun(**daemon, [&] {
    const std::pair<int, std::string> drained = RunShell(ctl + " drain --wait-s 60");
    EXPECT_EQ(drained.first, 0) << drained.second;
    EXPECT_EQ(RunShell(ctl + " status").first, 3) << "it has gone";
  });
}

TEST(ProcessTest, SigtermFinishesWhatWasAccepted) {
  const auto daemon = bench::PrivateDaemon::Start({.device = test::TestDevice()});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  ExpectAcceptedToRun(**daemon, [&] {
    EXPECT_TRUE((*daemon)->Terminate(std::chrono::seconds(60))) << (*daemon)->LogTail();
  });
}

// One of two copies reads what the other writes, on another queue and without a wait. Its outcome.
Status Race(const bench::PrivateDaemon& daemon) {
  const Session session =
      Session::Connect({.socket_path = daemon.socket(), .client_name = "racer"}).value();
  Queue first = session.CreateQueue({}).value(), second = session.CreateQueue({}).value();
  const Buffer a = session.Allocate(4096).value(), b = session.Allocate(4096).value();
  const Buffer c = session.Allocate(4096).value();
  std::vector<Ticket> tickets;
  {
    const Batch batch = session.BeginBatch().value();
    tickets.push_back(first.Copy({.src = a, .dst = b, .bytes = 4096}));
    tickets.push_back(second.Copy({.src = b, .dst = c, .bytes = 4096}));
  }
  tickets[0].Wait().Check();
  return tickets[1].Wait();
}

TEST(ProcessTest, AMissingWaitIsAnErrorOnTheSimulator) {
  const auto daemon = bench::PrivateDaemon::Start({.device = "sim"});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  EXPECT_EQ(Race(**daemon).code(), CONCERT_FAILED_PRECONDITION);
}

TEST(ProcessTest, AMissingWaitIsALineOfTheLogIfSoWished) {
  const std::string config = testing::TempDir() + "/sim_races.toml";
  std::ofstream(config) << "sim_races = \"warn\"\ntune_store = \"" << testing::TempDir()
                        << "/sim_races.sqlite3\"\n";
  const auto daemon = bench::PrivateDaemon::Start({.device = "sim", .config = config});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  const Status status = Race(**daemon);
  EXPECT_TRUE(status.ok()) << status.ToString();
  const auto logged = [&] {
    const std::string log = (*daemon)->LogTail();
    return log.find("(racer, uid ") != std::string::npos &&
           log.find(
               "): op 1 of queue 1 (copy, reads src) races with op 1 of queue 0 (copy, writes "
               "dst) for bytes 0 to 4095 of buffer 2: ") != std::string::npos;
  };
  EXPECT_TRUE(Eventually(logged)) << (*daemon)->LogTail();
}

// What it logs until it ends because it cannot have its socket.
std::vector<std::string> LogAt(const std::string& level) {
  const std::string nowhere = testing::TempDir() + "/no_such_folder/";
  const std::pair<int, std::string> run =
      RunShell(bench::ProgramFolder() + "/concertd --device sim --log-level " + level +
               " --socket " + nowhere + "c.sock --admin-socket " + nowhere +
               "a.sock --tune-store " + nowhere + "t.sqlite3");
  EXPECT_EQ(run.first, 1) << run.second;
  std::vector<std::string> lines;
  std::istringstream log(run.second);
  // Without the time.
  for (std::string line; std::getline(log, line);) lines.push_back(line.substr(line.find(' ') + 1));
  return lines;
}

TEST(ProcessTest, AtDebugTheLogHasAllOfInfoAndMore) {
  const std::vector<std::string> info = LogAt("info"), debug = LogAt("debug");
  const auto is_debug = [](const std::string& line) {
    return line.find("concertd debug: ") != std::string::npos;
  };
  EXPECT_EQ(std::count_if(info.begin(), info.end(), is_debug), 0);
  EXPECT_NE(
      std::find(debug.begin(), debug.end(), "concertd debug: log_level = \"debug\" (--log-level)"),
      debug.end());
  std::vector<std::string> rest;
  std::remove_copy_if(debug.begin(), debug.end(), std::back_inserter(rest), is_debug);
  EXPECT_EQ(rest, info);
  EXPECT_FALSE(info.empty());
}

TEST(ProcessTest, ATraceHasWhatAClientDid) {
  const auto daemon = bench::PrivateDaemon::Start({.device = test::TestDevice()});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  const Session session =
      Session::Connect({.socket_path = (*daemon)->socket(), .client_name = "tracee"}).value();
  Queue queue = session.CreateQueue({}).value();
  const Buffer from = session.Allocate(1 << 16).value(), to = session.Allocate(1 << 16).value();
  const std::string file = (*daemon)->socket() + ".pftrace";
  std::pair<int, std::string> traced;
  std::atomic<bool> over = false;
  std::thread tracing([&] {
    traced = RunShell(bench::ProgramFolder() + "/concertctl --socket " + (*daemon)->admin_socket() +
                      " trace --seconds 1 --out " + file);
    over = true;
  });
  while (!over) {  // two at a time, so that one waits for the other
    const Ticket there = queue.Copy({.src = from, .dst = to, .bytes = 1 << 16});
    const Ticket back = queue.Copy({.src = to, .dst = from, .bytes = 1 << 16});
    EXPECT_TRUE(there.Wait().ok() && back.Wait().ok());
  }
  tracing.join();
  ASSERT_EQ(traced.first, 0) << traced.second << (*daemon)->LogTail();

  perfetto::Trace packets;
  std::ifstream in(file, std::ios::binary);
  ASSERT_TRUE(packets.ParseFromIstream(&in));
  const PerfettoCheck trace(packets);
  EXPECT_EQ(trace.problems(), "");
  const std::string own = "session " + std::to_string(session.id()) + ": tracee/queue 0";
  size_t ops = 0, launches = 0;
  for (const PerfettoCheck::Slice& slice : trace.slices()) {
    if (slice.track == own) {
      ++ops;
      EXPECT_EQ(slice.name, "copy");
    } else {
      ++launches;
      EXPECT_TRUE(slice.track.starts_with("GPU 0")) << slice.track;
    }
    EXPECT_TRUE(slice.arguments.contains("reason"));
  }
  EXPECT_GT(ops, 2u) << traced.second;
  EXPECT_GT(launches, 2u);
  EXPECT_EQ(trace.flows().size(), ops);
  // problems() has seen that no flow goes back in time.
  for (const auto& [id, flow] : trace.flows()) EXPECT_EQ(flow.size(), 3u) << id;
}

// A session with no room for one more file; the daemon keeps nothing that came without its fd.
TEST(ProcessTest, AClientWithoutAFreeFdIsToldItsLimit) {
  const auto daemon = bench::PrivateDaemon::Start({.device = "sim"});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  const Session session = Session::Connect({.socket_path = (*daemon)->socket()}).value();
  Status allocated, connected, registered;
  bool queue_made = false;
  const auto try_all = [&] {
    allocated = session.Allocate(4096).status();
    connected = Session::Connect({.socket_path = (*daemon)->socket()}).status();
    registered = session.BeginProgram().value().End();
    queue_made = session.CreateQueue().ok();
  };
  // UBSan opens a pipe when it first sees an object of a type, and calls it wrong if it cannot.
  try_all();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int lowest = dup(STDERR_FILENO);
  close(lowest);
  const rlimit none = {static_cast<rlim_t>(lowest), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  try_all();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(allocated.code(), CONCERT_RESOURCE_EXHAUSTED);
  EXPECT_EQ(allocated.message(),
            "no file descriptor is free for what the daemon sent: the process may have " +
                std::to_string(lowest) +
                " open files (RLIMIT_NOFILE); close some or raise the limit (ulimit -n, "
                "LimitNOFILE=)");
  EXPECT_EQ(connected.code(), CONCERT_RESOURCE_EXHAUSTED);
  EXPECT_NE(connected.message().find("is free for a socket"), std::string::npos);
  EXPECT_EQ(registered.code(), CONCERT_RESOURCE_EXHAUSTED);
  EXPECT_NE(registered.message().find("is free for the program's memfd"), std::string::npos);
  EXPECT_TRUE(queue_made) << "the session goes on";
  const std::pair<int, std::string> sessions =
      RunShell(bench::ProgramFolder() + "/concertctl --socket " + (*daemon)->admin_socket() +
               " sessions --json");
  EXPECT_EQ(nlohmann::json::parse(sessions.second)["sessions"][0]["buffer_count"], 0);
}

TEST(ProcessTest, ConcertctlSaysThatThereIsNoDaemon) {
  const std::pair<int, std::string> status =
      RunShell(bench::ProgramFolder() + "/concertctl --socket /nonexistent/admin.sock status");
  EXPECT_EQ(status.first, 3);
  EXPECT_EQ(std::count(status.second.begin(), status.second.end(), '\n'), 1) << status.second;
}

}  // namespace
}  // namespace concert::test
