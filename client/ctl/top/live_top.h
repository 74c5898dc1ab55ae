// `concertctl top` on a terminal.
#ifndef CONCERT_CLIENT_CTL_TOP_LIVE_TOP_H_
#define CONCERT_CLIENT_CTL_TOP_LIVE_TOP_H_

#include "client/ctl/live.h"
#include "client/ctl/top/terminal.h"

namespace concert::ctl {

// Until the user quits, options.count intervals are over (OK) or the daemon is gone. A signal ends
// the process once the terminal is in order.
grpc::Status ShowTop(Connection& connection, const LiveOptions& options,
                     std::unique_ptr<Terminal> terminal);

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_TOP_LIVE_TOP_H_
