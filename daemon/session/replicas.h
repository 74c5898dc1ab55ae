// Which registered programs are replicas: the same but for their state, over the same weights.
// Keeps for each set of them the pass in which their runs go together (kernels/program/pass.h).
#ifndef CONCERT_DAEMON_SESSION_REPLICAS_H_
#define CONCERT_DAEMON_SESSION_REPLICAS_H_

#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "daemon/device/device.h"
#include "daemon/quota/account.h"
#include "daemon/sched/messages.h"
#include "daemon/session/program_text.h"
#include "kernels/program/pass.h"

namespace concert::daemon {

// The control thread's, but for MakePass, which touches nothing that changes.
class Replicas {
  struct Member {
    std::shared_ptr<const kernels::Program> program;
    std::shared_ptr<const ProgramText> text;
    uint32_t session, index;
  };
  // What programs have in common that look alike.
  struct Look {
    Account* account = nullptr;
    int gpu = 0;
    uint64_t hash = 0;
    auto operator<=>(const Look&) const = default;
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

  // A program that looks like others, and these, set by set.
  class Joining {
    friend class Replicas;
    struct Candidate {
      uint64_t set;
      std::vector<Member> members;
    };
    Member member_;
    Look look_;
    std::vector<Candidate> candidates_;
  };
  // With which of the candidates it goes, and a pass of all of them or why there is none.
  class Made {
    friend class Replicas;
    std::optional<size_t> candidate_;
    absl::StatusOr<PassMemory> pass_ = absl::NotFoundError("no replica");
  };

  // What one needs to know of a program to find and to unite its replicas.
  struct Likeness {
    uint64_t hash = 0;  // the same for programs that are alike
    std::shared_ptr<const ProgramText> text;
  };
  // How many programs go together with one, itself included, which is its session's by this index.
  struct Count {
    uint32_t session, index, replicas;
  };

  // `text` is what the program was made of. None if no pass of it would be worth it. Takes as long
  // as the program has ops; any thread.
  static std::optional<Likeness> LikenessOf(const kernels::Program& program, ProgramText text);
  // A program that was registered by this session, of the account's user, which outlives it;
  // `index` tells it from others of the session. Where others look like it, MakePass is to be
  // called for what this returns, and Unite with what that makes, before the next Join and before
  // the program leaves.
  std::optional<Joining> Join(std::shared_ptr<const kernels::Program> program, Likeness likeness,
                              uint32_t session, uint32_t index, Account& account);
  // Takes as long as the device's Prepare, on the same thread. Not an error if none can be made, be
  // it for want of memory: then runs go alone. Others may leave meanwhile.
  Made MakePass(const Joining& joining) const;
  // Those that are still there go together. This and the next return programs that may have more
  // or fewer replicas now.
  std::vector<Count> Unite(const Joining& joining, Made made);
  // No run of it is left. A program that never joined is ignored.
  std::vector<Count> Leave(const kernels::Program& program);

  // Frees passes that nobody uses any more. To be called again and again.
  void Collect();
  // Whether there is nothing to collect.
  bool idle() const { return retired_.empty(); }

 private:
  struct Set {
    uint64_t id = 0;
    std::vector<Member> members;  // that can be in one pass
    PassMemory memory;            // its pass is null where there is none
  };
  // Users may have thousands, which come and go one by one: none is looked for among all.
  using Sets = std::multimap<Look, Set>;

  static std::vector<Count> CountsOf(const Set& set);
  static bool GoWell(const Member& one, const Member& other);
  // To the candidate's set, or a new one if there is none any more. The set.
  Set& Add(const Joining& joining, std::optional<size_t> candidate);
  absl::StatusOr<PassMemory> MakePass(std::span<const Member> members, Account& account) const;
  void Retire(PassMemory memory);
  void Free(PassMemory& memory) const;

  Node& node_;
  const Teller tell_;
  Sets sets_;
  absl::flat_hash_map<const kernels::Program*, Sets::iterator> set_of_;
  uint64_t last_set_ = 0;
  std::vector<PassMemory> retired_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SESSION_REPLICAS_H_
