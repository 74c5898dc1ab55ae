// An absl::Status as the status of a gRPC call.
#ifndef CONCERT_DAEMON_ADMIN_TO_GRPC_H_
#define CONCERT_DAEMON_ADMIN_TO_GRPC_H_

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"

namespace concert::daemon::admin {

// absl and gRPC number their codes alike.
inline grpc::Status ToGrpc(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.raw_code()), std::string(status.message())};
}

}  // namespace concert::daemon::admin

#endif  // CONCERT_DAEMON_ADMIN_TO_GRPC_H_
