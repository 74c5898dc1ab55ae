#include "daemon/admin/tuning_service.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/admin/caller.h"
#include "daemon/admin/to_grpc.h"
#include "daemon/admin/tuning_to_proto.h"

namespace concert::daemon::admin {
namespace {

constexpr int kMaxProblems = 4096;
constexpr uint32_t kMaxRowsPerCall = 1000;
constexpr uint32_t kMaxVerifiedRows = 10'000;
constexpr uint32_t kDefaultVerifiedRows = 16;
constexpr double kMaxBudgetSeconds = 86'400;
// How long a client that has gone may go unnoticed.
constexpr std::chrono::milliseconds kReportPeriod{250};

grpc::Status Refuse(const std::string& sentence) {
  return {grpc::StatusCode::INVALID_ARGUMENT, sentence};
}

grpc::Status CheckBudget(double seconds) {
  if (seconds >= 0 && seconds <= kMaxBudgetSeconds) return grpc::Status::OK;
  return Refuse(
      absl::StrCat("budget_seconds is ", seconds, "; it must be 0 to ", kMaxBudgetSeconds));
}

}  // namespace

grpc::Status TuningService::Follow(Context* context, const TuningRequest& request,
                                   const std::function<bool(const TuningJob&)>& report) {
  const absl::StatusOr<uint64_t> id = control_.StartJob(request);
  if (!id.ok()) return ToGrpc(id.status());
  uint64_t version = 0;
  for (;;) {
    const TuningJob job = control_.WaitForChange(*id, version, kReportPeriod);
    if (job.id != *id) return {grpc::StatusCode::ABORTED, "another run has begun"};
    version = job.version;
    if (!report(job) || context->IsCancelled()) {
      control_.CancelJob(*id);
      return {grpc::StatusCode::CANCELLED, "the client went away"};
    }
    if (!job.running) return ToGrpc(job.result);
  }
}

grpc::Status TuningService::RunTuning(Context* context, const v1::RunTuningRequest* request,
                                      grpc::ServerWriter<v1::RunTuningResponse>* writer) {
  if (grpc::Status status = CheckBudget(request->budget_seconds()); !status.ok()) return status;
  if (request->problems_size() > kMaxProblems) {
    return Refuse(absl::StrCat("there are ", request->problems_size(), " problems; send at most ",
                               kMaxProblems));
  }
  TuningRequest job_request{.gpu = static_cast<int>(std::min(request->gpu(), 1u << 16)),
                            .collectives = request->collectives(),
                            .budget_s = request->budget_seconds(),
                            .force = request->force(),
                            .wait = request->wait()};
  if (request->collectives() && request->problems_size() > 0)
    return Refuse("collectives are measured by themselves; send no problems with them");
  uint32_t left_out = 0;
  for (const v1::TuningProblem& problem : request->problems()) {
    const absl::StatusOr<TuningItem> item = ToItem(problem);
    if (item.ok()) {
      job_request.items.push_back(*item);
    } else if (absl::IsUnimplemented(item.status())) {
      ++left_out;
      if (left_out == static_cast<uint32_t>(request->problems_size())) return ToGrpc(item.status());
    } else {
      return ToGrpc(item.status());
    }
  }
  LogCall(*context, job_request.collectives ? std::string("tuning of collectives")
                                            : absl::StrCat("tuning of ", job_request.items.size(),
                                                           " problems on GPU ", job_request.gpu));
  return Follow(context, job_request, [&](const TuningJob& job) {
    v1::RunTuningResponse response;
    FillProgress(job, response.mutable_progress());
    response.set_finished(!job.running);
    response.set_out_of_time(job.out_of_time);
    response.set_left_out_problem_count(left_out);
    return writer->Write(response);
  });
}

grpc::Status TuningService::VerifyTuning(Context* context, const v1::VerifyTuningRequest* request,
                                         grpc::ServerWriter<v1::VerifyTuningResponse>* writer) {
  if (grpc::Status status = CheckBudget(request->budget_seconds()); !status.ok()) return status;
  if (request->max_row_count() > kMaxVerifiedRows) {
    return Refuse(absl::StrCat("max_row_count is ", request->max_row_count(),
                               "; it must be at most ", kMaxVerifiedRows));
  }
  const uint32_t rows =
      request->max_row_count() == 0 ? kDefaultVerifiedRows : request->max_row_count();
  LogCall(*context, absl::StrCat("a check of ", rows, " tuned rows on GPU ", request->gpu()));
  size_t sent = 0;
  return Follow(context,
                {.gpu = static_cast<int>(std::min(request->gpu(), 1u << 16)),
                 .verify_rows = static_cast<int>(rows),
                 .budget_s = request->budget_seconds(),
                 .wait = request->wait()},
                [&](const TuningJob& job) {
                  for (; sent < job.verified.size(); ++sent) {
                    const VerifiedRow& row = job.verified[sent];
                    v1::VerifyTuningResponse response;
                    FillRow({.tuned = row.row, .stale = row.drifted}, response.mutable_row());
                    response.set_median_us(row.median_us);
                    response.set_spread_us(row.spread_us);
                    response.set_drifted(row.drifted);
                    if (!writer->Write(response)) return false;
                  }
                  return true;
                });
}

grpc::Status TuningService::GetTuningStatus(Context*, const v1::GetTuningStatusRequest*,
                                            v1::GetTuningStatusResponse* response) {
  const TuningSummary summary = control_.Summary();
  response->set_store_path(summary.store_path);
  response->set_persistent(summary.persistent);
  response->set_warning(summary.warning);
  for (const TuningSummary::Gpu& gpu : summary.gpus) {
    v1::TuningEnvironment* environment = response->add_environments();
    environment->set_gpu(static_cast<uint32_t>(gpu.gpu));
    environment->set_environment(gpu.environment.name);
    environment->set_description(gpu.environment.description);
    environment->set_row_count(gpu.rows);
    environment->set_stale_row_count(gpu.stale_rows);
  }
  response->set_hit_count(summary.hits);
  response->set_miss_count(summary.misses);
  response->set_stale_hit_count(summary.stale_hits);
  response->set_invalid_row_count(summary.invalid_rows);
  response->set_running(summary.job.running);
  response->set_running_gpu(static_cast<uint32_t>(summary.job.gpu));
  response->set_running_idle(summary.job.idle);
  response->set_running_collectives(summary.job.collectives);
  response->set_collectives_description(summary.collectives.description);
  response->set_curve_count(summary.curves);
  FillProgress(summary.job, response->mutable_progress());
  if (!summary.job.running) response->set_last_error(std::string(summary.job.result.message()));
  return grpc::Status::OK;
}

grpc::Status TuningService::ListTunedRows(Context*, const v1::ListTunedRowsRequest* request,
                                          v1::ListTunedRowsResponse* response) {
  const uint32_t page = request->page_size() == 0 ? kMaxRowsPerCall : request->page_size();
  if (page > kMaxRowsPerCall)
    return Refuse(absl::StrCat("page_size is ", page, "; it must be at most ", kMaxRowsPerCall));
  size_t first = 0;
  const std::string& token = request->page_token();
  const auto parsed = std::from_chars(token.data(), token.data() + token.size(), first);
  if (!token.empty() && (parsed.ec != std::errc() || parsed.ptr != token.data() + token.size()))
    return Refuse("page_token is not one that this service has given");
  const auto rows = control_.Rows(static_cast<int>(std::min(request->gpu(), 1u << 16)));
  if (!rows.ok()) return ToGrpc(rows.status());
  first = std::min(first, rows->size());
  const size_t end = std::min(first + page, rows->size());
  for (size_t i = first; i < end; ++i) FillRow((*rows)[i], response->add_rows());
  if (end < rows->size()) response->set_next_page_token(std::to_string(end));
  return grpc::Status::OK;
}

grpc::Status TuningService::ImportTunedRows(Context* context,
                                            const v1::ImportTunedRowsRequest* request,
                                            v1::ImportTunedRowsResponse* response) {
  if (request->rows_size() > static_cast<int>(kMaxRowsPerCall)) {
    return Refuse(absl::StrCat("there are ", request->rows_size(), " rows; send at most ",
                               kMaxRowsPerCall, " at a time"));
  }
  ImportResult refused;
  std::vector<StoredRow> rows;
  for (const v1::TunedRow& message : request->rows()) {
    absl::StatusOr<StoredRow> row = ToRow(message);
    if (row.ok()) {
      rows.push_back(*std::move(row));
    } else if (refused.refused++ == 0) {
      refused.first_refusal = std::string(row.status().message());
    }
  }
  const auto result = control_.Import(static_cast<int>(std::min(request->gpu(), 1u << 16)), rows);
  if (!result.ok()) return ToGrpc(result.status());
  LogCall(*context, absl::StrCat("an import of ", request->rows_size(), " tuned rows for GPU ",
                                 request->gpu(), ": ", result->imported, " taken, ", result->kept,
                                 " as before, ", result->refused + refused.refused, " refused"));
  response->set_imported_row_count(result->imported);
  response->set_kept_row_count(result->kept);
  response->set_refused_row_count(result->refused + refused.refused);
  response->set_first_refusal(refused.refused > 0 ? refused.first_refusal : result->first_refusal);
  return grpc::Status::OK;
}

grpc::Status TuningService::ListTransportCurves(Context*, const v1::ListTransportCurvesRequest*,
                                                v1::ListTransportCurvesResponse* response) {
  for (const StoredCurve& stored : control_.Curves()) FillCurve(stored, response->add_curves());
  return grpc::Status::OK;
}

grpc::Status TuningService::ImportTransportCurves(Context* context,
                                                  const v1::ImportTransportCurvesRequest* request,
                                                  v1::ImportTransportCurvesResponse* response) {
  if (request->curves_size() > static_cast<int>(kMaxRowsPerCall)) {
    return Refuse(absl::StrCat("there are ", request->curves_size(), " curves; send at most ",
                               kMaxRowsPerCall, " at a time"));
  }
  ImportResult refused;
  std::vector<StoredCurve> curves;
  for (const v1::TransportCurve& message : request->curves()) {
    const absl::StatusOr<StoredCurve> curve = ToCurve(message);
    if (curve.ok()) {
      curves.push_back(*curve);
    } else if (refused.refused++ == 0) {
      refused.first_refusal = std::string(curve.status().message());
    }
  }
  const auto result = control_.ImportCurves(curves);
  if (!result.ok()) return ToGrpc(result.status());
  LogCall(*context, absl::StrCat("an import of ", request->curves_size(), " transports' curves: ",
                                 result->imported, " taken, ", result->kept, " as before, ",
                                 result->refused + refused.refused, " refused"));
  response->set_imported_curve_count(result->imported);
  response->set_kept_curve_count(result->kept);
  response->set_refused_curve_count(result->refused + refused.refused);
  response->set_first_refusal(refused.refused > 0 ? refused.first_refusal : result->first_refusal);
  return grpc::Status::OK;
}

}  // namespace concert::daemon::admin
