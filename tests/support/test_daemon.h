// A daemon without a process: simulator, engine and control socket in a temporary folder. Tests
// talk to it through libconcert and the socket, as any client does.
#ifndef CONCERT_TESTS_SUPPORT_TEST_DAEMON_H_
#define CONCERT_TESTS_SUPPORT_TEST_DAEMON_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/include/concert/concert.hpp"
#include "daemon/device/sim/sim_node.h"
#include "daemon/sched/engine.h"
#include "daemon/session/server.h"

namespace concert::test {

struct TestDaemonOptions {
  // Of the simulator; as NodeOptions. On CUDA all daemons of a process have the node that the first
  // of them opened.
  int gpus = 2;
  int collective_sms = 0;
  uint64_t sim_memory_bytes = daemon::sim::SimOptions().memory_bytes;  // per GPU
  std::string policy = "auto";
  std::chrono::milliseconds wait_timeout{10'000};
  std::chrono::milliseconds collective_timeout{10'000};
  daemon::SimRaces sim_races = daemon::SimRaces::kError;
  std::function<void(daemon::ServerOptions&)> adjust_server;
  daemon::Limits limits;
};

class TestDaemon {
 public:
  explicit TestDaemon(const TestDaemonOptions& options = {});
  ~TestDaemon();

  const std::string& socket() const { return socket_; }
  int gpu_count() const { return node_->gpu_count(); }
  // REQUIRES: the node is the simulator.
  daemon::sim::SimNode& node() { return dynamic_cast<daemon::sim::SimNode&>(*node_); }
  daemon::Engine& engine() { return *engine_; }
  daemon::Server& server() { return *server_; }
  // What its dispatcher tells of ops and plans, which nobody else takes.
  daemon::RecordRing& records(int gpu) { return *rings_[static_cast<size_t>(gpu)]; }

  // A session of this process; aborts the test with the sentence if there is none.
  Session Connect(const std::string& name = "test") const;
  // Waits until the daemon holds no session any more. False if that takes too long.
  bool WaitUntilEmpty() const;
  // Stops the daemon as a crash of it would look to clients: the socket closes.
  void Stop();

 private:
  std::string folder_, socket_;
  std::shared_ptr<daemon::Node> node_;
  std::vector<std::unique_ptr<daemon::RecordRing>> rings_;
  std::unique_ptr<daemon::Engine> engine_;
  std::unique_ptr<daemon::Server> server_;
};

}  // namespace concert::test

#endif  // CONCERT_TESTS_SUPPORT_TEST_DAEMON_H_
