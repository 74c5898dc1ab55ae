#include "client/ctl/trace.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "client/ctl/trace_file.h"

namespace concert::ctl {
namespace {

// Names of sessions that `message` is the first to have ops of, while they are connected.
void AddNames(Connection& connection, const v1::TraceResponse& message, Recording& recording) {
  bool known = true;
  for (const v1::TracedOp& op : message.ops())
    known &= !recording.client_names.try_emplace(op.session_id()).second;
  if (known) return;
  v1::ListSessionsResponse response;
  // Without an answer they have no names.
  if (!connection.Call(&Connection::Stub::ListSessions, {}, &response).ok()) return;
  for (const v1::Session& session : response.sessions())
    recording.client_names[session.session_id()] = session.client_name();
}

grpc::Status Record(Connection& connection, uint32_t seconds, Recording& recording) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + connection.timeout() +
                       std::chrono::seconds(seconds));
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

grpc::Status CannotWrite(const std::string& file) {
  return {grpc::StatusCode::FAILED_PRECONDITION,
          "cannot write " + file + ": " + std::strerror(errno) + "; name another with --out"};
}

}  // namespace

grpc::Status Trace(Connection& connection, const TraceOptions& options, std::ostream& out) {
  std::ofstream file(options.file, std::ios::binary);  // before the time is spent
  if (!file) return CannotWrite(options.file);
  Recording recording;
  const grpc::Status status = Record(connection, options.seconds, recording);
  if (!status.ok()) return status;
  WriteTrace(recording, file);
  file.close();
  if (!file) return CannotWrite(options.file);
  if (options.json) {
    const nlohmann::ordered_json summary = {{"file", options.file},
                                            {"op_count", recording.ops.size()},
                                            {"plan_count", recording.plans.size()},
                                            {"lost_count", recording.lost_count},
                                            {"simulated", recording.simulated}};
    out << summary.dump(2) << "\n";
    return status;
  }
  out << options.file << ": " << recording.ops.size() << " ops, " << recording.plans.size()
      << " plans";
  if (recording.lost_count > 0) out << ", " << recording.lost_count << " lost";
  if (recording.ops.size() >= TraceOptions::kMaxOps) out << ", full";
  out << (recording.simulated ? ", SIMULATED" : "") << "; open it in ui.perfetto.dev\n";
  return status;
}

}  // namespace concert::ctl
