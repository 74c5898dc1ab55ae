#include "kernels/group/plan/compiler.h"

#include <algorithm>
#include <array>

#include "kernels/group/plan/cost.h"
#include "kernels/group/plan/layout.h"
#include "kernels/group/plan/list_store.h"
#include "kernels/group/plan/search.h"
#include "kernels/group/plan/shape.h"
#include "policies/seam/hash.h"
#include "policies/seam/snapshot.h"

namespace concert::kernels {
namespace {

static_assert(policies::kMaxReady <= kMaxGroupProblems);

// Launches that move less take less time than starting them does, which blocks that lie beside
// those of the launch before hide. With more to load, half of the pipeline's memory is too little
// (ADR 14).
constexpr double kMaxNarrowBytes = 24e6;

// GEMMs with less in any direction take too little time for pairs to matter: of rows that the L2
// gives slowly, and of all others.
constexpr uint32_t kMinPairedExtent = 256, kMinAlignedPairedExtent = 1024;

}  // namespace

class GroupCompiler::Impl {
 public:
  explicit Impl(const policies::DeviceModel& device)
      : sm_count_(std::clamp(device.sm_count, 1, kMaxBlocks)) {
    buckets_.fill({});
  }

  const GroupWorkList* Compile(std::span<const policies::Problem> problems,
                               const policies::SmSet& sms, policies::GroupGoal goal) {
    const LaunchBlocks blocks = BlocksOn(sms);
    const auto signature = WorkListSignature::Of(problems, blocks, goal);
    if (const GroupWorkList* known = store_.Find(signature)) return known;
    const bool pairs =
        MayPair(problems, blocks, goal) && EstimateUs(of_pairs_, problems, PairsOf(blocks), goal) <
                                               EstimateUs(ProfileFor(goal), problems, blocks, goal);
    const GroupWorkList* work_list =
        pairs ? Compile(of_pairs_, signature, PairsOf(blocks), GroupBlocks::kPairs) : nullptr;
    return work_list != nullptr ? work_list
                                : Compile(ProfileFor(goal), signature, blocks, GroupBlocks::kWide);
  }

  WorkListStore& store() { return store_; }

  float PredictUs(std::span<const policies::Problem> problems, const policies::SmSet& sms,
                  policies::GroupGoal goal) {
    const LaunchBlocks blocks = BlocksOn(sms);
    const float us = EstimateUs(ProfileFor(goal), problems, blocks, goal);
    if (!MayPair(problems, blocks, goal)) return us;
    return std::min(us, EstimateUs(of_pairs_, problems, PairsOf(blocks), goal));
  }

 private:
  static constexpr int kMaxBlocks = 1024;                      // far above what any GPU has
  static constexpr uint32_t kBuckets = 4 * kMaxGroupProblems;  // a power of two

  // What judges options and packings, by one set of constants.
  struct CostProfile {
    explicit CostProfile(const GroupCostConstants& constants, std::span<const GroupTile> tiles)
        : costs(constants, tiles) {}
    const GroupCosts costs;
    ShapeMemo memo{costs};
    GroupSearch search{costs};
    GroupLayout layout{costs};
  };

  LaunchBlocks BlocksOn(const policies::SmSet& sms) const {
    const int count = sms.budget <= 0 ? sm_count_ : std::min(sms.budget, sm_count_);
    const int late = std::clamp(sms.late, 0, count - 1);
    return {.count = count, .late = late, .late_us = late > 0 ? sms.late_us : 0};
  }
  // A pair is late if one of its SMs is: who holds them holds neighbours, too (peer kernels).
  static LaunchBlocks PairsOf(const LaunchBlocks& blocks) {
    const int count = blocks.count / 2;
    const int late = std::clamp((blocks.late + 1) / 2, 0, count - 1);
    return {.count = count, .late = late, .late_us = late > 0 ? blocks.late_us : 0};
  }
  CostProfile& ProfileFor(policies::GroupGoal goal) {
    return goal == policies::GroupGoal::kChain ? of_chains_ : of_launches_;
  }

  static bool MayPair(std::span<const policies::Problem> problems, const LaunchBlocks& blocks,
                      policies::GroupGoal goal);
  const GroupWorkList* Compile(CostProfile& profile, const WorkListSignature& signature,
                               const LaunchBlocks& blocks, GroupBlocks kind);
  float EstimateUs(CostProfile& profile, std::span<const policies::Problem> problems,
                   const LaunchBlocks& blocks, policies::GroupGoal goal);
  void SortByShape(std::span<const policies::Problem> problems, ShapeMemo& memo);
  uint16_t SetOf(const policies::Problem& problem, ShapeMemo& memo);

  struct Bucket {
    uint64_t launch = 0;  // that it was filled for
    uint16_t set_index = 0;
  };

  const int sm_count_;
  CostProfile of_launches_{GroupCostConstants(), kGroupTiles};
  CostProfile of_chains_{ChainConstants(), kGroupTiles};
  CostProfile of_pairs_{PairConstants(), kGroupPairTiles};
  WorkListStore store_;

  // Of the launch being planned.
  uint64_t launch_ = 0;
  double hbm_bytes_ = 0;
  size_t set_count_ = 0;
  std::array<ShapeSet, kMaxGroupProblems> sets_;
  std::array<uint16_t, kMaxGroupProblems> set_of_;   // by problem
  std::array<uint16_t, kMaxGroupProblems> members_;  // problems, set by set
  std::array<Bucket, kBuckets> buckets_;             // open addressing, by shape
};

// Pairs pay where a block alone would wait for the L2, in tiles that are large.
bool GroupCompiler::Impl::MayPair(std::span<const policies::Problem> problems,
                                  const LaunchBlocks& blocks, policies::GroupGoal goal) {
  if (goal == policies::GroupGoal::kChain || blocks.count < 2) return false;
  return std::any_of(problems.begin(), problems.end(), [](const policies::Problem& problem) {
    const bool slow_rows = RowsOf(problem) != GroupRows::k128;
    return std::min({problem.m, problem.n, problem.k}) >=
           (slow_rows ? kMinPairedExtent : kMinAlignedPairedExtent);
  });
}

// With the tiles of `profile`, on as many blocks or pairs of them. Null: no room for its items.
const GroupWorkList* GroupCompiler::Impl::Compile(CostProfile& profile,
                                                  const WorkListSignature& signature,
                                                  const LaunchBlocks& blocks, GroupBlocks kind) {
  const std::span<const policies::Problem> problems = signature.problems;
  SortByShape(problems, profile.memo);
  const std::span<ShapeSet> sets(sets_.data(), set_count_);
  if (!profile.search.Choose(sets, hbm_bytes_, blocks, signature.goal)) return nullptr;
  const uint32_t items = profile.layout.Arrange({.sets = sets,
                                                 .packing_order = profile.search.PackingOrder(sets),
                                                 .members = {members_.data(), problems.size()},
                                                 .hbm_bytes = hbm_bytes_,
                                                 .blocks = blocks,
                                                 .goal = signature.goal});
  if (items == 0) return nullptr;
  const WorkListStore::Place place = store_.Add(signature, items);
  if (place.work_list == nullptr) return nullptr;
  profile.layout.Write(*place.work_list, place.items, place.ends_us);
  bool narrow = signature.goal == policies::GroupGoal::kThroughput && hbm_bytes_ <= kMaxNarrowBytes;
  for (size_t i = 0; i < problems.size(); ++i) {
    place.tiles[i] = profile.costs.shapes()[sets_[set_of_[i]].chosen().tile];
    narrow &= IsNarrow(place.tiles[i]);
  }
  place.work_list->kind = kind == GroupBlocks::kWide && narrow ? GroupBlocks::kNarrow : kind;
  return place.work_list;
}

float GroupCompiler::Impl::EstimateUs(CostProfile& profile,
                                      std::span<const policies::Problem> problems,
                                      const LaunchBlocks& blocks, policies::GroupGoal goal) {
  SortByShape(problems, profile.memo);
  return profile.search.EstimateUs({sets_.data(), set_count_}, hbm_bytes_, blocks, goal);
}

void GroupCompiler::Impl::SortByShape(std::span<const policies::Problem> problems,
                                      ShapeMemo& memo) {
  ++launch_;
  memo.NextLaunch();
  set_count_ = 0;
  hbm_bytes_ = 0;
  for (size_t i = 0; i < problems.size(); ++i) {
    set_of_[i] = SetOf(problems[i], memo);
    ShapeSet& c = sets_[set_of_[i]];
    ++c.problems;
    hbm_bytes_ += c.shape->hbm_bytes;
  }
  uint16_t first = 0;
  for (size_t i = 0; i < set_count_; ++i) {
    ShapeSet& c = sets_[i];
    c.first_member = first;
    first = static_cast<uint16_t>(first + c.problems);
    c.problems = 0;
  }
  for (size_t i = 0; i < problems.size(); ++i) {
    ShapeSet& c = sets_[set_of_[i]];
    members_[c.first_member + c.problems++] = static_cast<uint16_t>(i);
  }
}

uint16_t GroupCompiler::Impl::SetOf(const policies::Problem& problem, ShapeMemo& memo) {
  for (uint64_t hash = policies::HashProblem(problem);; ++hash) {
    Bucket& bucket = buckets_[hash % kBuckets];
    if (bucket.launch == launch_) {
      if (sets_[bucket.set_index].shape->problem == problem) return bucket.set_index;
      continue;
    }
    bucket = {launch_, static_cast<uint16_t>(set_count_)};
    sets_[set_count_] = {.shape = &memo.Get(problem)};
    return static_cast<uint16_t>(set_count_++);
  }
}

GroupCompiler::GroupCompiler(const policies::DeviceModel& device)
    : impl_(std::make_unique<Impl>(device)) {}
GroupCompiler::~GroupCompiler() = default;

const GroupWorkList* GroupCompiler::Compile(std::span<const policies::Problem> problems,
                                            policies::SmSet sms, policies::GroupGoal goal) {
  return impl_->Compile(problems, sms, goal);
}

void GroupCompiler::Reclaim() { impl_->store().Reclaim(); }

float GroupCompiler::PredictUs(std::span<const policies::Problem> problems, policies::SmSet sms,
                               policies::GroupGoal goal) const {
  return impl_->PredictUs(problems, sms, goal);
}

std::unique_ptr<policies::WorkListCompiler> MakeGroupCompiler(const policies::DeviceModel& device) {
  return std::make_unique<GroupCompiler>(device);
}

}  // namespace concert::kernels
