#include "tests/bench/tenant_turns.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "tests/bench/mps_daemon.h"
#include "tests/bench/statistics.h"

namespace concert::bench {
namespace {

using nlohmann::json;

constexpr int kSoloLaps = 5;  // of a client while its neighbours sleep
// Modes that exclude each other take turns. Starting their clients takes most of a turn, so that a
// turn has many laps and only who asks for more than the default gets more turns.
constexpr int kLapsPerTurn = 40;

std::string HexUuid(const concert_gpu& gpu) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(gpu.uuid), sizeof(gpu.uuid)));
}

// Each kind of client alone, while the others sleep.
absl::Status MeasureSolo(const TenantGroup& group, std::chrono::microseconds window,
                         TenantCrew& crew, TenantSeries& series) {
  const auto& clients = group.clients;
  for (size_t i = 0; i < clients.size(); ++i) {
    const auto same = std::find_if(clients.begin(), clients.end(), [&](const auto& other) {
      return other.name == clients[i].name;
    });
    const auto first = static_cast<size_t>(same - clients.begin());
    if (first < i) {
      series.solo_latencies.push_back(series.solo_latencies[first]);
      series.solo_units_per_s.push_back(series.solo_units_per_s[first]);
      continue;
    }
    std::vector<double> rates;
    ClientLatencies& latencies = series.solo_latencies.emplace_back();
    for (int n = 0; n < kSoloLaps; ++n) {
      const absl::StatusOr<TenantCrew::Lap> lap = crew.RunLap(uint64_t{1} << i, window);
      if (!lap.ok()) return lap.status();
      latencies.AddLap(lap->latencies_us[i]);
      rates.push_back(lap->units_per_s[i]);
    }
    series.solo_units_per_s.push_back(Quantile(rates, 0.5));
  }
  return absl::OkStatus();
}

// Modes that run side by side, each with the place of what it measures.
class Turn {
 public:
  Turn(const TenantStage& stage, const TenantGroup& group, SeriesByMode& series)
      : stage_(stage), group_(group), series_(series) {}

  // All modes' clients get ready side by side, since that takes longer than their laps.
  absl::Status Gather(const std::vector<TenantMode>& modes) {
    for (const TenantMode& mode : modes) {
      TenantSeries& series = series_[mode.name];
      if (!series.failure.ok()) continue;
      auto cast = TenantCast::Start(stage_.options, stage_.place, group_, mode);
      absl::Status failed = DropOut(mode, cast.status(), series);
      if (!failed.ok()) return failed;
      if (cast.ok()) acts_.push_back({mode, *std::move(cast), &series});
    }
    for (size_t i = 0; i < acts_.size(); ++i) {
      const auto await = [](TenantCast& cast, TenantSeries&) { return cast.AwaitReady(); };
      if (absl::Status ready = Let(i, await); !ready.ok()) return ready;
    }
    return absl::OkStatus();
  }
  size_t size() const { return acts_.size(); }
  // Calls measure(cast, series) of the act, unless it has dropped out.
  template <class Measure>
  absl::Status Let(size_t i, const Measure& measure) {
    Act& act = acts_[i];
    if (act.cast == nullptr) return absl::OkStatus();
    const absl::Status measured = act.cast->Explain(measure(*act.cast, *act.series));
    if (!measured.ok()) act.cast = nullptr;  // its memory is for the others
    return DropOut(act.mode, measured, *act.series);
  }

 private:
  struct Act {
    TenantMode mode;
    std::unique_ptr<TenantCast> cast;  // null: dropped out
    TenantSeries* series;
  };

  // A baseline that fails is left out of the scenario, which says why. A daemon's failure is the
  // scenario's.
  static absl::Status DropOut(const TenantMode& mode, const absl::Status& why,
                              TenantSeries& series) {
    if (why.ok() || mode.has_daemon() || absl::IsCancelled(why)) return why;
    series = TenantSeries{};
    series.failure = why;
    return absl::OkStatus();
  }

  const TenantStage& stage_;
  const TenantGroup& group_;
  SeriesByMode& series_;
  std::vector<Act> acts_;
};

// Each kind of client alone, then laps in which the modes take turns.
absl::Status RunLaps(const TenantStage& stage, const TenantGroup& group, int laps, bool with_solo,
                     Turn& turn) {
  const auto solo = [&](TenantCast& cast, TenantSeries& measured) {
    return MeasureSolo(group, stage.lap, cast.crew(), measured);
  };
  const auto add_lap = [&](TenantCast& cast, TenantSeries& measured) {
    const auto lap = cast.crew().RunLap(cast.crew().everybody(), stage.lap);
    if (lap.ok()) measured.AddLap(*lap);
    return lap.status();
  };
  for (size_t i = 0; with_solo && i < turn.size(); ++i) {
    if (absl::Status ran = turn.Let(i, solo); !ran.ok()) return ran;
  }
  for (int lap = 0; lap < laps; ++lap) {
    for (size_t i = 0; i < turn.size(); ++i) {
      if (absl::Status ran = turn.Let((lap + i) % turn.size(), add_lap); !ran.ok()) return ran;
    }
  }
  return absl::OkStatus();
}

absl::Status RunTurn(const TenantStage& stage, const TenantGroup& group,
                     const std::vector<TenantMode>& modes, int laps, bool with_solo,
                     SeriesByMode& series) {
  Turn turn(stage, group, series);
  if (absl::Status gathered = turn.Gather(modes); !gathered.ok()) return gathered;
  if (absl::Status ran = RunLaps(stage, group, laps, with_solo, turn); !ran.ok()) return ran;
  for (size_t i = 0; i < turn.size(); ++i) {
    absl::Status finished = turn.Let(i, [&](TenantCast& cast, TenantSeries& measured) {
      measured.plans = cast.Plans(), measured.programs = cast.Programs();
      measured.first_runs = cast.crew().FirstRuns();
      const absl::StatusOr<std::vector<double>> errors = cast.crew().Finish();
      if (errors.ok()) measured.AddErrors(*errors);
      return errors.status();
    });
    if (!finished.ok()) return finished;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SeriesByMode> MeasureModes(const TenantStage& stage, const TenantGroup& group) {
  SeriesByMode series;
  const bool alone = group.clients.size() == 1;
  const auto& turns = alone ? stage.alone : stage.turns;
  for (int left = stage.options.rounds; left > 0; left -= kLapsPerTurn) {
    for (size_t i = 0; i < turns.size(); ++i) {
      const bool with_solo = !alone && left == stage.options.rounds && i == 0;
      absl::Status ran =
          RunTurn(stage, group, turns[i], std::min(left, kLapsPerTurn), with_solo, series);
      if (!ran.ok()) return ran;
    }
  }
  return series;
}

json DescribeLaps(const TenantStage& stage) {
  return {{"laps", stage.options.rounds}, {"lap_ms", stage.lap.count()}};
}

TenantPlace PlaceOf(const NodeUnderTest& node, const std::string& suite) {
  return {.suite = suite,
          .is_sim = node.is_sim(),
          .uuid = HexUuid(node.gpu),
          .memory_bytes_per_s = node.memory_bytes_per_s()};
}

void AddMps(const TenantMode& mode, TenantStage& stage, json& header) {
  absl::Status mps = MpsDaemon::Start().status();
  if (mps.ok() && !stage.options.socket.empty())
    mps = absl::FailedPreconditionError("the daemon at --socket keeps running");
  if (!mps.ok()) {
    header["left_out"].push_back({{"name", mode.name}, {"why", mps.message()}});
    return;
  }
  stage.turns.push_back({mode});
  stage.rivals.baselines.push_back(mode.name);
}

}  // namespace concert::bench
