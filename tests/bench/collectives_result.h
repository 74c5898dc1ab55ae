// What suite "collectives" makes of its measurements. Pure.
#ifndef CONCERT_TESTS_BENCH_COLLECTIVES_RESULT_H_
#define CONCERT_TESTS_BENCH_COLLECTIVES_RESULT_H_

#include <string>

#include "nlohmann/json.hpp"
#include "tests/bench/c3_result.h"
#include "tests/bench/collective_shape.h"

namespace concert::bench {

struct CollectiveSamples {
  Samples alone;         // microseconds until all ranks have seen the collective's end
  Samples beside;        // the same beside GEMMs
  Samples gemms_beside;  // until all have seen those GEMMs' end
  Samples both;          // until all have seen both: whichever ended later, run by run
};

// One size of one kind:
//   class                       the kind
//   times_us, beside_us, gemms_beside_us, both_us  each contender's spreads
//   algbw_gb_per_s, busbw_gb_per_s        of the medians alone: bytes / time, and that times the
//                               kind's factor (nccl-tests), in 10^9 bytes
//   beside_busbw_gb_per_s       of the medians beside GEMMs
//   bound_us                    what the links and the memory take at least
//   speedup_over, beside_speedup_over     of concert over nccl
//   speedup_8_sms               of concert_8_sms over nccl_8_ctas, alone
nlohmann::json DescribeCollective(const std::string& name, const CollectiveShape& shape,
                                  const CollectiveSamples& samples, double memory_bytes_per_s);

// What SpeedupSummary says of the times alone, and, each as in its "speedup_over":
//   beside, eight_sms  of the times beside GEMMs and of those with 8 SMs
//   small              of messages up to 64 KiB, alone
nlohmann::json CollectivesSummary(const nlohmann::json& scenarios, double tolerance);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_COLLECTIVES_RESULT_H_
