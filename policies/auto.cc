#include "policies/auto.h"

#include <algorithm>
#include <array>
#include <optional>

#include "policies/cost_memo.h"
#include "policies/lane_book.h"
#include "policies/plan_cache.h"
#include "policies/plan_writer.h"

namespace concert::policies {
namespace {

// The last GEMM launched on each lane: what a GEMM of the plan would run beside or behind.
using Fronts = std::array<const RunningOp*, kFirstHighLane + kHighLaneCount>;

Fronts FrontsOf(const Snapshot& snapshot) {
  Fronts fronts{};
  for (const RunningOp& running : snapshot.running) {
    if (running.work.category != Category::kGemm || running.lane >= fronts.size()) continue;
    const RunningOp*& front = fronts[running.lane];
    if (front == nullptr || running.launched_at >= front->launched_at) front = &running;
  }
  return fronts;
}

// GEMMs of the highest ready class, in the order of the snapshot, with the lanes they get in
// company.
struct Candidates {
  Priority priority = Priority::kNormal;
  std::array<int, kMaxCompany> index{};  // into Snapshot::ready
  std::array<Lane, kMaxCompany> lane{};
  std::array<OpCost, kMaxCompany> cost;
  int count = 0;

  bool high() const { return priority == Priority::kHigh; }
  int limit() const { return high() ? kHighLaneCount : kMaxCompany; }

  void Offer(int ready_index, const ReadyOp& op) {
    if (count == 0) priority = op.priority;
    if (op.priority == priority && count < limit()) index[count++] = ready_index;
  }
};

// A way to run the first `choice.count` candidates, and its time over that of one after the other.
struct Proposal {
  Choice choice;
  double ratio = 1;
};

// Streams: the first c side by side, beside what runs on other lanes, for the c that gains most.
// Nothing if company does not gain.
std::optional<Proposal> ProposeStreams(const Signature& signature, CostMemo& memo) {
  std::optional<Proposal> best;
  Company alone(memo.device());
  for (int count = 1; count <= signature.gemm_count; ++count) {
    alone.Add(memo.Of(signature.gemms[count - 1]));
    Company running(memo.device());
    for (int i = 0; i < signature.front_count; ++i) {
      const Signature::Front& front = signature.fronts[i];
      const bool followed = front.follower >= 0 && front.follower < count;
      if (!followed) running.Add(memo.Of(front.work));
    }
    const double serial_us = running.CompanyUs() + alone.SerialUs();
    Company together = running;
    for (int i = 0; i < count; ++i) together.Add(memo.Of(signature.gemms[i]));
    const double ratio = together.CompanyUs() / serial_us;
    const bool no_harm = ratio < 1 && alone.CompanyUs() <= alone.SerialUs();
    if (no_harm && (!best || ratio < best->ratio)) {
      best = {{.form = Form::kStreams, .count = static_cast<uint8_t>(count)}, ratio};
    }
  }
  return best;
}

// Every form with its generator. The do-no-harm gate: one after the other unless a proposal beats
// it.
Choice Choose(const Signature& signature, CostMemo& memo) {
  constexpr std::array kGenerators = {ProposeStreams};
  Proposal best{{.form = Form::kSingle, .count = 1}, 1.0};
  for (const auto propose : kGenerators) {
    const std::optional<Proposal> proposal = propose(signature, memo);
    if (proposal && proposal->ratio < best.ratio) best = *proposal;
  }
  return best.choice;
}

class AutoPolicy final : public Policy {
 public:
  explicit AutoPolicy(const DeviceModel& device) : memo_(device) {}

  void Decide(const Snapshot& snapshot, Plan& plan) override {
    PlanWriter writer(snapshot, memo_, plan);
    if (snapshot.ready.empty()) return;
    if (OneGemmAlone(snapshot)) {
      const ReadyOp& op = snapshot.ready[0];
      writer.Add(0, Form::kSingle,
                 op.priority == Priority::kHigh ? kFirstHighLane : kFirstNormalLane);
      return writer.Finish(Reason::kOnlyOneReady, true);
    }
    LaneBook lanes(snapshot);
    Candidates gemms = AddOthers(snapshot, lanes, writer);
    if (gemms.count == 0 || writer.full()) return writer.Finish(OthersReason(snapshot), true);

    const Fronts fronts = FrontsOf(snapshot);
    if (HigherClassRuns(fronts, gemms)) {
      return AddIfHarmless(snapshot, fronts, gemms, lanes, writer, plan);
    }
    const Choice choice = ChooseCached(snapshot, fronts, gemms, lanes);
    if (choice.form == Form::kSingle) {
      writer.Add(gemms.index[0], Form::kSingle, SerialLane(fronts, gemms), gemms.cost[0]);
    } else {
      for (int i = 0; i < choice.count && !writer.full(); ++i) {
        writer.Add(gemms.index[i], choice.form, gemms.lane[i], gemms.cost[i]);
      }
    }
    writer.Finish(ReasonOf(choice, gemms, snapshot), true);
  }

 private:
  // The commonest decision, and the one whose time a lone client feels.
  static bool OneGemmAlone(const Snapshot& snapshot) {
    return snapshot.running.empty() && snapshot.ready.size() == 1 &&
           snapshot.ready[0].work.category == Category::kGemm;
  }

  // Collectives go out at once and ahead of GEMMs, behind whose blocks they would wait; copies and
  // barriers are cheap company. Returns the GEMMs.
  static Candidates AddOthers(const Snapshot& snapshot, LaneBook& lanes, PlanWriter& writer) {
    Candidates gemms;
    for (size_t i = 0; i < snapshot.ready.size() && !writer.full(); ++i) {
      const int index = static_cast<int>(i);
      const ReadyOp& op = snapshot.ready[i];
      if (op.work.category == Category::kGemm) {
        gemms.Offer(index, op);
      } else if (op.work.category == Category::kCollective) {
        writer.Add(index, Form::kStreams, kHighCollectiveLane);
      } else {
        const double run_time_us = writer.CostOfReady(index).solo_us;
        const bool high = op.priority == Priority::kHigh;
        writer.Add(index, Form::kStreams, lanes.Take(op, high, run_time_us));
      }
    }
    return gemms;
  }

  static Reason OthersReason(const Snapshot& snapshot) {
    const bool collective =
        std::any_of(snapshot.ready.begin(), snapshot.ready.end(),
                    [](const ReadyOp& op) { return op.work.category == Category::kCollective; });
    if (collective) return Reason::kCollective;
    return snapshot.ready.size() == 1 ? Reason::kOnlyOneReady : Reason::kPolicyOrder;
  }

  static bool HigherClassRuns(const Fronts& fronts, const Candidates& gemms) {
    return std::any_of(fronts.begin(), fronts.end(), [&](const RunningOp* front) {
      return front != nullptr && front->priority > gemms.priority;
    });
  }

  // Beside running work of a higher class only one GEMM goes out, and only if both get all they
  // want.
  void AddIfHarmless(const Snapshot& snapshot, const Fronts& fronts, const Candidates& gemms,
                     LaneBook& lanes, PlanWriter& writer, Plan& plan) {
    Company company(memo_.device());
    for (const RunningOp* front : fronts) {
      if (front != nullptr) company.Add(memo_.Of(front->work));
    }
    const ReadyOp& first = snapshot.ready[gemms.index[0]];
    const OpCost cost = memo_.Of(first.work);
    company.Add(cost);
    if (company.Fits()) {
      const Lane lane = lanes.Take(first, gemms.high(), cost.solo_us);
      writer.Add(gemms.index[0], Form::kStreams, lane);
      return writer.Finish(Reason::kCompanyFaster, true);
    }
    writer.Finish(plan.empty() ? Reason::kHeldBack : OthersReason(snapshot), true);
  }

  Choice ChooseCached(const Snapshot& snapshot, const Fronts& fronts, Candidates& gemms,
                      LaneBook& lanes) {
    signature_.Clear();
    std::array<int8_t, kLaneCount> follower;
    follower.fill(-1);
    for (int i = 0; i < gemms.count; ++i) {
      const ReadyOp& op = snapshot.ready[gemms.index[i]];
      const uint64_t hash = HashWork(op.work);
      signature_.AddGemm(op.work, hash);
      gemms.cost[i] = memo_.Of(op.work, hash);
      gemms.lane[i] = lanes.Take(op, gemms.high(), gemms.cost[i].solo_us);
      follower[gemms.lane[i]] = static_cast<int8_t>(i);
    }
    // Work of a lower class is no reason to wait.
    for (size_t lane = 0; lane < fronts.size(); ++lane) {
      if (fronts[lane] == nullptr || fronts[lane]->priority != gemms.priority) continue;
      signature_.AddFront(fronts[lane]->work, follower[lane]);
    }
    if (const std::optional<Choice> known = cache_.Find(signature_)) return *known;
    const Choice choice = Choose(signature_, memo_);
    cache_.Insert(signature_, choice);
    return choice;
  }

  // Behind what ends last of the same class, so that nothing runs beside it.
  static Lane SerialLane(const Fronts& fronts, const Candidates& gemms) {
    const RunningOp* last = nullptr;
    for (const RunningOp* front : fronts) {
      if (front == nullptr || front->priority != gemms.priority) continue;
      if (IsHighPriority(front->lane) != gemms.high()) continue;
      if (last == nullptr || front->expected_end > last->expected_end) last = front;
    }
    return last == nullptr ? gemms.lane[0] : last->lane;
  }

  static Reason ReasonOf(const Choice& choice, const Candidates& gemms, const Snapshot& snapshot) {
    if (choice.form != Form::kSingle) return Reason::kCompanyFaster;
    if (snapshot.ready.size() == 1) return Reason::kOnlyOneReady;
    const bool lower_class_waits = snapshot.ready.back().priority < gemms.priority;
    if (gemms.count == 1 && lower_class_waits) return Reason::kPriorityFirst;
    return Reason::kCompanyNotFaster;
  }

  CostMemo memo_;
  PlanCache cache_;
  Signature signature_;  // of the decision at hand
};

}  // namespace

std::unique_ptr<Policy> MakeAuto(const PolicyInputs& inputs) {
  return std::make_unique<AutoPolicy>(inputs.device);
}

}  // namespace concert::policies
