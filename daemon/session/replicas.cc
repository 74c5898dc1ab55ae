#include "daemon/session/replicas.h"

#include <algorithm>
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

std::vector<kernels::PassMember> MembersOf(const auto& members) {
  std::vector<kernels::PassMember> of_pass;
  of_pass.reserve(members.size());
  for (const auto& member : members) of_pass.push_back({member.program, member.text.source()});
  return of_pass;
}

}  // namespace

Replicas::~Replicas() { CONCERT_CHECK(sets_.empty() && retired_.empty()); }

std::list<Replicas::Set>::iterator Replicas::FindSet(const kernels::Program& program) {
  return std::find_if(sets_.begin(), sets_.end(), [&](const Set& set) {
    return std::any_of(set.members.begin(), set.members.end(),
                       [&](const Member& member) { return member.program == &program; });
  });
}

std::vector<uint32_t> Replicas::SessionsOf(const Set& set) {
  std::vector<uint32_t> sessions;
  for (const Member& member : set.members) sessions.push_back(member.session);
  return sessions;
}

std::vector<uint32_t> Replicas::Join(const kernels::Program& program, ProgramText text,
                                     uint32_t session, Account& account) {
  if (!IsWorthIt(kernels::MostShared(program), program)) return {};
  const uint64_t hash = kernels::HashForPass(program);
  auto set = std::find_if(sets_.begin(), sets_.end(), [&](const Set& one) {
    return one.account == &account && one.gpu == program.gpu && one.hash == hash &&
           one.members.size() < kernels::kMaxPassMembers;
  });
  if (set == sets_.end()) {
    set = sets_.insert(set, Set{});
    set->account = &account;
    set->gpu = program.gpu;
    set->hash = hash;
  }
  set->members.push_back({&program, std::move(text), session});
  // Without a pass it stays in the set: with the next to join there is another try.
  if (set->members.size() == 1 || !Unite(*set).ok()) return {};
  return SessionsOf(*set);
}

// Gives all members a new pass.
absl::Status Replicas::Unite(Set& set) {
  absl::StatusOr<PassMemory> made = MakePass(set);
  if (!made.ok()) return made.status();
  // Release: pairs with the scheduler's acquire.
  for (const Member& member : set.members)
    member.program->pass.store(made->pass.get(), std::memory_order_release);
  made->pass->members_left = made->pass->member_count;
  Retire(std::exchange(set.memory, *std::move(made)));
  return absl::OkStatus();
}

absl::StatusOr<Replicas::PassMemory> Replicas::MakePass(const Set& set) {
  const std::vector<kernels::PassMember> members = MembersOf(set.members);
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
  Device& device = node_.gpu(set.gpu);
  const uint64_t workspace_bytes = device.program_workspace_bytes();
  const absl::StatusOr<Allocation> allocation =
      AllocateOwn(device, *set.account, std::max<uint64_t>(plan->arena.bytes + workspace_bytes, 1));
  if (!allocation.ok()) return allocation.status();
  PassMemory memory{.pass = nullptr, .allocation = *allocation, .account = set.account};
  absl::StatusOr<std::unique_ptr<kernels::Pass>> pass =
      kernels::BindPass(members, *plan, allocation->address);
  absl::Status status = pass.status();
  if (pass.ok()) {
    memory.pass = *std::move(pass);
    const Address end = memory.pass->program.arena.end;
    memory.pass->program.workspace = {end, end + workspace_bytes};
    status = device.Prepare(*memory.pass);
    kernels::SetRunTimes(device.info().model, *memory.pass);
  }
  if (status.ok()) return memory;
  Free(memory);
  return status;
}

std::vector<uint32_t> Replicas::Leave(const kernels::Program& program) {
  const auto set = FindSet(program);
  if (set == sets_.end()) return {};
  std::erase_if(set->members, [&](const Member& member) { return member.program == &program; });
  std::vector<uint32_t> others = SessionsOf(*set);
  if (const kernels::Pass* pass = program.pass.load(std::memory_order_relaxed); pass != nullptr)
    --pass->members_left;
  if (set->members.size() < 2) {
    for (const Member& member : set->members)
      member.program->pass.store(nullptr, std::memory_order_release);
    Retire(std::exchange(set->memory, {}));
  }
  if (set->members.empty()) sets_.erase(set);
  return others;
}

// Runs in it may be in flight or about to be launched.
void Replicas::Retire(PassMemory memory) {
  if (memory.pass == nullptr) return;
  DispatcherMessage message(DispatcherMessage::Type::kGiveUpPass);
  message.pass = memory.pass.get();
  tell_(memory.allocation.gpu, message);
  retired_.push_back(std::move(memory));
}

void Replicas::Free(PassMemory& memory) {
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

uint32_t Replicas::CountOf(const kernels::Program& program) {
  const kernels::Pass* const pass = program.pass.load(std::memory_order_relaxed);
  return pass == nullptr ? 1 : pass->members_left;
}

}  // namespace concert::daemon
