#include "client/ctl/trace_file.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <span>
#include <tuple>
#include <utility>

namespace concert::ctl {
namespace {

using perfetto::TrackEvent;

// Makes packets one by one, and keeps none.
class PacketMaker {
 public:
  explicit PacketMaker(const PacketSink& sink) : sink_(sink) {}

  // The track of that name below `parent`; 0: at the top. The first call makes it.
  uint64_t Track(uint64_t parent, const std::string& name) {
    const auto [it, made] = tracks_.try_emplace({parent, name}, tracks_.size() + 1);
    if (made) {
      perfetto::TracePacket packet = Packet(0);
      perfetto::TrackDescriptor* track = packet.mutable_track_descriptor();
      track->set_uuid(it->second);
      track->set_name(name);
      track->set_parent_uuid(parent);
      sink_(packet);
    }
    return it->second;
  }

  void Instant(uint64_t track, uint64_t at_ns, TrackEvent event) {
    Make(track, at_ns, TrackEvent::TYPE_INSTANT, std::move(event));
  }
  void Slice(uint64_t track, uint64_t from_ns, uint64_t to_ns, TrackEvent event) {
    Make(track, from_ns, TrackEvent::TYPE_SLICE_BEGIN, std::move(event));
    Make(track, to_ns, TrackEvent::TYPE_SLICE_END, {});
  }

 private:
  perfetto::TracePacket Packet(uint64_t at_ns) {
    perfetto::TracePacket packet;
    packet.set_timestamp(at_ns);
    packet.set_trusted_packet_sequence_id(1);
    if (std::exchange(first_, false)) packet.set_sequence_flags(1);
    return packet;
  }
  void Make(uint64_t track, uint64_t at_ns, TrackEvent::Type type, TrackEvent event) {
    event.set_type(type);
    event.set_track_uuid(track);
    perfetto::TracePacket packet = Packet(at_ns);
    *packet.mutable_track_event() = std::move(event);
    sink_(packet);
  }

  const PacketSink& sink_;
  bool first_ = true;
  std::map<std::pair<uint64_t, std::string>, uint64_t> tracks_;
};

TrackEvent Named(std::string name) {
  TrackEvent event;
  event.set_name(std::move(name));
  return event;
}

void Argue(TrackEvent& event, const char* name, uint64_t value) {
  perfetto::DebugAnnotation* argument = event.add_debug_annotations();
  argument->set_name(name);
  argument->set_uint_value(value);
}
void Argue(TrackEvent& event, const char* name, double value) {
  perfetto::DebugAnnotation* argument = event.add_debug_annotations();
  argument->set_name(name);
  argument->set_double_value(value);
}
void Argue(TrackEvent& event, const char* name, const std::string& value) {
  perfetto::DebugAnnotation* argument = event.add_debug_annotations();
  argument->set_name(name);
  argument->set_string_value(value);
}

double Us(uint64_t from_ns, uint64_t to_ns) {
  return to_ns < from_ns ? 0 : static_cast<double>(to_ns - from_ns) * 1e-3;
}

using PlanKey = std::pair<uint32_t, uint64_t>;  // GPU and plan
using Plans = std::map<PlanKey, const v1::Plan*>;

class Conversion {
 public:
  Conversion(Recording& recording, const PacketSink& sink) : recording_(recording), maker_(sink) {
    for (const v1::Plan& plan : recording_.plans) plans_[{plan.gpu(), plan.plan_id()}] = &plan;
  }

  void Write() {
    // By queue, then by time.
    std::sort(recording_.ops.begin(), recording_.ops.end(), [](const auto& a, const auto& b) {
      const auto key = [](const v1::TracedOp& op) {
        return std::tuple(op.session_id(), op.queue(), op.finished_at_ns(), op.admitted_at_ns());
      };
      return key(a) < key(b);
    });
    // Of events at one time Perfetto takes that for the earlier which the file has first, and a
    // flow must begin with its submit and end with its end.
    WriteSubmits();
    WriteLanes();
    WriteQueues();
    WriteLost();
  }

 private:
  uint64_t GpuTrack(uint32_t gpu) {
    const auto name = recording_.gpu_names.find(gpu);
    return maker_.Track(0, "GPU " + std::to_string(gpu) +
                               (name == recording_.gpu_names.end() ? "" : ": " + name->second) +
                               (recording_.simulated ? " (simulated)" : ""));
  }
  uint64_t QueueTrack(const v1::TracedOp& op) {
    const auto name = recording_.client_names.find(op.session_id());
    const uint64_t session =
        maker_.Track(0, "session " + std::to_string(op.session_id()) +
                            (name == recording_.client_names.end() || name->second.empty()
                                 ? ""
                                 : ": " + name->second));
    return maker_.Track(session, "queue " + std::to_string(op.queue()));
  }
  const v1::Plan* PlanOf(const v1::TracedOp& op) const {
    const auto it = plans_.find({op.gpu(), op.plan_id()});
    return it == plans_.end() ? nullptr : it->second;
  }
  // Never 0.
  uint64_t FlowOf(const v1::TracedOp& op) const {
    return static_cast<uint64_t>(&op - recording_.ops.data()) + 1;
  }

  void WriteSubmits() {
    for (const v1::TracedOp& op : recording_.ops) {
      TrackEvent submit = Named("submit " + op.kind());
      submit.add_flow_ids(FlowOf(op));
      maker_.Instant(QueueTrack(op), op.admitted_at_ns(), std::move(submit));
    }
  }

  void WriteQueues() {
    const v1::TracedOp* before = nullptr;
    for (const v1::TracedOp& op : recording_.ops) {
      const bool same = before != nullptr && before->session_id() == op.session_id() &&
                        before->queue() == op.queue();
      WriteOp(op, same ? before->finished_at_ns() : 0);
      before = &op;
    }
  }

  // `free_at_ns`: when the op before it in its queue had ended.
  void WriteOp(const v1::TracedOp& op, uint64_t free_at_ns) {
    const uint64_t track = QueueTrack(op);
    const bool failed = op.status() != "OK";
    TrackEvent run = Named(failed ? op.kind() + " " + op.status() : op.kind());
    if (op.launched_at_ns() != 0) {
      Argue(run, "submitted to ready, us", Us(op.admitted_at_ns(), op.ready_at_ns()));
      Argue(run, "ready to launched, us", Us(op.ready_at_ns(), op.launched_at_ns()));
      Argue(run, "launched to started, us", Us(op.launched_at_ns(), op.started_at_ns()));
      Argue(run, "started to ended, us", Us(op.started_at_ns(), op.finished_at_ns()));
      Argue(run, "dtype", op.dtype());
      Argue(run, "flops", op.flop_count());
      Argue(run, "bytes", op.moved_bytes());
      Argue(run, "share of the plan's time, us", op.gpu_us());
      Argue(run, "plan", op.plan_id());
    }
    if (!op.reason().empty()) Argue(run, "reason", op.reason());
    maker_.Slice(track, std::max(op.admitted_at_ns(), free_at_ns), op.finished_at_ns(),
                 std::move(run));

    TrackEvent end = Named("end");
    end.add_terminating_flow_ids(FlowOf(op));
    maker_.Instant(track, op.finished_at_ns(), std::move(end));
  }

  // Ops that started together on one lane, by one plan.
  void WriteLanes() {
    std::vector<const v1::TracedOp*> launched;
    for (const v1::TracedOp& op : recording_.ops) {
      if (op.launched_at_ns() != 0 && op.has_lane()) launched.push_back(&op);
    }
    const auto key = [](const v1::TracedOp* op) {
      return std::tuple(op->gpu(), op->lane(), op->started_at_ns(), op->plan_id());
    };
    std::sort(launched.begin(), launched.end(),
              [&](const auto* a, const auto* b) { return key(a) < key(b); });
    for (auto first = launched.begin(); first != launched.end();) {
      const auto last = std::find_if(first, launched.end(),
                                     [&](const auto* op) { return key(op) != key(*first); });
      const bool followed = last != launched.end() && (*last)->gpu() == (*first)->gpu() &&
                            (*last)->lane() == (*first)->lane();
      WriteLaunch({first, last}, followed ? (*last)->started_at_ns() : UINT64_MAX);
      first = last;
    }
  }

  // `next_at_ns`: when the next launch on its lane starts.
  void WriteLaunch(std::span<const v1::TracedOp* const> ops, uint64_t next_at_ns) {
    const v1::TracedOp& op = *ops.front();
    const uint64_t track = maker_.Track(GpuTrack(op.gpu()), "lane " + std::to_string(op.lane()));
    TrackEvent launch =
        Named(ops.size() == 1 ? op.kind() : std::to_string(ops.size()) + " x " + op.kind());
    uint64_t end_ns = 0;
    for (const v1::TracedOp* each : ops) {
      launch.add_flow_ids(FlowOf(*each));
      end_ns = std::max(end_ns, each->finished_at_ns());
    }
    Argue(launch, "plan", op.plan_id());
    Argue(launch, "launched to started, us", Us(op.launched_at_ns(), op.started_at_ns()));
    if (!op.reason().empty()) Argue(launch, "reason", op.reason());
    if (const v1::Plan* plan = PlanOf(op)) {
      if (!plan->transport().empty()) Argue(launch, "transport", plan->transport());
      Argue(launch, "plan predicted, us", plan->predicted_us());
      Argue(launch, "plan took, us", plan->actual_us());
      Argue(launch, "one after the other, us", plan->serial_us());
      Argue(launch, "plan in words", plan->text());
    }
    maker_.Slice(track, op.started_at_ns(), std::min(end_ns, next_at_ns), std::move(launch));
  }

  void WriteLost() {
    if (recording_.lost_count == 0) return;
    uint64_t last_ns = 0;
    for (const v1::TracedOp& op : recording_.ops) last_ns = std::max(last_ns, op.finished_at_ns());
    maker_.Instant(maker_.Track(0, "concertctl trace"), last_ns,
                   Named(std::to_string(recording_.lost_count) + " ops and plans are missing"));
  }

  Recording& recording_;
  PacketMaker maker_;
  Plans plans_;
};

// A file is one perfetto::Trace: packets, each behind the tag of the field and its length.
constexpr uint32_t kPacketTag = 1 << 3 | 2;
// One launch of as many ops as concertctl takes has 5 MB.
constexpr uint32_t kMaxPacketBytes = 16 << 20;

}  // namespace

void MakeTrace(Recording& recording, const PacketSink& sink) {
  Conversion(recording, sink).Write();
}

void WriteTrace(Recording& recording, std::ostream& out) {
  MakeTrace(recording, [&](const perfetto::TracePacket& packet) {
    perfetto::Trace trace;
    *trace.add_packet() = packet;
    trace.SerializeToOstream(&out);
  });
}

std::string ReadTrace(const std::string& path, const PacketSink& sink) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return "cannot read " + path + ": " + std::strerror(errno);
  google::protobuf::io::IstreamInputStream input(&file);
  perfetto::TracePacket packet;
  while (true) {
    // One for each packet, since it reads 2 GB at most.
    google::protobuf::io::CodedInputStream coded(&input);
    const uint32_t tag = coded.ReadTag();
    uint32_t bytes = 0;
    if (tag == 0 && coded.ConsumedEntireMessage() && file.eof()) return "";
    if (tag != kPacketTag || !coded.ReadVarint32(&bytes) || bytes > kMaxPacketBytes) break;
    const auto limit = coded.PushLimit(static_cast<int>(bytes));
    if (!packet.ParseFromCodedStream(&coded) || coded.BytesUntilLimit() != 0) break;
    coded.PopLimit(limit);
    sink(packet);
  }
  return path + " is no trace, or ends early: record one with concertctl trace";
}

}  // namespace concert::ctl
