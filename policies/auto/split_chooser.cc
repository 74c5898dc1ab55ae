#include "policies/auto/split_chooser.h"

#include <algorithm>
#include <span>
#include <utility>

#include "policies/auto/urgency.h"

namespace concert::policies {
namespace {

// Tags of a signature's ops.
constexpr uint8_t kSameSession = 1, kUrgent = 2, kTail = 128;

}  // namespace

SplitChooser::SplitChooser(const PolicyInputs& inputs, SmBudgets& budgets)
    : budgets_(budgets),
      tuned_(inputs.tuned),
      compiler_(inputs.MakeCompiler()),
      splitter_(inputs.device, tuned_.get(), compiler_.get()) {}

void SplitChooser::Reclaim() {
  if (compiler_ != nullptr) compiler_->Reclaim();
}

bool SplitChooser::Learn(const Outcome& outcome) {
  if (!corrections_.Learn(outcome.tag, outcome.predicted_us, outcome.actual_us)) return false;
  cache_.Drop(PlanTag::SignatureOf(outcome.tag));
  return true;
}

void SplitChooser::UseTuned(std::shared_ptr<const TunedTable> tuned) {
  tuned_ = std::move(tuned);
  ++table_;
  splitter_.UseTuned(tuned_.get());
}

LaunchSplit& SplitChooser::Choose(const Scope& scope, Budget budget) {
  std::fill_n(urgent_.begin(), scope.count(), false);
  LaunchSplit& split = FindOrSplit(scope, budget);
  if (!scope.deadline || !MarkUrgent(scope, budget, split)) return split;
  return FindOrSplit(scope, budget);
}

// All that the choice depends on.
void SplitChooser::Sign(const Scope& scope, Budget budget) {
  signature_.Start(budgets_.KeyOf(budget) << 8 | static_cast<uint32_t>(scope.goal) << 4 |
                   static_cast<uint32_t>(scope.grouped) << 1 | static_cast<uint32_t>(scope.high()));
  const std::span<const ReadyOp> ready = scope.snapshot->ready;
  for (int i = 0; i < scope.count(); ++i) {
    const ReadyOp& op = ready[scope.index[i]];
    const bool same_session = i > 0 && op.session == ready[scope.index[i - 1]].session;
    signature_.Add(op.work, Scope::HashOf(op),
                   (same_session ? kSameSession : 0) | (urgent_[i] ? kUrgent : 0));
  }
  for (const Tail& tail : scope.tail_span()) {
    signature_.Add(*tail.work, HashWork(*tail.work),
                   static_cast<uint8_t>(kTail + 1 + tail.follower));
  }
}

LaunchSplit& SplitChooser::FindOrSplit(const Scope& scope, Budget budget) {
  Sign(scope, budget);
  const Site site = {budgets_.SetOf(budget), scope.lane_limit(), scope.goal, scope.tail_span()};
  if (LaunchSplit* known = Known()) {
    if (known->form == Form::kGroup) splitter_.KeepLists(signature_.works(), site, *known);
    return *known;
  }
  for (int i = 0; i < scope.count(); ++i) {
    const Work& work = scope.op(i).work;
    ops_[i] = {.work = &work,
               .cost = budgets_.MemoOf(budget).Of(work, scope.work_hash(i)),
               .same_session = scope.SameSession(i),
               .urgent = urgent_[i]};
  }
  const std::span<const SplitOp> ops(ops_.data(), static_cast<size_t>(scope.count()));
  subject_ = {.signature = signature_.hash(), .family = signature_.family()};
  splitter_.Choose(ops, site, corrections_.RatiosOf(subject_), chosen_);
  // What the family taught about longer plans would stay for ever, since short ones teach nothing.
  if (chosen_.PredictedUs() < Corrections::kMinUs && corrections_.Knows(subject_)) {
    subject_.family = Corrections::kNoFamily;
    splitter_.Choose(ops, site, corrections_.RatiosOf(subject_), chosen_);
  }
  return Remember(chosen_);
}

// When each op would end: with its step, or with the rest, which takes its turns in their order.
void SplitChooser::FindEnds(const Scope& scope, Budget budget, const LaunchSplit& split,
                            std::span<float> end_us) {
  constexpr float kLater = -1;
  std::fill(end_us.begin(), end_us.end(), kLater);
  float start_us = 0;
  const uint8_t* next = split.order.data();
  for (const Step& step : split.step_span()) {
    for (int i = 0; i < step.count; ++i) {
      const bool known = step.work_list != nullptr;
      end_us[*next++] = start_us + (known ? step.work_list->ends_us[i] : step.predicted_us);
    }
    start_us += step.predicted_us;
  }
  CostMemo& memo = budgets_.MemoOf(budget);
  const auto solo_us = [&](int i) {
    return static_cast<float>(memo.Of(scope.op(i).work, scope.work_hash(i)).solo_us);
  };
  float serial_us = 0;
  for (int i = 0; i < scope.count(); ++i) serial_us += end_us[i] == kLater ? solo_us(i) : 0;
  const float share = serial_us > 0 ? (split.all_us - start_us) / serial_us : 0;
  for (int i = 0; i < scope.count(); ++i) {
    if (end_us[i] == kLater) end_us[i] = start_us += solo_us(i) * share;
  }
}

// Those that would miss their deadlines in this split but need not. True if there are any.
bool SplitChooser::MarkUrgent(const Scope& scope, Budget budget, const LaunchSplit& split) {
  std::array<float, kMaxReady> end_us;
  FindEnds(scope, budget, split, std::span(end_us).first(scope.index.size()));
  std::array<uint16_t, kMaxReady> urgent;
  const int count =
      FindUrgent(scope, end_us, budgets_.MemoOf(budget),
                 UrgentTime(budgets_.device(), budgets_.SmsOf(budget)), may_group(), urgent);
  for (int k = 0; k < count; ++k) urgent_[urgent[k]] = true;
  return count > 0;
}

// What was chosen for the signature, if it was chosen with the measured times that there are now.
LaunchSplit* SplitChooser::Known() {
  LaunchSplit* known = cache_.Find(signature_);
  if (known == nullptr || known->table == table_) return known;
  if (known->times_hash != TimesHash()) {
    corrections_.Forget({.signature = signature_.hash(), .family = signature_.family()});
    return nullptr;
  }
  known->table = table_;
  return known;
}

// Of all measured times that a choice for the signature depends on.
uint64_t SplitChooser::TimesHash() const {
  uint64_t hash = 0;
  if (tuned_ == nullptr) return hash;
  for (const Work* work : signature_.works()) {
    hash = Chain(hash, tuned_->TimesHash(Problem::Of(*work)));
  }
  return hash;
}

LaunchSplit& SplitChooser::Remember(const LaunchSplit& split) {
  chosen_anew_ = true;
  corrections_.Chosen(subject_, split.arrangement);
  LaunchSplit& remembered = cache_.Insert(signature_, split);
  remembered.times_hash = TimesHash();
  remembered.table = table_;
  return remembered;
}

uint64_t SplitChooser::Planned(const LaunchSplit& split) {
  const Corrections::Named named = corrections_.Planned(signature_.hash(), split.arrangement);
  if (named.choose_anew) cache_.Drop(signature_.hash());
  return named.tag;
}

}  // namespace concert::policies
