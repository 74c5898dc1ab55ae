// The admin API over a real Unix socket, against a fake daemon, with gRPC's own client and with
// concertctl.
#ifndef CONCERT_TESTS_UNIT_ADMIN_ADMIN_FIXTURE_H_
#define CONCERT_TESTS_UNIT_ADMIN_ADMIN_FIXTURE_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "client/ctl/concertctl.h"
#include "daemon/admin/admin_server.h"
#include "proto/concert/v1/admin.grpc.pb.h"
#include "tests/unit/admin/fake_daemon_control.h"

namespace concert::daemon {

class AdminTest : public testing::Test {
 protected:
  struct CtlResult {
    int exit_code;
    std::string out, err;
  };

  AdminTest()
      : path_("/tmp/concert-admin-test-" + std::to_string(getpid()) + ".sock"),
        telemetry_([this] { return control_.Now(); }),
        ring_(telemetry_.AddRing(0)) {
    auto server = AdminServer::Start(path_, control_, telemetry_);
    EXPECT_TRUE(server.ok()) << server.status();
    if (!server.ok()) return;
    server_ = std::move(*server);
    stub_ = NewStub();
  }

  std::unique_ptr<v1::AdminService::Stub> NewStub() {
    grpc::ChannelArguments args;  // a connection of its own
    args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    // A receive window of 64 KiB that does not grow: a reader that does not read is felt at once.
    args.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    return v1::AdminService::NewStub(
        grpc::CreateCustomChannel("unix:" + path_, grpc::InsecureChannelCredentials(), args));
  }

  template <typename Response, typename Method, typename Request>
  Response Call(Method method, const Request& request,
                grpc::StatusCode expected = grpc::StatusCode::OK) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    Response response;
    status_ = (stub_.get()->*method)(&context, request, &response);
    EXPECT_EQ(status_.error_code(), expected) << status_.error_message();
    return response;
  }

  CtlResult Ctl(std::vector<const char*> args) { return CtlAt(path_, std::move(args)); }
  static CtlResult CtlAt(const std::string& path, std::vector<const char*> args) {
    args.insert(args.begin(), {"concertctl", "--socket", path.c_str()});
    std::ostringstream out, err;
    const int code = ctl::RunConcertctl(static_cast<int>(args.size()), args.data(),
                                        "concertctl test", out, err, false);
    return {code, out.str(), err.str()};
  }

  using Stub = v1::AdminService::Stub;
  const std::string path_;
  FakeDaemonControl control_;
  Telemetry telemetry_;
  RecordRing* ring_;
  std::unique_ptr<AdminServer> server_;
  std::unique_ptr<Stub> stub_;
  grpc::Status status_;
};

}  // namespace concert::daemon

#endif  // CONCERT_TESTS_UNIT_ADMIN_ADMIN_FIXTURE_H_
