// What is shipped, what tests and benchmarks run, and what is documented are one thing.
#include <gtest/gtest.h>

#include "daemon/config/config.h"
#include "daemon/config/limits.h"
#include "daemon/sched/collective_issuer.h"
#include "daemon/sched/dispatcher.h"
#include "daemon/sched/engine.h"
#include "daemon/session/server.h"
#include "daemon/tuning/tuning.h"

namespace concert::daemon {
namespace {

TEST(DefaultsTest, SchedulersOfTestsAndBenchmarksDecideAsTheShippedOnes) {
  const Config config;
  const DispatcherOptions dispatcher;
  EXPECT_EQ(dispatcher.scheduler.depth, config.depth);
  EXPECT_EQ(dispatcher.scheduler.backlog_ns, config.backlog_us * 1'000);
  EXPECT_EQ(dispatcher.scheduler.wait_timeout_ns, config.wait_timeout_ms * 1'000'000);
  EXPECT_EQ(dispatcher.spin_ns, config.spin_us * 1'000);
  EXPECT_EQ(dispatcher.pin, config.pin_dispatchers);
  EXPECT_EQ(dispatcher.sim_races, SimRaces::kError);
  EXPECT_EQ(config.sim_races, "error");
  const CollectiveIssuer::Options issuer;
  EXPECT_EQ(issuer.spin_ns, config.spin_us * 1'000);
  EXPECT_EQ(issuer.rendezvous.timeout_ns, config.collective_timeout_ms * 1'000'000);
}

TEST(DefaultsTest, ServersOfTestsHaveTheShippedQuotas) {
  const Config config;
  const EngineOptions engine;
  const Limits limits = LimitsOf(config);
  for (const ResourceInfo& info : AllResources()) {
    EXPECT_EQ(engine.limits[info.resource].per_user, limits[info.resource].per_user) << info.name;
    EXPECT_EQ(engine.limits[info.resource].in_all, limits[info.resource].in_all) << info.name;
  }
  const ServerOptions server;
  EXPECT_EQ(server.ring_capacity, config.ring_capacity);
  const TuningOptions tuning;
  EXPECT_EQ(tuning.idle, config.tune_idle);
  EXPECT_EQ(tuning.budget_s, static_cast<double>(config.tune_budget_s));
}

}  // namespace
}  // namespace concert::daemon
