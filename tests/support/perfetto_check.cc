#include "tests/support/perfetto_check.h"

#include <algorithm>

namespace concert::test {

using perfetto::TrackEvent;

PerfettoCheck::PerfettoCheck(const perfetto::Trace& trace) {
  if (trace.packet_size() > 0 && trace.packet(0).sequence_flags() != 1)
    problems_ += "the first packet does not begin a sequence\n";
  for (const perfetto::TracePacket& packet : trace.packet()) Read(packet);
  for (const auto& [track, slice] : open_) problems_ += slice.name + " does not end\n";
  CheckFlows();
}

void PerfettoCheck::Read(const perfetto::TracePacket& packet) {
  if (packet.trusted_packet_sequence_id() == 0) problems_ += "a packet without a sequence\n";
  if (packet.has_track_event()) return ReadEvent(packet.timestamp(), packet.track_event());
  const perfetto::TrackDescriptor& track = packet.track_descriptor();
  const auto parent = tracks_.find(track.parent_uuid());
  if (track.parent_uuid() != 0 && parent == tracks_.end())
    problems_ += track.name() + " has a parent that nobody made\n";
  tracks_[track.uuid()] = (parent == tracks_.end() ? "" : parent->second + "/") + track.name();
}

void PerfettoCheck::ReadEvent(uint64_t at_ns, const TrackEvent& event) {
  const uint64_t track = event.track_uuid();
  if (!tracks_.contains(track)) problems_ += event.name() + " is on a track that nobody made\n";
  for (const uint64_t flow : event.flow_ids()) flows_[flow].emplace_back(at_ns, event.name());
  for (const uint64_t flow : event.terminating_flow_ids()) {
    flows_[flow].emplace_back(at_ns, event.name());
    ++ends_[flow];
  }
  if (event.type() == TrackEvent::TYPE_SLICE_BEGIN) {
    if (open_.contains(track) || at_ns < free_at_[track])
      problems_ += event.name() + " overlaps the slice before it on " + tracks_[track] + "\n";
    Slice& slice = open_[track] = {tracks_[track], event.name(), at_ns, 0, {}};
    for (const perfetto::DebugAnnotation& argument : event.debug_annotations())
      slice.arguments[argument.name()] = argument.string_value();
  } else if (event.type() == TrackEvent::TYPE_SLICE_END) {
    const auto slice = open_.find(track);
    if (slice == open_.end() || at_ns < slice->second.from_ns) {
      problems_ += "an end without a begin on " + tracks_[track] + "\n";
      return;
    }
    slice->second.to_ns = free_at_[track] = at_ns;
    slices_.push_back(std::move(slice->second));
    open_.erase(slice);
  }
}

void PerfettoCheck::CheckFlows() {
  for (auto& [id, flow] : flows_) {
    // Stable: what the file has first is first.
    std::stable_sort(flow.begin(), flow.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    const std::string name = "flow " + std::to_string(id);
    if (!flow.front().second.starts_with("submit ")) problems_ += name + " begins with another\n";
    if (flow.back().second != "end" || ends_[id] != 1)
      problems_ += name + " does not end once, at its end\n";
    if (flow.size() > 3) problems_ += name + " has more than one launch\n";
  }
}

}  // namespace concert::test
