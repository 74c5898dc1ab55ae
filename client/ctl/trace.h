// `concertctl trace`: records what the daemon does and writes it for Perfetto (trace_file.h), or as
// a page of its own (trace_page.h).
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
  bool page = false;     // else for Perfetto
  std::string recorded;  // a file for Perfetto that becomes a page; empty: what is recorded now
  std::string file;      // empty: named after `recorded`, else concert.html or concert.pftrace
  bool json = false;
};

// Prints what it has written, or a JSON object of that. Asks the daemon for nothing if there is a
// recorded file.
grpc::Status Trace(Connection& connection, const TraceOptions& options, std::ostream& out);

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_TRACE_H_
