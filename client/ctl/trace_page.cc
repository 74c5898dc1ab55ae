#include "client/ctl/trace_page.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>

// client/ctl/trace_page/, which CMake embeds.
extern "C" {
extern const char concert_trace_page_html[];
extern const char concert_trace_page_css[];
extern const char concert_trace_page_text_js[];
extern const char concert_trace_page_trace_js[];
extern const char concert_trace_page_timeline_js[];
extern const char concert_trace_page_page_js[];
}

namespace concert::ctl {
namespace {

using perfetto::TrackEvent;

constexpr char kLeftOut[] = "(left out)";

// JSON that no HTML parser takes for anything but text: ASCII without '<', which stands in strings
// only.
std::string Inert(const nlohmann::json& value) {
  const std::string text =
      value.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
  std::string inert;
  for (const char c : text) c == '<' ? inert += "\\u003c" : inert += c;
  return inert;
}

// The element of a column, in the order of the values.
class Column {
 public:
  Column(const std::string& name, std::ostream& out) : out_(out) {
    out_ << "<script type=\"application/json\" data-column=\"" << name << "\">[";
  }
  ~Column() { out_ << "]</script>\n"; }
  Column(const Column&) = delete;
  Column& operator=(const Column&) = delete;

  // As an integer where it is one, else to a thousandth: times are microseconds or nanoseconds.
  void Add(double value) {
    std::array<char, 400> text;  // of the largest double
    if (!std::isfinite(value)) value = 0;
    const bool whole = value == std::floor(value);
    char* end = std::to_chars(text.data(), text.data() + text.size(), value,
                              std::chars_format::fixed, whole ? 0 : 3)
                    .ptr;
    AddJson(std::string_view(text.data(), end - text.data()));
  }
  void AddJson(std::string_view json) {
    if (!first_) out_ << ',';
    first_ = false;
    out_ << json;
  }

 private:
  std::ostream& out_;
  bool first_ = true;
};

// What no trace can have known when it was written.
std::string NewNonce() {
  std::random_device random;
  std::string nonce;
  for (int i = 0; i < 4; ++i) {
    std::array<char, 9> word;
    std::snprintf(word.data(), word.size(), "%08x", random());
    nonce += word.data();
  }
  return nonce;
}

}  // namespace

TracePage::TracePage() { Text(kLeftOut); }

void TracePage::Add(const perfetto::TracePacket& packet) {
  if (!error_.empty()) return;
  if (packet.has_track_descriptor()) {
    AddTrack(packet.track_descriptor());
  } else if (packet.has_track_event()) {
    AddEvent(packet.timestamp(), packet.track_event());
  }
}

size_t TracePage::op_count() const {
  return std::count_if(ops_.begin(), ops_.end(), [](const Op& op) { return op.slice != kNone; });
}

void TracePage::Fail(const std::string& why) {
  if (error_.empty()) error_ = why;
}

uint32_t TracePage::Text(const std::string& text) {
  if (const auto it = text_index_.find(text); it != text_index_.end()) return it->second;
  text_bytes_ += text.size();
  if (text_bytes_ > kMaxTextBytes) return 0;
  const auto it = text_index_.emplace(text, texts_.size()).first;
  texts_.push_back(&it->first);
  return it->second;
}

void TracePage::AddTrack(const perfetto::TrackDescriptor& track) {
  if (tracks_.size() == kMaxTracks)
    return Fail("more than " + std::to_string(kMaxTracks) + " lanes and queues: record fewer");
  const auto parent = track_index_.find(track.parent_uuid());
  if (track.parent_uuid() != 0 && parent == track_index_.end())
    return Fail("track " + track.name() + " has a parent that is not there");
  if (!track_index_.emplace(track.uuid(), tracks_.size()).second)
    return Fail("there are two tracks " + std::to_string(track.uuid()));
  tracks_.push_back({.name = Text(track.name()),
                     .parent = track.parent_uuid() == 0 ? kNone : parent->second,
                     .slices = {}});
}

void TracePage::AddEvent(uint64_t at_ns, const TrackEvent& event) {
  const auto index = track_index_.find(event.track_uuid());
  if (index == track_index_.end()) return Fail("event " + event.name() + " is on no track");
  Track& track = tracks_[index->second];
  first_ns_ = std::min(first_ns_, at_ns);
  last_ns_ = std::max(last_ns_, at_ns);
  switch (event.type()) {
    case TrackEvent::TYPE_SLICE_BEGIN:
      return BeginSlice(track, at_ns, event);
    case TrackEvent::TYPE_SLICE_END:
      return EndSlice(track, at_ns);
    case TrackEvent::TYPE_INSTANT:
      return AddInstant(track, at_ns, event);
    default:
      return Fail("event " + event.name() + " is neither a slice nor an instant");
  }
}

void TracePage::BeginSlice(Track& track, uint64_t at_ns, const TrackEvent& event) {
  if (track.open != kNone || at_ns < track.free_at_ns)
    return Fail("slices of track " + *texts_[track.name] + " overlap");
  if (slices_.size() == kMaxSlices)
    return Fail("more than " + std::to_string(kMaxSlices) + " slices: record for less time");
  track.open = static_cast<uint32_t>(slices_.size());
  Slice& slice = slices_.emplace_back(
      Slice{.name = Text(event.name()), .first_value = values_.size(), .begin_ns = at_ns});
  AddArguments(event, slice);
  for (const uint64_t flow : event.flow_ids()) OpOf(flow).launch = track.open;
}

void TracePage::AddArguments(const TrackEvent& event, Slice& slice) {
  Shape shape;
  for (const perfetto::DebugAnnotation& argument : event.debug_annotations()) {
    const bool is_text = argument.has_string_value();
    shape.emplace_back(Text(argument.name()), is_text);
    if (is_text) {
      values_.push_back(Text(argument.string_value()));
    } else {
      values_.push_back(argument.has_uint_value() ? static_cast<double>(argument.uint_value())
                                                  : argument.double_value());
    }
  }
  const auto [it, made] = shape_index_.emplace(shape, shapes_.size());
  if (made) shapes_.push_back(std::move(shape));
  slice.shape = it->second;
}

void TracePage::EndSlice(Track& track, uint64_t at_ns) {
  if (track.open == kNone || at_ns < slices_[track.open].begin_ns)
    return Fail("a slice of track " + *texts_[track.name] + " ends and did not begin");
  slices_[track.open].end_ns = track.free_at_ns = at_ns;
  track.slices.push_back(track.open);
  track.last = std::exchange(track.open, kNone);
}

// An op is submitted with an event that begins its flow, and ends with one, behind its slice.
void TracePage::AddInstant(const Track& track, uint64_t at_ns, const TrackEvent& event) {
  for (const uint64_t flow : event.flow_ids()) OpOf(flow).submitted_at_ns = at_ns;
  for (const uint64_t flow : event.terminating_flow_ids()) OpOf(flow).slice = track.last;
  if (event.flow_ids().empty() && event.terminating_flow_ids().empty() &&
      notes_.size() < kMaxNotes) {
    notes_.push_back(Text(event.name()));
  }
}

TracePage::Op& TracePage::OpOf(uint64_t flow) {
  const auto [it, made] = op_index_.emplace(flow, ops_.size());
  if (made) ops_.emplace_back();
  if (ops_.size() > kMaxSlices) {
    Fail("more than " + std::to_string(kMaxSlices) + " ops: record for less time");
  }
  return ops_[it->second];
}

std::vector<uint32_t> TracePage::PageOrder() const {
  std::vector<uint32_t> order;
  for (const Track& track : tracks_)
    order.insert(order.end(), track.slices.begin(), track.slices.end());
  return order;
}

void TracePage::Write(std::ostream& out) const {
  const std::string nonce = NewNonce();
  const std::string_view page = concert_trace_page_html;
  size_t from = 0;
  // What stands between '@' is filled in; the page has no other '@'.
  for (size_t at; (at = page.find('@', from)) != page.npos;) {
    const size_t end = page.find('@', at + 1);
    const std::string_view mark = page.substr(at + 1, end - at - 1);
    out << page.substr(from, at - from);
    from = end + 1;
    if (mark == "NONCE") out << nonce;
    if (mark == "STYLE") out << concert_trace_page_css;
    if (mark == "SCRIPT") {
      out << concert_trace_page_text_js << concert_trace_page_trace_js
          << concert_trace_page_timeline_js << concert_trace_page_page_js;
    }
    if (mark == "DATA") {
      const std::vector<uint32_t> order = PageOrder();
      WriteHead(out);
      WriteTimes(out);
      WriteArguments(order, out);
      WriteOps(order, out);
    }
  }
  out << page.substr(from);
}

void TracePage::WriteHead(std::ostream& out) const {
  nlohmann::json tracks = nlohmann::json::array(), shapes = nlohmann::json::array();
  for (const Track& track : tracks_) {
    const int64_t parent = track.parent == kNone ? -1 : int64_t{track.parent};
    tracks.push_back({track.name, parent, track.slices.size()});
  }
  for (const Shape& shape : shapes_) {
    nlohmann::json columns = nlohmann::json::array();
    for (const auto& [name, is_text] : shape) columns.push_back({name, is_text});
    shapes.push_back(std::move(columns));
  }
  const nlohmann::json head = {{"duration", last_ns_ < first_ns_ ? 0 : last_ns_ - first_ns_},
                               {"notes", notes_},
                               {"tracks", tracks},
                               {"shapes", shapes}};
  Column("head", out).AddJson(Inert(head));
  Column strings("strings", out);
  for (const std::string* text : texts_) strings.AddJson(Inert(*text));
}

// A begin as the gap behind the slice before it on its track, a small number.
void TracePage::WriteTimes(std::ostream& out) const {
  {
    Column gaps("gap", out);
    for (const Track& track : tracks_) {
      uint64_t free_ns = first_ns_;
      for (const uint32_t slice : track.slices) {
        gaps.Add(static_cast<double>(slices_[slice].begin_ns - free_ns));
        free_ns = slices_[slice].end_ns;
      }
    }
  }
  Column lengths("length", out);
  for (const Track& track : tracks_) {
    for (const uint32_t slice : track.slices)
      lengths.Add(static_cast<double>(slices_[slice].end_ns - slices_[slice].begin_ns));
  }
}

void TracePage::WriteArguments(const std::vector<uint32_t>& order, std::ostream& out) const {
  std::vector<std::vector<uint32_t>> of_shape(shapes_.size());
  {
    Column names("name", out);
    for (const uint32_t slice : order) {
      names.Add(slices_[slice].name);
      of_shape[slices_[slice].shape].push_back(slice);
    }
  }
  {
    Column shapes("shape", out);
    for (const uint32_t slice : order) shapes.Add(slices_[slice].shape);
  }
  for (size_t shape = 0; shape < shapes_.size(); ++shape) {
    for (size_t i = 0; i < shapes_[shape].size(); ++i) {
      Column values(std::to_string(shape) + "." + std::to_string(i), out);
      for (const uint32_t slice : of_shape[shape])
        values.Add(values_[slices_[slice].first_value + i]);
    }
  }
}

void TracePage::WriteOps(const std::vector<uint32_t>& order, std::ostream& out) const {
  std::vector<uint32_t> place(slices_.size(), kNone);
  for (size_t i = 0; i < order.size(); ++i) place[order[i]] = static_cast<uint32_t>(i);
  const auto place_of = [&](uint32_t slice) { return slice == kNone ? kNone : place[slice]; };
  std::vector<const Op*> ops;
  for (const Op& op : ops_) {
    if (op.slice != kNone) ops.push_back(&op);
  }
  std::sort(ops.begin(), ops.end(),
            [&](const Op* a, const Op* b) { return place_of(a->slice) < place_of(b->slice); });
  const auto column = [&](const char* name, auto value) {
    Column values(name, out);
    for (const Op* op : ops) values.Add(value(*op));
  };
  column("op", [&](const Op& op) { return place_of(op.slice); });
  column("launch", [&](const Op& op) {
    const uint32_t launch = place_of(op.launch);
    return launch == kNone ? -1.0 : launch;
  });
  column("submit", [&](const Op& op) {
    return static_cast<double>(std::max(op.submitted_at_ns, first_ns_) - first_ns_);
  });
}

}  // namespace concert::ctl
