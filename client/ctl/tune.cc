#include "client/ctl/tune.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>

#include "client/ctl/connection.h"
#include "client/ctl/json.h"
#include "client/ctl/output_file.h"
#include "client/ctl/table.h"
#include "client/ctl/tune_files.h"
#include "proto/concert/v1/tuning.grpc.pb.h"

namespace concert::ctl {
namespace {

using Stub = v1::TuningService::Stub;

constexpr int kRowsPerCall = 1000;

std::unique_ptr<Stub> Connect(const TuneOptions& options) {
  return v1::TuningService::NewStub(ConnectTo(options.socket));
}

void SetDeadline(const TuneOptions& options, grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + options.timeout);
}

// The caller's fault, said like an answer of the daemon.
grpc::Status Wrong(const std::string& sentence) {
  return {grpc::StatusCode::INVALID_ARGUMENT, sentence};
}

FileContents<v1::TuningProblem> ReadProblems(const TuneOptions& options) {
  if (!options.scenarios.empty()) return ReadScenarios(options.scenarios);
  if (!options.shapes.empty()) return ReadShapes(options.shapes);
  return ReadShapeLines(options.trace);
}

std::string ProgressLine(const v1::TuningProgress& progress) {
  const uint32_t finished = progress.skipped_row_count() + progress.written_row_count() +
                            progress.kept_row_count() + progress.failed_row_count();
  std::string line = std::to_string(finished) + " of " +
                     std::to_string(progress.total_row_count()) + " rows, " +
                     Seconds(progress.elapsed_seconds());
  if (!progress.current().empty()) line += ": " + progress.current();
  return line;
}

std::string Conclusion(const v1::RunTuningResponse& last) {
  const v1::TuningProgress& progress = last.progress();
  std::string text = std::to_string(progress.written_row_count()) + " rows written, " +
                     std::to_string(progress.kept_row_count()) + " as before, " +
                     std::to_string(progress.skipped_row_count()) + " skipped, " +
                     std::to_string(progress.failed_row_count()) + " impossible; " +
                     Seconds(progress.elapsed_seconds());
  if (last.left_out_problem_count() > 0) {
    text += "; " + std::to_string(last.left_out_problem_count()) +
            " problems left out, whose dtype the daemon does not have";
  }
  if (last.out_of_time()) text += "; the budget is used up: run it again to go on";
  return text + "\n";
}

}  // namespace

grpc::Status TuneRun(const TuneOptions& options, std::ostream& out) {
  FileContents<v1::TuningProblem> problems;
  if (!options.collectives) problems = ReadProblems(options);
  if (!problems.error.empty()) return Wrong(problems.error);
  v1::RunTuningRequest request;
  request.set_collectives(options.collectives);
  request.set_gpu(options.gpu);
  request.set_budget_seconds(options.budget_s);
  request.set_force(options.force);
  request.set_wait(options.wait);
  for (const v1::TuningProblem& problem : problems.entries) *request.add_problems() = problem;

  const std::unique_ptr<Stub> stub = Connect(options);
  grpc::ClientContext context;  // no deadline: the run has a budget
  const auto reader = stub->RunTuning(&context, request);
  v1::RunTuningResponse response;
  std::string shown;
  while (reader->Read(&response)) {
    if (options.json) {
      out << ToJson(response).dump() << std::endl;
      continue;
    }
    const std::string line = ProgressLine(response.progress());
    if (response.finished() || line == shown) continue;
    shown = line;
    if (options.terminal) {
      out << "\r\x1b[K" << line << std::flush;
    } else {
      out << line << "\n" << std::flush;
    }
  }
  const grpc::Status status = reader->Finish();
  if (options.terminal && !options.json) out << "\r\x1b[K";
  if (status.ok() && !options.json) out << Conclusion(response);
  return status;
}

grpc::Status TuneStatus(const TuneOptions& options, std::ostream& out) {
  grpc::ClientContext context;
  SetDeadline(options, context);
  v1::GetTuningStatusResponse status;
  const grpc::Status result =
      Connect(options)->GetTuningStatus(&context, v1::GetTuningStatusRequest(), &status);
  if (!result.ok()) return result;
  if (options.json) {
    out << ToJson(status).dump(2) << "\n";
    return result;
  }
  out << "store   " << status.store_path() << (status.persistent() ? "" : " (in memory)") << "\n";
  if (!status.warning().empty()) out << "        " << status.warning() << "\n";
  for (const v1::TuningEnvironment& gpu : status.environments()) {
    out << "GPU " << gpu.gpu() << "   " << gpu.row_count() << " rows, " << gpu.stale_row_count()
        << " stale (" << gpu.description() << ")\n";
  }
  out << "between " << status.curve_count() << " curves (" << status.collectives_description()
      << ")\n";
  out << "lookups " << status.hit_count() << " found, " << status.miss_count() << " not, "
      << status.stale_hit_count() << " stale; " << status.invalid_row_count()
      << " invalid rows skipped\n";
  if (status.running()) {
    out << "running on "
        << (status.running_collectives() ? "all GPUs"
                                         : "GPU " + std::to_string(status.running_gpu()))
        << (status.running_idle() ? " (idle time)" : "") << ": " << ProgressLine(status.progress())
        << "\n";
  } else if (!status.last_error().empty()) {
    out << "the last run failed: " << status.last_error() << "\n";
  }
  return result;
}

grpc::Status TuneExport(const TuneOptions& options, std::ostream& out) {
  OutputFile file(options.file);
  if (const std::string failure = file.Open(); !failure.empty()) return Wrong(failure);
  const std::unique_ptr<Stub> stub = Connect(options);
  v1::ListTunedRowsRequest request;
  request.set_gpu(options.gpu);
  size_t count = 0;
  do {
    grpc::ClientContext context;
    SetDeadline(options, context);
    v1::ListTunedRowsResponse page;
    if (const grpc::Status status = stub->ListTunedRows(&context, request, &page); !status.ok())
      return status;
    for (const v1::TunedRow& row : page.rows()) WriteRow(row, file.stream());
    count += static_cast<size_t>(page.rows_size());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  grpc::ClientContext context;
  SetDeadline(options, context);
  v1::ListTransportCurvesResponse curves;
  if (const grpc::Status status =
          stub->ListTransportCurves(&context, v1::ListTransportCurvesRequest(), &curves);
      !status.ok())
    return status;
  for (const v1::TransportCurve& curve : curves.curves()) WriteCurve(curve, file.stream());
  if (const std::string failure = file.Close(); !failure.empty()) return Wrong(failure);
  if (options.json) {
    const nlohmann::ordered_json summary = {
        {"file", options.file}, {"row_count", count}, {"curve_count", curves.curves_size()}};
    out << summary.dump(2) << "\n";
    return grpc::Status::OK;
  }
  out << count << " rows and " << curves.curves_size() << " curves written to " << options.file
      << "\n";
  return grpc::Status::OK;
}

namespace {

grpc::Status ImportCurves(const TuneOptions& options, Stub& stub,
                          const std::vector<v1::TransportCurve>& curves,
                          v1::ImportTransportCurvesResponse& response) {
  if (curves.empty()) return grpc::Status::OK;
  v1::ImportTransportCurvesRequest request;
  for (const v1::TransportCurve& curve : curves) *request.add_curves() = curve;
  grpc::ClientContext context;
  SetDeadline(options, context);
  return stub.ImportTransportCurves(&context, request, &response);
}

}  // namespace

grpc::Status TuneImport(const TuneOptions& options, std::ostream& out) {
  const FileContents<v1::TunedRow> rows = ReadRows(options.file);
  const FileContents<v1::TransportCurve> curves = ReadCurves(options.file);
  for (const std::string& error : {rows.error, curves.error}) {
    if (!error.empty()) return Wrong(error);
  }
  const std::unique_ptr<Stub> stub = Connect(options);
  v1::ImportTransportCurvesResponse imported;
  if (const grpc::Status status = ImportCurves(options, *stub, curves.entries, imported);
      !status.ok())
    return status;
  v1::ImportTunedRowsResponse total;
  for (size_t first = 0; first < rows.entries.size(); first += kRowsPerCall) {
    v1::ImportTunedRowsRequest request;
    request.set_gpu(options.gpu);
    const size_t end = std::min<size_t>(first + kRowsPerCall, rows.entries.size());
    for (size_t i = first; i < end; ++i) *request.add_rows() = rows.entries[i];
    grpc::ClientContext context;
    SetDeadline(options, context);
    v1::ImportTunedRowsResponse response;
    if (const grpc::Status status = stub->ImportTunedRows(&context, request, &response);
        !status.ok())
      return status;
    total.set_imported_row_count(total.imported_row_count() + response.imported_row_count());
    total.set_kept_row_count(total.kept_row_count() + response.kept_row_count());
    total.set_refused_row_count(total.refused_row_count() + response.refused_row_count());
    if (total.first_refusal().empty()) total.set_first_refusal(response.first_refusal());
  }
  if (options.json) {
    nlohmann::ordered_json both = ToJson(total);
    both["curves"] = ToJson(imported);
    out << both.dump(2) << "\n";
    return grpc::Status::OK;
  }
  if (!curves.entries.empty()) {
    out << imported.imported_curve_count() << " curves imported, " << imported.kept_curve_count()
        << " as new already, " << imported.refused_curve_count() << " refused\n";
    if (!imported.first_refusal().empty())
      out << "the first refusal: " << imported.first_refusal() << "\n";
  }
  out << total.imported_row_count() << " rows imported, " << total.kept_row_count()
      << " as good already, " << total.refused_row_count() << " refused\n";
  if (!total.first_refusal().empty()) out << "the first refusal: " << total.first_refusal() << "\n";
  return grpc::Status::OK;
}

grpc::Status TuneVerify(const TuneOptions& options, std::ostream& out) {
  v1::VerifyTuningRequest request;
  request.set_gpu(options.gpu);
  request.set_max_row_count(options.rows);
  request.set_budget_seconds(options.budget_s);
  request.set_wait(options.wait);
  grpc::ClientContext context;
  const std::unique_ptr<Stub> stub = Connect(options);
  const auto reader = stub->VerifyTuning(&context, request);
  v1::VerifyTuningResponse row;
  size_t count = 0, drifted = 0;
  while (reader->Read(&row)) {
    ++count;
    drifted += row.drifted() ? 1 : 0;
    if (options.json) {
      out << ToJson(row).dump() << std::endl;
      continue;
    }
    char times[96];
    std::snprintf(times, sizeof(times), "%.2f us, was %.2f us (%+.1f %%)", row.median_us(),
                  row.row().median_us(), 100 * (row.median_us() / row.row().median_us() - 1));
    out << (row.drifted() ? "drifted  " : "ok       ") << DescribeKey(row.row()) << ": " << times
        << "\n"
        << std::flush;
  }
  const grpc::Status status = reader->Finish();
  if (!status.ok()) return status;
  if (!options.json) {
    out << count << " rows measured, " << drifted << " drifted"
        << (drifted > 0 ? " and are stale now; tune run measures them anew" : "") << "\n";
  }
  if (drifted > 0 && options.fail_on_drift)
    return {grpc::StatusCode::FAILED_PRECONDITION, std::to_string(drifted) + " rows have drifted"};
  return status;
}

grpc::Status TuneDiff(const TuneOptions& options, std::ostream& out) {
  const FileContents<v1::TunedRow> first = ReadRows(options.file);
  const FileContents<v1::TunedRow> second = ReadRows(options.other_file);
  for (const auto* contents : {&first, &second}) {
    if (!contents->error.empty()) return Wrong(contents->error);
  }
  const RowsDiff diff = DiffRows(first.entries, second.entries);
  if (options.json) {
    const nlohmann::ordered_json all = {{"same_row_count", diff.same},
                                        {"other_variant_row_count", diff.other_variant},
                                        {"other_time_row_count", diff.other_time},
                                        {"only_first_row_count", diff.only_first},
                                        {"only_second_row_count", diff.only_second},
                                        {"differences", diff.differences}};
    out << all.dump(2) << "\n";
    return grpc::Status::OK;
  }
  out << diff.text << diff.same << " rows alike, " << diff.other_variant
      << " with another variant, " << diff.other_time << " with another time, " << diff.only_first
      << " only in the first, " << diff.only_second << " only in the second\n";
  return grpc::Status::OK;
}

}  // namespace concert::ctl
