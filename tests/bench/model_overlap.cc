#include "tests/bench/model_overlap.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/check.h"
#include "daemon/device/sim/sim_node.h"
#include "daemon/sched/coordinator.h"
#include "tests/bench/c3_result.h"
#include "tests/bench/dispatcher_bed.h"
#include "tests/bench/timed_bed.h"

namespace concert::bench {
namespace {

using daemon::DispatcherMessage;
using daemon::IssuerMessage;
using daemon::RankPart;
using policies::Time;

constexpr Time kBeginNs = 1'000'000'000;  // time 0 means "never" in places
constexpr Time kLookNs = 1'000;           // how often dispatchers look when nothing ends
// From the last rank's part to its launch on the last GPU: a GEMM that was decided with it is there
// before.
constexpr Time kIssueNs = 5'000;
constexpr Time kLongestNs = 1'000'000'000;
constexpr uint32_t kCollectiveQueue = 1;  // of each rank's session; GEMMs have the other
constexpr uint32_t kCommunicator = 1 << 8;
// GEMMs take turns with so many operands; behind them lies what the collective moves.
constexpr uint64_t kPlaces = 32;
constexpr uint32_t kMaxOps = 1024;

uint16_t OpKindOf(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return CONCERT_OP_ALL_REDUCE;
    case CollectiveKind::kAllGather:
      return CONCERT_OP_ALL_GATHER;
    case CollectiveKind::kReduceScatter:
      return CONCERT_OP_REDUCE_SCATTER;
    case CollectiveKind::kAllToAll:
      return CONCERT_OP_ALL_TO_ALL;
    case CollectiveKind::kBroadcast:
      return CONCERT_OP_BROADCAST;
  }
  return 0;
}

concert_descriptor CollectiveOp(const CollectiveShape& shape, uint32_t rank) {
  concert_descriptor op{};
  op.queue = kCollectiveQueue;
  op.kind = OpKindOf(shape.kind);
  concert_collective_body& body = op.body.collective;
  body = {.communicator = kCommunicator | rank,
          .count = shape.count(),
          .src = DispatcherBed::Operand(kPlaces, 0),
          .dst = DispatcherBed::Operand(kPlaces, 1),
          .dtype = CONCERT_ABI_BF16};
  if (!shape.in_place()) return op;
  body.src = body.dst;
  if (shape.kind == CollectiveKind::kAllGather) body.src.offset += rank * shape.slot_bytes();
  return op;
}

std::unique_ptr<daemon::sim::SimNode> OpenModelNode(uint32_t gpus, const policies::DeviceModel& gpu,
                                                    const RankContender& contender) {
  daemon::sim::SimOptions options{.gpus = static_cast<int>(gpus),
                                  .pace = daemon::sim::Pace::kVirtual,
                                  .model = gpu,
                                  .compute = false};
  options.model.collective_sms = contender.sms;
  options.model.transports = policies::TransportSet::All();
  return daemon::sim::SimNode::Open(options).value();
}

class OverlapModel {
 public:
  OverlapModel(const OverlapScenario& scenario, const policies::DeviceModel& gpu,
               const RankContender& contender)
      : scenario_(scenario),
        node_(OpenModelNode(scenario.collective.ranks, gpu, contender)),
        coordinator_(std::vector(scenario.collective.ranks, node_->gpu(0).info().model),
                     policies::FindTransport(contender.transport)) {
    for (uint32_t rank = 0; rank < scenario.collective.ranks; ++rank) {
      daemon::DispatcherOptions options;
      options.scheduler.gpu = static_cast<uint8_t>(rank);
      options.scheduler.max_ops = kMaxOps;
      beds_.push_back(std::make_unique<DispatcherBed>(node_->gpu(static_cast<int>(rank)),
                                                      contender.policy, options, /*queues=*/2));
      DispatcherMessage member(DispatcherMessage::Type::kAddMembership, DispatcherBed::IdOf(0));
      member.membership = {.handle = kCommunicator | rank,
                           .communicator = kCommunicator >> 8,
                           .rank = rank,
                           .ranks = scenario.collective.ranks};
      beds_.back()->Tell(member);
    }
  }

  absl::StatusOr<ModelledRun> Run(bool gemms, bool collective) {
    const size_t ops = (gemms ? static_cast<size_t>(scenario_.repeat) : 0) + (collective ? 1 : 0);
    node_->AdvanceTo(static_cast<Time>(
        1e3 * (costs_.submit_batch + costs_.submit_op * static_cast<double>(ops))));
    for (uint32_t rank = 0; rank < beds_.size(); ++rank) Submit(rank, gemms, collective);
    bool gemms_run = gemms, collective_runs = collective;
    while (gemms_run || collective_runs) {
      if (node_->Now() > kLongestNs)
        return absl::DeadlineExceededError(absl::StrCat(scenario_.name, " does not end"));
      TurnAll();
      node_->AdvanceTo(std::min({node_->NextEvent(), node_->Now() + kLookNs, launch_at_}));
      const double now_us = static_cast<double>(node_->Now()) * 1e-3 + costs_.to_visible;
      if (gemms_run && AllEnded(0)) run_.gemms_us = now_us, gemms_run = false;
      if (collective_runs && AllEnded(kCollectiveQueue))
        run_.collective_us = now_us, collective_runs = false;
    }
    run_.us = std::max(run_.gemms_us, run_.collective_us);
    return run_;
  }

 private:
  void Submit(uint32_t rank, bool gemms, bool collective) {
    DispatcherBed& bed = *beds_[rank];
    if (collective) bed.Write(0, CollectiveOp(scenario_.collective, rank));
    for (int i = 0; gemms && i < scenario_.repeat; ++i)
      bed.Write(0, DispatcherBed::Gemm(scenario_.gemm, 0, static_cast<uint64_t>(i) % kPlaces));
    bed.Ring(0);
  }

  // Until nobody has anything to do at this time.
  void TurnAll() {
    bool news = true;
    while (std::exchange(news, false)) {
      for (const std::unique_ptr<DispatcherBed>& bed : beds_) {
        news |= bed->Turn(node_->Now() + kBeginNs);
        bed->DrainRecords([&](const auto& record) { Look(record); });
        for (IssuerMessage offer; bed->issuer().TryPop(offer);) {
          parts_.push_back(offer.part);
          if (parts_.size() == beds_.size()) launch_at_ = node_->Now() + kIssueNs;
        }
      }
      if (node_->Now() < launch_at_) continue;
      LaunchCollective();
      launch_at_ = daemon::sim::kNever;
      news = true;
    }
  }

  void LaunchCollective() {
    const daemon::CollectivePlan plan = coordinator_.Decide(parts_);
    run_.choice = plan.choice;
    CONCERT_CHECK(node_->LaunchCollective(parts_, plan.choice).ok());
    for (const RankPart& part : std::exchange(parts_, {})) {
      DispatcherMessage launched(DispatcherMessage::Type::kPartLaunched);
      launched.part = {.op = part.id,
                       .failure = {},
                       .launched_at = node_->Now() + kBeginNs,
                       .reservation = plan.reservation};
      beds_[static_cast<size_t>(part.gpu)]->Tell(launched);
    }
  }

  void Look(const daemon::OpRecord&) {}
  void Look(const daemon::PlanRecord& record) {
    if (record.ops[0].kind != CONCERT_OP_GEMM || std::exchange(seen_gemm_, true)) return;
    run_.gemm_sms = record.sm_count;
  }

  bool AllEnded(uint32_t queue) const {
    return std::all_of(beds_.begin(), beds_.end(),
                       [&](const auto& bed) { return bed->timeline(queue) >= bed->ticket(queue); });
  }

  const OverlapScenario& scenario_;
  const HostCosts costs_;
  const std::unique_ptr<daemon::sim::SimNode> node_;
  daemon::Coordinator coordinator_;
  std::vector<std::unique_ptr<DispatcherBed>> beds_;
  std::vector<RankPart> parts_;
  Time launch_at_ = daemon::sim::kNever;  // the collective, once all parts are there
  ModelledRun run_;
  bool seen_gemm_ = false;
};

std::string WayText(const policies::TransportChoice& choice) {
  const std::string name(policies::kTransportNames[static_cast<size_t>(choice.transport)]);
  return choice.sms > 0 ? absl::StrCat(name, ", ", choice.sms, " SMs") : name;
}

}  // namespace

absl::StatusOr<ModelledRun> ModelOverlap(const OverlapScenario& scenario,
                                         const policies::DeviceModel& gpu,
                                         const RankContender& contender, bool gemms,
                                         bool collective) {
  return OverlapModel(scenario, gpu, contender).Run(gemms, collective);
}

absl::StatusOr<nlohmann::json> ModelC3Entry(const OverlapScenario& scenario,
                                            const policies::DeviceModel& gpu,
                                            const std::string& policy) {
  std::vector<C3Member> members = C3Baselines(/*by_policies=*/true);
  Rivals rivals;
  for (const C3Member& member : members) rivals.baselines.push_back(member.contender.name);
  std::vector<std::string> forms;
  for (C3Member& form : C3Forms()) {
    forms.push_back(form.contender.name);
    members.push_back(std::move(form));
  }
  members.push_back({{.name = "concert", .policy = policy}, C3Member::Role::kConcert, true, true});
  OverlapSamples samples;
  ModelledRun concert;
  for (const C3Member& member : members) {
    if (!Carries(member.contender, scenario.collective.kind)) continue;
    const auto add = [&](bool gemms, bool collective, Samples& all) -> absl::Status {
      const auto run = ModelOverlap(scenario, gpu, member.contender, gemms, collective);
      if (!run.ok()) return run.status();
      all[member.contender.name].push_back(run->us);
      if (gemms && collective) concert = *run;  // the last one's is kept
      return absl::OkStatus();
    };
    absl::Status status;
    if (member.gemm_alone) status.Update(add(true, false, samples.gemm_alone));
    if (member.collective_alone) status.Update(add(false, true, samples.collective_alone));
    status.Update(add(true, true, samples.together));
    if (!status.ok()) return status;
  }
  nlohmann::json entry = DescribeOverlap(scenario, samples, rivals, forms, gpu.hbm_bytes_per_s);
  entry["pick"] = {{"way", WayText(concert.choice)},
                   {"gemm_sms", concert.gemm_sms},
                   {"collective_us", concert.collective_us},
                   {"gemms_us", concert.gemms_us}};
  return entry;
}

}  // namespace concert::bench
