// An admin API that always says the same, so that what a client shows of it is the same, too: a
// node of two GPUs, one of them busy, and a past of kIntervals.
//
//   fixed_admin SOCKET      serves until it is killed; says so on stdout first
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <thread>

#include "proto/concert/v1/admin.grpc.pb.h"
#include "tests/unit/ctl/top_fixture.h"

namespace concert::ctl {
namespace {

// Fewer than `top` keeps of what it has not shown yet.
constexpr int kIntervals = 48;

TopSample FixedSample() {
  TopSample sample = SampleOf(2);
  AddSession(3, 1000, "server-a", &sample);
  AddSession(12, 1001, "idle", &sample);
  AddSession(7, 1001, "\u8a13\u7df4\u5668 K\u00f6ln", &sample);
  AddSessionOps(3, "high", 300, 0.2, &sample);
  AddSessionOps(3, "low", 100, 0.2, &sample);
  AddSessionOps(7, "normal", 600, 0.46, &sample);
  sample.status.set_failed_op_count(3);
  return sample;
}

class FixedAdmin final : public v1::AdminService::Service {
 public:
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* response) override {
    *response = sample_.status;
    return grpc::Status::OK;
  }
  grpc::Status ListDevices(grpc::ServerContext*, const v1::ListDevicesRequest*,
                           v1::ListDevicesResponse* response) override {
    *response = sample_.devices;
    return grpc::Status::OK;
  }
  grpc::Status ListSessions(grpc::ServerContext*, const v1::ListSessionsRequest*,
                            v1::ListSessionsResponse* response) override {
    *response = sample_.sessions;
    return grpc::Status::OK;
  }
  // The totals, kIntervals at once, the last of them as FixedSample says, and then nothing.
  grpc::Status WatchStats(grpc::ServerContext* context, const v1::WatchStatsRequest*,
                          grpc::ServerWriter<v1::WatchStatsResponse>* writer) override {
    writer->Write(v1::WatchStatsResponse());
    const double last_seconds = sample_.delta.stats().devices(0).ops().gpu_seconds();
    for (int i = 1 - kIntervals; i <= 0; ++i) {
      v1::WatchStatsResponse delta = sample_.delta;
      delta.mutable_stats()->mutable_devices(0)->mutable_ops()->set_gpu_seconds(
          last_seconds * (1 + std::cos(i / 6.0)) / 2);
      writer->Write(delta);
    }
    while (!context->IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return grpc::Status::OK;
  }

 private:
  const TopSample sample_ = FixedSample();
};

int Serve(const std::string& socket) {
  FixedAdmin service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  std::puts("serving");
  std::fflush(stdout);
  server->Wait();
  return 0;
}

}  // namespace
}  // namespace concert::ctl

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: fixed_admin SOCKET\n", stderr);
    return 2;
  }
  return concert::ctl::Serve(argv[1]);
}
