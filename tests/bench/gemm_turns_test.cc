// Contenders share outputs: whoever computes nothing must not pass with what another has written.
#include "tests/bench/gemm_turns.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace concert::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kForever = std::numeric_limits<int>::max();

// The memory of a workload of fp32 GEMMs with right results at hand.
class SharedMemory {
 public:
  SharedMemory() : workload_(scenario_, /*seed=*/7), image_(workload_.MakeImage()) {}

  GemmWorkload& workload() { return workload_; }
  void Poison() {
    ForEachOutput([&](int, int gemm, uint8_t* d) {
      const std::vector<uint8_t> poison = workload_.Poison(gemm);
      std::memcpy(d, poison.data(), poison.size());
    });
  }
  void Compute(int only_set = -1) {
    ForEachOutput([&](int set, int gemm, uint8_t* d) {
      if (only_set >= 0 && set != only_set) return;
      const GemmShape& s = workload_.shape(gemm);
      const auto* a = reinterpret_cast<const float*>(&image_[workload_.place(set, gemm).a]);
      const auto* w = reinterpret_cast<const float*>(&image_[workload_.place(set, gemm).w]);
      for (uint32_t i = 0; i < s.m * s.n; ++i) {
        float sum = 0;
        for (uint32_t k = 0; k < s.k; ++k) sum += a[i / s.n * s.k + k] * w[i % s.n * s.k + k];
        std::memcpy(d + i * sizeof(sum), &sum, sizeof(sum));
      }
    });
  }
  double WorstError() {
    double worst = 0;
    ForEachOutput([&](int set, int gemm, const uint8_t* d) {
      const double error =
          workload_.RelativeError(set, gemm, {d, d + workload_.output_bytes(gemm)});
      worst = std::isnan(worst) || std::isnan(error) ? NAN : std::max(worst, error);
    });
    return worst;
  }

 private:
  template <typename Use>
  void ForEachOutput(const Use& use) {
    for (int set = 0; set < workload_.sets(); ++set) {
      for (int gemm = 0; gemm < workload_.gemms(); ++gemm)
        use(set, gemm, image_.data() + workload_.place(set, gemm).d);
    }
  }

  const GemmScenario scenario_ = {.name = "x",
                                  .group = "",
                                  .gemms = {{4, 8, 16, Dtype::kFp32}, {8, 8, 24, Dtype::kFp32}},
                                  .unsupported = ""};
  GemmWorkload workload_;
  std::vector<uint8_t> image_;
};

// Computes in its first `busy_runs` runs, and after that only says so.
class FakeContender : public Contender {
 public:
  FakeContender(SharedMemory& memory, int busy_runs) : memory_(memory), busy_runs_(busy_runs) {}
  absl::StatusOr<double> Run(int) override {
    if (runs_++ < busy_runs_) memory_.Compute();
    return 1.0;
  }
  absl::Status PoisonOutputs() override {
    memory_.Poison();
    return absl::OkStatus();
  }
  absl::StatusOr<double> WorstError() override { return memory_.WorstError(); }

 private:
  SharedMemory& memory_;
  const int busy_runs_;
  int runs_ = 0;
};

Entrant MakeEntrant(const char* name, SharedMemory& memory, int busy_runs) {
  return {name, std::make_unique<FakeContender>(memory, busy_runs), {}};
}

absl::Status RunRounds(SharedMemory& memory, int busy_runs, int rounds) {
  std::vector<Entrant> entrants;
  entrants.push_back(MakeEntrant("honest", memory, kForever));
  entrants.push_back(MakeEntrant("idle", memory, busy_runs));
  entrants.push_back(MakeEntrant("other", memory, kForever));
  double worst = 0;
  return TakeTurns(entrants, memory.workload(), /*is_sim=*/true, rounds, worst);
}

TEST(GemmTurnsTest, RightResultsPassAndEveryRoundIsASample) {
  SharedMemory memory;
  std::vector<Entrant> entrants;
  entrants.push_back(MakeEntrant("one", memory, kForever));
  entrants.push_back(MakeEntrant("two", memory, kForever));
  double worst = 0;
  const absl::Status status = TakeTurns(entrants, memory.workload(), /*is_sim=*/true, 3, worst);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(entrants[0].samples_us.size(), 3u);
  EXPECT_EQ(entrants[1].samples_us.size(), 3u);
  EXPECT_GT(worst, 0);
}

TEST(GemmTurnsTest, WhoStopsComputingAfterTheWarmUpIsFoundInTheFirstRound) {
  SharedMemory memory;
  const absl::Status status = RunRounds(memory, /*busy_runs=*/1, /*rounds=*/5);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("idle computes wrong results"));
}

TEST(GemmTurnsTest, WhoStopsComputingLaterIsFoundInTheLastRound) {
  SharedMemory memory;
  const absl::Status status = RunRounds(memory, /*busy_runs=*/4, /*rounds=*/5);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("idle computes wrong results"));
}

// Batches one at a time; the entrant "idle" computes `busy_batches` of its batches.
absl::Status RunAlone(SharedMemory& memory, int busy_batches) {
  std::vector<IsolatedEntrant> entrants;
  int batches = 0;
  const auto compute = [&](int batch) -> absl::StatusOr<double> {
    memory.Compute(batch % memory.workload().sets());
    return 1.0;
  };
  entrants.push_back({"honest", compute, {}});
  entrants.push_back({"idle",
                      [&](int batch) -> absl::StatusOr<double> {
                        return batches++ < busy_batches ? compute(batch) : 1.0;
                      },
                      {}});
  FakeContender checker(memory, 0);
  double worst = 0;
  return TakeTurnsAlone(entrants, checker, memory.workload(), /*is_sim=*/false, worst);
}

TEST(GemmTurnsTest, BatchesAloneAreCheckedAtTheirBeginningAndTheirEnd) {
  SharedMemory memory;
  EXPECT_TRUE(RunAlone(memory, kForever).ok());
  for (const int busy_batches : {0, memory.workload().sets() + 100}) {
    const absl::Status status = RunAlone(memory, busy_batches);
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("idle computes wrong results"));
    EXPECT_THAT(status.message(), Not(HasSubstr("honest")));
  }
}

}  // namespace
}  // namespace concert::bench
