#include "kernels/program/pass_graph.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/op_table.h"
#include "kernels/program/binding_copies.h"
#include "kernels/program/node_launcher.h"

namespace concert::kernels::cuda {
namespace {

// Of the workspace, for the word that says who takes part.
constexpr size_t kThereBytes = kArenaAlignment;

// Streams and events that are there while a pass is captured.
class Branches {
 public:
  explicit Branches(const LaunchContext& context) : driver_(context.api.driver) {}
  Branches(const Branches&) = delete;
  Branches& operator=(const Branches&) = delete;
  ~Branches() {
    for (const CUstream stream : streams) {
      if (stream != nullptr) driver_.cuStreamDestroy(stream);
    }
    for (const CUevent event : ends) {
      if (event != nullptr) driver_.cuEventDestroy(event);
    }
    if (begin != nullptr) driver_.cuEventDestroy(begin);
  }
  absl::Status Open(int gpu, size_t members) {
    CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu, cuEventCreate, &begin, CU_EVENT_DISABLE_TIMING);
    for (size_t m = 0; m < members; ++m) {
      CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu, cuStreamCreateWithPriority, &streams[m],
                                     CU_STREAM_NON_BLOCKING, 0);
      CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu, cuEventCreate, &ends[m],
                                     CU_EVENT_DISABLE_TIMING);
    }
    return absl::OkStatus();
  }

  std::array<CUstream, kMaxPassMembers> streams{};  // by member
  std::array<CUevent, kMaxPassMembers> ends{};
  CUevent begin = nullptr;

 private:
  const Driver& driver_;
};

// One capture. What is one launch for all members is on the main stream; what each has by itself,
// on a stream for each.
class Capturer {
 public:
  Capturer(LaunchContext& context, const Pass& pass, Address there, CUgraph graph,
           std::array<std::vector<CUgraphNode>, kMaxPassMembers>& nodes)
      : context_(context),
        driver_(context.api.driver),
        pass_(pass),
        graph_(graph),
        nodes_(nodes),
        launcher_(context, pass.program, pass.owners, reinterpret_cast<const uint32_t*>(there)),
        main_(context.stream),
        workspace_(context.workspace),
        workspace_bytes_(context.workspace_bytes),
        branches_(context) {}

  // `in`, `out`: become the nodes that copy bindings.
  absl::Status Run(CUgraphNode& in, CUgraphNode& out) {
    absl::Status status = branches_.Open(context_.gpu, pass_.member_count);
    if (status.ok()) status = launcher_.CaptureCopies(in);
    if (status.ok()) status = AddOps();
    if (status.ok()) status = launcher_.CaptureCopies(out);
    return status;
  }

 private:
  absl::Status AddOps() {
    for (size_t i = 0, count = 0; i < pass_.program.ops.size(); i += count) {
      const std::vector<const Op*> together = TogetherFrom(i);
      count = together.empty() ? 1 : together.size();
      absl::Status status;
      if (launcher_.IsLaunched(i)) {
        status = together.empty() ? Add(i) : AddTogether(together);
      } else if (pass_.owners[i] == Pass::kAll) {
        status = Join();  // to slots it is a moment even so (pass.cc): memory has others behind it
      }
      if (!status.ok()) {
        const Op& op = pass_.program.ops[i];
        return {status.code(), absl::StrCat("op ", i, " of the pass, ",
                                            concert_op_kind_name(op.kind), ": ", status.message())};
      }
    }
    return Join();
  }

  // The ops that members have at `index`, where those go as one launch; else none.
  std::vector<const Op*> TogetherFrom(size_t index) const {
    const Op* const first = &pass_.program.ops[index];
    const OpKind& kind = *FindOpKind(first->kind);
    if (pass_.owners[index] != 0 || kind.launch_together == nullptr) return {};
    std::vector<const Op*> ops;
    for (size_t m = 0; m < pass_.member_count; ++m) {
      if (kind.goes_with != nullptr && !kind.goes_with(first[m], *first)) return {};
      ops.push_back(first + m);
    }
    return ops;
  }

  absl::Status AddTogether(const std::vector<const Op*>& ops) {
    if (absl::Status status = Join(); !status.ok()) return status;
    return launcher_.LaunchTogether(ops);
  }

  absl::Status Add(size_t index) {
    const int8_t owner = pass_.owners[index];
    if (owner == Pass::kAll) {
      if (absl::Status status = Join(); !status.ok()) return status;
      return launcher_.Launch(index);
    }
    const auto member = static_cast<size_t>(owner);
    if (absl::Status status = Enter(member); !status.ok()) return status;
    absl::Status status = launcher_.Launch(index);
    context_.stream = main_;
    context_.workspace = workspace_, context_.workspace_bytes = workspace_bytes_;
    if (status.ok()) status = NoteNodes(member);
    return status;
  }

  // Goes on with the member's branch, which begins where the main stream stands.
  absl::Status Enter(size_t member) {
    launcher_.Interrupt();
    if (open_ == 0) {
      CONCERT_RETURN_IF_DRIVER_ERROR(driver_, context_.gpu, cuEventRecord, branches_.begin, main_);
    }
    const uint32_t bit = 1u << member;
    if ((open_ & bit) == 0) {
      CONCERT_RETURN_IF_DRIVER_ERROR(driver_, context_.gpu, cuStreamWaitEvent,
                                     branches_.streams[member], branches_.begin, 0);
      open_ |= bit;
    }
    // Side by side, so with a part of the workspace each.
    const size_t part = workspace_bytes_ / pass_.member_count / kArenaAlignment * kArenaAlignment;
    context_.stream = branches_.streams[member];
    context_.workspace = workspace_ + member * part, context_.workspace_bytes = part;
    return NoteNodes();
  }

  // The main stream goes on behind all branches.
  absl::Status Join() {
    if (open_ != 0) launcher_.Interrupt();
    for (size_t m = 0; m < pass_.member_count; ++m) {
      if ((open_ >> m & 1) == 0) continue;
      CONCERT_RETURN_IF_DRIVER_ERROR(driver_, context_.gpu, cuEventRecord, branches_.ends[m],
                                     branches_.streams[m]);
      CONCERT_RETURN_IF_DRIVER_ERROR(driver_, context_.gpu, cuStreamWaitEvent, main_,
                                     branches_.ends[m], 0);
    }
    open_ = 0;
    return absl::OkStatus();
  }

  // The graph's nodes so far; those that are new since the last call are the member's.
  absl::Status NoteNodes(std::optional<size_t> member = std::nullopt) {
    size_t count = 0;
    CONCERT_RETURN_IF_DRIVER_ERROR(driver_, context_.gpu, cuGraphGetNodes, graph_, nullptr, &count);
    std::vector<CUgraphNode> now(count);
    CONCERT_RETURN_IF_DRIVER_ERROR(driver_, context_.gpu, cuGraphGetNodes, graph_, now.data(),
                                   &count);
    std::sort(now.begin(), now.end());
    if (member.has_value()) {
      std::set_difference(now.begin(), now.end(), known_.begin(), known_.end(),
                          std::back_inserter(nodes_[*member]));
    }
    known_ = std::move(now);
    return absl::OkStatus();
  }

  LaunchContext& context_;
  const Driver& driver_;
  const Pass& pass_;
  const CUgraph graph_;
  std::array<std::vector<CUgraphNode>, kMaxPassMembers>& nodes_;
  NodeLauncher launcher_;
  const CUstream main_;
  const CUdeviceptr workspace_;
  const size_t workspace_bytes_;
  Branches branches_;
  uint32_t open_ = 0;  // branches since the last op for all: bit i: member i's
  std::vector<CUgraphNode> known_;
};

}  // namespace

uint64_t PassGraph::WorkspaceBytes(const LaunchContext& context, const Pass& pass) {
  const std::vector<GraphNode> nodes = NodesOn(context, pass.program, pass.owners);
  return LaunchBytesOf(nodes, pass.owners, pass.member_count) + HandoversOf(nodes).bytes() +
         kThereBytes;
}

absl::StatusOr<std::unique_ptr<PassGraph>> PassGraph::Capture(LaunchContext& context,
                                                              const Pass& pass) {
  const Driver& driver = context.api.driver;
  if (context.workspace_bytes != WorkspaceBytes(context, pass))
    return absl::InternalError("its workspace was measured for another pass");
  std::unique_ptr<PassGraph> made(new PassGraph(driver, context.gpu));
  made->enabled_ = (1u << pass.member_count) - 1;
  context.workspace_bytes -= kThereBytes;
  made->there_ = context.workspace + context.workspace_bytes;
  CONCERT_RETURN_IF_DRIVER_ERROR(driver, context.gpu, cuGraphCreate, &made->graph_, 0);
  // Relaxed: what other threads do meanwhile is no part of it and stays allowed.
  CONCERT_RETURN_IF_DRIVER_ERROR(driver, context.gpu, cuStreamBeginCaptureToGraph, context.stream,
                                 made->graph_, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED);
  const CUstream stream = context.stream;
  absl::Status status;
  CUgraph graph = nullptr;
  CUresult ended = CUDA_SUCCESS;
  {
    Capturer capturer(context, pass, made->there_, made->graph_, made->nodes_);
    status = capturer.Run(made->in_, made->out_);
    ended = driver.cuStreamEndCapture(stream, &graph);
  }
  if (!status.ok()) return status;
  if (ended != CUDA_SUCCESS) return driver.ToStatus(ended, "cuStreamEndCapture", context.gpu);
  CONCERT_RETURN_IF_DRIVER_ERROR(driver, context.gpu, cuGraphInstantiateWithFlags,
                                 &made->executable_, made->graph_, 0);
  return made;
}

PassGraph::~PassGraph() {
  if (executable_ != nullptr) driver_.cuGraphExecDestroy(executable_);
  if (graph_ != nullptr) driver_.cuGraphDestroy(graph_);
}

absl::Status PassGraph::Enable(uint32_t members) {
  for (uint32_t changed = members ^ enabled_; changed != 0; changed &= changed - 1) {
    const auto member = static_cast<size_t>(std::countr_zero(changed));
    for (const CUgraphNode node : nodes_[member]) {
      CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuGraphNodeSetEnabled, executable_, node,
                                     members >> member & 1);
    }
    enabled_ ^= 1u << member;
  }
  return absl::OkStatus();
}

absl::Status PassGraph::Launch(const LaunchContext& context, std::span<const Op* const> runs) {
  uint32_t members = 0;
  BindingCopies in(Way::kIn), out(Way::kOut);
  for (const Op* run : runs) {
    members |= 1u << run->program.member;
    in.Add(run->program);
    out.Add(run->program);
  }
  if (absl::Status status = Enable(members); !status.ok()) return status;
  in.Note(members, there_);
  if (absl::Status status = in.Set(context, executable_, in_); !status.ok()) return status;
  if (absl::Status status = out.Set(context, executable_, out_); !status.ok()) return status;
  CONCERT_RETURN_IF_DRIVER_ERROR(driver_, gpu_, cuGraphLaunch, executable_, context.stream);
  return absl::OkStatus();
}

}  // namespace concert::kernels::cuda
