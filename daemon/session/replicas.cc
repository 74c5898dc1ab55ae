#include "daemon/session/replicas.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/check.h"
#include "daemon/session/own_memory.h"
#include "kernels/program/program_times.h"

namespace concert::daemon {
namespace {

// A run that waits for the next pass must gain by it. Two in a pass save half of what is shared of
// their bytes: from a quarter of a run's on, an eighth of the time of what memory is the limit of,
// about what launches cost that a pass makes for each member.
constexpr uint64_t kLeastShare = 4;  // of a run's bytes: one part of so many

bool IsWorthIt(uint64_t shared_bytes, const kernels::Program& program) {
  return shared_bytes >= std::max<uint64_t>(1, program.work.hbm_bytes / kLeastShare);
}

// Sets of programs with the same hash that one is held against when it joins: those that can go
// together are mostly in one.
constexpr size_t kMostTried = 8;

// Members for kernels, and the tables of buffers that their texts refer to.
class PassMembers {
 public:
  explicit PassMembers(const auto& members) {
    for (const auto& member : members) {
      tables_.push_back(member.text->Table());
      members_.push_back({member.program.get(), member.text->source(tables_.back())});
    }
  }
  PassMembers(const PassMembers&) = delete;
  PassMembers& operator=(const PassMembers&) = delete;

  std::span<const kernels::PassMember> get() const { return members_; }

 private:
  std::vector<std::vector<kernels::BufferRange>> tables_;
  std::vector<kernels::PassMember> members_;
};

}  // namespace

Replicas::~Replicas() { CONCERT_CHECK(sets_.empty() && retired_.empty()); }

std::vector<Replicas::Count> Replicas::CountsOf(const Set& set) {
  std::vector<Count> counts;
  for (const Member& member : set.members) {
    const kernels::Pass* const pass = member.program->pass.load(std::memory_order_relaxed);
    counts.push_back({member.session, member.index, pass == nullptr ? 1 : pass->members_left});
  }
  return counts;
}

// Whether a pass of both would be worth it. Who goes with one member of a set goes with all.
bool Replicas::GoWell(const Member& one, const Member& other) {
  const absl::StatusOr<kernels::PassPlan> plan =
      kernels::PlanPass(PassMembers(std::array{one, other}).get());
  return plan.ok() && IsWorthIt(plan->shared_bytes, *other.program);
}

std::optional<Replicas::Likeness> Replicas::LikenessOf(const kernels::Program& program,
                                                       ProgramText text) {
  if (!IsWorthIt(kernels::MostShared(program), program)) return std::nullopt;
  return Likeness{kernels::HashForPass(program),
                  std::make_shared<const ProgramText>(std::move(text))};
}

std::optional<Replicas::Joining> Replicas::Join(std::shared_ptr<const kernels::Program> program,
                                                Likeness likeness, uint32_t session, uint32_t index,
                                                Account& account) {
  Joining joining;
  joining.look_ = {&account, program->gpu, likeness.hash};
  const auto [begin, end] = sets_.equal_range(joining.look_);
  for (auto set = begin; set != end && joining.candidates_.size() < kMostTried; ++set) {
    const auto& [id, members, memory] = set->second;
    if (members.size() < kernels::kMaxPassMembers) joining.candidates_.push_back({id, members});
  }
  joining.member_ = {std::move(program), std::move(likeness.text), session, index};
  if (!joining.candidates_.empty()) return joining;
  Add(joining, std::nullopt);
  return std::nullopt;
}

Replicas::Set& Replicas::Add(const Joining& joining, std::optional<size_t> candidate) {
  const auto [begin, end] = sets_.equal_range(joining.look_);
  auto set = end;
  if (candidate) {
    const uint64_t id = joining.candidates_[*candidate].set;
    set = std::find_if(begin, end, [&](const auto& entry) { return entry.second.id == id; });
  }
  if (set == end) {
    set = sets_.emplace(joining.look_, Set{});
    set->second.id = ++last_set_;
  }
  set->second.members.push_back(joining.member_);
  set_of_.emplace(joining.member_.program.get(), set);
  return set->second;
}

std::vector<Replicas::Count> Replicas::Unite(const Joining& joining, Made made) {
  Set& set = Add(joining, made.candidate_);
  // Without a pass it stays in the set: with the next to join there is another try.
  if (!made.pass_.ok()) return {};
  if (set.members.size() < 2) {
    Free(*made.pass_);
    return {};
  }
  // Release: pairs with the scheduler's acquire.
  for (const Member& member : set.members)
    member.program->pass.store(made.pass_->pass.get(), std::memory_order_release);
  made.pass_->pass->members_left = static_cast<uint32_t>(set.members.size());
  Retire(std::exchange(set.memory, *std::move(made.pass_)));
  return CountsOf(set);
}

Replicas::Made Replicas::MakePass(const Joining& joining) const {
  Made made;
  for (size_t i = 0; i < joining.candidates_.size() && !made.candidate_; ++i) {
    std::vector<Member> members = joining.candidates_[i].members;
    if (!GoWell(members[0], joining.member_)) continue;
    members.push_back(joining.member_);
    made.candidate_ = i;
    made.pass_ = MakePass(members, *joining.look_.account);
  }
  return made;
}

absl::StatusOr<Replicas::PassMemory> Replicas::MakePass(std::span<const Member> joined,
                                                        Account& account) const {
  const PassMembers made(joined);
  const std::span<const kernels::PassMember> members = made.get();
  const size_t ops = members[0].source.ops.size() * members.size();
  if (ops > CONCERT_MAX_PROGRAM_OPS) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a pass of ", members.size(), " programs may have ", ops, " ops"));
  }
  const absl::StatusOr<kernels::PassPlan> plan = kernels::PlanPass(members);
  if (!plan.ok()) return plan.status();
  if (!IsWorthIt(plan->shared_bytes, *members[0].program)) {
    return absl::FailedPreconditionError(absl::StrCat("runs share ", plan->shared_bytes, " bytes"));
  }
  Device& device = node_.gpu(members[0].program->gpu);
  // What it takes of time and memory is the same wherever it lies.
  const absl::StatusOr<std::unique_ptr<kernels::Pass>> unplaced =
      kernels::BindPass(members, *plan, kernels::kUnplacedArena);
  if (!unplaced.ok()) return unplaced.status();
  kernels::SetRunTimes(device.info().model, *members[0].program, **unplaced);
  if ((*unplaced)->least_together > members.size())
    return absl::FailedPreconditionError("runs are faster beside each other");
  const uint64_t workspace_bytes = device.WorkspaceBytes(**unplaced);
  const absl::StatusOr<Allocation> allocation =
      AllocateOwn(device, account, std::max<uint64_t>(plan->arena.bytes + workspace_bytes, 1));
  if (!allocation.ok()) return allocation.status();
  PassMemory memory{.pass = nullptr, .allocation = *allocation, .account = &account};
  absl::StatusOr<std::unique_ptr<kernels::Pass>> pass =
      kernels::BindPass(members, *plan, allocation->address);
  absl::Status status = pass.status();
  if (pass.ok()) {
    memory.pass = *std::move(pass);
    const Address end = memory.pass->program.arena.end;
    memory.pass->program.workspace = {end, end + workspace_bytes};
    memory.pass->run_costs = (*unplaced)->run_costs;
    memory.pass->least_together = (*unplaced)->least_together;
    status = device.Prepare(*memory.pass);
  }
  if (status.ok()) return memory;
  Free(memory);
  return status;
}

std::vector<Replicas::Count> Replicas::Leave(const kernels::Program& program) {
  const auto found = set_of_.find(&program);
  if (found == set_of_.end()) return {};
  const Sets::iterator entry = found->second;
  set_of_.erase(found);
  Set& set = entry->second;
  std::erase_if(set.members,
                [&](const Member& member) { return member.program.get() == &program; });
  if (const kernels::Pass* pass = program.pass.load(std::memory_order_relaxed); pass != nullptr)
    --pass->members_left;
  const kernels::Pass* const kept = set.memory.pass.get();
  if (set.members.size() < 2 || (kept != nullptr && set.members.size() < kept->least_together)) {
    for (const Member& member : set.members)
      member.program->pass.store(nullptr, std::memory_order_release);
    Retire(std::exchange(set.memory, {}));
  }
  std::vector<Count> counts = CountsOf(set);
  if (set.members.empty()) sets_.erase(entry);
  return counts;
}

// Runs in it may be in flight or about to be launched.
void Replicas::Retire(PassMemory memory) {
  if (memory.pass == nullptr) return;
  DispatcherMessage message(DispatcherMessage::Type::kGiveUpPass);
  message.pass = memory.pass.get();
  tell_(memory.allocation.gpu, message);
  retired_.push_back(std::move(memory));
}

void Replicas::Free(PassMemory& memory) const {
  memory.pass.reset();  // before what it lies in
  FreeOwn(node_.gpu(memory.allocation.gpu), *memory.account, memory.allocation);
}

void Replicas::Collect() {
  std::erase_if(retired_, [&](PassMemory& memory) {
    const kernels::Pass& pass = *memory.pass;
    // Acquire, in this order: once it is given up, runs in it only end.
    if (!pass.given_up.load(std::memory_order_acquire) ||
        pass.runs.load(std::memory_order_acquire) > 0) {
      return false;
    }
    Free(memory);
    return true;
  });
}

}  // namespace concert::daemon
