#include "tests/bench/model_rounds.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace concert::bench {
namespace {

constexpr int kSets = 8;
constexpr double kLimitUs = 1e9;
constexpr policies::Time kEpochNs = 1'000'000'000;  // time 0 means "never" in places

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
      gpu_(options.costs, clock_, options.sm_count),
      bed_(gpu_, options.policy, DispatcherOptionsOf(options),
           static_cast<uint32_t>(shapes.size()) * options.in_flight) {
  if (!options.keep_launches) return;
  for (uint32_t queue = 0; queue < shapes_.size() * options.in_flight; ++queue)
    queues_[reinterpret_cast<daemon::Address>(&bed_.timeline(queue))] = queue;
  gpu_.set_on_launch([this](policies::Lane lane, const daemon::LaunchRequest& request) {
    KeepLaunch(lane, request);
  });
}

void Rounds::KeepLaunch(policies::Lane lane, const daemon::LaunchRequest& request) {
  for (const daemon::TimelineWrite& write : request.writes) {
    const uint32_t queue = queues_.at(write.address);
    const auto slot = static_cast<int>(queue / shapes_.size());
    const auto turn = static_cast<int>(write.value - 1);  // a queue's first ticket is 1
    launches_.push_back({.batch = turn * options_.in_flight + slot,
                         .gemm = static_cast<int>(queue % shapes_.size()),
                         .lane = lane,
                         .degree = request.degree,
                         .ops = static_cast<int>(request.ops.size())});
  }
}

absl::StatusOr<Prediction> Rounds::Run() {
  for (int i = 0; i < options_.in_flight; ++i) Submit(0);
  const int warm_up = options_.batches / 4;
  double begin_us = 0;
  while (ended_ < options_.batches) {
    const int before = ended_;
    if (clock_.now_us > kLimitUs) return absl::DeadlineExceededError("batches do not end");
    Publish();
    shown_ += gpu_.Show();
    CollectAndSubmit();
    Turn();
    if (before < warm_up && ended_ >= warm_up) {
      begin_us = clock_.now_us;
      measured_from_ = ended_;
      dispatcher_us_ = 0;
      gpu_.Forget();
    }
  }
  return Summarise(clock_.now_us - begin_us);
}

void Rounds::Submit(double us) {
  client_free_at_us_ = std::max(client_free_at_us_, us) + options_.costs.submit_batch +
                       options_.costs.submit_op * static_cast<double>(shapes_.size());
  on_their_way_us_.push_back(client_free_at_us_);
}

void Rounds::Publish() {
  for (; !on_their_way_us_.empty() && on_their_way_us_.front() <= clock_.now_us; ++published_) {
    on_their_way_us_.pop_front();
    bed_.Submit(shapes_, QueueOf(published_, 0), published_ % kSets);
  }
}

void Rounds::CollectAndSubmit() {
  while (ended_ < published_) {
    double end_us = 0;
    for (size_t gemm = 0; gemm < shapes_.size(); ++gemm) {
      const uint32_t queue = QueueOf(ended_, gemm);
      if (bed_.timeline(queue) < bed_.ticket(queue)) return;
      end_us = std::max(end_us, gpu_.VisibleAtUs(bed_.timeline(queue)));
    }
    ++ended_;
    Submit(end_us);
  }
}

void Rounds::Turn() {
  constexpr double kLookUs = 0.05;
  const double begin_us = clock_.now_us;
  const uint64_t admitted = bed_.submitted() - admitted_;
  clock_.now_us += options_.costs.turn + options_.costs.admit_op * static_cast<double>(admitted) +
                   options_.costs.finish_op * shown_;
  admitted_ = bed_.submitted();
  shown_ = 0;
  if (bed_.Turn(static_cast<policies::Time>(begin_us * 1e3) + kEpochNs)) {
    dispatcher_us_ += clock_.now_us - begin_us;
  } else {
    clock_.now_us = begin_us + kLookUs;
  }
  bed_.DrainRecords();
}

Prediction Rounds::Summarise(double us) const {
  const double batches = ended_ - measured_from_;
  Prediction result{.batch_us = us / batches,
                    .idle_us = gpu_.idle_us() / batches,
                    .dispatcher_us = dispatcher_us_ / batches,
                    .library_share = gpu_.library_ops() / (batches * shapes_.size())};
  for (const auto& [ops, count] : gpu_.launches()) result.launches[ops] = count / batches;
  return result;
}

absl::StatusOr<std::vector<RoundLaunch>> LaunchesOfRound(const std::string& policy,
                                                         const GemmWorkload& workload,
                                                         int sm_count) {
  const std::vector<GemmShape>& shapes = workload.scenario().gemms;
  if (!DispatcherBed::Takes(shapes))
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
