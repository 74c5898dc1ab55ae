#include "tests/bench/model_tenants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace concert::bench {
namespace {

using testing::HasSubstr;

const std::string kDemo = CONCERT_SCENARIOS "/demo.json";

TenantScenario Demo() { return ReadTenantScenarios(kDemo, "^four").value().at(0); }

// All times are modelled: the same on every machine.
TEST(ModelTenantsTest, ClientsShareTheGpuAndTheUrgentOneGoesFirst) {
  const ModelOptions options;
  const ModelOutcome serial = ModelTenants(Demo(), "serial", options).value();
  const ModelOutcome streams = ModelTenants(Demo(), "streams", options).value();
  const ModelOutcome together = ModelTenants(Demo(), "auto", options).value();
  EXPECT_GT(streams.StepsPerSecond(), serial.StepsPerSecond());
  EXPECT_GT(together.StepsPerSecond(), 1.5 * serial.StepsPerSecond());
  EXPECT_LT(together.HighestClassUs(0.99), 0.7 * serial.HighestClassUs(0.99));
  EXPECT_EQ(serial.co_run_share, 0);
  EXPECT_GT(together.co_run_share, 0.2);
  ASSERT_EQ(together.clients.size(), 5u);
  for (const ModelClient& client : together.clients) EXPECT_FALSE(client.steps_us.empty());
}

TEST(ModelTenantsTest, ComesOutTheSameEveryTime) {
  const ModelOptions options{.run_time_ms = 5};
  const ModelOutcome once = ModelTenants(Demo(), "auto", options).value();
  const ModelOutcome again = ModelTenants(Demo(), "auto", options).value();
  for (size_t i = 0; i < once.clients.size(); ++i) {
    EXPECT_EQ(once.clients[i].steps_us, again.clients[i].steps_us);
  }
}

TEST(ModelTenantsTest, SaysWhatItDoesNotTake) {
  EXPECT_THAT(ModelTenants(Demo(), "best", {}).status().message(),
              HasSubstr("there is no policy named best"));
  TenantScenario scenario = Demo();
  scenario.clients[1].chain.gemms.resize(65, {16, 16, 16});
  EXPECT_THAT(ModelTenants(scenario, "auto", {}).status().message(),
              HasSubstr("has 65 GEMMs; the model takes 64"));
}

TEST(ModelTenantsTest, TheTableSaysThatItIsModelled) {
  std::ostringstream out;
  ASSERT_TRUE(RunModel({.scenarios = kDemo, .run_time_ms = 5}, out).ok());
  EXPECT_THAT(out.str(), HasSubstr("nothing here was measured"));
  EXPECT_THAT(out.str(), HasSubstr("four-servers-and-a-chat, 5 clients"));
  EXPECT_THAT(out.str(), testing::Not(HasSubstr("alone-")));
  for (const char* policy : {"\nserial ", "\nstreams ", "\nauto "}) {
    EXPECT_THAT(out.str(), HasSubstr(policy));
  }
}

// What `concert-bench model` prints.
TEST(ModelTenantsTest, TheReadmeShowsTheTable) {
  std::ostringstream out, readme;
  ASSERT_TRUE(RunModel({.scenarios = kDemo}, out).ok());
  readme << std::ifstream(CONCERT_README).rdbuf();
  EXPECT_THAT(readme.str(), HasSubstr(out.str())) << "copy it there";
}

}  // namespace
}  // namespace concert::bench
