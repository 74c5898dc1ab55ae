// The issuer under every order of arrival of a few parts, and under random orders of many, with
// ranks that die: all that can complete does, with right numbers and in one order on every GPU, and
// every other part hears who has died.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "daemon/device/sim/sim_node.h"
#include "daemon/sched/collective_issuer.h"
#include "proto/ring/messages.h"
#include "tests/support/seed.h"
#include "tests/unit/sched/null_node.h"

namespace concert::daemon {
namespace {

// An issuer whose turns are the test's, and the mailboxes of its GPUs.
class IssuerBed {
 public:
  explicit IssuerBed(Node& node) : issuer_({}, node) {
    std::vector<DispatcherMailbox*> boxes;
    for (int gpu = 0; gpu < node.gpu_count(); ++gpu)
      boxes_.push_back(std::make_unique<DispatcherMailbox>(kDispatcherMailboxCapacity));
    for (const auto& box : boxes_) boxes.push_back(box.get());
    issuer_.Start(std::move(boxes));
    issuer_.Stop();
  }

  void Join(uint32_t communicator, uint32_t rank, uint32_t ranks, int gpu) {
    ASSERT_TRUE(account_.TryCharge(Resource::kMemberships));
    IssuerMessage join(IssuerMessage::Type::kJoin);
    join.communicator = communicator;
    join.rank = rank;
    join.join = {.ranks = ranks, .account = &account_, .session = 1 + rank, .gpu = gpu};
    Tell(join);
  }
  void Leave(uint32_t communicator, uint32_t rank) {
    IssuerMessage leave(IssuerMessage::Type::kLeave);
    leave.communicator = communicator;
    leave.rank = rank;
    Tell(leave);
  }
  void Offer(uint32_t communicator, uint32_t rank, const RankPart& part) {
    IssuerMessage message(IssuerMessage::Type::kPart);
    message.communicator = communicator;
    message.rank = rank;
    message.part = part;
    Tell(message);
  }
  // Until there is nothing to do. Calls on_answer(message) for each part that was answered.
  template <typename OnAnswer>
  void Turn(OnAnswer on_answer) {
    while (issuer_.Turn(++now_)) {
    }
    DispatcherMessage message;
    for (const auto& box : boxes_) {
      while (box->TryPop(message)) {
        if (message.type != DispatcherMessage::Type::kRanksThere) on_answer(message);
      }
    }
  }
  uint64_t memberships() const { return account_.own().of(Resource::kMemberships); }
  uint64_t refusals() const { return account_.own().of(Resource::kRefusals); }

 private:
  void Tell(const IssuerMessage& message) { ASSERT_TRUE(issuer_.mailbox().TryPush(message)); }

  Accounts accounts_{Limits()};
  Account& account_ = accounts_.Of(1000);
  std::vector<std::unique_ptr<DispatcherMailbox>> boxes_;
  CollectiveIssuer issuer_;
  policies::Time now_ = 0;
};

// ---- Every order of arrival of a few

// Writes down which collectives each GPU gets, in which order.
class OrderNode final : public Node {
 public:
  explicit OrderNode(int gpus) : node_(gpus), order(static_cast<size_t>(gpus)) {}
  int gpu_count() const override { return node_.gpu_count(); }
  Device& gpu(int index) override { return node_.gpu(index); }
  absl::StatusOr<Address> RegisterHostMemory(void* data, uint64_t) override {
    return reinterpret_cast<Address>(data);
  }
  void UnregisterHostMemory(void*) override {}
  absl::Status Connect(std::span<const int>) override { return absl::OkStatus(); }
  absl::Status LaunchCollective(std::span<const RankPart> parts,
                                const policies::TransportChoice&) override {
    for (const RankPart& part : parts) {
      order[static_cast<size_t>(part.gpu)].emplace_back(part.op->collective.communicator,
                                                        part.op->collective.sequence);
    }
    ++launches;
    return absl::OkStatus();
  }

 private:
  NullNode node_;

 public:
  using Name = std::pair<uint32_t, uint64_t>;
  std::vector<std::vector<Name>> order;  // by GPU
  int launches = 0;
};

// Three communicators over three GPUs, any two of which share some; the second has two ops.
struct Arrival {
  uint32_t communicator, rank;
  uint64_t sequence;
  int gpu;
};
constexpr Arrival kArrivals[] = {{1, 0, 0, 0}, {1, 1, 0, 1}, {1, 2, 0, 2},
                                 {2, 0, 0, 0}, {2, 0, 1, 0}, {2, 1, 0, 1},
                                 {2, 1, 1, 1}, {3, 0, 0, 2}, {3, 1, 0, 1}};
constexpr int kOps = 4;

class EveryOrderTest : public testing::Test {
 protected:
  EveryOrderTest() {
    for (const auto& [communicator, gpus] :
         {std::pair{1u, std::vector{0, 1, 2}}, {2u, std::vector{0, 1}}, {3u, std::vector{2, 1}}}) {
      for (uint32_t rank = 0; rank < gpus.size(); ++rank)
        bed_.Join(communicator, rank, static_cast<uint32_t>(gpus.size()), gpus[rank]);
    }
    bed_.Turn([](const DispatcherMessage&) {});
  }

  // Parts arrive in this order, `batch` of them before each turn. Sequences go on from walk to
  // walk.
  void Walk(const std::vector<int>& order, size_t batch) {
    for (auto& launched : node_.order) launched.clear();
    node_.launches = 0;
    int answered = 0;
    const auto count = [&](const DispatcherMessage& message) {
      EXPECT_EQ(message.type, DispatcherMessage::Type::kPartLaunched);
      ++answered;
    };
    std::array<Op, std::size(kArrivals)> ops;
    for (size_t i = 0; i < order.size(); ++i) {
      const Arrival& arrival = kArrivals[order[i]];
      Op& op = ops[i];
      op.kind = CONCERT_OP_BARRIER;
      op.collective = {.communicator = arrival.communicator,
                       .sequence = 2 * walks_ + arrival.sequence};
      if (arrival.communicator != 2) op.collective.sequence = walks_;
      bed_.Offer(arrival.communicator, arrival.rank, {.gpu = arrival.gpu, .op = &op});
      if ((i + 1) % batch == 0) bed_.Turn(count);
    }
    bed_.Turn(count);
    ++walks_;
    ASSERT_EQ(node_.launches, kOps);
    ASSERT_EQ(answered, static_cast<int>(order.size()));
    ExpectOneOrder();
  }
  // No two GPUs have two collectives in different orders, so that none waits for the other.
  void ExpectOneOrder() const {
    for (size_t a = 0; a < node_.order.size(); ++a) {
      for (size_t b = 0; b < a; ++b) {
        const auto in = [](const auto& list) {
          return [&list](const OrderNode::Name& name) {
            return std::find(list.begin(), list.end(), name) != list.end();
          };
        };
        std::vector<OrderNode::Name> of_a, of_b;
        std::copy_if(node_.order[a].begin(), node_.order[a].end(), std::back_inserter(of_a),
                     in(node_.order[b]));
        std::copy_if(node_.order[b].begin(), node_.order[b].end(), std::back_inserter(of_b),
                     in(node_.order[a]));
        ASSERT_EQ(of_a, of_b);
      }
    }
  }

  OrderNode node_{3};
  IssuerBed bed_{node_};
  uint64_t walks_ = 0;
};

TEST_F(EveryOrderTest, CompletesAllInOneOrderOnEveryGpu) {
  std::vector<int> order(std::size(kArrivals));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  do {
    // A rank hands over its ops in order: others are no order of arrival.
    const auto at = [&](int arrival) { return std::find(order.begin(), order.end(), arrival); };
    if (at(3) > at(4) || at(5) > at(6)) continue;
    Walk(order, 1 + walks_ % 3);
    if (HasFatalFailure()) {
      for (const int arrival : order) std::printf("%d ", arrival);
      return;
    }
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(walks_, 362'880u / 4);
}

// ---- Random orders of many

constexpr uint64_t kCount = 24;  // elements of a slot
constexpr int kSlots = 16;       // of ops of a communicator that are on their way
constexpr uint16_t kKinds[] = {CONCERT_OP_ALL_REDUCE,     CONCERT_OP_ALL_GATHER,
                               CONCERT_OP_REDUCE_SCATTER, CONCERT_OP_ALL_TO_ALL,
                               CONCERT_OP_BROADCAST,      CONCERT_OP_BARRIER};

// What a rank contributes to an op, in each element: small whole numbers, whose sums are exact.
float ValueOf(uint64_t sequence, uint32_t rank) {
  return static_cast<float>((sequence * 7 + rank * 13) % 101);
}

// One communicator with its ranks' memory; another takes its place when a rank has died.
struct Group {
  struct Part {
    Op op;
    uint64_t signal = 0;
    bool offered = false, answered = false, launched = false;
  };
  struct Flight {
    uint64_t sequence = 0;
    uint16_t kind = 0;
    std::vector<Part> parts;  // by rank
  };

  uint32_t id = 0;
  std::vector<int> gpus;
  std::vector<uint64_t> next;  // by rank: its next sequence
  uint64_t done = 0;           // sequences below are over
  int dead_rank = -1;
  std::deque<Flight> flights;  // from `done` on
  // By rank and slot: src, then dst.
  std::vector<std::vector<float>> memory;

  size_t ranks() const { return gpus.size(); }
  float* Src(uint32_t rank, uint64_t sequence) {
    return memory[rank].data() + (sequence % kSlots) * 2 * ranks() * kCount;
  }
  float* Dst(uint32_t rank, uint64_t sequence) { return Src(rank, sequence) + ranks() * kCount; }
};

class RandomOrderTest : public testing::Test {
 protected:
  static constexpr int kGpus = 4, kCollectives = 10'000;

  RandomOrderTest() {
    sim::SimOptions options{.gpus = kGpus, .pace = sim::Pace::kVirtual};
    options.model.transports = policies::TransportSet::All();
    node_ = *sim::SimNode::Open(options);
    bed_ = std::make_unique<IssuerBed>(*node_);
    const std::vector<std::vector<int>> gpus = {{0, 1}, {1, 2},    {0, 1, 2, 3},
                                                {3, 0}, {2, 0, 3}, {1, 3}};
    for (const std::vector<int>& list : gpus) {
      groups_.push_back(std::make_unique<Group>());
      groups_.back()->gpus = list;
      Open(*groups_.back());
    }
  }

  void Open(Group& group) {
    group.id = ++last_id_;
    by_id_[group.id] = &group;
    group.dead_rank = -1;
    group.done = 0;
    group.next.assign(group.ranks(), 0);
    group.flights.clear();
    group.memory.assign(group.ranks(), std::vector<float>(2 * kSlots * group.ranks() * kCount));
    for (uint32_t rank = 0; rank < group.ranks(); ++rank)
      bed_->Join(group.id, rank, static_cast<uint32_t>(group.ranks()), group.gpus[rank]);
  }

  Group::Flight& FlightOf(Group& group, uint64_t sequence) {
    while (group.flights.size() <= sequence - group.done) {
      Group::Flight& flight = group.flights.emplace_back();
      flight.sequence = group.done + group.flights.size() - 1;
      flight.kind = kKinds[random_() % std::size(kKinds)];
      flight.parts.resize(group.ranks());
    }
    return group.flights[sequence - group.done];
  }

  // A random rank's next part of a random communicator, unless it is too far ahead.
  void OfferSome() {
    Group& group = *groups_[random_() % groups_.size()];
    const auto rank = static_cast<uint32_t>(random_() % group.ranks());
    const uint64_t sequence = group.next[rank];
    if (static_cast<int>(rank) == group.dead_rank || sequence >= group.done + kSlots / 2) return;
    ++group.next[rank];
    Group::Flight& flight = FlightOf(group, sequence);
    Group::Part& part = flight.parts[rank];
    MakeOp(group, flight, rank, part.op);
    part.offered = true;
    ids_.emplace_back(&group, group.id, sequence, rank);
    const policies::Lane lane =
        random_() % 4 == 0 ? policies::kHighCollectiveLane : policies::kCollectiveLane;
    bed_->Offer(group.id, rank,
                {.gpu = group.gpus[rank],
                 .lane = lane,
                 .op = &part.op,
                 .id = static_cast<uint32_t>(ids_.size() - 1),
                 .signal = {reinterpret_cast<Address>(&part.signal), 1}});
    ++offered_;
  }

  void MakeOp(Group& group, const Group::Flight& flight, uint32_t rank, Op& op) {
    const uint64_t bytes = group.ranks() * kCount * sizeof(float);
    float* const src = group.Src(rank, flight.sequence);
    float* const dst = group.Dst(rank, flight.sequence);
    std::fill_n(src, group.ranks() * kCount, ValueOf(flight.sequence, rank));
    std::fill_n(dst, group.ranks() * kCount, -1.0f);
    concert_descriptor descriptor{};
    descriptor.kind = flight.kind;
    concert_collective_body& body = descriptor.body.collective;
    body.communicator = group.id << 8 | rank;
    body.sequence = flight.sequence;
    if (flight.kind != CONCERT_OP_BARRIER) {
      body.count = kCount;
      body.dtype = CONCERT_ABI_FP32;
      body.src = {1, 0, 0}, body.dst = {2, 0, 0};
    }
    const int gpu = group.gpus[rank];
    const kernels::BufferRange buffers[] = {{},
                                            {reinterpret_cast<Address>(src), bytes, gpu, true},
                                            {reinterpret_cast<Address>(dst), bytes, gpu, true}};
    const kernels::Failure failure =
        kernels::FindOpKind(flight.kind)
            ->admit(descriptor,
                    {.gpu = gpu, .buffers = buffers, .ranks = static_cast<uint32_t>(group.ranks())},
                    op);
    ASSERT_TRUE(failure.ok()) << failure.ToString();
  }

  void Kill(Group& group) {
    group.dead_rank = static_cast<int>(random_() % group.ranks());
    bed_->Leave(group.id, static_cast<uint32_t>(group.dead_rank));
    ++kills_;
  }

  void OnAnswer(const DispatcherMessage& message) {
    const auto& [group, id, sequence, rank] = ids_[message.part.op];
    ASSERT_EQ(group->id, id);
    ASSERT_GE(sequence, group->done);
    Group::Part& part = group->flights[sequence - group->done].parts[rank];
    ASSERT_TRUE(part.offered && !part.answered) << "answered twice";
    part.answered = true;
    ++answered_;
    part.launched = message.type == DispatcherMessage::Type::kPartLaunched;
    if (part.launched) return;
    ASSERT_EQ(message.type, DispatcherMessage::Type::kPartFailed);
    ASSERT_GE(group->dead_rank, 0) << message.part.failure.ToString();
    EXPECT_EQ(message.part.failure.message, CONCERT_MESSAGE_RANK_LEFT);
    EXPECT_EQ(message.part.failure.args[0], static_cast<uint64_t>(group->dead_rank));
    EXPECT_EQ(message.part.failure.args[1], id);
  }

  void Check(Group& group, const Group::Flight& flight) {
    float sum = 0;
    for (uint32_t rank = 0; rank < group.ranks(); ++rank) sum += ValueOf(flight.sequence, rank);
    for (uint32_t rank = 0; rank < group.ranks(); ++rank) {
      EXPECT_EQ(flight.parts[rank].signal, 1u);
      const float* const dst = group.Dst(rank, flight.sequence);
      for (uint64_t i = 0; i < group.ranks() * kCount; ++i) {
        float expected = -1;  // not touched
        const auto slot = static_cast<uint32_t>(i / kCount);
        switch (flight.kind) {
          case CONCERT_OP_ALL_REDUCE:
          case CONCERT_OP_REDUCE_SCATTER:
            if (slot == 0) expected = sum;
            break;
          case CONCERT_OP_ALL_GATHER:
          case CONCERT_OP_ALL_TO_ALL:
            expected = ValueOf(flight.sequence, slot);
            break;
          case CONCERT_OP_BROADCAST:
            if (slot == 0) expected = ValueOf(flight.sequence, 0);
            break;
          default:
            break;
        }
        ASSERT_EQ(dst[i], expected) << concert_op_kind_name(flight.kind) << ", op "
                                    << flight.sequence << ", rank " << rank << ", element " << i;
      }
    }
    ++checked_;
  }

  // The issuer's turn; then the GPUs run what they have, and what has ended is checked.
  void RunAll() {
    bed_->Turn([this](const DispatcherMessage& message) { OnAnswer(message); });
    node_->RunUntilIdle();
    for (const auto& group : groups_) {
      while (!group->flights.empty()) {
        const Group::Flight& flight = group->flights.front();
        if (!std::all_of(flight.parts.begin(), flight.parts.end(),
                         [](const Group::Part& part) { return part.launched; }))
          break;
        Check(*group, flight);
        if (HasFatalFailure()) return;
        group->flights.pop_front();
        ++group->done;
      }
      if (group->dead_rank >= 0) Bury(*group);
    }
  }
  // Every part that was offered has been answered; the other ranks leave and begin anew.
  void Bury(Group& group) {
    for (const Group::Flight& flight : group.flights) {
      const auto launched = std::count_if(flight.parts.begin(), flight.parts.end(),
                                          [](const Group::Part& part) { return part.launched; });
      EXPECT_TRUE(launched == 0 || launched == static_cast<int>(group.ranks()))
          << "a part of a collective runs without the others";
      for (const Group::Part& part : flight.parts) EXPECT_EQ(part.offered, part.answered);
    }
    for (uint32_t rank = 0; rank < group.ranks(); ++rank) {
      if (static_cast<int>(rank) != group.dead_rank) bed_->Leave(group.id, rank);
    }
    bed_->Turn([](const DispatcherMessage&) { ADD_FAILURE() << "nothing was to be answered"; });
    Open(group);
  }

  std::mt19937 random_{test::Seed()};
  std::unique_ptr<sim::SimNode> node_;
  std::unique_ptr<IssuerBed> bed_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::map<uint32_t, Group*> by_id_;
  std::vector<std::tuple<Group*, uint32_t, uint64_t, uint32_t>> ids_;  // of parts
  uint32_t last_id_ = 0;
  uint64_t offered_ = 0, answered_ = 0;
  int checked_ = 0, kills_ = 0;
};

TEST_F(RandomOrderTest, NoHangNoWrongNumberAndSurvivorsHearWhoDied) {
  SCOPED_TRACE("seed " + std::to_string(test::Seed()));
  while (checked_ < kCollectives) {
    const int arrivals = 1 + static_cast<int>(random_() % 60);
    for (int i = 0; i < arrivals; ++i) OfferSome();
    if (random_() % 50 == 0) Kill(*groups_[random_() % groups_.size()]);
    RunAll();
    if (HasFatalFailure()) return;
  }
  // What still waits is brought to its end by the ranks that are missing.
  for (const auto& group : groups_) Kill(*group);
  RunAll();
  EXPECT_EQ(answered_, offered_);
  EXPECT_GT(kills_, 5);
  for (const auto& group : groups_) {
    for (uint32_t rank = 0; rank < group->ranks(); ++rank) bed_->Leave(group->id, rank);
  }
  bed_->Turn([](const DispatcherMessage&) {});
  EXPECT_EQ(bed_->memberships(), 0u);
  EXPECT_EQ(bed_->refusals(), 0u);
}

}  // namespace
}  // namespace concert::daemon
