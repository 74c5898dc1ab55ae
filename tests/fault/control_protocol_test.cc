// Clients that break the rules of the control socket.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "tests/fault/fault_fixture.h"

namespace concert::test {
namespace {

using testing::HasSubstr;

constexpr uint64_t kQuota = 1 << 20;

class ControlProtocolTest : public FaultTest {
 protected:
  ControlProtocolTest()
      : FaultTest(
            {.adjust_server =
                 [](daemon::ServerOptions& options) { options.hello_timeout_ns = 300'000'000; },
             .limits = MakeLimits()}) {}

  static daemon::Limits MakeLimits() {
    daemon::Limits limits;
    limits[daemon::Resource::kSessions].per_user = 6;
    limits[daemon::Resource::kBufferBytes].per_user = kQuota;
    limits[daemon::Resource::kBuffers].per_user = 40;
    return limits;
  }

  static std::vector<int> ManyFds(size_t count) {
    std::vector<int> fds(count);
    for (int& fd : fds) fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return fds;
  }
  static void CloseAll(const std::vector<int>& fds) {
    for (const int fd : fds) close(fd);
  }
};

TEST_F(ControlProtocolTest, ConnectionsThatSayNothingAreClosed) {
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(std::make_unique<RawClient>(daemon_.socket()));
  for (const auto& client : silent) EXPECT_TRUE(client->WaitForHangup());
  // They are counted when all of them have been closed.
  EXPECT_TRUE(Eventually([&] { return daemon_.server().counters().hello_timeouts == 10u; }));
}

TEST_F(ControlProtocolTest, PacketsThatAreNoHelloEndTheConnection) {
  const auto hello = RawClient::Make<concert_hello>(CONCERT_CONTROL_HELLO);
  const auto spoiled = [&](auto spoil) {
    std::vector<char> packet(sizeof(hello));
    concert_hello copy = hello;
    spoil(copy);
    std::memcpy(packet.data(), &copy, sizeof(copy));
    return packet;
  };
  const std::vector<std::vector<char>> packets = {
      {},
      {'x'},
      std::vector<char>(sizeof(concert_control_header) - 1),
      std::vector<char>(100'000, 'x'),
      spoiled([](concert_hello& h) { h.header.magic ^= 1; }),
      spoiled([](concert_hello& h) { h.header.size -= 8; }),
      spoiled([](concert_hello& h) { h.header.type = 0; }),
      spoiled([](concert_hello& h) { h.header.type = 999; }),
      spoiled([](concert_hello& h) { h.header.type = CONCERT_CONTROL_CREATE_QUEUE; }),
      std::vector<char>(reinterpret_cast<const char*>(&hello),
                        reinterpret_cast<const char*>(&hello) + sizeof(hello) - 8),
  };
  for (size_t i = 0; i < packets.size(); ++i) {
    SCOPED_TRACE(i);
    RawClient client(daemon_.socket());
    client.Send(packets[i].data(), packets[i].size());
    EXPECT_TRUE(client.WaitForHangup());
  }
}

TEST_F(ControlProtocolTest, AnotherMajorVersionIsToldWhatToDo) {
  RawClient client(daemon_.socket());
  auto hello = RawClient::Make<concert_hello>(CONCERT_CONTROL_HELLO);
  hello.abi_major = CONCERT_ABI_MAJOR + 1;
  const auto reply = client.Call<concert_hello_reply>(hello);
  EXPECT_EQ(reply.reply.status, static_cast<uint32_t>(CONCERT_ABI_FAILED_PRECONDITION));
  EXPECT_THAT(reply.reply.message, HasSubstr("use a libconcert of the daemon's major version"));
  EXPECT_TRUE(client.WaitForHangup());
}

TEST_F(ControlProtocolTest, ARingForAGpuThatIsNotThereIsRefused) {
  RawClient client(daemon_.socket());
  auto hello = RawClient::Make<concert_hello>(CONCERT_CONTROL_HELLO);
  hello.abi_major = CONCERT_ABI_MAJOR;
  hello.gpu_mask = 1ull << 63;
  const auto reply = client.Call<concert_hello_reply>(hello);
  EXPECT_THAT(reply.reply.message, HasSubstr("gpu_mask is 9223372036854775808"));
}

// A later version may give them a meaning, so that a client may not take them for granted.
TEST_F(ControlProtocolTest, ReservedFieldsAreRefusedAndTheSessionGoesOn) {
  const auto refused = [](uint32_t status, const char* message) {
    EXPECT_EQ(status, static_cast<uint32_t>(CONCERT_ABI_INVALID_ARGUMENT));
    EXPECT_STREQ(message, "reserved of the request is 5; it must be 0");
  };
  auto hello = RawClient::Make<concert_hello>(CONCERT_CONTROL_HELLO);
  hello.abi_major = CONCERT_ABI_MAJOR;
  hello.reserved = 5;
  {
    RawClient stranger(daemon_.socket());
    const auto reply = stranger.Call<concert_hello_reply>(hello);
    refused(reply.reply.status, reply.reply.message);
    EXPECT_TRUE(stranger.WaitForHangup());
  }

  RawClient client(daemon_.socket());
  ASSERT_TRUE(client.Hello());
  const auto spoiled = [&]<typename Reply>(auto request, Reply) {
    SCOPED_TRACE(request.header.type);
    if constexpr (requires { request.reserved; }) {
      request.reserved = 5;
    } else {
      request.header.reserved = 5;
    }
    const auto reply = client.Call<Reply>(request);
    const auto& head = reinterpret_cast<const concert_control_reply&>(reply);
    refused(head.status, head.message);
  };
  spoiled(RawClient::Make<concert_create_queue>(CONCERT_CONTROL_CREATE_QUEUE),
          concert_create_queue_reply{});
  spoiled(RawClient::Make<concert_destroy_queue>(CONCERT_CONTROL_DESTROY_QUEUE),
          concert_control_reply{});
  spoiled(RawClient::Make<concert_release_buffer>(CONCERT_CONTROL_RELEASE_BUFFER),
          concert_control_reply{});
  spoiled(RawClient::Make<concert_seal_buffer>(CONCERT_CONTROL_SEAL_BUFFER),
          concert_buffer_reply{});
  spoiled(RawClient::Make<concert_join_communicator>(CONCERT_CONTROL_JOIN_COMMUNICATOR),
          concert_join_communicator_reply{});
  spoiled(RawClient::Make<concert_leave_communicator>(CONCERT_CONTROL_LEAVE_COMMUNICATOR),
          concert_control_reply{});
  // One that is an errand, whose session is then read on.
  auto allocate = RawClient::Make<concert_allocate_buffer>(CONCERT_CONTROL_ALLOCATE_BUFFER);
  allocate.bytes = 4096;
  spoiled(allocate, concert_buffer_reply{});
  EXPECT_NE(client.AllocateBuffer(4096), 0u);
}

TEST_F(ControlProtocolTest, ASecondHelloEndsTheSession) {
  RawClient client(daemon_.socket());
  ASSERT_TRUE(client.Hello());
  client.Send(RawClient::Make<concert_hello>(CONCERT_CONTROL_HELLO));
  EXPECT_NE(client.WaitForClosed(), "");
  EXPECT_TRUE(client.WaitForHangup());
}

TEST_F(ControlProtocolTest, FdsThatNobodyAskedForEndTheSessionAndDoNotLeak) {
  const std::vector<int> fds = ManyFds(32);
  const auto request = RawClient::Make<concert_create_queue>(CONCERT_CONTROL_CREATE_QUEUE);
  for (const size_t count : {1, 2, 4, 5, 32}) {
    for (const bool open_session : {false, true}) {
      SCOPED_TRACE(testing::Message() << count << " fds, " << open_session);
      RawClient client(daemon_.socket());
      if (open_session) {
        ASSERT_TRUE(client.Hello());
      }
      client.Send(&request, sizeof(request), {fds.data(), count});
      EXPECT_TRUE(client.WaitForHangup());
    }
  }
  CloseAll(fds);
}

TEST_F(ControlProtocolTest, FdsInAnEmptyPacketDoNotLeak) {
  const std::vector<int> fds = ManyFds(4);
  for (int i = 0; i < 50; ++i) {
    RawClient client(daemon_.socket());
    client.Send("", 0, fds);
    EXPECT_TRUE(client.WaitForHangup());
  }
  CloseAll(fds);
}

TEST_F(ControlProtocolTest, AClientThatNeverReadsItsRepliesLosesItsSession) {
  RawClient client(daemon_.socket());
  ASSERT_TRUE(client.Hello());
  const auto request = RawClient::Make<concert_create_queue>(CONCERT_CONTROL_CREATE_QUEUE);
  int sent = 0;
  while (sent < 1'000'000 && client.Send(request)) ++sent;
  EXPECT_LT(sent, 1'000'000);
}

// Descriptors in replies that nobody reads are counted: with as many as the daemon may open, nobody
// gets any.
TEST_F(ControlProtocolTest, AClientThatReadsNothingLeavesFewReplies) {
  RawClient client(daemon_.socket());
  ASSERT_TRUE(client.Hello());
  auto request = RawClient::Make<concert_allocate_buffer>(CONCERT_CONTROL_ALLOCATE_BUFFER);
  request.bytes = 64;
  for (int sent = 0; sent < 500 && client.Send(request); ++sent) {
  }
  int replies = 0;
  while (replies < 500 && !client.Receive().empty()) ++replies;
  EXPECT_LE(replies, 16);
  EXPECT_GE(replies, 8);
}

// Each leaves requests that take long and replies to others, beside those of the next.
TEST_F(ControlProtocolTest, ClientsThatGoInTheMiddleOfRequestsAreClosed) {
  auto request = RawClient::Make<concert_allocate_buffer>(CONCERT_CONTROL_ALLOCATE_BUFFER);
  request.bytes = 4096;
  for (int round = 0; round < 300; ++round) {
    std::array<std::unique_ptr<RawClient>, 3> clients;
    for (auto& client : clients) {
      ASSERT_TRUE(Eventually([&] {  // those of the last round may be there still
        client = std::make_unique<RawClient>(daemon_.socket());
        return client->Hello();
      }));
      for (int sent = 0; sent < 8; ++sent) client->Send(request);
    }
  }
  EXPECT_TRUE(healthy_->Progresses());
}

TEST_F(ControlProtocolTest, FourThousandConnections) {
  rlimit limit{}, raised{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  raised = limit;
  raised.rlim_cur = std::min<rlim_t>(limit.rlim_max, 10'000);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &raised), 0);
  // Both ends are in this process.
  const size_t count = std::min<size_t>(4'096, (raised.rlim_cur - fds_before_ - 200) / 2);
  std::vector<int> sockets;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  daemon_.socket().copy(address.sun_path, sizeof(address.sun_path) - 1);
  while (sockets.size() < count) {
    sockets.push_back(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    ASSERT_GE(sockets.back(), 0);
    ASSERT_EQ(connect(sockets.back(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  EXPECT_TRUE(healthy_->Progresses());
  CloseAll(sockets);
  EXPECT_TRUE(Eventually([&] { return RawClient(daemon_.socket()).Hello(); }));
  EXPECT_TRUE(Eventually([&] { return CountFds() < fds_before_ + 50; }));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST_F(ControlProtocolTest, JoiningBadlyIsToldAndLeavesNothing) {
  const Session session = daemon_.Connect();
  const auto join = [&](const std::string& name, uint32_t rank, uint32_t ranks, uint32_t gpu = 0) {
    return session.Join({.name = name, .rank = rank, .ranks = ranks, .gpu = gpu})
        .status()
        .ToString();
  };
  EXPECT_THAT(join("a", 0, 0), HasSubstr("ranks is 0"));
  EXPECT_THAT(join("a", 0, 100'000), HasSubstr("ranks is 100000"));
  EXPECT_THAT(join("a", 2, 2), HasSubstr("rank is 2; it must be below ranks (2)"));
  EXPECT_THAT(join("a", 0, 2, 9), HasSubstr("gpu is 9"));
  const Communicator first = session.Join({.name = "b", .rank = 0, .ranks = 2}).value();
  EXPECT_THAT(join("b", 1, 3), HasSubstr("ranks is 3, but communicator 'b' has 2"));
  EXPECT_THAT(join("b", 0, 2), HasSubstr("rank 0 of communicator 'b' is taken"));
  RawClient raw(daemon_.socket());
  ASSERT_TRUE(raw.Hello());
  auto nameless = RawClient::Make<concert_join_communicator>(CONCERT_CONTROL_JOIN_COMMUNICATOR);
  nameless.ranks = 1;
  const auto reply = raw.Call<concert_join_communicator_reply>(nameless);
  EXPECT_THAT(reply.reply.message, HasSubstr("name is empty"));
  auto leave = RawClient::Make<concert_leave_communicator>(CONCERT_CONTROL_LEAVE_COMMUNICATOR);
  leave.communicator = 12345;
  EXPECT_EQ(raw.Call<concert_control_reply>(leave).status,
            static_cast<uint32_t>(CONCERT_ABI_NOT_FOUND));
}

TEST_F(ControlProtocolTest, ASessionJoinsABoundedNumberOfCommunicators) {
  const Session session = daemon_.Connect();
  std::vector<Communicator> joined;
  Status status;
  while (joined.size() < 1'000 && status.ok()) {
    Result<Communicator> next = session.Join({.name = std::to_string(joined.size())});
    status = next.status();
    if (next.ok()) joined.push_back(std::move(*next));
  }
  EXPECT_EQ(status.code(), CONCERT_RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.message(), HasSubstr("leave some"));
  joined.pop_back();
  EXPECT_TRUE(session.Join({.name = "again"}).ok());
}

TEST_F(ControlProtocolTest, UnknownHandlesAreNotFound) {
  RawClient client(daemon_.socket());
  ASSERT_TRUE(client.Hello());
  for (const uint32_t handle : {0u, 1u, 255u, 256u, ~0u}) {
    EXPECT_EQ(client.ReleaseBuffer(handle), static_cast<uint32_t>(CONCERT_ABI_NOT_FOUND));
    auto seal = RawClient::Make<concert_seal_buffer>(CONCERT_CONTROL_SEAL_BUFFER);
    seal.buffer = handle;
    EXPECT_EQ(client.Call<concert_buffer_reply>(seal).reply.status,
              static_cast<uint32_t>(CONCERT_ABI_NOT_FOUND));
    auto destroy = RawClient::Make<concert_destroy_queue>(CONCERT_CONTROL_DESTROY_QUEUE);
    destroy.queue = handle;
    EXPECT_EQ(client.Call<concert_control_reply>(destroy).status,
              static_cast<uint32_t>(CONCERT_ABI_NOT_FOUND));
  }
}

TEST_F(ControlProtocolTest, QuotasHoldAndWhatIsReleasedCanBeHadAgain) {
  // The healthy client has its buffers before this one takes all that are left.
  ASSERT_TRUE(healthy_->Progresses());
  {
    const Session session = daemon_.Connect();
    std::vector<Buffer> buffers;
    const Status too_much = session.Allocate(kQuota + 4096).status();
    EXPECT_EQ(too_much.code(), CONCERT_RESOURCE_EXHAUSTED);
    EXPECT_THAT(too_much.message(), HasSubstr("of its 1048576 buffer_bytes"));
    Status too_many;
    while (buffers.size() < 100 && too_many.ok()) {
      Result<Buffer> next = session.Allocate(64);
      too_many = next.status();
      if (next.ok()) buffers.push_back(std::move(*next));
    }
    EXPECT_THAT(too_many.message(), HasSubstr("holds 40 of its 40 buffers"));
    EXPECT_THAT(session.Allocate(0).status().message(), HasSubstr("bytes is 0"));
    buffers.clear();
    EXPECT_TRUE(Eventually([&] { return session.Allocate(kQuota / 2).ok(); }));
  }
  std::vector<Session> sessions;
  Status status;
  while (sessions.size() < 20 && status.ok()) {
    Result<Session> next = Session::Connect({.socket_path = daemon_.socket()});
    status = next.status();
    if (next.ok()) sessions.push_back(std::move(*next));
  }
  EXPECT_EQ(status.code(), CONCERT_RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.message(), HasSubstr("holds 6 of its 6 sessions"));
  sessions.clear();
  EXPECT_TRUE(Eventually([&] { return Session::Connect({.socket_path = daemon_.socket()}).ok(); }));
}

}  // namespace
}  // namespace concert::test
