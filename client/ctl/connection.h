// One admin connection. Every call has a deadline.
//
// Only concertctl.cc and live.cc include this file (gRPC headers are slow to compile).
#ifndef CONCERT_CLIENT_CTL_CONNECTION_H_
#define CONCERT_CLIENT_CTL_CONNECTION_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

#include "proto/concert/v1/admin.grpc.pb.h"

namespace concert::ctl {

class Connection {
 public:
  Connection(const std::string& socket, std::chrono::milliseconds timeout)
      : timeout_(timeout),
        stub_(v1::AdminService::NewStub(
            grpc::CreateChannel("unix:" + socket, grpc::InsecureChannelCredentials()))) {}

  // `method` is a member of the stub, e.g. &Connection::Stub::GetStatus.
  using Stub = v1::AdminService::Stub;
  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + timeout_);
    return (stub_.get()->*method)(&context, request, response);
  }

  Stub& stub() { return *stub_; }
  std::chrono::milliseconds timeout() const { return timeout_; }

 private:
  const std::chrono::milliseconds timeout_;
  const std::unique_ptr<Stub> stub_;
};

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_CONNECTION_H_
