// The pool: what a framework's allocator calls, from many threads, after sessions and before them.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "concert/concert.hpp"
#include "tests/support/fake_daemon.h"

namespace concert {
namespace {

class PoolTest : public testing::Test {
 protected:
  PoolTest() { concert_pool_use(session_.get(), nullptr); }
  ~PoolTest() override { concert_pool_use(nullptr, nullptr); }

  int Find(const void* address, concert_slice* slice) {
    return concert_pool_find(session_.get(), address, slice, nullptr);
  }

  test::FakeDaemon daemon_;
  Session session_ =
      Session::Connect({.socket_path = daemon_.path(), .fallback = Fallback::kNone}).value();
};

TEST_F(PoolTest, AnAddressIsInItsBufferUntilThatIsFreed) {
  void* address = concert_pool_allocate(4096, 0, nullptr);
  ASSERT_NE(address, nullptr);
  concert_slice slice{};
  ASSERT_EQ(Find(static_cast<char*>(address) + 4095, &slice), CONCERT_OK);
  EXPECT_EQ(slice.offset, 4095u);
  EXPECT_EQ(concert_buffer_bytes(slice.buffer), 4096u);
  EXPECT_EQ(Find(static_cast<char*>(address) + 4096, &slice), CONCERT_NOT_FOUND);
  const uint64_t frees = concert_pool_frees();
  concert_pool_free(address, 4096, 0, nullptr);
  EXPECT_EQ(concert_pool_frees(), frees + 1);
  EXPECT_EQ(Find(address, &slice), CONCERT_NOT_FOUND);
}

TEST_F(PoolTest, ItsBuffersAreNotSealed) {
  void* address = concert_pool_allocate(64, 0, nullptr);
  concert_slice slice{};
  ASSERT_EQ(Find(address, &slice), CONCERT_OK);
  concert_error error;
  EXPECT_EQ(concert_buffer_seal(slice.buffer, &error), CONCERT_FAILED_PRECONDITION);
  EXPECT_NE(std::string(error.message).find("a buffer of the pool cannot be sealed"),
            std::string::npos)
      << error.message;
  std::memset(address, 1, 64);  // still mapped
  concert_pool_free(address, 64, 0, nullptr);
}

TEST_F(PoolTest, ThreadsShareIt) {
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (uint64_t bytes = 64; bytes < 128; ++bytes) {
        void* address = concert_pool_allocate(bytes, 0, nullptr);
        ASSERT_NE(address, nullptr);
        std::memset(address, 1, bytes);
        concert_slice slice{};
        EXPECT_EQ(Find(address, &slice), CONCERT_OK);
        EXPECT_EQ(concert_buffer_bytes(slice.buffer), bytes);
        concert_pool_free(address, bytes, 0, nullptr);
      }
    });
  }
}

TEST_F(PoolTest, MemoryOutlivesItsSession) {
  void* address = concert_pool_allocate(64, 0, nullptr);
  ASSERT_NE(address, nullptr);
  { const Session closed = std::move(session_); }
  std::memset(address, 1, 64);
  EXPECT_EQ(concert_pool_allocate(64, 0, nullptr), nullptr);
  concert_pool_free(address, 64, 0, nullptr);
}

TEST_F(PoolTest, WithoutASessionThereIsNoMemory) {
  concert_pool_use(nullptr, nullptr);
  EXPECT_EQ(concert_pool_allocate(64, 0, nullptr), nullptr);
  concert_pool_free(nullptr, 0, 0, nullptr);
  concert_slice slice{};
  EXPECT_EQ(concert_pool_find(nullptr, &slice, &slice, nullptr), CONCERT_INVALID_ARGUMENT);
  EXPECT_EQ(Find(&slice, nullptr), CONCERT_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace concert
