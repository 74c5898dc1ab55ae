#include "tests/support/test_daemon.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "daemon/check.h"
#include "tests/support/eventually.h"
#include "tests/support/test_device.h"

namespace concert::test {

// The client has a Session of its own.
using daemon::Engine;
using daemon::EngineOptions;
using daemon::RecordRing;
using daemon::Server;
using daemon::ServerOptions;
namespace sim = daemon::sim;

namespace {

std::shared_ptr<daemon::Node> MakeNode(const TestDaemonOptions& test) {
  if (test::TestDevice() != "cuda") {
    sim::SimOptions options;
    options.gpus = test.gpus;
    options.pace = sim::Pace::kFlatOut;
    options.memory_bytes = test.sim_memory_bytes;
    options.model.collective_sms = test.collective_sms;
    return sim::SimNode::Open(options).value();
  }
  // Contexts and communicators take seconds to make, so that all tests of a process share them.
  static const std::shared_ptr<daemon::Node> cuda = std::move(
      daemon::OpenNode({.device = "cuda", .collective_sms = test.collective_sms}).value().node);
  return cuda;
}

}  // namespace

TestDaemon::TestDaemon(const TestDaemonOptions& options) {
  char folder[] = "/tmp/concert-test-XXXXXX";
  CONCERT_CHECK(mkdtemp(folder) != nullptr);
  folder_ = folder;
  socket_ = folder_ + "/concert.sock";

  node_ = MakeNode(options);
  std::vector<RecordRing*> rings;
  for (int gpu = 0; gpu < node_->gpu_count(); ++gpu) {
    rings_.push_back(std::make_unique<RecordRing>(static_cast<uint8_t>(gpu)));
    rings.push_back(rings_.back().get());
  }
  EngineOptions engine;
  engine.policy = options.policy;
  engine.limits = options.limits;
  engine.dispatcher.pin = false;
  engine.dispatcher.spin_ns = 20'000;
  engine.dispatcher.sim_races = options.sim_races;
  engine.dispatcher.scheduler.wait_timeout_ns =
      std::chrono::nanoseconds(options.wait_timeout).count();
  engine.issuer.spin_ns = 20'000;
  engine.issuer.rendezvous.timeout_ns =
      std::chrono::nanoseconds(options.collective_timeout).count();
  engine_ = Engine::Create(engine, *node_, rings).value();

  ServerOptions server;
  server.socket_path = socket_;
  server.ring_capacity = 256;
  if (options.adjust_server) options.adjust_server(server);
  server_ = Server::Create(server, *engine_).value();
  engine_->Start();
  server_->Start();
}

TestDaemon::~TestDaemon() {
  Stop();
  rmdir(folder_.c_str());
}

void TestDaemon::Stop() {
  server_.reset();
  engine_.reset();
}

Session TestDaemon::Connect(const std::string& name) const {
  return Session::Connect({.socket_path = socket_, .client_name = name}).value();
}

bool TestDaemon::WaitUntilEmpty() const {
  return Eventually([&] { return server_->Sessions().empty(); });
}

}  // namespace concert::test
