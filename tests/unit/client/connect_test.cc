// Connecting: handshake, refusals, the struct_size rule, control calls, buffers.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "concert/concert.hpp"
#include "tests/support/fake_daemon.h"

namespace concert {
namespace {

using test::FakeDaemon;
using testing::HasSubstr;

ConnectOptions To(const FakeDaemon& daemon) {
  return {.socket_path = daemon.path(), .client_name = "test", .fallback = Fallback::kNone};
}

// Connects to a daemon whose Hello reply was tampered with; returns the sentence.
std::string Refusal(std::function<void(concert_hello_reply&)> edit) {
  FakeDaemon::Options options;
  options.edit_hello = std::move(edit);
  const FakeDaemon daemon(std::move(options));
  Result<Session> session = Session::Connect(To(daemon));
  EXPECT_EQ(session.status().code(), CONCERT_FAILED_PRECONDITION);
  return session.status().message();
}

TEST(Connect, ShakesHandsAndDescribesTheNode) {
  const FakeDaemon daemon(FakeDaemon::Options{.rings = 2});
  ConnectOptions options = To(daemon);
  options.gpu_mask = 3;
  Session session = Session::Connect(options).value();
  EXPECT_EQ(session.id(), 7u);
  EXPECT_FALSE(session.is_local());
  ASSERT_EQ(session.gpu_count(), 2u);
  const concert_gpu gpu = session.GpuInfo(1).value();
  EXPECT_STREQ(gpu.name, "simulated GPU 1");
  EXPECT_EQ(gpu.backend, CONCERT_BACKEND_SIM);
  EXPECT_EQ(gpu.sm_count, 132u);
  EXPECT_EQ(gpu.has_ring, 1u);
  EXPECT_EQ(session.GpuInfo(2).status().code(), CONCERT_INVALID_ARGUMENT);

  const auto hellos = daemon.Requests(CONCERT_CONTROL_HELLO);
  ASSERT_EQ(hellos.size(), 1u);
  ASSERT_EQ(hellos[0].size(), sizeof(concert_hello));
  concert_hello hello;
  std::memcpy(&hello, hellos[0].data(), sizeof(hello));
  EXPECT_EQ(hello.header.magic, CONCERT_CONTROL_MAGIC);
  EXPECT_EQ(hello.abi_major, CONCERT_ABI_MAJOR);
  EXPECT_EQ(hello.gpu_mask, 3u);
  EXPECT_STREQ(hello.client_name, "test");
}

TEST(Connect, NoDaemonIsOneClearSentence) {
  Result<Session> session =
      Session::Connect({.socket_path = "/nonexistent/concert.sock", .fallback = Fallback::kNone});
  EXPECT_EQ(session.status().code(), CONCERT_UNAVAILABLE);
  EXPECT_EQ(session.status().message(),
            "no daemon at /nonexistent/concert.sock: No such file or directory; start concertd or "
            "set CONCERT_FALLBACK=cublas");
}

TEST(Connect, TakesTheSocketFromTheEnvironment) {
  const FakeDaemon daemon;
  setenv("CONCERT_SOCKET", daemon.path().c_str(), 1);
  EXPECT_TRUE(Session::Connect({.fallback = Fallback::kNone}).ok());
  unsetenv("CONCERT_SOCKET");
}

TEST(Connect, RefusesAnUnknownFallback) {
  setenv("CONCERT_FALLBACK", "cudnn", 1);
  const Status status = Session::Connect({.socket_path = "/nonexistent"}).status();
  unsetenv("CONCERT_FALLBACK");
  EXPECT_EQ(status.code(), CONCERT_INVALID_ARGUMENT);
  EXPECT_EQ(status.message(), "CONCERT_FALLBACK is 'cudnn'; it must be 'cublas' or 'none'");
}

TEST(Connect, FallbackThatCannotHelpSaysWhyToo) {
  setenv("CUDA_VISIBLE_DEVICES", "", 1);  // no GPU to fall back to, also on a node with some
  const Status status =
      Session::Connect({.socket_path = "/nonexistent", .fallback = Fallback::kCublas}).status();
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("no daemon at /nonexistent"));
  EXPECT_THAT(status.message(), HasSubstr("CONCERT_FALLBACK=cublas"));
}

TEST(Connect, RefusesALongSocketPath) {
  const Status status = Session::Connect({.socket_path = std::string(200, 'x')}).status();
  EXPECT_EQ(status.code(), CONCERT_INVALID_ARGUMENT);
  EXPECT_THAT(status.message(), HasSubstr("longer than 107 bytes"));
}

TEST(Connect, NamesBothVersionsOnAMismatch) {
  EXPECT_THAT(Refusal([](concert_hello_reply& reply) { reply.abi_major = 9; }),
              HasSubstr("speaks version 9.4 of the ring ABI, this libconcert 1.4"));
}

TEST(Connect, PassesOnTheDaemonsOwnRefusal) {
  EXPECT_EQ(Refusal([](concert_hello_reply& reply) {
              reply.reply.status = CONCERT_ABI_FAILED_PRECONDITION;
              std::strcpy(reply.reply.message, "version 1 is too old");
            }),
            "version 1 is too old");
}

TEST(Connect, RefusesLayoutsThatLeaveTheRegions) {
  const auto with = [](auto edit) {
    return Refusal([edit](concert_hello_reply& reply) { edit(reply.layout); });
  };
  EXPECT_THAT(with([](concert_layout& l) { l.rings[0].capacity = 12; }),
              HasSubstr("rings.capacity is 12"));
  EXPECT_THAT(with([](concert_layout& l) { l.rings[0].capacity = 0; }),
              HasSubstr("rings.capacity is 0"));
  EXPECT_THAT(with([](concert_layout& l) { l.rings[0].capacity = 1u << 31; }),
              HasSubstr("power of two up to 2^20"));
  EXPECT_THAT(with([](concert_layout& l) { l.rings[0].completion_capacity = 4; }),
              HasSubstr("completion_capacity is 4"));
  EXPECT_THAT(with([](concert_layout& l) { l.rings[0].descriptors_offset = 32; }),
              HasSubstr("multiple of 64"));
  EXPECT_THAT(with([](concert_layout& l) { l.rings[0].descriptors_offset = ~63ull; }),
              HasSubstr("fits in the region"));
  EXPECT_THAT(with([](concert_layout& l) { l.timelines_offset = l.daemon_bytes; }),
              HasSubstr("timelines_offset"));
  EXPECT_THAT(with([](concert_layout& l) { l.client_bytes += 4096; }), HasSubstr("smaller than"));
  EXPECT_THAT(with([](concert_layout& l) { l.daemon_bytes = 1ull << 40; }),
              HasSubstr("daemon_bytes"));
  EXPECT_THAT(with([](concert_layout& l) { l.ring_count = 17; }), HasSubstr("file descriptors"));
  EXPECT_THAT(with([](concert_layout& l) { l.ring_count = 0; }), HasSubstr("file descriptors"));
  EXPECT_THAT(with([](concert_layout& l) { l.max_queues = 257; }), HasSubstr("max_queues is 257"));
  EXPECT_THAT(with([](concert_layout& l) { l.rings[0].gpu = 16; }), HasSubstr("rings.gpu is 16"));
  EXPECT_THAT(Refusal([](concert_hello_reply& reply) { reply.session = 8; }),
              HasSubstr("session 7 instead of 8"));
  EXPECT_THAT(Refusal([](concert_hello_reply& reply) { reply.gpu_count = 99; }),
              HasSubstr("99 GPUs"));
}

TEST(Connect, RefusesMemoryThatCouldBeTruncated) {
  const FakeDaemon daemon(FakeDaemon::Options{.seal = false});
  EXPECT_THAT(Session::Connect(To(daemon)).status().message(),
              HasSubstr("not sealed against resizing"));
}

TEST(Connect, ASilentDaemonIsATimeout) {
  const FakeDaemon daemon(FakeDaemon::Options{.reply = false});
  ConnectOptions options = To(daemon);
  options.timeout = std::chrono::milliseconds(20);
  const Status status = Session::Connect(options).status();
  EXPECT_EQ(status.code(), CONCERT_DEADLINE_EXCEEDED);
  EXPECT_EQ(status.message(), "the daemon did not reply within 20 ms");
}

TEST(StructSize, SmallerMeansTheRestIsDefault) {
  const FakeDaemon daemon;
  const std::string path = daemon.path();
  concert_connect_options options;
  std::memset(&options, 0xff, sizeof(options));  // what lies past struct_size must not be read
  options.struct_size = offsetof(concert_connect_options, client_name);
  options.fallback = CONCERT_FALLBACK_NONE;
  options.socket_path = path.c_str();
  concert_session* session = nullptr;
  ASSERT_EQ(concert_connect(&options, &session, nullptr), CONCERT_OK);
  concert_session_close(session);
}

TEST(StructSize, LargerIsFineOnlyWhenTheTailIsZero) {
  const FakeDaemon daemon;
  const std::string path = daemon.path();
  struct {
    concert_connect_options options;
    uint64_t future;
  } longer = {};
  longer.options.struct_size = sizeof(longer);
  longer.options.socket_path = path.c_str();
  concert_session* session = nullptr;
  concert_error error;
  longer.future = 1;
  EXPECT_EQ(concert_connect(&longer.options, &session, &error), CONCERT_INVALID_ARGUMENT);
  EXPECT_THAT(error.message, HasSubstr("which libconcert"));
  longer.future = 0;
  EXPECT_EQ(concert_connect(&longer.options, &session, &error), CONCERT_OK);
  concert_session_close(session);
}

TEST(StructSize, ZeroIsAForgottenInit) {
  concert_connect_options options = {};
  concert_session* session = nullptr;
  concert_error error;
  EXPECT_EQ(concert_connect(&options, &session, &error), CONCERT_INVALID_ARGUMENT);
  EXPECT_THAT(error.message, HasSubstr("struct_size is 0; set it to sizeof"));
}

TEST(Buffers, SimMemoryIsMappedWrittenAndRead) {
  const FakeDaemon daemon;
  Session session = Session::Connect(To(daemon)).value();
  Buffer buffer = session.Allocate(1000).value();
  EXPECT_EQ(buffer.bytes(), 1000u);
  const uint32_t value = 0x12345678;
  ASSERT_TRUE(buffer.Write(&value, sizeof(value), 996).ok());
  const auto* bytes = static_cast<const char*>(buffer.Address().value());
  EXPECT_EQ(std::memcmp(bytes + 996, &value, sizeof(value)), 0);
  uint32_t back = 0;
  ASSERT_TRUE(buffer.Read(&back, sizeof(back), 996).ok());
  EXPECT_EQ(back, value);
  EXPECT_EQ(buffer.Write(&value, sizeof(value), 997).message(),
            "4 bytes at offset 997 do not fit in the buffer of 1000 bytes");
  EXPECT_EQ(buffer.Read(&back, ~0ull, 8).code(), CONCERT_INVALID_ARGUMENT);
}

TEST(Buffers, AllocationFailuresCarryTheDaemonsSentence) {
  const FakeDaemon daemon;
  Session session = Session::Connect(To(daemon)).value();
  const Status status = session.Allocate(1 << 20).status();
  EXPECT_EQ(status.code(), CONCERT_RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.message(), "bytes is 1048576");
  EXPECT_EQ(session.Allocate(8, /*gpu=*/1).status().message(), "gpu is 1, but the node has 1 GPUs");
}

TEST(Buffers, TheSimulatorImportsNoPointers) {
  const FakeDaemon daemon;
  const Session session = Session::Connect(To(daemon)).value();
  int memory = 0;
  const Status status = session.Import(&memory, sizeof(memory)).status();
  EXPECT_EQ(status.code(), CONCERT_FAILED_PRECONDITION);
  EXPECT_EQ(status.message(),
            "memory of CUDA cannot be imported: the daemon runs on simulated GPUs; allocate a "
            "buffer and write to it");
  EXPECT_TRUE(daemon.Requests(CONCERT_CONTROL_IMPORT_BUFFER).empty());
}

TEST(Buffers, ImportsAMemfdAtAnOffset) {
  const FakeDaemon daemon;
  Session session = Session::Connect(To(daemon)).value();
  const int fd = memfd_create("import", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(fd, 8192), 0);
  concert_import import = {};
  import.memory = CONCERT_MEMORY_MEMFD;
  import.fd = fd;
  import.offset = 100;
  import.bytes = 50;
  import.allocation_bytes = 8192;
  Buffer buffer = session.Import(import).value();
  ASSERT_TRUE(buffer.Write("hello", 5).ok());
  char back[5];
  ASSERT_EQ(pread(fd, back, 5, 100), 5);
  EXPECT_EQ(std::string(back, 5), "hello");
  close(fd);
  concert_import_buffer request;
  std::memcpy(&request, daemon.Requests(CONCERT_CONTROL_IMPORT_BUFFER).at(0).data(),
              sizeof(request));
  EXPECT_EQ(request.kind, CONCERT_IMPORT_MEMFD);
  EXPECT_EQ(request.offset, 100u);
  EXPECT_EQ(request.bytes, 50u);
  EXPECT_EQ(request.allocation_bytes, 8192u);
}

TEST(Buffers, AreReleasedWhenFreed) {
  const FakeDaemon daemon;
  Session session = Session::Connect(To(daemon)).value();
  { Buffer buffer = session.Allocate(64).value(); }
  EXPECT_EQ(daemon.Requests(CONCERT_CONTROL_RELEASE_BUFFER).size(), 1u);
}

TEST(Lifetime, HandlesMayOutliveTheSession) {
  const FakeDaemon daemon;
  Session session = Session::Connect(To(daemon)).value();
  Buffer buffer = session.Allocate(64).value();
  Queue queue = session.CreateQueue().value();
  UserTimeline timeline = session.CreateUserTimeline().value();
  session = Session();
  ASSERT_TRUE(buffer.Write("x", 1).ok());  // its memory stays mapped
  EXPECT_EQ(queue.Copy({.src = buffer, .dst = buffer, .bytes = 1}).submit_status().code(),
            CONCERT_UNAVAILABLE);
  EXPECT_EQ(timeline.Signal(1).code(), CONCERT_UNAVAILABLE);
}

TEST(Join, ChecksTheNameAndSendsTheRank) {
  const FakeDaemon daemon;
  Session session = Session::Connect(To(daemon)).value();
  EXPECT_EQ(session.Join({}).status().message(), "name must have between 1 and 63 bytes");
  EXPECT_FALSE(session.Join({.name = std::string(64, 'x')}).ok());
  { Communicator group = session.Join({.name = "tp", .rank = 1, .ranks = 2}).value(); }
  concert_join_communicator request;
  std::memcpy(&request, daemon.Requests(CONCERT_CONTROL_JOIN_COMMUNICATOR).at(0).data(),
              sizeof(request));
  EXPECT_STREQ(request.name, "tp");
  EXPECT_EQ(request.rank, 1u);
  EXPECT_EQ(request.ranks, 2u);
  EXPECT_EQ(daemon.Requests(CONCERT_CONTROL_LEAVE_COMMUNICATOR).size(), 1u);
}

}  // namespace
}  // namespace concert
