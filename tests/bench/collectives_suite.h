// Suite "collectives": latency and bus bandwidth of every kind and size, in nccl-tests' terms.
#ifndef CONCERT_TESTS_BENCH_COLLECTIVES_SUITE_H_
#define CONCERT_TESTS_BENCH_COLLECTIVES_SUITE_H_

#include <iosfwd>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "tests/bench/suite.h"

namespace concert::bench {

// All kinds, 1 KiB to 1 GiB in steps of 4, a process a rank on every GPU of the node. Contenders
// take turns round by round, in one process life, alone and beside GEMMs that take longer:
//   concert, concert_8_sms  the daemon under --policy, and one whose collectives have 8 SMs at most
//   nccl, nccl_8_ctas       NCCL called by the ranks on a stream of high priority; 8 CTAs at most
// On the simulator the last two are daemons held to NCCL. options.filter chooses among the names,
// "all_reduce-16KiB".
absl::Status RunCollectivesSuite(const RunOptions& options, nlohmann::json& result);

void PrintCollectivesResult(const nlohmann::json& result, std::ostream& out);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_COLLECTIVES_SUITE_H_
