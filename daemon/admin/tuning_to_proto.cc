#include "daemon/admin/tuning_to_proto.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "daemon/check.h"
#include "policies/seam/policy.h"

namespace concert::daemon::admin {
namespace {

using policies::Variant;

// The messages name their fields as VariantFields and CurveFields do.
const google::protobuf::FieldDescriptor* FieldOf(const VariantField& field) {
  const auto* found = v1::Variant::descriptor()->FindFieldByName(std::string(field.name));
  CONCERT_CHECK(found != nullptr);
  return found;
}

const google::protobuf::FieldDescriptor* FieldOf(const CurveField& field) {
  const auto* found = v1::TransportCurve::descriptor()->FindFieldByName(std::string(field.name));
  CONCERT_CHECK(found != nullptr);
  return found;
}

void FillVariant(const Variant& variant, v1::Variant* out) {
  out->set_source(std::string(SourceName(variant.source)));
  out->set_dtype(DtypeName(variant.dtype));
  for (const VariantField& field : VariantFields()) {
    out->GetReflection()->SetUInt32(out, FieldOf(field), field.get(variant));
  }
}

absl::Status Unknown(const char* field, const std::string& value, const char* allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is '", value.substr(0, 64), "'; it must be ", allowed));
}

absl::StatusOr<policies::Dtype> ToDtype(const std::string& name) {
  const auto dtype = ParseDtype(name);
  if (!dtype) return Unknown("dtype", name, "one that concert has, as bf16");
  return *dtype;
}

absl::StatusOr<Variant> ToVariant(const v1::Variant& message) {
  const auto source = ParseSource(message.source());
  if (!source) return Unknown("source", message.source(), "cublaslt or group");
  const auto dtype = ToDtype(message.dtype());
  if (!dtype.ok()) return dtype.status();
  Variant variant{.source = *source, .dtype = *dtype};
  for (const VariantField& field : VariantFields()) {
    const uint32_t value = message.GetReflection()->GetUInt32(message, FieldOf(field));
    if (value > field.max) {
      return absl::InvalidArgumentError(absl::StrCat("the variant's ", std::string(field.name),
                                                     " is ", value, "; it must be at most ",
                                                     field.max));
    }
    field.set(variant, value);
  }
  return variant;
}

// A double that a float cannot hold becomes infinite, which the store refuses.
float ToFloat(double value) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return value >= -kLargest && value <= kLargest ? static_cast<float>(value)
                                                 : std::numeric_limits<float>::infinity();
}

}  // namespace

void FillRow(const StoredRow& row, v1::TunedRow* out) {
  const policies::TunedKey& key = row.tuned.key;
  out->set_m(key.problem.m);
  out->set_n(key.problem.n);
  out->set_k(key.problem.k);
  out->set_batch(key.problem.batch);
  out->set_dtype(DtypeName(key.problem.dtype));
  out->set_sm_budget(key.sm_budget);
  out->set_degree(std::string(DegreeName(key.degree)));
  out->set_form(std::string(policies::FormName(key.form)));
  out->set_median_us(row.tuned.median_us);
  out->set_spread_us(row.tuned.spread_us);
  out->set_samples(row.tuned.samples);
  FillVariant(row.tuned.variant, out->mutable_variant());
  FillVariant(row.runner_up, out->mutable_runner_up());
  out->set_runner_up_us(row.runner_up_us);
  out->set_measured_at_s(static_cast<uint32_t>(row.measured_at_s));
  out->set_stale(row.stale);
}

absl::StatusOr<StoredRow> ToRow(const v1::TunedRow& message) {
  const auto dtype = ToDtype(message.dtype());
  if (!dtype.ok()) return dtype.status();
  const auto degree = ParseDegree(message.degree());
  if (!degree) return Unknown("degree", message.degree(), "solo, two, four, eight or many");
  const auto form = ParseForm(message.form());
  if (!form) return Unknown("form", message.form(), "single, streams or group");
  if (message.sm_budget() > UINT16_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("sm_budget is ", message.sm_budget(), ", more than any GPU has"));
  }
  const auto variant = ToVariant(message.variant());
  if (!variant.ok()) return variant.status();
  StoredRow row;
  row.tuned = {.key = {.problem = {.m = message.m(),
                                   .n = message.n(),
                                   .k = message.k(),
                                   .batch = message.batch() == 0 ? 1 : message.batch(),
                                   .dtype = *dtype},
                       .sm_budget = static_cast<uint16_t>(message.sm_budget()),
                       .degree = *degree,
                       .form = *form},
               .variant = *variant,
               .median_us = ToFloat(message.median_us()),
               .spread_us = ToFloat(message.spread_us()),
               .samples = message.samples()};
  if (message.has_runner_up()) {
    const auto runner_up = ToVariant(message.runner_up());
    if (!runner_up.ok()) return runner_up.status();
    row.runner_up = *runner_up;
  }
  row.runner_up_us = ToFloat(message.runner_up_us());
  row.measured_at_s = message.measured_at_s();
  row.stale = message.stale();
  return row;
}

void FillCurve(const StoredCurve& stored, v1::TransportCurve* out) {
  out->set_transport(std::string(policies::kTransportNames[static_cast<size_t>(stored.transport)]));
  out->set_ranks(static_cast<uint32_t>(stored.ranks));
  for (const CurveField& field : CurveFields()) {
    out->GetReflection()->SetDouble(out, FieldOf(field), field.get(stored.curve));
  }
  out->set_fit_error(stored.fit_error);
  out->set_measured_at_s(static_cast<uint32_t>(stored.measured_at_s));
}

absl::StatusOr<StoredCurve> ToCurve(const v1::TransportCurve& message) {
  const auto transport = policies::FindTransport(message.transport());
  if (!transport) return Unknown("transport", message.transport(), "nccl, p2p, ce or hybrid");
  StoredCurve stored{.transport = *transport,
                     .ranks = static_cast<int>(std::min(message.ranks(), 1u << 16)),
                     .fit_error = message.fit_error(),
                     .measured_at_s = message.measured_at_s()};
  for (const CurveField& field : CurveFields()) {
    const double value = message.GetReflection()->GetDouble(message, FieldOf(field));
    if (!(value >= field.low && value <= field.high)) {
      return absl::InvalidArgumentError(absl::StrCat(
          std::string(field.name), " is ", value, "; it must be ", field.low, " to ", field.high));
    }
    field.set(stored.curve, value);
  }
  if (absl::Status status = CheckCurve(stored); !status.ok()) return status;
  return stored;
}

absl::StatusOr<TuningItem> ToItem(const v1::TuningProblem& message) {
  const auto dtype = ToDtype(message.dtype().empty() ? "bf16" : message.dtype());
  if (!dtype.ok()) return absl::UnimplementedError(dtype.status().message());
  TuningItem item{.problem = {.m = message.m(),
                              .n = message.n(),
                              .k = message.k(),
                              .batch = message.batch() == 0 ? 1 : message.batch(),
                              .dtype = *dtype},
                  .count = message.count() == 0 ? 1 : message.count()};
  // What a row of it would have to be.
  const absl::Status status =
      CheckRow({.tuned = {.key = {.problem = item.problem},
                          .variant = {.source = Variant::Source::kCublasLt, .dtype = *dtype},
                          .median_us = 1,
                          .samples = 1}});
  if (!status.ok()) return status;
  return item;
}

void FillProgress(const TuningJob& job, v1::TuningProgress* out) {
  out->set_total_row_count(job.progress.total_rows);
  out->set_skipped_row_count(job.progress.skipped_rows);
  out->set_written_row_count(job.progress.written_rows);
  out->set_kept_row_count(job.progress.kept_rows);
  out->set_failed_row_count(job.progress.failed_rows);
  out->set_elapsed_seconds(job.elapsed_s);
  out->set_current(job.progress.current);
}

}  // namespace concert::daemon::admin
