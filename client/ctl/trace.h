// `concertctl trace`: records what the daemon does and writes it for Perfetto (trace_file.h).
#ifndef CONCERT_CLIENT_CTL_TRACE_H_
#define CONCERT_CLIENT_CTL_TRACE_H_

#include <cstdint>
#include <ostream>
#include <string>

#include "client/ctl/connection.h"

namespace concert::ctl {

struct TraceOptions {
  // What is kept in memory until the file is written, some 100 MB; then the trace ends early.
  static constexpr size_t kMaxOps = 500'000;

  uint32_t seconds = 5;
  std::string file = "concert.pftrace";
  bool json = false;
};

// Prints what it has written, or a JSON object of that.
grpc::Status Trace(Connection& connection, const TraceOptions& options, std::ostream& out);

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_TRACE_H_
