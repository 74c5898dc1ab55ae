// concert.v1.TuningService over a TuningControl. Runs are followed with gRPC's synchronous API, one
// of its threads each: there is at most one run at a time.
//
// Only admin_server.cc includes this file (gRPC headers are slow to compile).
#ifndef CONCERT_DAEMON_ADMIN_TUNING_SERVICE_H_
#define CONCERT_DAEMON_ADMIN_TUNING_SERVICE_H_

#include <functional>

#include "daemon/tuning/tuning_control.h"
#include "proto/concert/v1/tuning.grpc.pb.h"

namespace concert::daemon::admin {

class TuningService final : public v1::TuningService::Service {
 public:
  // `control` must outlive the service.
  explicit TuningService(TuningControl& control) : control_(control) {}

  using Context = grpc::ServerContext;
  grpc::Status RunTuning(Context*, const v1::RunTuningRequest*,
                         grpc::ServerWriter<v1::RunTuningResponse>*) override;
  grpc::Status VerifyTuning(Context*, const v1::VerifyTuningRequest*,
                            grpc::ServerWriter<v1::VerifyTuningResponse>*) override;
  grpc::Status GetTuningStatus(Context*, const v1::GetTuningStatusRequest*,
                               v1::GetTuningStatusResponse*) override;
  grpc::Status ListTunedRows(Context*, const v1::ListTunedRowsRequest*,
                             v1::ListTunedRowsResponse*) override;
  grpc::Status ImportTunedRows(Context*, const v1::ImportTunedRowsRequest*,
                               v1::ImportTunedRowsResponse*) override;
  grpc::Status ListTransportCurves(Context*, const v1::ListTransportCurvesRequest*,
                                   v1::ListTransportCurvesResponse*) override;
  grpc::Status ImportTransportCurves(Context*, const v1::ImportTransportCurvesRequest*,
                                     v1::ImportTransportCurvesResponse*) override;

 private:
  // Starts a job and calls `report` with every change until the job has ended, the client has gone
  // or `report` returns false.
  grpc::Status Follow(Context* context, const TuningRequest& request,
                      const std::function<bool(const TuningJob&)>& report);

  TuningControl& control_;
};

}  // namespace concert::daemon::admin

#endif  // CONCERT_DAEMON_ADMIN_TUNING_SERVICE_H_
