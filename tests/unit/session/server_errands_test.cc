// What a session's errands do to others, on a device that takes as long as the test wants.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/null_device.h"
#include "tests/support/raw_client.h"
#include "tests/unit/session/server_bed.h"

namespace concert::daemon {
namespace {

using concert::test::Eventually;
using concert::test::RawClient;

constexpr uint64_t kWeightBytes = 1 << 20;

enum class Call { kNone, kAllocate, kDigest, kPrepareProgram, kPreparePass, kConnect };

// Holds the calls of one kind up.
class Gate {
 public:
  void HoldUp(Call call) { held_up_ = call; }
  void Pass(Call call) {
    if (held_up_ != call) return;
    entered_.release();
    opened_.acquire();
  }
  // Returns when a call is held up. False: none is within a minute.
  bool Await() { return entered_.try_acquire_for(std::chrono::minutes(1)); }
  void Open() {
    held_up_ = Call::kNone;
    opened_.release();
  }

 private:
  std::atomic<Call> held_up_{Call::kNone};
  std::counting_semaphore<> entered_{0}, opened_{0};
};

class GatedDevice final : public bench::NullDevice {
 public:
  explicit GatedDevice(Gate& gate) : gate_(gate) {}
  absl::StatusOr<Allocation> Allocate(uint64_t bytes) override {
    gate_.Pass(Call::kAllocate);
    ++allocations;
    return bench::NullDevice::Allocate(bytes);
  }
  void Free(const Allocation&) override { --allocations; }
  absl::StatusOr<uint64_t> Digest(Address, uint64_t) override {
    gate_.Pass(Call::kDigest);
    return 7;
  }
  absl::Status Prepare(kernels::Program&) override {
    gate_.Pass(Call::kPrepareProgram);
    return absl::OkStatus();
  }
  absl::Status Prepare(kernels::Pass&) override {
    gate_.Pass(Call::kPreparePass);
    return absl::OkStatus();
  }

  std::atomic<int> allocations{0};  // that are there

 private:
  Gate& gate_;
};

class GatedNode final : public Node {
 public:
  int gpu_count() const override { return 1; }
  GatedDevice& gpu(int) override { return device_; }
  absl::StatusOr<Address> RegisterHostMemory(void* data, uint64_t) override {
    return reinterpret_cast<Address>(data);
  }
  void UnregisterHostMemory(void*) override {}
  absl::Status Connect(std::span<const int>) override {
    gate.Pass(Call::kConnect);
    return connects ? absl::OkStatus() : absl::InternalError("no channels today");
  }
  absl::Status LaunchCollective(std::span<const RankPart>,
                                const policies::TransportChoice&) override {
    return absl::OkStatus();
  }

  Gate gate;
  std::atomic<bool> connects{true};

 private:
  GatedDevice device_{gate};
};

// A TCP socket whose last descriptor takes long to close: until its peer goes, or two minutes.
class LingeringSocket {
 public:
  LingeringSocket() {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof(address);
    const linger two_minutes{.l_onoff = 1, .l_linger = 120};
    CONCERT_CHECK(
        bind(listener.get(), any, size) == 0 && listen(listener.get(), 1) == 0 &&
        getsockname(listener.get(), any, &size) == 0 && connect(socket_.get(), any, size) == 0 &&
        setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &two_minutes, sizeof(two_minutes)) == 0);
    peer_ = UniqueFd(accept(listener.get(), nullptr, nullptr));
    const std::vector<char> bytes(1 << 20);  // nobody reads them
    while (send(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
  }
  int get() const { return socket_.get(); }
  void LeaveToOthers() { socket_ = UniqueFd(); }

 private:
  UniqueFd socket_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)}, peer_;
};

class ServerErrandsTest : public testing::Test {
 protected:
  std::string socket() const { return bed_.socket(); }
  Gate& gate() { return node_.gate; }
  uint64_t used(Resource resource) const { return bed_.engine().accounts().node().of(resource); }
  // What is left when all sessions have gone goes a moment later: passes when the dispatcher knows.
  void ExpectNothingLeft() {
    using enum Resource;
    for (const Resource resource : {kSessions, kBuffers, kMappings, kBufferBytes, kBufferHandles,
                                    kProgramOps, kMemberships}) {
      EXPECT_TRUE(Eventually([&] { return used(resource) == 0; })) << static_cast<int>(resource);
    }
    EXPECT_EQ(bed_.server().session_count(), 0u);
    EXPECT_EQ(node_.gpu(0).allocations, 0);
    EXPECT_EQ(bed_.server().sealed_bytes(0).held, 0u);
  }

  static concert_seal_buffer SealOf(uint32_t buffer) {
    auto request = RawClient::Make<concert_seal_buffer>(CONCERT_CONTROL_SEAL_BUFFER);
    request.buffer = buffer;
    return request;
  }
  static uint32_t Seal(const RawClient& client, uint32_t buffer) {
    return client.Call<concert_buffer_reply>(SealOf(buffer)).buffer;
  }
  // A GEMM of a binding with the weights, whose bytes are most of what it reads.
  static concert_program_reply Register(const RawClient& client, uint32_t weights) {
    const std::array<concert_program_slot, 2> slots = {
        {{.role = CONCERT_SLOT_BINDING, .reserved = 0, .bytes = 16 * 512 * 2},
         {.role = CONCERT_SLOT_BINDING, .reserved = 0, .bytes = 16 * 1024 * 2}}};
    concert_descriptor op{};
    op.kind = CONCERT_OP_GEMM;
    concert_gemm_body& gemm = op.body.gemm;
    gemm.m = 16, gemm.n = 1024, gemm.k = 512;
    gemm.batch = 1;
    gemm.alpha = 1;
    gemm.dtype = CONCERT_ABI_BF16;
    gemm.lda = 512, gemm.ldw = 512, gemm.ldd = 1024;
    gemm.a.buffer = CONCERT_SLOT_HANDLE(0);
    gemm.w.buffer = weights;
    gemm.d.buffer = CONCERT_SLOT_HANDLE(1);
    return client.CreateProgram(slots, {&op, 1});
  }

  GatedNode node_;
  ServerBed bed_{node_};
};

TEST_F(ServerErrandsTest, OthersConnectAndWorkMeanwhile) {
  RawClient slow(socket()), other(socket());
  ASSERT_TRUE(slow.Hello());
  ASSERT_TRUE(other.Hello());
  const uint32_t buffer = slow.AllocateBuffer(64);
  concert_descriptor copy{};
  copy.kind = CONCERT_OP_COPY;
  copy.ticket = 1;
  copy.body.copy.src.buffer = other.AllocateBuffer(64);
  copy.body.copy.dst.buffer = other.AllocateBuffer(64);
  copy.body.copy.bytes = 64;
  gate().HoldUp(Call::kDigest);
  ASSERT_TRUE(slow.Send(SealOf(buffer)));
  ASSERT_TRUE(gate().Await());
  const uint32_t queue = other.CreateQueue();
  copy.queue = static_cast<uint16_t>(queue);
  ASSERT_TRUE(other.Push(copy));
  other.Wake();
  EXPECT_TRUE(other.WaitForTimeline(queue, 1));
  RawClient another(socket());
  EXPECT_TRUE(another.Hello());
  EXPECT_FALSE(slow.HasAnswer());
  gate().Open();
  EXPECT_FALSE(slow.Receive().empty());
  slow.Disconnect(), other.Disconnect(), another.Disconnect();
  ExpectNothingLeft();
}

TEST_F(ServerErrandsTest, NothingElseOfTheSessionIsReadMeanwhile) {
  RawClient client(socket());
  ASSERT_TRUE(client.Hello());
  const uint32_t buffer = client.AllocateBuffer(64);
  gate().HoldUp(Call::kDigest);
  ASSERT_TRUE(client.Send(SealOf(buffer)));
  ASSERT_TRUE(gate().Await());
  auto release = RawClient::Make<concert_release_buffer>(CONCERT_CONTROL_RELEASE_BUFFER);
  release.buffer = buffer;
  ASSERT_TRUE(client.Send(release));
  RawClient other(socket());
  ASSERT_TRUE(other.Hello());  // behind it in any order in which sockets are read
  EXPECT_FALSE(client.HasAnswer());
  gate().Open();
  EXPECT_EQ(client.Receive().size(), sizeof(concert_buffer_reply));
  const std::vector<char> packet = client.Receive();
  ASSERT_EQ(packet.size(), sizeof(concert_control_reply));
  // It was given up by being sealed.
  EXPECT_EQ(reinterpret_cast<const concert_control_reply*>(packet.data())->status,
            static_cast<uint32_t>(CONCERT_ABI_NOT_FOUND));
}

TEST_F(ServerErrandsTest, ASessionThatEndsMeanwhileLeavesNothing) {
  for (const Call call : {Call::kAllocate, Call::kDigest, Call::kPrepareProgram, Call::kConnect}) {
    SCOPED_TRACE(static_cast<int>(call));
    RawClient client(socket());
    ASSERT_TRUE(client.Hello());
    const uint32_t weights = client.AllocateBuffer(kWeightBytes);
    gate().HoldUp(call);
    std::jthread asks([&] {
      if (call == Call::kAllocate) client.AllocateBuffer(64);
      if (call == Call::kDigest) Seal(client, weights);
      if (call == Call::kPrepareProgram) Register(client, weights);
      if (call == Call::kConnect) client.Join("alone", 0, 1);
    });
    ASSERT_TRUE(gate().Await());
    shutdown(client.socket(), SHUT_RDWR);
    asks.join();
    ASSERT_TRUE(Eventually([&] { return bed_.server().Sessions().at(0).closing; }));
    RawClient other(socket());
    EXPECT_TRUE(other.Hello());
    EXPECT_GT(node_.gpu(0).allocations, 0);  // what the errand uses
    gate().Open();
    other.Disconnect();
    ExpectNothingLeft();
  }
}

TEST_F(ServerErrandsTest, WhoWaitsForATurnMayLeave) {
  RawClient slow(socket()), leaves(socket()), stays(socket());
  for (RawClient* client : {&slow, &leaves, &stays}) ASSERT_TRUE(client->Hello());
  const uint32_t buffer = slow.AllocateBuffer(64);
  gate().HoldUp(Call::kDigest);
  ASSERT_TRUE(slow.Send(SealOf(buffer)));
  ASSERT_TRUE(gate().Await());
  auto allocate = RawClient::Make<concert_allocate_buffer>(CONCERT_CONTROL_ALLOCATE_BUFFER);
  allocate.bytes = 64;
  ASSERT_TRUE(leaves.Send(allocate));
  ASSERT_TRUE(stays.Send(allocate));
  leaves.Disconnect();
  ASSERT_TRUE(Eventually([&] { return bed_.server().session_count() == 2; }));
  EXPECT_FALSE(stays.HasAnswer());
  gate().Open();
  EXPECT_FALSE(slow.Receive().empty());
  EXPECT_FALSE(stays.Receive().empty());
  slow.Disconnect(), stays.Disconnect();
  ExpectNothingLeft();
}

// Whether the daemon receives them, or they are left in the socket and the kernel closes them. Sent
// behind an errand, so that the daemon has the last of them.
TEST_F(ServerErrandsTest, FdsThatTakeLongToCloseKeepNobodyWaiting) {
  auto import = RawClient::Make<concert_import_buffer>(CONCERT_CONTROL_IMPORT_BUFFER);
  import.kind = CONCERT_IMPORT_MEMFD;
  import.bytes = import.allocation_bytes = 4096;
  for (const bool received : {true, false}) {
    for (const size_t count : {1, 3, 9}) {  // as asked for, too many, more than are received
      SCOPED_TRACE(testing::Message() << count << " fds, " << received);
      RawClient client(socket()), other(socket());
      ASSERT_TRUE(client.Hello());
      const uint32_t buffer = client.AllocateBuffer(64);
      gate().HoldUp(Call::kDigest);
      ASSERT_TRUE(client.Send(SealOf(buffer)));
      ASSERT_TRUE(gate().Await());
      std::vector<LingeringSocket> sockets(count);
      std::vector<int> fds;
      for (const LingeringSocket& one : sockets) fds.push_back(one.get());
      ASSERT_TRUE(client.Send(&import, sizeof(import), fds));
      for (LingeringSocket& one : sockets) one.LeaveToOthers();
      if (received) {
        gate().Open();
        EXPECT_FALSE(client.Receive().empty());
        client.Receive();  // nothing where it is over
        EXPECT_TRUE(other.Hello());
      } else {
        client.Disconnect();
        EXPECT_TRUE(Eventually([&] { return bed_.server().Sessions().at(0).closing; }));
        EXPECT_TRUE(other.Hello());
        gate().Open();
      }
      ASSERT_FALSE(HasFailure());
      client.Disconnect(), other.Disconnect();
      ExpectNothingLeft();
    }
  }
}

// The first op of a new queue, which fails.
concert_completion FailureOfABarrier(RawClient& client, uint32_t communicator) {
  const uint32_t queue = client.CreateQueue();
  concert_descriptor barrier{};
  barrier.kind = CONCERT_OP_BARRIER;
  barrier.queue = static_cast<uint16_t>(queue);
  barrier.ticket = 1;
  barrier.body.collective.communicator = communicator;
  EXPECT_TRUE(client.Push(barrier) && client.WaitForTimeline(queue, 1));
  return client.NextCompletion().value_or(concert_completion{});
}

// As if it had left a moment later: what the last rank submits fails, and waits for nobody.
TEST_F(ServerErrandsTest, ARankThatLeavesWhileTheLastOneJoinsIsMissedAtOnce) {
  RawClient first(socket()), last(socket());
  for (RawClient* client : {&first, &last}) ASSERT_TRUE(client->Hello());
  ASSERT_NE(first.Join("pair", 0, 2), 0u);
  gate().HoldUp(Call::kConnect);
  uint32_t communicator = 0;
  std::jthread joins([&] { communicator = last.Join("pair", 1, 2); });
  ASSERT_TRUE(gate().Await());
  first.Disconnect();
  ASSERT_TRUE(Eventually([&] { return bed_.server().session_count() == 1; }));
  gate().Open();
  joins.join();
  ASSERT_NE(communicator, 0u);
  const concert_completion outcome = FailureOfABarrier(last, communicator);
  EXPECT_EQ(outcome.message, CONCERT_MESSAGE_RANK_LEFT) << test::Render(outcome);
  last.Disconnect();
  ExpectNothingLeft();
}

// The last rank hears why and is none; the others miss it, and may join anew with another.
TEST_F(ServerErrandsTest, GpusThatCannotBeConnectedLeaveNoRankWaiting) {
  RawClient first(socket()), last(socket());
  for (RawClient* client : {&first, &last}) ASSERT_TRUE(client->Hello());
  const uint32_t communicator = first.Join("pair", 0, 2);
  ASSERT_NE(communicator, 0u);
  node_.connects = false;
  auto request = RawClient::Make<concert_join_communicator>(CONCERT_CONTROL_JOIN_COMMUNICATOR);
  request.rank = 1, request.ranks = 2;
  std::strcpy(request.name, "pair");
  const auto refused = last.Call<concert_join_communicator_reply>(request);
  EXPECT_EQ(refused.reply.status, static_cast<uint32_t>(CONCERT_ABI_INTERNAL));
  EXPECT_THAT(refused.reply.message, testing::HasSubstr("no channels today"));
  EXPECT_EQ(refused.communicator, 0u);
  const concert_completion outcome = FailureOfABarrier(first, communicator);
  EXPECT_EQ(outcome.message, CONCERT_MESSAGE_RANK_LEFT) << test::Render(outcome);

  first.Disconnect();
  ASSERT_TRUE(Eventually([&] { return bed_.server().session_count() == 1; }));
  node_.connects = true;
  RawClient other(socket());
  ASSERT_TRUE(other.Hello());
  EXPECT_NE(other.Join("pair", 0, 2), 0u);
  EXPECT_NE(last.Join("pair", 1, 2), 0u);
  for (RawClient* client : {&other, &last}) client->Disconnect();
  ExpectNothingLeft();
}

TEST_F(ServerErrandsTest, AReplicaMayLeaveWhileItsPassIsMade) {
  RawClient first(socket()), second(socket());
  for (RawClient* client : {&first, &second}) ASSERT_TRUE(client->Hello());
  const auto status_of = [](const concert_program_reply& reply) { return reply.reply.status; };
  ASSERT_EQ(status_of(Register(first, Seal(first, first.AllocateBuffer(kWeightBytes)))),
            static_cast<uint32_t>(CONCERT_ABI_OK));
  const uint32_t weights = Seal(second, second.AllocateBuffer(kWeightBytes));
  gate().HoldUp(Call::kPreparePass);
  concert_program_reply reply{};
  std::jthread registers([&] { reply = Register(second, weights); });
  ASSERT_TRUE(gate().Await());
  first.Disconnect();
  ASSERT_TRUE(Eventually([&] { return bed_.server().session_count() == 1; }));
  gate().Open();
  registers.join();
  ASSERT_EQ(status_of(reply), static_cast<uint32_t>(CONCERT_ABI_OK)) << reply.reply.message;
  EXPECT_EQ(bed_.server().Sessions().at(0).programs.at(0).replicas, 1u);
  second.Disconnect();
  ExpectNothingLeft();
}

TEST_F(ServerErrandsTest, ReplicasAreUnitedBeforeTheAnswer) {
  RawClient first(socket()), second(socket());
  for (RawClient* client : {&first, &second}) {
    ASSERT_TRUE(client->Hello());
    const concert_program_reply reply =
        Register(*client, Seal(*client, client->AllocateBuffer(kWeightBytes)));
    ASSERT_EQ(reply.reply.status, static_cast<uint32_t>(CONCERT_ABI_OK)) << reply.reply.message;
  }
  for (const SessionSummary& session : bed_.server().Sessions())
    EXPECT_EQ(session.programs.at(0).replicas, 2u);
  first.Disconnect(), second.Disconnect();
  ExpectNothingLeft();
}

}  // namespace
}  // namespace concert::daemon
