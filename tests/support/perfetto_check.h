// Reads a trace as Perfetto does: tracks by name, slices, flows; and says what is wrong with it.
#ifndef CONCERT_TESTS_SUPPORT_PERFETTO_CHECK_H_
#define CONCERT_TESTS_SUPPORT_PERFETTO_CHECK_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "client/ctl/perfetto.pb.h"

namespace concert::test {

class PerfettoCheck {
 public:
  struct Slice {
    std::string track;  // "GPU 0/lane 2"
    std::string name;
    uint64_t from_ns, to_ns;
    std::map<std::string, std::string> arguments;  // those that are text
  };
  // Time and name of each event of a flow, in the file's order sorted by time.
  using Flow = std::vector<std::pair<uint64_t, std::string>>;

  explicit PerfettoCheck(const perfetto::Trace& trace);

  // Slices in the file's order.
  const std::vector<Slice>& slices() const { return slices_; }
  const std::map<uint64_t, Flow>& flows() const { return flows_; }
  // Empty, or what is wrong: slices that overlap or do not end, events on tracks that nobody made,
  // flows that do not begin with a submit, go back in time or do not end exactly once.
  std::string problems() const { return problems_; }

 private:
  void Read(const perfetto::TracePacket& packet);
  void ReadEvent(uint64_t at_ns, const perfetto::TrackEvent& event);
  void CheckFlows();

  std::map<uint64_t, std::string> tracks_;
  std::map<uint64_t, Slice> open_;        // by track
  std::map<uint64_t, uint64_t> free_at_;  // by track: the last slice's end
  std::map<uint64_t, int> ends_;          // by flow
  std::vector<Slice> slices_;
  std::map<uint64_t, Flow> flows_;
  std::string problems_;
};

}  // namespace concert::test

#endif  // CONCERT_TESTS_SUPPORT_PERFETTO_CHECK_H_
