// From measured times to a transport's curve. Pure.
#ifndef CONCERT_DAEMON_TUNING_CURVE_FIT_H_
#define CONCERT_DAEMON_TUNING_CURVE_FIT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "policies/seam/transport.h"
#include "policies/seam/work.h"

namespace concert::daemon {

// One collective and what it took, alone.
struct CurvePoint {
  policies::Work work;
  uint64_t block_bytes = 0;  // as TransportUs
  policies::TransportChoice choice;
  double us = 0;
};

// The same beside GEMMs on all other SMs.
struct BesidePoint {
  CurvePoint alone;
  double us = 0;          // the collective
  double gemm_times = 1;  // how many times as long as alone on all SMs the GEMMs took meanwhile
};

// The upper one of an even number. REQUIRES: there is one.
double Median(std::vector<double> values);

struct CurveFit {
  policies::TransportCurve curve;
  double error = 0;  // StoredCurve::fit_error
};

// The curve by which TransportUs comes closest to the points, which are of one transport and number
// of ranks: least squares of the logarithms, parameter by parameter in ever smaller steps. `start`:
// where it begins; what the points say nothing of, and what the form of the curve is (which
// parameters are 0), stays. REQUIRES: at least one point.
CurveFit FitCurve(const policies::DeviceModel& device, const policies::TransportCurve& start,
                  std::span<const CurvePoint> points);

// Fills in what the curve says of GEMMs beside it. No points: it stays as it is.
void FitBeside(const policies::DeviceModel& device, std::span<const BesidePoint> points,
               policies::TransportCurve& curve);

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TUNING_CURVE_FIT_H_
