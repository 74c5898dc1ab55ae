// What `concertctl trace` has recorded, as a file for ui.perfetto.dev (perfetto.proto):
//
// - "GPU 0" with a track per lane and, on it, a slice per launch, with its plan and why it was
// made;
// - "session 3: name" with a track per queue and, on it, a slice per op, an event where the op was
//   submitted and one where it ended;
// - a flow for each op: submitted, launched, ended;
// - if some are missing, an event that says how many.
//
// Slices of a track do not overlap, as the format demands: an op's begins when the one before it in
// its queue has ended, and a launch's ends when the next one on its lane begins. An op's exact
// times are arguments of its slice.
#ifndef CONCERT_CLIENT_CTL_TRACE_FILE_H_
#define CONCERT_CLIENT_CTL_TRACE_FILE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "client/ctl/perfetto.pb.h"
#include "proto/concert/v1/admin.pb.h"

namespace concert::ctl {

struct Recording {
  std::vector<v1::TracedOp> ops;
  std::vector<v1::Plan> plans;
  std::map<uint32_t, std::string> client_names;  // by session; empty: not known
  std::map<uint32_t, std::string> gpu_names;     // those that are known
  uint64_t lost_count = 0;
  bool simulated = false;
};

using PacketSink = std::function<void(const perfetto::TracePacket&)>;

// Calls `sink` with each packet, in the file's order. Sorts what is in `recording`.
void MakeTrace(Recording& recording, const PacketSink& sink);
// The same into a file.
void WriteTrace(Recording& recording, std::ostream& out);

// Calls `sink` with each packet of such a file, one after the other, so that none of it is kept.
// Empty, or why the file cannot be read.
std::string ReadTrace(const std::string& path, const PacketSink& sink);

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_TRACE_FILE_H_
