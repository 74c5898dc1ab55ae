// The seam every policy implements, and the registry of all of them. A policy is pure: same
// snapshots in, same plans out; no CUDA, I/O, threads or clock; no allocation in Decide. To add
// one, write a file pair and a row in registry.cc.
#ifndef CONCERT_POLICIES_SEAM_POLICY_H_
#define CONCERT_POLICIES_SEAM_POLICY_H_

#include <memory>
#include <span>
#include <string_view>

#include "policies/seam/plan.h"
#include "policies/seam/snapshot.h"

namespace concert::policies {

class TunedTable;

// A plan of which every op has finished without a failure and beside which nothing ran but plans of
// its class.
struct Outcome {
  uint64_t tag = 0;  // Plan::tag
  float predicted_us = 0;
  // Its share of what it and those that ran beside it took.
  float actual_us = 0;
};

// What a policy has counted since it was made.
struct PolicyStats {
  uint64_t known = 0;      // plans whose signature was remembered
  uint64_t unseen = 0;     // plans that were chosen anew
  uint64_t tuned = 0;      // GEMMs planned by measured times
  uint64_t modelled = 0;   // GEMMs planned by the cost model
  uint64_t corrected = 0;  // choices dropped because of what was measured
};

class Policy {
 public:
  virtual ~Policy() = default;

  // Decides what to launch now. `plan` is cleared first. An empty plan means "wait until something
  // finishes or becomes ready"; a policy must not return one while ops are ready and nothing is
  // running or has waited for ranks for less than 1 ms. Ops not named in the plan stay ready.
  // Collectives may only go to a collective lane and other work only to the other lanes. Called by
  // the scheduler while it has room for more launches. At most 1 us for 64 ops that were ready
  // together before; unseen, 20 us for 8 and 150 us for 64. Not thread-safe: one instance per
  // scheduler.
  virtual void Decide(const Snapshot& snapshot, Plan& plan) = 0;

  // The launches of all plans so far have been made, which have copied what they need: the policy
  // has back what the plans point to. Same thread as Decide.
  virtual void Reclaim() {}

  // Tells how a plan of this policy went, so that it can correct its predictions. Same thread as
  // Decide, at most 1 us.
  virtual void Learn(const Outcome& outcome) { static_cast<void>(outcome); }

  // From the next decision on this is what tuning has measured; null: nothing. What outcomes have
  // taught stays, but for work whose measured times are others now. Same thread as Decide; at most
  // 1 us, and it frees nothing but its reference to the table before.
  virtual void UseTuned(std::shared_ptr<const TunedTable> /*tuned*/) {}  // NOLINT: others keep it

  // Zeros where a policy counts nothing. Same thread as Decide.
  virtual PolicyStats stats() const { return {}; }
};

// What a policy has from the start.
struct PolicyInputs {
  DeviceModel device;
  std::shared_ptr<const TunedTable> tuned;  // null: nothing has been tuned
  // Null: group launches have no compiler here, and no policy plans any.
  MakeWorkListCompiler make_compiler = nullptr;

  // Null without DeviceModel::group_kernel, too.
  std::unique_ptr<WorkListCompiler> MakeCompiler() const {
    return make_compiler != nullptr && device.group_kernel ? make_compiler(device) : nullptr;
  }
};

struct PolicyInfo {
  std::string_view name;
  std::string_view summary;  // one line for `concertctl policy`
  std::unique_ptr<Policy> (*make)(const PolicyInputs& inputs);
};

// All policies, in the order they are listed to users; the first is the default.
std::span<const PolicyInfo> AllPolicies();

// Null if there is none of that name.
const PolicyInfo* FindPolicy(std::string_view name);

// The reason as a clause, e.g. "together is predicted faster".
std::string_view ReasonText(Reason reason);
std::string_view FormName(Form form);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_SEAM_POLICY_H_
