// What `auto` makes of a cost model that is wrong, in virtual time: the real dispatcher, scheduler
// and policy.
#include "tests/bench/model_rounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace concert::bench {
namespace {

struct Times {
  double group, library;  // what kernels take over what is predicted
};

std::vector<GemmShape> Gemms(int count, GemmShape shape) {
  return {static_cast<size_t>(count), shape};
}

double BatchUs(const std::vector<GemmShape>& shapes, const std::string& policy, Times times) {
  RoundsOptions options;
  options.policy = policy;
  options.batches = 1000;
  options.costs.group_times = times.group;
  options.costs.library_times = times.library;
  const absl::StatusOr<Prediction> prediction = Rounds(shapes, options).Run();
  EXPECT_TRUE(prediction.ok()) << prediction.status();
  return prediction.ok() ? prediction->batch_us : 0;
}

TEST(ModelRoundsTest, AutoIsAsFastAsTheFastestFormHoweverWrongItsModel) {
  const std::vector<std::vector<GemmShape>> sets = {
      Gemms(2, {.m = 4637, .n = 2264, .k = 1896}),
      {{.m = 512, .n = 4096, .k = 4096},
       {.m = 1500, .n = 1024, .k = 3072},
       {.m = 64, .n = 4096, .k = 1024}},
  };
  for (const Times times :
       {Times{1, 1}, Times{1, 0.6}, Times{1, 1.5}, Times{1.5, 1}, Times{0.7, 1}}) {
    for (const std::vector<GemmShape>& shapes : sets) {
      SCOPED_TRACE(testing::Message()
                   << shapes.size() << " GEMMs, groups take " << times.group
                   << " of what is predicted, library kernels " << times.library);
      const double best_us =
          std::min({BatchUs(shapes, "serial", times), BatchUs(shapes, "streams", times),
                    BatchUs(shapes, "group", times)});
      EXPECT_LT(BatchUs(shapes, "auto", times), 1.03 * best_us);
    }
  }
}

}  // namespace
}  // namespace concert::bench
