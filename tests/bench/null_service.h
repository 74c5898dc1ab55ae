// The daemon's own parts in this process, from libconcert's call to a device that does nothing: for
// measuring what the service itself costs.
#ifndef CONCERT_TESTS_BENCH_NULL_SERVICE_H_
#define CONCERT_TESTS_BENCH_NULL_SERVICE_H_

#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/include/concert/concert.hpp"
#include "daemon/check.h"
#include "daemon/clock.h"
#include "daemon/device/device.h"
#include "daemon/sched/engine.h"
#include "daemon/session/server.h"
#include "daemon/telemetry/telemetry.h"
#include "tests/bench/null_device.h"

namespace concert::bench {

class NullNode : public daemon::Node {
 public:
  explicit NullNode(std::unique_ptr<daemon::Device> device) : device_(std::move(device)) {}
  int gpu_count() const override { return 1; }
  daemon::Device& gpu(int) override { return *device_; }
  absl::StatusOr<daemon::Address> RegisterHostMemory(void* data, uint64_t) override {
    return reinterpret_cast<daemon::Address>(data);
  }
  void UnregisterHostMemory(void*) override {}
  absl::Status Connect(std::span<const int>) override { return absl::OkStatus(); }
  absl::Status LaunchCollective(std::span<const daemon::RankPart>,
                                const policies::TransportChoice&) override {
    return absl::OkStatus();
  }

 private:
  const std::unique_ptr<daemon::Device> device_;
};

// Engine, telemetry and control socket on a null node, and a session with queues. A user's thread
// is the client's.
class NullService {
 public:
  // `policy`: one that policies::FindPolicy knows.
  explicit NullService(const std::string& policy, size_t queues = 1,
                       std::unique_ptr<daemon::Device> device = std::make_unique<NullDevice>())
      : node_(std::move(device)) {
    char folder[] = "/tmp/concert-ring-XXXXXX";
    CONCERT_CHECK(mkdtemp(folder) != nullptr);
    folder_ = folder;
    telemetry_ = std::make_unique<daemon::Telemetry>([] { return daemon::NowNs(); });
    daemon::RecordRing* ring = telemetry_->AddRing(0);
    daemon::EngineOptions options;
    options.policy = policy;
    engine_ = daemon::Engine::Create(options, node_, std::span(&ring, 1)).value();
    daemon::ServerOptions server;
    server.socket_path = folder_ + "/concert.sock";
    server_ = daemon::Server::Create(server, *engine_).value();
    telemetry_->Start();
    engine_->Start();
    server_->Start();
    session_ = Session::Connect({.socket_path = server.socket_path, .timeout = kTimeout}).value();
    for (size_t i = 0; i < queues; ++i) queues_.push_back(session_.CreateQueue({}).value());
    a_ = session_.Allocate(512).value(), w_ = session_.Allocate(512).value();
    d_ = session_.Allocate(512).value();
  }
  ~NullService() {
    d_ = Buffer(), w_ = Buffer(), a_ = Buffer(), queues_.clear(), session_ = Session();
    server_.reset();
    engine_.reset();
    telemetry_.reset();
    rmdir(folder_.c_str());
  }

  // A small GEMM.
  Ticket Submit(size_t queue = 0) {
    return queues_[queue].Gemm({.m = 16, .n = 16, .k = 16, .a = a_, .w = w_, .d = d_});
  }

  daemon::Telemetry& telemetry() { return *telemetry_; }
  Session& session() { return session_; }

 private:
  // Errands have a low priority: with busy CPUs they take longer than a client usually waits.
  static constexpr std::chrono::minutes kTimeout{2};

  std::string folder_;
  NullNode node_;
  std::unique_ptr<daemon::Telemetry> telemetry_;
  std::unique_ptr<daemon::Engine> engine_;
  std::unique_ptr<daemon::Server> server_;
  Session session_;
  std::vector<Queue> queues_;
  Buffer a_, w_, d_;
};

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_NULL_SERVICE_H_
