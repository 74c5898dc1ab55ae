// Which ranks have joined which communicator. Control thread only.
#ifndef CONCERT_DAEMON_SESSION_COMMUNICATORS_H_
#define CONCERT_DAEMON_SESSION_COMMUNICATORS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "daemon/sched/rendezvous.h"

namespace concert::daemon {

class Communicators {
 public:
  // 16 GPUs with up to 16 processes each.
  static constexpr uint32_t kMaxRanks = Rendezvous::kMaxRanks;

  struct Joined {
    uint32_t communicator = 0;
    bool complete = false;  // this was the last rank
    std::vector<int> gpus;  // of all ranks, in order, when complete
  };

  // Ranks of one uid meet under a name. Once a rank has left, the name is free for a new
  // communicator. The error names the field that does not fit what the others said.
  absl::StatusOr<Joined> Join(uint32_t uid, const std::string& name, uint32_t rank, uint32_t ranks,
                              int gpu);
  // One of its ranks left.
  void Leave(uint32_t communicator);

 private:
  struct Communicator {
    std::pair<uint32_t, std::string> key;
    std::vector<int> gpu_of_rank;  // -1: not joined
    uint32_t joined = 0;
    uint32_t present = 0;
    bool open = true;  // no rank has left
  };

  std::map<std::pair<uint32_t, std::string>, uint32_t> by_name_;
  absl::flat_hash_map<uint32_t, Communicator> communicators_;
  uint32_t next_ = 1;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SESSION_COMMUNICATORS_H_
