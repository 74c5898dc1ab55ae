// Walks the table of daemon/quota/resource.h: a client takes of every resource what its user may
// have and one more, is told what the table says, disturbs no other user, and leaves nothing.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/fault/child.h"
#include "tests/fault/fault_fixture.h"

namespace concert::test {
namespace {

using daemon::InfoOf;
using daemon::Resource;
using testing::AllOf;
using testing::HasSubstr;

constexpr uint64_t kMost = 10;
constexpr uint64_t kPage = 4096;

// What one user may have of the resource that the test is about; of others, the defaults.
uint64_t MostOf(Resource resource) {
  if (resource == Resource::kBufferBytes) return kMost * kPage;
  // A session has two: then the one of the next session's socket is left, and it is told.
  return resource == Resource::kDescriptors ? kMost + 1 : kMost;
}

class QuotaTest : public FaultTest, public testing::WithParamInterface<Resource> {
 public:
  using Walk = void (QuotaTest::*)();
  static const std::map<Resource, Walk>& Walks();

 protected:
  QuotaTest()
      : FaultTest({.wait_timeout = std::chrono::hours(1),
                   .collective_timeout = std::chrono::hours(1),
                   .adjust_server =
                       [](daemon::ServerOptions& options) {
                         options.hello_timeout_ns = 3'600'000'000'000;
                       },
                   .limits = MakeLimits()},
                  kNobody) {}

  static daemon::Limits MakeLimits() {
    daemon::Limits limits;
    limits[GetParam()].per_user = MostOf(GetParam());
    return limits;
  }

  uint64_t used(Resource resource) { return daemon_.engine().accounts().node().of(resource); }
  uint64_t used() { return used(GetParam()); }
  RawClient& NewClient() {
    return *clients_.emplace_back(std::make_unique<RawClient>(daemon_.socket()));
  }
  // The first client, with a session.
  RawClient& client() {
    if (clients_.empty()) {
      EXPECT_TRUE(NewClient().Hello());
    }
    return *clients_[0];
  }

  // Another user does a bit of everything.
  void ExpectOthersAreNotAffected() {
    if (geteuid() != 0) return;  // only root can be somebody else
    const std::filesystem::path folder = std::filesystem::path(daemon_.socket()).parent_path();
    ASSERT_EQ(chmod(folder.c_str(), 0711), 0);
    EXPECT_EQ(Child({"bystander", daemon_.socket()}).WaitForExit(), 0);
  }

  // Asks for more until that is refused, as the table has it.
  void TakeUntilRefused(const std::function<std::string()>& take) {
    std::string refusal;
    for (uint64_t i = 0; i <= kMost && refusal.empty(); ++i) refusal = take();
    EXPECT_THAT(refusal, AllOf(HasSubstr("of its " + std::to_string(MostOf(GetParam())) + " " +
                                         std::string(InfoOf(GetParam()).name)),
                               HasSubstr("release some")));
    EXPECT_EQ(used() / kPage, MostOf(GetParam()) / kPage);
    EXPECT_GE(used() + 1, MostOf(GetParam()));
    ExpectOthersAreNotAffected();
  }
  template <typename Answer, typename Request>
  static std::string Ask(RawClient& client, const Request& request) {
    std::vector<int> fds;
    const Answer answer = client.Call<Answer>(request, &fds);
    for (const int fd : fds) close(fd);
    return reinterpret_cast<const concert_control_reply&>(answer).message;
  }

  void WalkConnections();
  void WalkSessions();
  void WalkQueues();
  void WalkBuffers();
  void WalkMemberships();
  void WalkRefusals();
  void WalkOps();
  void WalkWaits();
  void WalkParts();
  void WalkProgramOps();
  // By tests/unit/admin/admin_service_test.cc: the admin API has no users.
  void WalkWatches() {}

  std::vector<std::unique_ptr<RawClient>> clients_;
};

void QuotaTest::WalkConnections() {
  for (uint64_t i = 0; i < kMost; ++i) NewClient();
  EXPECT_TRUE(Eventually([&] { return used() == kMost; }));
  NewClient();
  EXPECT_TRUE(clients_[0]->WaitForHangup());
  EXPECT_TRUE(
      Eventually([&] { return daemon_.server().counters().evicted == 1 && used() == kMost; }));
  ExpectOthersAreNotAffected();
  // Nor is the user's own next client.
  EXPECT_TRUE(NewClient().Hello());
}

void QuotaTest::WalkSessions() {
  TakeUntilRefused([&] {
    auto hello = RawClient::Make<concert_hello>(CONCERT_CONTROL_HELLO);
    hello.abi_major = CONCERT_ABI_MAJOR;
    hello.gpu_mask = 1;
    return Ask<concert_hello_reply>(NewClient(), hello);
  });
}

void QuotaTest::WalkQueues() {
  TakeUntilRefused([&] {
    return Ask<concert_create_queue_reply>(
        client(), RawClient::Make<concert_create_queue>(CONCERT_CONTROL_CREATE_QUEUE));
  });
}

// Also their bytes, mappings and handles.
void QuotaTest::WalkBuffers() {
  TakeUntilRefused([&] {
    auto request = RawClient::Make<concert_allocate_buffer>(CONCERT_CONTROL_ALLOCATE_BUFFER);
    request.bytes = kPage;
    return Ask<concert_buffer_reply>(client(), request);
  });
}

void QuotaTest::WalkMemberships() {
  TakeUntilRefused([&] {
    auto request = RawClient::Make<concert_join_communicator>(CONCERT_CONTROL_JOIN_COMMUNICATOR);
    request.ranks = 2;
    std::to_string(used()).copy(request.name, sizeof(request.name));
    return Ask<concert_join_communicator_reply>(client(), request);
  });
}

void QuotaTest::WalkRefusals() {
  const uint32_t queue = client().CreateQueue(), pair = client().Join("pair", 0, 2);
  const auto submit = [&](uint64_t sequence, uint32_t flags) {
    concert_descriptor barrier = MakeBarrier(queue, sequence + 1, pair, sequence);
    barrier.flags = flags;
    ASSERT_TRUE(client().Push(barrier));
    ASSERT_TRUE(flags == 0 || client().WaitForTimeline(queue, sequence + 1));
  };
  for (uint64_t i = 0; i < kMost; ++i) submit(i, 1);
  EXPECT_TRUE(Eventually([&] { return used() == kMost; }));
  ExpectOthersAreNotAffected();
  submit(kMost, 1);
  EXPECT_TRUE(Eventually([&] { return used() == 0; }));
  submit(kMost + 1, 0);
  ASSERT_TRUE(client().WaitForTimeline(queue, kMost + 2));
  std::string last;
  while (const auto completion = client().NextCompletion()) last = Render(*completion);
  EXPECT_THAT(last, HasSubstr("its ranks must join anew"));
}

void QuotaTest::WalkOps() {
  const uint32_t queue = client().CreateQueue(), buffer = client().AllocateBuffer(kPage);
  for (uint64_t ticket = 1; ticket <= kMost + 2; ++ticket) {
    concert_descriptor gemm = MakeGemm(queue, ticket, buffer);
    gemm.wait_count = 1;
    gemm.waits[0] = {CONCERT_TIMELINE_ID(client().session(), CONCERT_TIMELINE_USER), 1};
    ASSERT_TRUE(client().Push(gemm));
  }
  EXPECT_TRUE(Eventually([&] { return used() == kMost && client().head() == kMost; }));
  ExpectOthersAreNotAffected();
  EXPECT_EQ(client().head(), kMost);  // the rest stays in the ring, and is not lost
  client().SetUserTimeline(0, 1);
  EXPECT_TRUE(client().WaitForTimeline(queue, kMost + 2));
  EXPECT_FALSE(client().NextCompletion().has_value());
}

void QuotaTest::WalkProgramOps() {
  const uint32_t a = client().AllocateBuffer(kPage), b = client().AllocateBuffer(kPage);
  concert_descriptor copy{};
  copy.kind = CONCERT_OP_COPY;
  copy.body.copy = {.src = {a, 0, 0}, .dst = {b, 0, 0}, .bytes = kPage, .reserved = {}};
  TakeUntilRefused([&] {
    return std::string(client().CreateProgram({}, {&copy, 1}).reply.message);
  });
}

void QuotaTest::WalkWaits() {
  const uint32_t buffer = client().AllocateBuffer(kPage);
  std::vector<uint32_t> queues;
  for (uint64_t i = 0; i <= kMost; ++i) {
    queues.push_back(client().CreateQueue());
    concert_descriptor gemm = MakeGemm(queues.back(), 1, buffer);
    gemm.wait_count = 1;
    gemm.waits[0] = {CONCERT_TIMELINE_ID(client().session(), CONCERT_TIMELINE_USER), 1};
    ASSERT_TRUE(client().Push(gemm));
  }
  ASSERT_TRUE(client().WaitForTimeline(queues.back(), 1));
  EXPECT_THAT(Render(client().NextCompletion().value()), HasSubstr("waits that are not met"));
  EXPECT_EQ(used(), kMost);
  ExpectOthersAreNotAffected();
  client().SetUserTimeline(0, 1);
  for (const uint32_t queue : queues) EXPECT_TRUE(client().WaitForTimeline(queue, 1));
  EXPECT_FALSE(client().NextCompletion().has_value());
}

void QuotaTest::WalkParts() {
  RawClient& zero = client();
  RawClient& one = NewClient();
  ASSERT_TRUE(one.Hello());
  std::vector<uint32_t> queues;
  for (uint64_t i = 0; i <= kMost; ++i) {
    const std::string name = std::to_string(i);
    queues.push_back(zero.CreateQueue());
    const uint32_t pair = zero.Join(name, 0, 2);
    ASSERT_NE(one.Join(name, 1, 2), 0u);
    ASSERT_TRUE(zero.Push(MakeBarrier(queues.back(), 1, pair, 0)));
  }
  EXPECT_TRUE(Eventually([&] { return used() == kMost && zero.head() == kMost + 1; }));
  ExpectOthersAreNotAffected();
  // The last waits in its queue: nothing has failed, and when others are done it has its turn.
  EXPECT_FALSE(zero.NextCompletion().has_value());
  one.Disconnect();
  for (const uint32_t queue : queues) {
    EXPECT_TRUE(zero.WaitForTimeline(queue, 1));
    EXPECT_THAT(Render(zero.NextCompletion().value()), HasSubstr("rank 1 left communicator"));
  }
}

const std::map<Resource, QuotaTest::Walk>& QuotaTest::Walks() {
  static const std::map<Resource, Walk> walks = {
      {Resource::kConnections, &QuotaTest::WalkConnections},
      {Resource::kSessions, &QuotaTest::WalkSessions},
      {Resource::kDescriptors, &QuotaTest::WalkSessions},
      {Resource::kMappings, &QuotaTest::WalkBuffers},
      {Resource::kQueues, &QuotaTest::WalkQueues},
      {Resource::kBuffers, &QuotaTest::WalkBuffers},
      {Resource::kBufferBytes, &QuotaTest::WalkBuffers},
      {Resource::kBufferHandles, &QuotaTest::WalkBuffers},
      {Resource::kMemberships, &QuotaTest::WalkMemberships},
      {Resource::kOps, &QuotaTest::WalkOps},
      {Resource::kWaits, &QuotaTest::WalkWaits},
      {Resource::kParts, &QuotaTest::WalkParts},
      {Resource::kRefusals, &QuotaTest::WalkRefusals},
      {Resource::kWatches, &QuotaTest::WalkWatches},
      {Resource::kProgramOps, &QuotaTest::WalkProgramOps},
  };
  return walks;
}

TEST_P(QuotaTest, HoldsDisturbsNobodyAndIsGivenBack) {
  ASSERT_TRUE(Walks().contains(GetParam())) << "add a walk for the new row of the table";
  (this->*Walks().at(GetParam()))();
  clients_.clear();
  for (const daemon::ResourceInfo& info : daemon::AllResources()) {
    EXPECT_TRUE(Eventually([&] { return used(info.resource) == 0; }))
        << info.name << ": " << used(info.resource);
  }
}

std::vector<Resource> Rows() {
  std::vector<Resource> rows;
  for (const daemon::ResourceInfo& info : daemon::AllResources()) rows.push_back(info.resource);
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Table, QuotaTest, testing::ValuesIn(Rows()),
                         [](const auto& param) { return std::string(InfoOf(param.param).name); });

}  // namespace
}  // namespace concert::test
