// A client cannot write to the region in which the daemon tells it what has ended, whatever it does
// with the descriptor.
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "tests/fault/fault_fixture.h"

namespace concert::test {
namespace {

class RegionTest : public FaultTest {
 protected:
  void SetUp() override {
    client_ = std::make_unique<RawClient>(daemon_.socket());
    auto hello = RawClient::Make<concert_hello>(CONCERT_CONTROL_HELLO);
    hello.abi_major = CONCERT_ABI_MAJOR;
    hello.abi_minor = CONCERT_ABI_MINOR;
    hello.gpu_mask = 1;
    reply_ = client_->Call<concert_hello_reply>(hello, &fds_);
    ASSERT_EQ(reply_.reply.status, CONCERT_ABI_OK);
    ASSERT_EQ(fds_.size(), 3u);
  }
  void TearDown() override {
    for (const int fd : fds_) close(fd);
    client_.reset();
    FaultTest::TearDown();
  }
  int client_fd() const { return fds_[0]; }
  int daemon_fd() const { return fds_[1]; }
  // The same memory through an open file of its own.
  static int Reopen(int fd, int flags) {
    return open(("/proc/self/fd/" + std::to_string(fd)).c_str(), flags | O_CLOEXEC);
  }

  std::unique_ptr<RawClient> client_;
  concert_hello_reply reply_{};
  std::vector<int> fds_;
};

TEST_F(RegionTest, NothingWritesToTheDaemonsRegion) {
  const uint64_t word = ~uint64_t{0};
  const int fd = daemon_fd();
  const auto bytes = static_cast<off_t>(reply_.layout.daemon_bytes);
  void* const mapped = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const std::vector<char> before(static_cast<char*>(mapped), static_cast<char*>(mapped) + bytes);

  const auto refused = [](const char* what, long result) {
    EXPECT_EQ(result, -1) << what;
    EXPECT_TRUE(errno == EPERM || errno == EACCES || errno == EBADF || errno == EINVAL)
        << what << ": " << strerror(errno);
  };
  refused("pwrite", pwrite(fd, &word, sizeof(word), 0));
  refused("mmap",
          mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0);
  refused("mprotect", mprotect(mapped, 4096, PROT_READ | PROT_WRITE));
  refused("punch a hole", fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096));
  refused("remove pages", madvise(mapped, 4096, MADV_REMOVE));
  refused("shrink", ftruncate(fd, 0));
  refused("grow", ftruncate(fd, bytes * 2));
  // Where the kernel lets it be opened again, the seals are those of the memory.
  if (const int again = Reopen(fd, O_RDWR); again >= 0) {
    refused("pwrite after opening again", pwrite(again, &word, sizeof(word), 0));
    close(again);
  }
  if (const int again = Reopen(fd, O_RDWR | O_TRUNC); again >= 0) close(again);
  EXPECT_EQ(lseek(fd, 0, SEEK_END), bytes);
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  ASSERT_EQ(write(pipes[1], &word, sizeof(word)), static_cast<ssize_t>(sizeof(word)));
  loff_t offset = 0;
  refused("splice", splice(pipes[0], nullptr, fd, &offset, sizeof(word), 0));
  close(pipes[0]), close(pipes[1]);

  // Behind its page the daemon itself writes: whether its dispatcher sleeps.
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + sizeof(concert_session_page),
                         static_cast<char*>(mapped)));
  munmap(mapped, static_cast<size_t>(bytes));
}

TEST_F(RegionTest, TheClientsRegionKeepsItsSize) {
  const auto bytes = static_cast<off_t>(reply_.layout.client_bytes);
  EXPECT_EQ(ftruncate(client_fd(), bytes / 2), -1);
  EXPECT_EQ(ftruncate(client_fd(), bytes * 2), -1);
  EXPECT_EQ(lseek(client_fd(), 0, SEEK_END), bytes);
}

}  // namespace
}  // namespace concert::test
