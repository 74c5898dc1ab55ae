// A server on a node of the test's, with its engine.
#ifndef CONCERT_TESTS_UNIT_SESSION_SERVER_BED_H_
#define CONCERT_TESTS_UNIT_SESSION_SERVER_BED_H_

#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "daemon/check.h"
#include "daemon/clock.h"
#include "daemon/sched/engine.h"
#include "daemon/session/server.h"
#include "daemon/telemetry/telemetry.h"

namespace concert::daemon {

class ServerBed {
 public:
  // The node outlives this, and what `options` call, too.
  explicit ServerBed(Node& node, ServerOptions options = {}) {
    char folder[] = "/tmp/concert-server-XXXXXX";
    CONCERT_CHECK(mkdtemp(folder) != nullptr);
    folder_ = folder;
    RecordRing* ring = telemetry_.AddRing(0);
    EngineOptions engine_options;
    engine_options.policy = "priority";
    engine_ = Engine::Create(engine_options, node, std::span(&ring, 1)).value();
    options.socket_path = socket();
    server_ = Server::Create(options, *engine_).value();
    engine_->Start();
    server_->Start();
  }
  ~ServerBed() {
    server_.reset();
    engine_.reset();
    rmdir(folder_.c_str());
  }
  ServerBed(const ServerBed&) = delete;
  ServerBed& operator=(const ServerBed&) = delete;

  std::string socket() const { return folder_ + "/concert.sock"; }
  Engine& engine() const { return *engine_; }
  Server& server() const { return *server_; }

 private:
  std::string folder_;
  Telemetry telemetry_{[] { return NowNs(); }};
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Server> server_;
};

}  // namespace concert::daemon

#endif  // CONCERT_TESTS_UNIT_SESSION_SERVER_BED_H_
