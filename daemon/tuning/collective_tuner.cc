#include "daemon/tuning/collective_tuner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "policies/cost/collective_cost.h"

namespace concert::daemon {
namespace {

using policies::Transport;

constexpr uint16_t kKinds[] = {CONCERT_OP_ALL_REDUCE, CONCERT_OP_ALL_GATHER,
                               CONCERT_OP_REDUCE_SCATTER, CONCERT_OP_ALL_TO_ALL,
                               CONCERT_OP_BROADCAST};
constexpr uint64_t kSmallestTensor = 4 << 10;
constexpr int kRounds = 9;  // and one that warms up
// Beside GEMMs a collective is worth a look if it takes longer than launching a GEMM.
constexpr double kLongEnoughUs = 50;

std::string_view NameOf(Transport transport) {
  return policies::kTransportNames[static_cast<size_t>(transport)];
}

}  // namespace

std::vector<CollectiveCase> CollectiveTuner::CasesOf(int ranks) {
  std::vector<policies::TransportChoice> choices = {
      {Transport::kNccl, static_cast<uint16_t>(device_.collective_sms)},
      {Transport::kCopyEngine, 0}};
  for (const Transport transport : {Transport::kPeer, Transport::kHybrid}) {
    for (const int sms : policies::kPeerSms) {
      if (device_.collective_sms == 0 || sms <= device_.collective_sms)
        choices.push_back({transport, static_cast<uint16_t>(sms)});
    }
  }
  std::vector<CollectiveCase> cases;
  for (const uint16_t kind : kKinds) {
    for (uint64_t bytes = kSmallestTensor; bytes <= bench_.tensor_bytes(); bytes *= 4) {
      for (const policies::TransportChoice& choice : choices) {
        const CollectiveCase test = {kind, ranks, bytes, choice};
        if (bench_.Carries(test)) cases.push_back(test);
      }
    }
  }
  return cases;
}

absl::Status CollectiveTuner::Run(const std::function<void(const TuningProgress&)>& on_progress) {
  on_progress_ = on_progress;
  std::vector<int> rank_counts = {2};
  if (gpu_count_ > 2) rank_counts.push_back(gpu_count_);
  for (const int ranks : rank_counts) {
    if (absl::Status status = RunRanks(ranks); !status.ok()) return status;
  }
  progress_.current.clear();
  on_progress_(progress_);
  return absl::OkStatus();
}

absl::Status CollectiveTuner::RunRanks(int ranks) {
  const absl::StatusOr<std::vector<Measured>> measured = MeasureAlone(ranks);
  if (!measured.ok()) return measured.status();
  for (int i = 0; i < policies::kTransportCount; ++i) {
    if (absl::Status status = Keep(*measured, static_cast<Transport>(i), ranks); !status.ok())
      return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<CollectiveTuner::Measured>> CollectiveTuner::MeasureAlone(int ranks) {
  const std::vector<CollectiveCase> cases = CasesOf(ranks);
  progress_.total_rows += policies::kTransportCount;
  std::vector<std::vector<double>> times(cases.size());
  std::vector<Measured> measured(cases.size());
  for (int round = 0; round <= kRounds; ++round) {
    Report(absl::StrCat(ranks, " ranks, round ", round, " of ", kRounds));
    for (size_t i = 0; i < cases.size(); ++i) {
      absl::StatusOr<CurvePoint> point = bench_.TimeAlone(cases[i]);
      if (!point.ok()) return point.status();
      measured[i] = {cases[i], *point};
      if (round > 0) times[i].push_back(point->us);
    }
  }
  for (size_t i = 0; i < cases.size(); ++i) measured[i].point.us = Median(std::move(times[i]));
  return measured;
}

// All-reduce or, where the transport reduces nothing, all-gather: the largest tensor, on each
// number of SMs.
absl::StatusOr<std::vector<BesidePoint>> CollectiveTuner::MeasureBeside(
    std::span<const Measured> measured, Transport transport) {
  std::vector<BesidePoint> points;
  if (!bench_.measures_beside()) return points;
  const uint16_t kind =
      transport == Transport::kCopyEngine ? CONCERT_OP_ALL_GATHER : CONCERT_OP_ALL_REDUCE;
  uint64_t largest = 0;
  for (const Measured& one : measured) largest = std::max(largest, one.test.tensor_bytes);
  for (const Measured& one : measured) {
    if (one.test.kind != kind || one.test.choice.transport != transport ||
        one.test.tensor_bytes != largest || one.point.us < kLongEnoughUs) {
      continue;
    }
    Report(absl::StrCat(one.test.ranks, " ranks, ", std::string(NameOf(transport)), " on ",
                        one.test.choice.sms, " SMs beside GEMMs"));
    absl::StatusOr<BesidePoint> point = bench_.TimeBeside(one.test, one.point.us);
    if (absl::IsNotFound(point.status())) continue;
    if (!point.ok()) return point.status();
    points.push_back(*point);
  }
  return points;
}

absl::Status CollectiveTuner::Keep(std::span<const Measured> measured, Transport transport,
                                   int ranks) {
  std::vector<CurvePoint> points;
  for (const Measured& one : measured) {
    if (one.test.choice.transport == transport) points.push_back(one.point);
  }
  if (points.empty()) {
    ++progress_.failed_rows;  // the node does not have it
    return absl::OkStatus();
  }
  const absl::StatusOr<std::vector<BesidePoint>> beside = MeasureBeside(measured, transport);
  if (!beside.ok()) return beside.status();
  const CurveFit fit = FitCurve(device_, policies::kTransportCurves.Of(transport, ranks), points);
  StoredCurve stored = {.transport = transport,
                        .ranks = ranks,
                        .curve = fit.curve,
                        .fit_error = fit.error,
                        .measured_at_s = measured_at_s_};
  FitBeside(device_, *beside, stored.curve);
  const absl::StatusOr<Store::PutResult> put = store_.PutCurve(environment_, stored);
  if (!put.ok()) return put.status();
  ++progress_.written_rows;
  return absl::OkStatus();
}

void CollectiveTuner::Report(std::string current) {
  progress_.current = std::move(current);
  on_progress_(progress_);
}

}  // namespace concert::daemon
