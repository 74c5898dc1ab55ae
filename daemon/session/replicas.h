// Which registered programs are replicas: the same but for their state, over the same weights.
// Keeps for each set of them the pass in which their runs go together (kernels/program/pass.h).
#ifndef CONCERT_DAEMON_SESSION_REPLICAS_H_
#define CONCERT_DAEMON_SESSION_REPLICAS_H_

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "daemon/device/device.h"
#include "daemon/quota/account.h"
#include "daemon/sched/messages.h"
#include "daemon/session/program_text.h"
#include "kernels/program/pass.h"

namespace concert::daemon {

// The control thread's, but for MakePass.
class Replicas {
  struct Member {
    std::shared_ptr<const kernels::Program> program;
    std::shared_ptr<const ProgramText> text;
    uint32_t session;
  };
  struct PassMemory {
    std::unique_ptr<kernels::Pass> pass;
    Allocation allocation;
    Account* account = nullptr;
  };

 public:
  // `tell`: sends a message to a GPU's dispatcher. Both outlive this.
  using Teller = std::function<void(int gpu, const DispatcherMessage& message)>;
  Replicas(Node& node, Teller tell) : node_(node), tell_(std::move(tell)) {}
  // REQUIRES: idle(), and all programs have left.
  ~Replicas();

  // Programs that are to have a pass: some may leave before it is made.
  class Union {
    friend class Replicas;
    std::vector<Member> members_;
    Account* account_ = nullptr;
    int gpu_ = 0;
  };
  // A pass of theirs, or why there is none.
  using Made = absl::StatusOr<PassMemory>;

  // A program that was registered by this session, of the account's user, which outlives it; `text`
  // is what it was made of. Where it has replicas, the union of all of them: the next call must be
  // Unite of what MakePass makes of it, or a Leave before that.
  std::optional<Union> Join(std::shared_ptr<const kernels::Program> program,
                            std::shared_ptr<const ProgramText> text, uint32_t session,
                            Account& account);
  // Takes as long as the device's Prepare, on the same thread. Not an error if none can be made, be
  // it for want of memory: then runs go alone.
  Made MakePass(const Union& joined) const;
  // Those that are still there go together in it. This and the next return sessions whose programs
  // have more or fewer replicas now, some perhaps twice.
  std::vector<uint32_t> Unite(const Union& joined, Made made);
  // No run of it is left. A program that never joined is ignored.
  std::vector<uint32_t> Leave(const kernels::Program& program);

  // Frees passes that nobody uses any more. To be called again and again.
  void Collect();
  // Whether there is nothing to collect.
  bool idle() const { return retired_.empty(); }
  // How many programs go together with this one, it included; 1: none but itself.
  static uint32_t CountOf(const kernels::Program& program);

 private:
  struct Set {
    Account* account = nullptr;
    int gpu = 0;
    uint64_t hash = 0;
    std::vector<Member> members;
    PassMemory memory;  // its pass is null where there is none
  };

  static std::vector<uint32_t> SessionsOf(const Set& set);
  std::list<Set>::iterator FindSet(const kernels::Program& program);
  void Retire(PassMemory memory);
  void Free(PassMemory& memory) const;

  Node& node_;
  const Teller tell_;
  std::list<Set> sets_;
  std::vector<PassMemory> retired_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SESSION_REPLICAS_H_
