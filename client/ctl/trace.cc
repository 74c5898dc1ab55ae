#include "client/ctl/trace.h"

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "client/ctl/output_file.h"
#include "client/ctl/trace_file.h"
#include "client/ctl/trace_page.h"

namespace concert::ctl {
namespace {

// Names of the sessions that are connected: of those that connect while the trace lasts, of which
// empty messages come, or that `message` is the first to have ops of.
void AddNames(Connection& connection, const v1::TraceResponse& message, Recording& recording) {
  bool known = message.ops_size() + message.plans_size() > 0;
  for (const v1::TracedOp& op : message.ops())
    known &= !recording.client_names.try_emplace(op.session_id()).second;
  if (known) return;
  v1::ListSessionsResponse response;
  // Without an answer they have no names.
  if (!connection.Call(&Connection::Stub::ListSessions, {}, &response).ok()) return;
  for (const v1::Session& session : response.sessions())
    recording.client_names[session.session_id()] = session.client_name();
}

void AddGpuNames(Connection& connection, Recording& recording) {
  v1::ListDevicesResponse response;
  if (!connection.Call(&Connection::Stub::ListDevices, {}, &response).ok()) return;
  for (const v1::Device& device : response.devices())
    recording.gpu_names[device.gpu()] = device.name();
}

// All of it comes at the end.
constexpr std::chrono::seconds kSending{20};

grpc::Status Record(Connection& connection, uint32_t seconds, Recording& recording) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + connection.timeout() +
                       std::chrono::seconds(seconds) + kSending);
  v1::TraceRequest request;
  request.set_seconds(seconds);
  const auto reader = connection.stub().Trace(&context, request);
  v1::TraceResponse message;
  bool full = false;
  while (reader->Read(&message)) {
    if (full) continue;  // what was on its way
    recording.simulated = message.simulated();
    recording.lost_count = message.lost_count();
    AddNames(connection, message, recording);
    for (v1::TracedOp& op : *message.mutable_ops()) recording.ops.push_back(std::move(op));
    for (v1::Plan& plan : *message.mutable_plans()) recording.plans.push_back(std::move(plan));
    full = recording.ops.size() >= TraceOptions::kMaxOps;
    if (full) context.TryCancel();
  }
  const grpc::Status status = reader->Finish();
  return full ? grpc::Status::OK : status;
}

grpc::Status Refuse(const std::string& sentence) {
  return {grpc::StatusCode::FAILED_PRECONDITION, sentence};
}

std::string FileName(const TraceOptions& options) {
  if (!options.file.empty()) return options.file;
  if (!options.page) return "concert.pftrace";
  if (options.recorded.empty()) return "concert.html";
  return std::filesystem::path(options.recorded).replace_extension(".html").string();
}

// Of what an OutputFile says.
grpc::Status Written(const std::string& failure) {
  return failure.empty() ? grpc::Status::OK : Refuse(failure + "; name another with --out");
}

// `recording`: null if there was a file already.
void Print(const TraceOptions& options, const std::string& name, size_t op_count,
           const Recording* recording, std::ostream& out) {
  if (options.json) {
    nlohmann::ordered_json summary = {{"file", name}, {"op_count", op_count}};
    if (recording != nullptr) {
      summary["plan_count"] = recording->plans.size();
      summary["lost_count"] = recording->lost_count;
      summary["simulated"] = recording->simulated;
    }
    out << summary.dump(2) << "\n";
    return;
  }
  out << name << ": " << op_count << " ops";
  if (recording != nullptr) {
    out << ", " << recording->plans.size() << " plans";
    if (recording->lost_count > 0) out << ", " << recording->lost_count << " lost";
    if (recording->ops.size() >= TraceOptions::kMaxOps) out << ", full";
    if (recording->simulated) out << ", SIMULATED";
  }
  out << "; open it in " << (options.page ? "a browser" : "ui.perfetto.dev") << "\n";
}

// `of`: what the page was made of.
grpc::Status WritePage(const TracePage& page, const std::string& of, std::ostream& out) {
  if (!page.error().empty()) return Refuse(of + " cannot be a page: " + page.error());
  page.Write(out);
  return grpc::Status::OK;
}

grpc::Status Convert(const TraceOptions& options, std::ostream& out) {
  OutputFile file(FileName(options));
  if (file.name() == options.recorded)
    return Refuse(file.name() + " is what the page is made of; name another with --out");
  TracePage page;
  const std::string error =
      ReadTrace(options.recorded, [&](const perfetto::TracePacket& packet) { page.Add(packet); });
  if (!error.empty()) return Refuse(error);
  if (const grpc::Status status = Written(file.Open()); !status.ok()) return status;
  if (const auto status = WritePage(page, options.recorded, file.stream()); !status.ok())
    return status;
  if (const grpc::Status status = Written(file.Close()); !status.ok()) return status;
  Print(options, file.name(), page.op_count(), nullptr, out);
  return grpc::Status::OK;
}

}  // namespace

grpc::Status Trace(Connection& connection, const TraceOptions& options, std::ostream& out) {
  if (!options.recorded.empty()) return Convert(options, out);
  OutputFile file(FileName(options));
  // Before the time is spent.
  if (const grpc::Status status = Written(file.Open()); !status.ok()) return status;
  Recording recording;
  if (const auto status = Record(connection, options.seconds, recording); !status.ok())
    return status;
  AddGpuNames(connection, recording);
  if (options.page) {
    TracePage page;
    MakeTrace(recording, [&](const perfetto::TracePacket& packet) { page.Add(packet); });
    if (const auto status = WritePage(page, "the trace", file.stream()); !status.ok())
      return status;
  } else {
    WriteTrace(recording, file.stream());
  }
  if (const grpc::Status status = Written(file.Close()); !status.ok()) return status;
  Print(options, file.name(), recording.ops.size(), &recording, out);
  return grpc::Status::OK;
}

}  // namespace concert::ctl
