// One admin connection. Call gives its calls a deadline; whoever calls stub(), or a stub of his own
// on ConnectTo's channel, sees to that himself.
//
// Only for commands that call the daemon (gRPC headers are slow to compile).
#ifndef CONCERT_CLIENT_CTL_CONNECTION_H_
#define CONCERT_CLIENT_CTL_CONNECTION_H_

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <string>

#include "proto/concert/v1/admin.grpc.pb.h"

namespace concert::ctl {

// A channel to an admin socket that tells the daemon, for its log, who we are.
inline std::shared_ptr<grpc::Channel> ConnectTo(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetUserAgentPrefix(std::string(program_invocation_short_name) + " uid/" +
                               std::to_string(getuid()) + " pid/" + std::to_string(getpid()));
  return grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments);
}

// Of a call that nobody here has cancelled: a daemon that ends cuts off those that it is at.
inline grpc::Status EndedIfCutOff(const grpc::Status& status) {
  if (status.error_code() != grpc::StatusCode::CANCELLED) return status;
  return {grpc::StatusCode::UNAVAILABLE, "the daemon ended the call"};
}

class Connection {
 public:
  Connection(const std::string& socket, std::chrono::milliseconds timeout)
      : timeout_(timeout), stub_(v1::AdminService::NewStub(ConnectTo(socket))) {}

  // `method` is a member of the stub, e.g. &Connection::Stub::GetStatus.
  using Stub = v1::AdminService::Stub;
  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + timeout_);
    return EndedIfCutOff((stub_.get()->*method)(&context, request, response));
  }

  Stub& stub() { return *stub_; }
  std::chrono::milliseconds timeout() const { return timeout_; }

 private:
  const std::chrono::milliseconds timeout_;
  const std::unique_ptr<Stub> stub_;
};

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_CONNECTION_H_
