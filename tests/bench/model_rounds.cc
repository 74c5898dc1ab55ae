#include "tests/bench/model_rounds.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace concert::bench {
namespace {

constexpr int kSets = 8;
constexpr double kLimitUs = 1e9;

daemon::DispatcherOptions DispatcherOptionsOf(const RoundsOptions& options) {
  daemon::DispatcherOptions result;
  result.scheduler.depth = options.depth;
  result.scheduler.backlog_ns = static_cast<int64_t>(options.backlog_us * 1e3);
  return result;
}

}  // namespace

Rounds::Rounds(const std::vector<GemmShape>& shapes, const RoundsOptions& options)
    : options_(options),
      shapes_(shapes),
      timed_(options.costs, options.policy, DispatcherOptionsOf(options),
             static_cast<uint32_t>(shapes.size()) * options.in_flight, options.sm_count),
      bed_(timed_.bed()) {
  timed_.gpu().set_on_end([this](double us) { CollectAndSubmit(us); });
  timed_.gpu().set_on_launch([this](const daemon::LaunchRequest& launch) {
    const auto ops = static_cast<int>(launch.ops.size());
    ++launch_counts_[ops];
    if (launch.planned.form != policies::Form::kGroup) library_ops_ += ops;
    if (options_.keep_launches) KeepLaunch(launch);
  });
  for (uint32_t queue = 0; queue < shapes_.size() * options.in_flight; ++queue)
    queues_[reinterpret_cast<daemon::Address>(&bed_.timeline(queue))] = queue;
}

void Rounds::KeepLaunch(const daemon::LaunchRequest& launch) {
  for (const daemon::TimelineWrite& write : launch.writes) {
    const uint32_t queue = queues_.at(write.address);
    const auto slot = static_cast<int>(queue / shapes_.size());
    const auto turn = static_cast<int>(write.value - 1);  // a queue's first ticket is 1
    launches_.push_back({.batch = turn * options_.in_flight + slot,
                         .gemm = static_cast<int>(queue % shapes_.size()),
                         .lane = launch.planned.lane,
                         .degree = launch.planned.degree,
                         .ops = static_cast<int>(launch.ops.size())});
  }
}

absl::StatusOr<Prediction> Rounds::Run() {
  for (int i = 0; i < options_.in_flight; ++i) Submit(0);
  const int warm_up = options_.batches / 4;
  while (ended_ < options_.batches) {
    const int before = ended_;
    const double began_us = timed_.now_us();
    if (began_us > kLimitUs) return absl::DeadlineExceededError("batches do not end");
    Publish();
    if (timed_.Turn()) dispatcher_us_ += timed_.now_us() - began_us;
    if (before < warm_up && ended_ >= warm_up) BeginToMeasure();
  }
  return Summarise();
}

void Rounds::BeginToMeasure() {
  begin_us_ = timed_.now_us();
  idle_before_us_ = timed_.gpu().idle_us();
  measured_from_ = ended_;
  dispatcher_us_ = 0;
  library_ops_ = 0;
  launch_counts_.clear();
}

void Rounds::Submit(double us) {
  client_free_at_us_ = timed_.WrittenAtUs(std::max(client_free_at_us_, us), shapes_.size());
  on_their_way_us_.push_back(client_free_at_us_);
}

void Rounds::Publish() {
  for (; !on_their_way_us_.empty() && on_their_way_us_.front() <= timed_.now_us(); ++published_) {
    on_their_way_us_.pop_front();
    bed_.Submit(shapes_, QueueOf(published_, 0), published_ % kSets);
  }
}

void Rounds::CollectAndSubmit(double us) {
  for (; ended_ < published_; ++ended_) {
    for (size_t gemm = 0; gemm < shapes_.size(); ++gemm) {
      const uint32_t queue = QueueOf(ended_, gemm);
      if (bed_.timeline(queue) < bed_.ticket(queue)) return;
    }
    Submit(us);
  }
}

Prediction Rounds::Summarise() {
  const double batches = ended_ - measured_from_;
  Prediction result{.batch_us = (timed_.now_us() - begin_us_) / batches,
                    .idle_us = (timed_.gpu().idle_us() - idle_before_us_) / batches,
                    .dispatcher_us = dispatcher_us_ / batches,
                    .library_share = library_ops_ / (batches * shapes_.size())};
  for (const auto& [ops, count] : launch_counts_) result.launches[ops] = count / batches;
  return result;
}

absl::StatusOr<std::vector<RoundLaunch>> LaunchesOfRound(const std::string& policy,
                                                         const GemmWorkload& workload,
                                                         int sm_count) {
  const std::vector<GemmShape>& shapes = workload.scenario().gemms;
  if (!DispatcherBed::Fits(shapes))
    return absl::NotFoundError("the batch has more or larger GEMMs than the model takes");
  const int round = workload.batches_per_round();
  const RoundsOptions options{.policy = policy,
                              .batches = 3 * round,
                              .sm_count = sm_count,
                              .costs = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
                              .keep_launches = true};
  Rounds rounds(shapes, options);
  if (const auto ran = rounds.Run(); !ran.ok()) return ran.status();
  std::vector<RoundLaunch> launches;
  for (RoundLaunch launch : rounds.launches()) {
    if (launch.ops > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("policy ", policy, " makes one launch of ", launch.ops, " GEMMs"));
    }
    launch.batch -= round;
    if (launch.batch >= 0 && launch.batch < round) launches.push_back(launch);
  }
  return launches;
}

}  // namespace concert::bench
