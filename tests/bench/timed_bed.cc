#include "tests/bench/timed_bed.h"

#include <type_traits>

namespace concert::bench {
namespace {

constexpr policies::Time kEpochNs = 1'000'000'000;  // time 0 means "never" in places
// How long a dispatcher that has nothing to do takes to look again.
constexpr double kLookUs = 0.2;

policies::Time Ns(double us) { return static_cast<policies::Time>(us * 1e3); }

std::unique_ptr<daemon::sim::SimNode> OpenSim(const policies::DeviceModel& model,
                                              double launch_us) {
  daemon::sim::SimOptions options{
      .gpus = 1, .pace = daemon::sim::Pace::kVirtual, .model = model, .compute = false};
  options.model.launch_us = launch_us;
  return daemon::sim::SimNode::Open(options).value();
}

}  // namespace

TimedGpu::TimedGpu(const HostCosts& costs, int sm_count)
    : NullDevice(sm_count), costs_(costs), node_(OpenSim(info().model, costs.to_start)) {}

void TimedGpu::CatchUp() {
  const policies::Time now = Ns(now_us_);
  for (policies::Time next = node_->NextEvent(); next <= now; next = node_->NextEvent()) {
    node_->AdvanceTo(next);
    if (on_end_) on_end_(static_cast<double>(next) / 1e3 + costs_.to_visible);
  }
}

absl::Status TimedGpu::Launch(const daemon::LaunchRequest& launch) {
  if (on_launch_) on_launch_(launch);
  const auto ops = static_cast<double>(launch.ops.size());
  const bool group = launch.planned.form == policies::Form::kGroup;
  now_us_ += costs_.launch + costs_.launch_op * ops +
             (group ? costs_.group_call : costs_.library_call * ops);
  CatchUp();
  node_->AdvanceTo(Ns(now_us_));  // which is when the simulator takes it to be called
  return node_->gpu(0).Launch(launch);
}

absl::Status TimedGpu::Signal(daemon::Lane lane, std::span<const daemon::TimelineWrite> writes) {
  return node_->gpu(0).Signal(lane, writes);
}

absl::Status TimedGpu::Order(daemon::Lane lane, daemon::Lane before) {
  return node_->gpu(0).Order(lane, before);
}

TimedBed::TimedBed(const HostCosts& costs, const std::string& policy,
                   const daemon::DispatcherOptions& options, uint32_t queues, int sm_count)
    : costs_(costs), gpu_(costs, sm_count), bed_(gpu_, policy, options, queues) {}

bool TimedBed::Turn(const std::function<void(const daemon::OpRecord&)>& visit) {
  const double began_us = gpu_.now_us();
  gpu_.CatchUp();
  const auto admitted = static_cast<double>(bed_.submitted() - admitted_);
  admitted_ = bed_.submitted();
  gpu_.SetNow(began_us + costs_.turn + costs_.admit_op * admitted);
  const bool news = bed_.Turn(Ns(began_us) + kEpochNs);
  uint64_t ended = 0;
  bed_.DrainRecords([&](const auto& record) {
    if constexpr (std::is_same_v<std::decay_t<decltype(record)>, daemon::OpRecord>) {
      ++ended;
      if (visit) visit(record);
    }
  });
  gpu_.SetNow(news ? gpu_.now_us() + costs_.finish_op * static_cast<double>(ended)
                   : began_us + kLookUs);
  return news;
}

}  // namespace concert::bench
