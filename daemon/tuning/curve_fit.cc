#include "daemon/tuning/curve_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "policies/cost/collective_cost.h"

namespace concert::daemon {
namespace {

using policies::DeviceModel;
using policies::TransportCurve;

// From factors of 2 to less than a thousandth.
constexpr double kFirstStep = 1, kLastStep = 1e-4;
constexpr int kMaxRounds = 2000;
// The links' rate is known to less than a factor of 2. Where blocks bound every point, nothing else
// says what share of it there is.
constexpr double kMostLinkShare = 2;

double ErrorOf(DeviceModel& device, const TransportCurve& curve,
               std::span<const CurvePoint> points) {
  double sum = 0;
  for (const CurvePoint& point : points) {
    device.transport_curves.Of(point.choice.transport, point.work.ranks) = curve;
    const double us = policies::TransportUs(device, point.work, point.block_bytes, point.choice);
    const double off = std::log(us / point.us);
    sum += off * off;
  }
  return sum;
}

struct Parameter {
  double* value;
  double most = std::numeric_limits<double>::infinity();
};

// What can be fitted: what the curve has and a point depends on.
std::vector<Parameter> ParametersOf(TransportCurve& curve, std::span<const CurvePoint> points) {
  std::vector<Parameter> parameters = {{&curve.floor_us}};
  if (curve.small_bytes > 0) parameters.push_back({&curve.small_floor_us});
  if (curve.bytes_per_s_per_sm > 0) parameters.push_back({&curve.bytes_per_s_per_sm});
  for (size_t kind = 0; kind < curve.link_share.size(); ++kind) {
    const bool measured = std::any_of(points.begin(), points.end(), [&](const CurvePoint& point) {
      return static_cast<size_t>(point.work.collective) == kind;
    });
    if (measured) parameters.push_back({&curve.link_share[kind], kMostLinkShare});
  }
  return parameters;
}

}  // namespace

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

CurveFit FitCurve(const DeviceModel& device, const TransportCurve& start,
                  std::span<const CurvePoint> points) {
  DeviceModel model = device;
  CurveFit fit{.curve = start};
  const std::vector<Parameter> parameters = ParametersOf(fit.curve, points);
  double error = ErrorOf(model, fit.curve, points);
  double step = kFirstStep;
  for (int round = 0; round < kMaxRounds && step > kLastStep; ++round) {
    const double before = error;
    for (const Parameter& parameter : parameters) {
      const double old = *parameter.value;
      for (const double factor : {1 + step, 1 / (1 + step)}) {
        *parameter.value = std::min(old * factor, parameter.most);
        const double other = ErrorOf(model, fit.curve, points);
        if (other < error) {
          error = other;
          break;
        }
        *parameter.value = old;
      }
    }
    if (error == before) step /= 2;
  }
  fit.error = std::sqrt(error / static_cast<double>(points.size()));
  return fit;
}

// With `x` the share of the SMs that the collective held and `z` that of the links' rate it moved,
// GEMMs lost a * x + b * z of their rate: the least squares that are not negative.
void FitBeside(const DeviceModel& device, std::span<const BesidePoint> points,
               TransportCurve& curve) {
  if (points.empty()) return;
  std::vector<double> times;
  double xx = 0, xz = 0, zz = 0, xy = 0, zy = 0;
  for (const BesidePoint& point : points) {
    times.push_back(point.us / point.alone.us);
    const double x = static_cast<double>(point.alone.choice.sms) / device.sm_count;
    const uint64_t sent_bytes = policies::SentBytes(point.alone.work, point.alone.choice);
    const double z = 1e6 * static_cast<double>(sent_bytes) / (point.us * device.link_bytes_per_s);
    const double y = 1 - 1 / point.gemm_times;
    xx += x * x, xz += x * z, zz += z * z, xy += x * y, zy += z * y;
  }
  curve.beside_gemm = Median(times);
  const double determinant = xx * zz - xz * xz;
  // Where the points tell the two apart: at least a hundredth of their product.
  double a = curve.gemm_per_sms;
  if (determinant > 0.01 * xx * zz) a = std::max(0.0, (xy * zz - zy * xz) / determinant);
  double b = zz > 0 ? std::max(0.0, (zy - a * xz) / zz) : 0;
  if (b == 0 && xx > 0 && determinant > 0.01 * xx * zz) a = std::max(0.0, xy / xx);
  curve.gemm_per_sms = a;
  curve.gemm_per_link = b;
}

}  // namespace concert::daemon
