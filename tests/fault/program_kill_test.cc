// kill -9 in the middle of programs: of their registration, of runs, of passes, of sealing, and of
// batches that have become programs.
//
// CONCERT_TEST_REPETITIONS says how many clients are killed.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/quota/resource.h"
#include "tests/fault/child.h"
#include "tests/fault/fault_fixture.h"
#include "tests/fault/program_child.h"
#include "tests/support/repetitions.h"
#include "tests/support/seed.h"

namespace concert::test {
namespace {

using daemon::Resource;

constexpr std::chrono::seconds kTimeout{30};

// Runs steps of the model whose weights the doomed have sealed, too, so that its program is a
// replica of theirs, and compares all that they leave with what they left when it was alone.
class Survivor {
 public:
  Survivor(const TestDaemon& daemon, uint32_t seed)
      : session_(daemon.Connect("survivor")),
        model_(SealedModel(session_, seed)),
        queue_(session_.CreateQueue().value()),
        tokens_(session_.Allocate(kTokensStride * (kSteps + 1)).value()),
        state_(kRows * kHidden),
        first_(kRows) {
    model_.state.Read(state_.data(), state_.size() * kElement).Check();
    for (uint32_t row = 0; row < kRows; ++row) first_[row] = static_cast<int32_t>(row * 7);
    program_ = MakeStep(session_, model_);
    wanted_ = Steps();
    thread_ = std::thread([this] { Work(); });
  }
  ~Survivor() { Stop(); }

  // Waits for results of steps that it submitted after this call.
  bool Progresses() const {
    const uint64_t seen = rounds_;
    return Eventually([&] { return rounds_ >= seen + 2; });
  }
  // What went wrong, or "".
  std::string Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return trouble_;
  }
  uint64_t rounds() const { return rounds_; }

 private:
  static constexpr uint64_t kSteps = 12;

  // The state and the tokens of each step, beginning anew.
  std::vector<int64_t> Steps() {
    model_.state.Write(state_.data(), state_.size() * kElement).Check();
    tokens_.Write(first_.data(), kRows * 4).Check();
    for (uint64_t step = 0; step < kSteps; ++step) {
      const uint64_t at = step * kTokensStride;
      queue_.Run({.program = program_, .bindings = {{tokens_, at}, {tokens_, at + kTokensStride}}})
          .submit_status()
          .Check();
    }
    if (const Status status = queue_.last().Wait(kTimeout); !status.ok()) return {status.code()};
    std::vector<uint16_t> state(state_.size());
    model_.state.Read(state.data(), state.size() * kElement).Check();
    std::vector<int64_t> left(state.begin(), state.end());
    for (uint64_t step = 1; step <= kSteps; ++step) {
      std::vector<int32_t> row(kRows);
      tokens_.Read(row.data(), kRows * 4, step * kTokensStride).Check();
      left.insert(left.end(), row.begin(), row.end());
    }
    return left;
  }
  void Work() {
    for (; !stop_; ++rounds_) {
      if (Steps() == wanted_) continue;
      trouble_ = "round " + std::to_string(rounds_) + " left something else";
      return;
    }
  }

  const Session session_;
  const Model model_;
  Queue queue_;
  const Buffer tokens_;
  std::vector<uint16_t> state_;
  std::vector<int32_t> first_;
  Program program_;
  std::vector<int64_t> wanted_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> rounds_{0};
  std::string trouble_;  // the thread's until it is joined
  std::thread thread_;
};

class ProgramKillTest : public FaultTest {
 protected:
  ProgramKillTest() : FaultTest({.gpus = 1}) {}

  uint64_t used(Resource resource) { return daemon_.engine().accounts().node().of(resource); }
  // Of all sessions.
  size_t programs() {
    size_t count = 0;
    for (const daemon::SessionSummary& session : daemon_.server().Sessions())
      count += session.programs.size();
    return count;
  }

  // What a client had when it was killed, of all kills.
  void NoteWhatThereIs() {
    for (const daemon::SessionSummary& session : daemon_.server().Sessions()) {
      if (session.name != "doomed") continue;
      const auto any = [&](const auto& has) {
        return std::any_of(session.programs.begin(), session.programs.end(), has) ? 1 : 0;
      };
      replicas_ += any([](const kernels::ProgramSummary& one) { return one.replicas > 2; });
      batches_ += any([](const kernels::ProgramSummary& one) { return one.of_batch; });
      sealed_ += session.shared_bytes > 0 ? 1 : 0;
    }
  }

  // Starts a client and kills it when it has done so many things. False if it ended before.
  bool StartAndKill(uint32_t seed, uint32_t after) {
    int ends[2];
    if (pipe(ends) != 0 || fcntl(ends[0], F_SETFD, FD_CLOEXEC) != 0) return false;
    Child child({"programs", daemon_.socket(), std::to_string(seed), std::to_string(ends[1])});
    close(ends[1]);
    char byte;
    bool lives = true;
    for (uint32_t i = 0; i < after && lives; ++i) lives = read(ends[0], &byte, 1) == 1;
    NoteWhatThereIs();
    child.Kill();
    close(ends[0]);
    return lives;
  }

  int replicas_ = 0, batches_ = 0, sealed_ = 0;
};

TEST_F(ProgramKillTest, NobodyElseNoticesAndNothingStays) {
  const uint32_t seed = test::Seed(), kills = test::Repetitions(12);
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  {
    Survivor survivor(daemon_, seed);
    ASSERT_TRUE(healthy_->Progresses());  // it has all that it needs
    // Its pass with who was killed goes a moment later.
    const uint64_t held = daemon_.server().sealed_bytes(0).held,
                   bytes = used(Resource::kBufferBytes);
    for (uint32_t i = 0; i < kills; ++i) {
      SCOPED_TRACE("kill " + std::to_string(i));
      ASSERT_TRUE(StartAndKill(seed, random() % 80));
      EXPECT_TRUE(Eventually([&] { return daemon_.server().session_count() == 2; }));
      EXPECT_TRUE(Eventually([&] { return used(Resource::kBufferBytes) == bytes; }));
      EXPECT_EQ(daemon_.server().sealed_bytes(0).held, held);
      EXPECT_EQ(daemon_.server().sealed_bytes(0).saved, 0u);
      EXPECT_EQ(programs(), 1u);
      ASSERT_FALSE(HasFailure());
    }
    EXPECT_TRUE(survivor.Progresses());
    EXPECT_EQ(survivor.Stop(), "");
    std::printf(
        "%u clients killed, %d with replicas in two sessions, %d with programs of batches, %d with "
        "sealed "
        "weights; the survivor went %lu rounds\n",
        kills, replicas_, batches_, sealed_, survivor.rounds());
    EXPECT_TRUE(kills < 12 || (replicas_ > 0 && batches_ > 0 && sealed_ > 0));
  }
  EXPECT_EQ(healthy_->Stop(), "");
  healthy_.reset();
  EXPECT_TRUE(daemon_.WaitUntilEmpty());
  for (const daemon::ResourceInfo& info : daemon::AllResources()) {
    EXPECT_TRUE(Eventually([&] { return used(info.resource) == 0; }))
        << info.name << ": " << used(info.resource);
  }
  EXPECT_EQ(daemon_.server().sealed_bytes(0).held, 0u);
}

}  // namespace
}  // namespace concert::test
