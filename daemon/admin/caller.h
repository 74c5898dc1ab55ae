// Who asks for a change over the admin API, for the log.
#ifndef CONCERT_DAEMON_ADMIN_CALLER_H_
#define CONCERT_DAEMON_ADMIN_CALLER_H_

#include <grpcpp/server_context.h>

#include <string>
#include <string_view>

#include "daemon/service/log.h"

namespace concert::daemon::admin {

// "concertctl uid/1000 pid/4242" of the call's user agent "concertctl uid/1000 pid/4242
// grpc-c++/1.51.1 ...": what the caller says of itself, which gRPC does not check. All who may use
// the socket are operators.
std::string CallerOf(std::string_view user_agent);

// "concertctl uid/1000 pid/4242 asks for policy serial", as an info line; floods are cut.
// Thread-safe.
void LogCall(const grpc::ServerContextBase& context, std::string_view what);

}  // namespace concert::daemon::admin

#endif  // CONCERT_DAEMON_ADMIN_CALLER_H_
