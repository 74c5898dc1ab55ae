// Client processes, one per GPU, in six communicators at once: random collectives of all sizes, by
// whatever transport is chosen for them, in orders that differ from process to process; and
// processes that die in the middle. On the simulator and, with two GPUs, on them:
// `collective_storm_test --gtest_filter=*Storm*` of the bundle.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "client/include/concert/concert.hpp"
#include "tests/bench/private_daemon.h"
#include "tests/support/seed.h"

namespace concert::test {
namespace {

constexpr uint32_t kRanks = 2;
constexpr int kPerProcess = 3;     // communicators of a pair of processes
constexpr size_t kWindow = 8;      // ops of a communicator that are on their way
constexpr uint32_t kPeriod = 101;  // of the numbers: small ones, whose sums are exact
constexpr uint64_t kShifts = kPeriod * 4;

// What a process is told.
struct Orders {
  std::string socket, pair;  // whose communicators' names begin with `pair`
  uint32_t rank = 0, seed = 0;
  uint64_t ops = 0, max_count = 0;  // of each communicator; elements of an op
  uint64_t die_after = 0;           // kills itself after so many of its ops; 0: does not
  bool bereaved = false;            // the other process will die

  std::vector<std::string> ToArguments() const {
    return {"--rank",
            socket,
            pair,
            std::to_string(rank),
            std::to_string(seed),
            std::to_string(ops),
            std::to_string(max_count),
            std::to_string(die_after),
            bereaved ? "1" : "0"};
  }
  static Orders Of(char** arguments) {
    return {.socket = arguments[0],
            .pair = arguments[1],
            .rank = static_cast<uint32_t>(std::stoul(arguments[2])),
            .seed = static_cast<uint32_t>(std::stoul(arguments[3])),
            .ops = std::stoull(arguments[4]),
            .max_count = std::stoull(arguments[5]),
            .die_after = std::stoull(arguments[6]),
            .bereaved = arguments[7][0] == '1'};
  }
};

// The op of a communicator that both ranks derive from the seed alone.
struct PlannedOp {
  int kind = 0;
  uint64_t count = 0, shift = 0;
  uint32_t root = 0;

  static PlannedOp Of(uint32_t seed, int communicator, uint64_t sequence, uint64_t max_count) {
    std::mt19937 random(seed * 31 + static_cast<uint32_t>(communicator) * 100'003 +
                        static_cast<uint32_t>(sequence) * 7);
    random.discard(8);
    PlannedOp op;
    op.kind = static_cast<int>(random() % 6);
    // As many of every order of magnitude; some in odd numbers, that peer kernels do not carry.
    const uint64_t magnitude = uint64_t{1}
                               << random() % (1 + static_cast<int>(std::bit_width(max_count / 4)));
    op.count = std::min(max_count, magnitude + random() % magnitude);
    if (random() % 4 != 0) op.count = std::max<uint64_t>(4, op.count / 4 * 4);
    // Another one than that of the op whose place this takes.
    op.shift = sequence / kWindow % kPeriod * 4;
    op.root = random() % kRanks;
    return op;
  }
};

float NumberAt(uint64_t index, uint32_t rank) {
  return static_cast<float>((index + 13 * rank) % kPeriod);
}

class Member {
 public:
  Member(const Session& session, const Orders& orders, int communicator)
      : orders_(orders),
        communicator_(communicator),
        queue_(session
                   .CreateQueue(
                       {.gpu = orders.rank, .priority = communicator % 3 == 0 ? kHigh : kNormal})
                   .value()),
        slot_bytes_(kRanks * orders.max_count * sizeof(float)),
        src_(session.Allocate(slot_bytes_ + kShifts * sizeof(float), orders.rank).value()),
        dst_(session.Allocate(kWindow * slot_bytes_, orders.rank).value()),
        group_(session
                   .Join({.name = orders.pair + std::to_string(communicator),
                          .rank = orders.rank,
                          .ranks = kRanks,
                          .gpu = orders.rank})
                   .value()) {
    std::vector<float> numbers(src_.bytes() / sizeof(float));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = NumberAt(i, orders.rank);
    src_.Write(numbers.data(), numbers.size() * sizeof(float)).Check();
  }

  // Until the other rank is there, too.
  void Meet() { queue_.Barrier(group_).Wait().Check(); }

  bool over() const { return broken_ || (next_ == orders_.ops && flights_.empty()); }
  bool broken() const { return broken_; }

  // Submits the next op if there is room. True: it did.
  bool Submit() {
    if (broken_ || next_ == orders_.ops || flights_.size() == kWindow) return false;
    const PlannedOp op = PlannedOp::Of(orders_.seed, communicator_, next_, orders_.max_count);
    flights_.push_back({op, next_, Launch(op)});
    ++next_;
    return true;
  }
  // Looks at what has ended. False: something is wrong.
  bool Collect() {
    while (!flights_.empty() && flights_.front().ticket.Done()) {
      const Flight flight = std::move(flights_.front());
      flights_.pop_front();
      const Status status = flight.ticket.Wait();
      if (!status.ok()) {
        if (!Expected(status)) return false;
        broken_ = true;
      } else if (!Right(flight)) {
        return false;
      }
    }
    return true;
  }

 private:
  struct Flight {
    PlannedOp op;
    uint64_t sequence;
    Ticket ticket;
  };

  Ticket Launch(const PlannedOp& op) {
    const Slice src{src_, op.shift * sizeof(float)};
    const Slice dst{dst_, next_ % kWindow * slot_bytes_};
    const CollectiveOp call{
        .src = src, .dst = dst, .count = op.count, .dtype = kFp32, .root = op.root};
    CollectiveOp rootless = call;
    rootless.root = 0;
    switch (op.kind) {
      case 0:
        return queue_.AllReduce(group_, rootless);
      case 1:
        return queue_.AllGather(group_, rootless);
      case 2:
        return queue_.ReduceScatter(group_, rootless);
      case 3:
        return queue_.AllToAll(group_, rootless);
      case 4:
        return queue_.Broadcast(group_, call);
      default:
        return queue_.Barrier(group_);
    }
  }

  // A rank has died, and the sentence says which.
  bool Expected(const Status& status) const {
    const std::string who = "rank " + std::to_string(1 - orders_.rank) + " left";
    const std::string sentence = status.message();
    if (orders_.bereaved && sentence.find(who) != std::string::npos) return true;
    std::fprintf(stderr, "rank %u: %s\n", orders_.rank, sentence.c_str());
    return false;
  }

  float ExpectedAt(const PlannedOp& op, uint64_t i) const {
    const uint64_t within = op.shift + i % op.count;
    const auto slot = static_cast<uint32_t>(i / op.count);
    switch (op.kind) {
      case 0:
        return NumberAt(within, 0) + NumberAt(within, 1);
      case 1:
        return NumberAt(within, slot);
      case 2: {
        const uint64_t index = within + orders_.rank * op.count;
        return NumberAt(index, 0) + NumberAt(index, 1);
      }
      case 3:
        return NumberAt(within + orders_.rank * op.count, slot);
      default:
        return NumberAt(within, op.root);
    }
  }

  bool Right(const Flight& flight) {
    const PlannedOp& op = flight.op;
    if (op.kind == 5) return true;
    const uint64_t elements = op.kind == 1 || op.kind == 3 ? kRanks * op.count : op.count;
    result_.resize(elements);
    dst_.Read(result_.data(), elements * sizeof(float), flight.sequence % kWindow * slot_bytes_)
        .Check();
    for (uint64_t i = 0; i < elements; ++i) {
      if (result_[i] == ExpectedAt(op, i)) continue;
      std::fprintf(stderr,
                   "rank %u, communicator %d, op %llu of kind %d, %llu elements: [%llu] is %g, "
                   "not %g\n",
                   orders_.rank, communicator_, static_cast<unsigned long long>(flight.sequence),
                   op.kind, static_cast<unsigned long long>(op.count),
                   static_cast<unsigned long long>(i), static_cast<double>(result_[i]),
                   static_cast<double>(ExpectedAt(op, i)));
      return false;
    }
    return true;
  }

  const Orders& orders_;
  const int communicator_;
  Queue queue_;
  const uint64_t slot_bytes_;
  Buffer src_, dst_;
  Communicator group_;
  uint64_t next_ = 0;
  std::deque<Flight> flights_;
  std::vector<float> result_;
  bool broken_ = false;
};

// The process of one rank. 0: all went as it must.
int RunRank(const Orders& orders) {
  alarm(240);  // a hang is a failure
  const Session session = Session::Connect({.socket_path = orders.socket}).value();
  std::vector<std::unique_ptr<Member>> members;
  for (int i = 0; i < kPerProcess; ++i)
    members.push_back(std::make_unique<Member>(session, orders, i));
  for (const auto& member : members) member->Meet();
  std::mt19937 random(orders.seed + 1 + orders.rank);
  uint64_t submitted = 0;
  const auto over = [](const auto& member) { return member->over(); };
  while (!std::all_of(members.begin(), members.end(), over)) {
    submitted += members[random() % members.size()]->Submit() ? 1 : 0;
    if (orders.die_after > 0 && submitted == orders.die_after) raise(SIGKILL);
    if (!members[random() % members.size()]->Collect()) return 1;
  }
  const bool broken = std::any_of(members.begin(), members.end(),
                                  [](const auto& member) { return member->broken(); });
  return broken == orders.bereaved ? 0 : 2;
}

class CollectiveStormTest : public testing::Test {
 protected:
  void SetUp() override {
    auto daemon = bench::PrivateDaemon::Start({.device = "auto"});
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    const Session session = Session::Connect({.socket_path = daemon_->socket()}).value();
    if (session.gpu_count() < kRanks) GTEST_SKIP() << "needs two GPUs";
    simulated_ = session.GpuInfo(0).value().backend == CONCERT_BACKEND_SIM;
  }

  // Two ranks in three communicators.
  pid_t Start(Orders orders) {
    orders.socket = daemon_->socket();
    orders.seed = test::Seed();
    orders.max_count = simulated_ ? 2048 : 1 << 20;
    std::vector<std::string> arguments = orders.ToArguments();
    arguments.insert(arguments.begin(), "/proc/self/exe");
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      execv("/proc/self/exe", pointers.data());
      _exit(127);
    }
    return child;
  }
  static int StatusOf(pid_t child) {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  std::unique_ptr<bench::PrivateDaemon> daemon_;
  bool simulated_ = true;
};

// 10,000 on GPUs. The simulator computes every number on the CPU.
TEST_F(CollectiveStormTest, SixCommunicatorsInAnyOrder) {
  SCOPED_TRACE("seed " + std::to_string(test::Seed()));
  const uint64_t ops = simulated_ ? 250 : 1667;
  std::vector<pid_t> children;
  for (const char* pair : {"a", "b"}) {
    for (uint32_t rank = 0; rank < kRanks; ++rank)
      children.push_back(Start({.pair = pair, .rank = rank, .ops = ops}));
  }
  for (const pid_t child : children) EXPECT_EQ(StatusOf(child), 0) << daemon_->LogTail();
}

TEST_F(CollectiveStormTest, WhoDiesIsNamedAndHarmsNobodyElse) {
  SCOPED_TRACE("seed " + std::to_string(test::Seed()));
  std::mt19937 random(test::Seed());
  const uint64_t ops = simulated_ ? 40 : 400;
  for (int round = 0; round < 3; ++round) {
    const auto doomed = static_cast<uint32_t>(random() % kRanks);
    const uint64_t die_after = 1 + random() % (kPerProcess * ops / 2);
    std::vector<pid_t> bystanders;
    const std::string a = "a" + std::to_string(round), b = "b" + std::to_string(round);
    for (uint32_t rank = 0; rank < kRanks; ++rank)
      bystanders.push_back(Start({.pair = b, .rank = rank, .ops = ops}));
    const pid_t dies = Start({.pair = a, .rank = doomed, .ops = ops, .die_after = die_after});
    const pid_t stays = Start({.pair = a, .rank = 1 - doomed, .ops = ops, .bereaved = true});
    EXPECT_EQ(StatusOf(dies), -SIGKILL);
    EXPECT_EQ(StatusOf(stays), 0) << daemon_->LogTail();
    for (const pid_t child : bystanders) EXPECT_EQ(StatusOf(child), 0) << daemon_->LogTail();
  }
}

}  // namespace
}  // namespace concert::test

int main(int argc, char** argv) {
  if (argc == 10 && std::string_view(argv[1]) == "--rank")
    return concert::test::RunRank(concert::test::Orders::Of(argv + 2));
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
