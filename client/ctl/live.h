// The commands that follow a WatchStats stream: `watch` and `top`.
#ifndef CONCERT_CLIENT_CTL_LIVE_H_
#define CONCERT_CLIENT_CTL_LIVE_H_

#include <cstdint>
#include <ostream>

#include "client/ctl/connection.h"

namespace concert::ctl {

struct LiveOptions {
  uint32_t interval_ms = 1000;
  uint64_t count = 0;  // intervals to show; 0: until interrupted
  bool json = false;
  bool terminal = false;
};

// One line per interval; with json one object per message, the totals first.
grpc::Status Watch(Connection& connection, const LiveOptions& options, std::ostream& out);

// A table per interval: redrawn in place on a terminal, one below the other elsewhere.
grpc::Status Top(Connection& connection, const LiveOptions& options, std::ostream& out);

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_LIVE_H_
