// A trace (trace_file.h) as one HTML page, which a browser shows without a network: what lies in
// client/ctl/trace_page/, with the slices as JSON, a column each.
//
// Whatever names are in the trace, the page holds them as JSON of ASCII without '<', in elements
// that are no scripts, and its script only ever sets text. It says itself (Content-Security-Policy)
// that nothing else may run in it and that it loads nothing.
#ifndef CONCERT_CLIENT_CTL_TRACE_PAGE_H_
#define CONCERT_CLIENT_CTL_TRACE_PAGE_H_

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "client/ctl/perfetto.pb.h"

namespace concert::ctl {

// Takes packets in the order of the file; then Write. Not thread-safe.
class TracePage {
 public:
  TracePage();

  // What it keeps: some 150 bytes a slice, and every text once.
  static constexpr size_t kMaxSlices = size_t{1} << 21;
  static constexpr size_t kMaxTracks = size_t{1} << 17;
  static constexpr size_t kMaxTextBytes = size_t{64} << 20;  // texts beyond are "(left out)"
  static constexpr size_t kMaxNotes = 16;

  // One that cannot be shown makes an error(); what follows is ignored.
  void Add(const perfetto::TracePacket& packet);

  // Empty, or why there can be no page: more than it can hold, or a trace that is not concertctl's.
  const std::string& error() const { return error_; }
  // Those that have ended.
  size_t op_count() const;

  // REQUIRES: no error.
  void Write(std::ostream& out) const;

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};

  struct Track {
    uint32_t name;
    uint32_t parent;               // kNone: at the top
    uint32_t open = kNone;         // the slice that has begun
    uint32_t last = kNone;         // the slice that ended last
    uint64_t free_at_ns = 0;       // when that was
    std::vector<uint32_t> slices;  // by time
  };
  struct Slice {
    uint32_t name;
    uint32_t shape;
    size_t first_value;
    uint64_t begin_ns, end_ns;
  };
  // Names of arguments, and whether their values are texts.
  using Shape = std::vector<std::pair<uint32_t, bool>>;
  struct Op {  // a flow
    uint64_t submitted_at_ns = 0;
    uint32_t launch = kNone;
    uint32_t slice = kNone;
  };

  void AddTrack(const perfetto::TrackDescriptor& track);
  void AddEvent(uint64_t at_ns, const perfetto::TrackEvent& event);
  void BeginSlice(Track& track, uint64_t at_ns, const perfetto::TrackEvent& event);
  void EndSlice(Track& track, uint64_t at_ns);
  void AddInstant(const Track& track, uint64_t at_ns, const perfetto::TrackEvent& event);
  void AddArguments(const perfetto::TrackEvent& event, Slice& slice);
  uint32_t Text(const std::string& text);
  Op& OpOf(uint64_t flow);
  void Fail(const std::string& why);
  // Slices in the page's order: by track, then by time.
  std::vector<uint32_t> PageOrder() const;
  void WriteHead(std::ostream& out) const;
  void WriteTimes(std::ostream& out) const;
  void WriteArguments(const std::vector<uint32_t>& order, std::ostream& out) const;
  void WriteOps(const std::vector<uint32_t>& order, std::ostream& out) const;

  std::string error_;
  std::unordered_map<std::string, uint32_t> text_index_;
  std::vector<const std::string*> texts_;  // its keys
  size_t text_bytes_ = 0;
  std::vector<Track> tracks_;
  std::unordered_map<uint64_t, uint32_t> track_index_;  // by uuid
  std::vector<Slice> slices_;
  std::vector<Shape> shapes_;
  std::map<Shape, uint32_t> shape_index_;
  std::vector<double> values_;  // of all slices' arguments; of texts, their index
  std::vector<Op> ops_;
  std::unordered_map<uint64_t, uint32_t> op_index_;  // by flow
  std::vector<uint32_t> notes_;                      // events that are of no op
  uint64_t first_ns_ = UINT64_MAX, last_ns_ = 0;
};

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_TRACE_PAGE_H_
