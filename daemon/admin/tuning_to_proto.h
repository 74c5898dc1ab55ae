// Tuned rows as messages of the tuning API, and back.
#ifndef CONCERT_DAEMON_ADMIN_TUNING_TO_PROTO_H_
#define CONCERT_DAEMON_ADMIN_TUNING_TO_PROTO_H_

#include "absl/status/statusor.h"
#include "daemon/tuning/tuning_control.h"
#include "proto/concert/v1/tuning.pb.h"

namespace concert::daemon::admin {

void FillRow(const StoredRow& row, v1::TunedRow* out);
// INVALID_ARGUMENT for names and numbers that do not fit a row; the store checks what they mean.
absl::StatusOr<StoredRow> ToRow(const v1::TunedRow& row);
// UNIMPLEMENTED: of a dtype that there is not.
absl::StatusOr<TuningItem> ToItem(const v1::TuningProblem& problem);
void FillProgress(const TuningJob& job, v1::TuningProgress* out);

void FillCurve(const StoredCurve& stored, v1::TransportCurve* out);
// INVALID_ARGUMENT for a name that is none of ours or a number out of its bounds.
absl::StatusOr<StoredCurve> ToCurve(const v1::TransportCurve& message);

}  // namespace concert::daemon::admin

#endif  // CONCERT_DAEMON_ADMIN_TUNING_TO_PROTO_H_
