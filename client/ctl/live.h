// The commands that follow a WatchStats stream: `watch` and `top`.
#ifndef CONCERT_CLIENT_CTL_LIVE_H_
#define CONCERT_CLIENT_CTL_LIVE_H_

#include <cstdint>
#include <functional>
#include <ostream>

#include "client/ctl/connection.h"
#include "client/ctl/top/sample.h"

namespace concert::ctl {

struct LiveOptions {
  uint32_t interval_ms = 1000;
  uint64_t count = 0;  // intervals to show; 0: until interrupted
  bool json = false;
  bool terminal = false;
};

// One line per interval; with json one object per message, the totals first.
grpc::Status Watch(Connection& connection, const LiveOptions& options, std::ostream& out);

// On a terminal the screen of client/ctl/top/, which answers keys; elsewhere, and with json, a
// table per interval, one below the other.
grpc::Status Top(Connection& connection, const LiveOptions& options, std::ostream& out);

// What both are made of: calls `on_sample` at once and then once an interval, until that returns
// false, options.count intervals are over (OK) or a call fails. TryCancel on `context`, from any
// thread, ends it within one call's time.
grpc::Status FollowTop(Connection& connection, const LiveOptions& options,
                       grpc::ClientContext& context,
                       const std::function<bool(TopSample)>& on_sample);

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_LIVE_H_
