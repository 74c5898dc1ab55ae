// What clients' requests cost the daemon in memory and copies. A program of its own because it
// counts every allocation by replacing operator new.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>

#include "daemon/clock.h"
#include "daemon/sched/engine.h"
#include "daemon/session/server.h"
#include "daemon/telemetry/telemetry.h"
#include "tests/support/raw_client.h"
#include "tests/unit/sched/null_node.h"

namespace {
std::atomic<int64_t> allocations{0};

void* CountedAlloc(size_t size, size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, size == 0 ? 1 : size) != 0) throw std::bad_alloc();
  return memory;
}
}  // namespace

void* operator new(size_t size) { return CountedAlloc(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new[](size_t size) { return CountedAlloc(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new(size_t size, std::align_val_t alignment) {
  return CountedAlloc(size, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace concert::daemon {
namespace {

using concert::test::RawClient;

class SessionCostTest : public testing::Test {
 protected:
  SessionCostTest() {
    char folder[] = "/tmp/concert-cost-XXXXXX";
    CONCERT_CHECK(mkdtemp(folder) != nullptr);
    folder_ = folder;
    RecordRing* ring = telemetry_.AddRing(0);
    EngineOptions options;
    options.policy = "priority";
    engine_ = Engine::Create(options, node_, std::span(&ring, 1)).value();
    server_ = Server::Create({.socket_path = socket()}, *engine_).value();
    engine_->Start();
    server_->Start();
  }
  ~SessionCostTest() override {
    server_.reset();
    engine_.reset();
    rmdir(folder_.c_str());
  }

  std::string socket() const { return folder_ + "/concert.sock"; }

  // Of one op, a copy from one buffer to the other.
  static void Register(const RawClient& client, uint32_t from, uint32_t to) {
    concert_descriptor op{};
    op.kind = CONCERT_OP_COPY;
    op.body.copy.src.buffer = from;
    op.body.copy.dst.buffer = to;
    op.body.copy.bytes = 64;
    const concert_program_reply reply = client.CreateProgram({}, {&op, 1});
    ASSERT_EQ(reply.reply.status, static_cast<uint32_t>(CONCERT_ABI_OK)) << reply.reply.message;
  }

  std::string folder_;
  NullNode node_{1};
  Telemetry telemetry_{[] { return NowNs(); }};
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Server> server_;
};

TEST_F(SessionCostTest, ARequestCopiesNothingOfTheSessionsPrograms) {
  constexpr int kPrograms = 100, kRequests = 100;
  RawClient client(socket());
  ASSERT_TRUE(client.Hello());
  const auto allocations_of_requests = [&] {
    const int64_t before = allocations.load();
    for (int i = 0; i < kRequests; ++i)
      EXPECT_EQ(client.ReleaseBuffer(0), static_cast<uint32_t>(CONCERT_ABI_NOT_FOUND));
    return allocations.load() - before;
  };
  const int64_t without = allocations_of_requests();
  const uint32_t from = client.AllocateBuffer(64), to = client.AllocateBuffer(64);
  for (int i = 0; i < kPrograms; ++i) Register(client, from, to);
  EXPECT_EQ(server_->Sessions().at(0).programs.size(), size_t{kPrograms});
  // Other threads allocate now and then.
  EXPECT_LT(allocations_of_requests(), without + kRequests * kPrograms / 4);
}

}  // namespace
}  // namespace concert::daemon
