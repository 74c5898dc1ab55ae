// concertctl collectives against concertd on the simulator: who waits for whom.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "client/ctl/concertctl.h"
#include "client/include/concert/concert.hpp"
#include "tests/bench/private_daemon.h"

namespace concert::test {
namespace {

using bench::PrivateDaemon;
using testing::HasSubstr;

class CollectivesTest : public testing::Test {
 protected:
  void SetUp() override {
    auto daemon = PrivateDaemon::Start({.device = "sim"});
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
  }
  std::string Ctl(std::vector<const char*> args) {
    const std::string socket = daemon_->admin_socket();
    std::vector<const char*> argv = {"concertctl", "--socket", socket.c_str()};
    argv.insert(argv.end(), args.begin(), args.end());
    std::ostringstream out;
    EXPECT_EQ(ctl::RunConcertctl(static_cast<int>(argv.size()), argv.data(), "concertctl test", out,
                                 out, false),
              0)
        << out.str();
    return out.str();
  }
  // The answer, once `wanted` says that it is the one.
  template <typename Wanted>
  nlohmann::json Await(Wanted wanted) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    for (;;) {
      nlohmann::json answer = nlohmann::json::parse(Ctl({"--json", "collectives"}));
      if (wanted(answer) || std::chrono::steady_clock::now() > deadline) return answer;
    }
  }

  std::unique_ptr<PrivateDaemon> daemon_;
};

struct Rank {
  explicit Rank(const std::string& socket, uint32_t rank)
      : session(Session::Connect({.socket_path = socket}).value()),
        queue(session.CreateQueue({.gpu = rank}).value()),
        data(session.Allocate(1024, rank).value()),
        group(session.Join({.name = "tp", .rank = rank, .ranks = 2, .gpu = rank}).value()) {}
  Ticket Reduce(const SubmitOptions& options = {}) {
    return queue.AllReduce(*group, {.data = data, .count = 256, .dtype = kFp32}, options);
  }

  Session session;
  Queue queue;
  Buffer data;
  std::optional<Communicator> group;
};

TEST_F(CollectivesTest, SayWhichRankIsMissingUntilItComes) {
  EXPECT_THAT(Ctl({"collectives"}), HasSubstr("0 communicators"));
  Rank zero(daemon_->socket(), 0), one(daemon_->socket(), 1);
  for (int i = 0; i < 3; ++i) {  // so that the one that waits is the fourth
    const Ticket mine = zero.Reduce(), theirs = one.Reduce();
    ASSERT_TRUE(mine.Wait().ok());
    ASSERT_TRUE(theirs.Wait().ok());
  }
  const Ticket waits = zero.Reduce();
  // The third is listed, too, until the daemon has seen that it has ended, which its clients may
  // see sooner.
  const auto has_fourth_only = [](const nlohmann::json& answer) {
    return answer["collectives"].size() == 1 && answer["collectives"][0]["sequence"] == 3;
  };
  const nlohmann::json answer = Await(has_fourth_only);
  ASSERT_TRUE(has_fourth_only(answer)) << answer;
  EXPECT_EQ(answer["communicator_count"], 1);
  EXPECT_EQ(answer["cut"], false);
  const nlohmann::json& waiting = answer["collectives"][0];
  EXPECT_EQ(waiting["kind"], "all_reduce");
  EXPECT_EQ(waiting["bytes"], 1024);
  EXPECT_EQ(waiting["running"], false);
  EXPECT_EQ(waiting["rank_count"], 2);
  EXPECT_EQ(waiting["ranks_there_count"], 1);
  EXPECT_GE(waiting["seconds"], 0);
  EXPECT_EQ(waiting["ranks"][0]["state"], "there");
  EXPECT_EQ(waiting["ranks"][1]["state"], "missing");
  EXPECT_EQ(waiting["ranks"][1]["gpu"], 1);
  EXPECT_NE(waiting["ranks"][0]["session_id"], waiting["ranks"][1]["session_id"]);
  const std::string session = std::to_string(waiting["ranks"][1]["session_id"].get<uint32_t>());
  EXPECT_THAT(Ctl({"collectives"}), HasSubstr("1 of 2  1 (GPU 1, session " + session + ")"));

  const Ticket comes = one.Reduce();
  ASSERT_TRUE(waits.Wait().ok());
  ASSERT_TRUE(comes.Wait().ok());
  const auto has_none = [](const nlohmann::json& answer) { return answer["collectives"].empty(); };
  EXPECT_TRUE(has_none(Await(has_none))) << "what has ended does not run";
}

// The other rank is told who left, and nobody waits for a gate that opens later.
TEST_F(CollectivesTest, EndForAllWhenARankLeavesWithItsPartQueued) {
  constexpr std::chrono::seconds kLimit(20);
  Rank zero(daemon_->socket(), 0), one(daemon_->socket(), 1);
  const UserTimeline gate = one.session.CreateUserTimeline().value();
  const Ticket theirs = one.Reduce({.waits = {gate.At(1)}}), mine = zero.Reduce();
  one.group.reset();
  EXPECT_EQ(mine.Wait(kLimit).ToString(), "CANCELLED: rank 1 left communicator 'tp'");
  gate.Signal(1).Check();
  // Whether or not the daemon had seen it by the time that the rank left.
  const Status queued = theirs.Wait(kLimit);
  EXPECT_TRUE(queued.code() == CONCERT_CANCELLED || queued.code() == CONCERT_NOT_FOUND)
      << queued.ToString();
  EXPECT_TRUE(
      zero.queue.Copy({.src = zero.data, .dst = {zero.data, 512}, .bytes = 512}).Wait(kLimit).ok())
      << "the queue goes on";
}

TEST_F(CollectivesTest, AreInPlaceInTheRanksOwnPartAlone) {
  constexpr std::chrono::seconds kLimit(20);
  Rank zero(daemon_->socket(), 0), one(daemon_->socket(), 1);
  const auto gather = [](Rank& rank, uint64_t part) {
    return rank.queue.AllGather(
        *rank.group,
        {.src = {rank.data, part * 512}, .dst = rank.data, .count = 128, .dtype = kFp32});
  };
  const Ticket first = gather(zero, 0), second = gather(one, 1);
  EXPECT_EQ(first.Wait(kLimit).ToString() + second.Wait(kLimit).ToString(), "OKOK");
  const Ticket refused = gather(one, 0), theirs = gather(zero, 0);
  EXPECT_THAT(refused.Wait(kLimit).ToString(), HasSubstr("dst overlaps src"));
  EXPECT_EQ(theirs.Wait(kLimit).code(), CONCERT_CANCELLED);
}

TEST_F(CollectivesTest, SayWhoHasNotJoined) {
  Rank zero(daemon_->socket(), 0);
  const Ticket waits = zero.Reduce();
  const auto has_one = [](const nlohmann::json& answer) {
    return answer["collectives"].size() == 1;
  };
  const nlohmann::json answer = Await(has_one);
  ASSERT_TRUE(has_one(answer)) << answer;
  EXPECT_EQ(answer["collectives"][0]["ranks"][1]["state"], "not joined");
  EXPECT_TRUE(answer["collectives"][0]["ranks"][1]["gpu"].is_null());
  EXPECT_THAT(Ctl({"collectives"}), HasSubstr("1 (not joined)"));
}

}  // namespace
}  // namespace concert::test
