// Who takes part in the suites "c3" and "collectives": plain data, whether ranks are processes on a
// node or modelled.
#ifndef CONCERT_TESTS_BENCH_RANK_CONTENDER_H_
#define CONCERT_TESTS_BENCH_RANK_CONTENDER_H_

#include <string>
#include <vector>

#include "tests/bench/collective_shape.h"

namespace concert::bench {

struct RankContender {
  std::string name;
  std::string policy;     // of a private daemon; empty: ranks launch by themselves
  std::string transport;  // the daemon's; empty: its own choice
  int sms = 0;            // the daemon's collective_sms
  std::string way;        // of ranks that launch by themselves: FindLocalWay
};

// Whether collectives of this kind go by the contender's transport: where it cannot carry them they
// would go by NCCL, which is another contender.
bool Carries(const RankContender& contender, CollectiveKind kind);

// Of suite "c3".
struct C3Member {
  enum class Role { kConcert, kBaseline, kForm };

  RankContender contender;
  Role role = Role::kForm;
  bool gemm_alone = false, collective_alone = false;  // also measured so
};

// What a process without concert can do, and where there is no library to call, as on the
// simulator, the policies that stand in for it.
std::vector<C3Member> C3Baselines(bool by_policies);

// Everything that the policy may choose, by daemons that can do nothing else. It holds NCCL to some
// SMs only where a node is configured so.
std::vector<C3Member> C3Forms();

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_RANK_CONTENDER_H_
