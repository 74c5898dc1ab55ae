// What tuning finds of collectives on a simulated node that knows only times: its own curves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "daemon/device/sim/sim_node.h"
#include "daemon/tuning/tuning.h"
#include "policies/cost/collective_cost.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/tuning/curves_for_test.h"

namespace concert::daemon {
namespace {

using policies::CollectiveKind;
using policies::Transport;
using policies::TransportCurve;
using testing::HasSubstr;

// As the simulator's: nothing of it is a constant of today's. Launches and floors take twenty times
// what they do on GPUs: what the host takes for a launch is part of what is measured, in real time,
// and differs by some microseconds.
policies::DeviceModel Model() {
  constexpr double kTimes = 20;
  policies::DeviceModel model{.group_kernel = true};
  model.launch_us *= kTimes;
  model.transports = policies::TransportSet::All();
  TransportCurve peer = policies::kTransportCurves.Of(Transport::kPeer, 2);
  peer.floor_us = 31 * kTimes, peer.small_floor_us = 9 * kTimes, peer.bytes_per_s_per_sm = 60e9;
  peer.link_share = {0.6, 0.65, 0.7, 0.5, 0.8};
  model.transport_curves.Of(Transport::kPeer, 2) = peer;
  model.transport_curves.Of(Transport::kCopyEngine, 2).floor_us = 12 * kTimes;
  for (const Transport transport : {Transport::kNccl, Transport::kHybrid})
    model.transport_curves.Of(transport, 2).floor_us *= kTimes;
  return model;
}

class CollectiveTunerTest : public testing::Test {
 protected:
  CollectiveTunerTest() {
    sim::SimOptions options{.gpus = 2, .model = Model(), .compute = false};
    node_ = *sim::SimNode::Open(options);
    engine_ = Engine::Create({}, *node_, rings_).value();
    engine_->Start();
  }
  ~CollectiveTunerTest() override {
    if (tuning_ != nullptr) tuning_->Stop();
    engine_->Stop();
  }
  Tuning& StartTuning(bool beside_gemms, uint64_t tensor_bytes = 64 << 20) {
    TuningOptions options{.store_path = folder_.path() + "/tuning.sqlite3"};
    // Rows that last while threads wait for a CPU.
    options.collectives = {.tensor_bytes = tensor_bytes,
                           .beside_gemms = beside_gemms,
                           .least_row_gemms = 200,
                           .most_row_gemms = 900};
    tuning_ = std::make_unique<Tuning>(options, *engine_);
    tuning_->Start();
    return *tuning_;
  }
  absl::Status Tune(Tuning& tuning) {
    const auto id = tuning.StartJob({.collectives = true, .budget_s = 60});
    if (!id.ok()) return id.status();
    TuningJob job;
    do {
      job = tuning.WaitForChange(*id, job.version, std::chrono::seconds(1));
    } while (job.running);
    progress_ = job.progress;
    return job.out_of_time ? absl::DeadlineExceededError("out of time") : job.result;
  }

  const test::TempFolder folder_;
  std::unique_ptr<sim::SimNode> node_;
  RecordRing records_[2] = {RecordRing(0), RecordRing(0)};
  RecordRing* rings_[2] = {&records_[0], &records_[1]};
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Tuning> tuning_;
  TuningProgress progress_;
};

TEST_F(CollectiveTunerTest, FindsTheCurvesOfASimulatedNode) {
  Tuning& tuning = StartTuning(/*beside_gemms=*/false);
  ASSERT_TRUE(Tune(tuning).ok());
  EXPECT_EQ(progress_.written_rows, 4u);
  const std::vector<StoredCurve> curves = tuning.Curves();
  ASSERT_EQ(curves.size(), 4u);
  const double launch_us = Model().launch_us;  // which a launch takes before it starts
  for (const StoredCurve& stored : curves) {
    SCOPED_TRACE(policies::kTransportNames[static_cast<size_t>(stored.transport)]);
    EXPECT_LT(stored.fit_error, 0.03);
    const TransportCurve truth = Model().transport_curves.Of(stored.transport, 2);
    EXPECT_NEAR(stored.curve.floor_us, truth.floor_us + launch_us, 0.05 * truth.floor_us);
    if (truth.small_bytes > 0) {
      EXPECT_NEAR(stored.curve.small_floor_us, truth.small_floor_us + launch_us,
                  0.05 * truth.small_floor_us);
    }
    EXPECT_NEAR(stored.curve.bytes_per_s_per_sm, truth.bytes_per_s_per_sm,
                0.05 * truth.bytes_per_s_per_sm);
    for (size_t kind = 0; kind < truth.link_share.size(); ++kind) {
      if (stored.transport == Transport::kHybrid && kind > 0) continue;  // it carries all-reduce
      if (stored.transport == Transport::kCopyEngine &&
          (kind == 0 || kind == static_cast<size_t>(CollectiveKind::kReduceScatter)))
        continue;  // and copies reduce nothing
      EXPECT_NEAR(stored.curve.link_share[kind], truth.link_share[kind],
                  0.05 * truth.link_share[kind])
          << kind;
    }
  }
}

TEST_F(CollectiveTunerTest, MeasuresWhatGemmsAndCollectivesCostEachOther) {
  Tuning& tuning = StartTuning(/*beside_gemms=*/true, 16 << 20);
  const absl::Status status = Tune(tuning);
  ASSERT_TRUE(status.ok()) << status;
  for (const StoredCurve& stored : tuning.Curves()) {
    SCOPED_TRACE(policies::kTransportNames[static_cast<size_t>(stored.transport)]);
    EXPECT_GE(stored.curve.beside_gemm, 0.99);
    EXPECT_LT(stored.curve.beside_gemm, 2);
    if (stored.transport != Transport::kPeer) continue;
    // On a busy machine what GEMMs lose is measured badly; that it was measured is seen here.
    EXPECT_TRUE(stored.curve.gemm_per_sms != TransportCurve().gemm_per_sms ||
                stored.curve.gemm_per_link != TransportCurve().gemm_per_link)
        << "not measured";
  }
}

TEST_F(CollectiveTunerTest, CurvesOfElsewhereAreTakenOrRefusedOneByOne) {
  Tuning& tuning = StartTuning(false);
  StoredCurve slow = CurveFor(Transport::kPeer), bad = slow;
  slow.curve.floor_us = 1e5;
  bad.curve.floor_us = -1;
  const auto result = tuning.ImportCurves(std::vector<StoredCurve>{slow, bad});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->imported, 1u);
  EXPECT_EQ(result->refused, 1u);
  EXPECT_THAT(result->first_refusal, HasSubstr("floor_us is -1"));
  EXPECT_EQ(tuning.Curves().size(), 1u);
  EXPECT_EQ(tuning.Summary().curves, 1u);
}

}  // namespace
}  // namespace concert::daemon
