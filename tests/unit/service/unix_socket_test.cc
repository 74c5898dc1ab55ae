#include "daemon/service/unix_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "tests/support/temp_folder.h"

namespace concert::daemon {
namespace {

using testing::AllOf;
using testing::HasSubstr;

UniqueFd Bound(int type, const std::string& path) {
  UniqueFd fd(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_TRUE(type == SOCK_DGRAM || listen(fd.get(), 1) == 0);
  return fd;
}

class UnixSocketPathTest : public testing::Test {
 protected:
  auto Claim() { return UnixSocketPath::Claim("socket", path_); }
  size_t FilesLeft() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  const test::TempFolder temporary_;
  const std::string folder_ = temporary_.path(), path_ = folder_ + "/c.sock";
};

TEST_F(UnixSocketPathTest, ServesAndLeavesNothing) {
  {
    const auto claim = Claim();
    ASSERT_TRUE(claim.ok()) << claim.status();
    const UniqueFd listener = Bound(SOCK_SEQPACKET, (*claim)->private_path());
    EXPECT_FALSE(std::filesystem::exists(path_));
    ASSERT_TRUE((*claim)->Publish().ok());
    EXPECT_TRUE(std::filesystem::is_socket(path_));
  }
  EXPECT_EQ(FilesLeft(), 0u);
}

TEST_F(UnixSocketPathTest, WhatADeadDaemonLeftIsReplaced) {
  Bound(SOCK_SEQPACKET, path_);
  Bound(SOCK_STREAM, path_ + ".new");
  std::ofstream(path_ + ".lock") << "";
  EXPECT_TRUE(Claim().ok());
  EXPECT_EQ(FilesLeft(), 0u);
}

TEST_F(UnixSocketPathTest, AFileThatIsNoSocketStays) {
  std::ofstream(path_) << "precious";
  const auto claim = Claim();
  EXPECT_EQ(claim.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(claim.status().message()), HasSubstr("is no socket"));
  std::string text;
  std::ifstream(path_) >> text;
  EXPECT_EQ(text, "precious");
  EXPECT_EQ(FilesLeft(), 1u);
}

TEST_F(UnixSocketPathTest, ALinkStays) {
  std::ofstream(folder_ + "/target") << "precious";
  std::filesystem::create_symlink(folder_ + "/target", path_);
  EXPECT_EQ(Claim().status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
}

TEST_F(UnixSocketPathTest, ALivingSocketOfAnyTypeStays) {
  for (const int type : {SOCK_SEQPACKET, SOCK_STREAM, SOCK_DGRAM}) {
    SCOPED_TRACE(type);
    const UniqueFd service = Bound(type, path_);
    const auto claim = Claim();
    EXPECT_EQ(claim.status().code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(std::string(claim.status().message()), HasSubstr("another process serves"));
    EXPECT_TRUE(std::filesystem::is_socket(path_));
    std::filesystem::remove(path_);
  }
}

TEST_F(UnixSocketPathTest, OfManyThatStartAtOnceOneServes) {
  constexpr int kDaemons = 8;
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> ready{0};
    std::array<absl::StatusOr<std::unique_ptr<UnixSocketPath>>, kDaemons> claims;
    std::vector<std::thread> daemons;
    for (int i = 0; i < kDaemons; ++i) {
      daemons.emplace_back([&, i] {
        ++ready;
        while (ready < kDaemons) {
        }
        claims[i] = Claim();
      });
    }
    for (std::thread& daemon : daemons) daemon.join();
    int serving = 0;
    for (const auto& claim : claims) serving += claim.ok() ? 1 : 0;
    ASSERT_EQ(serving, 1) << "round " << round;
  }
}

TEST_F(UnixSocketPathTest, TheEndOfOneLeavesTheSocketOfAnother) {
  auto claim = Claim();
  ASSERT_TRUE(claim.ok());
  const UniqueFd listener = Bound(SOCK_STREAM, (*claim)->private_path());
  ASSERT_TRUE((*claim)->Publish().ok());
  // Somebody takes the path over, lock or no lock.
  std::filesystem::remove(path_);
  const UniqueFd other = Bound(SOCK_STREAM, path_);
  claim->reset();
  EXPECT_TRUE(std::filesystem::is_socket(path_));
}

TEST_F(UnixSocketPathTest, WhatAppearsMeanwhileIsNotReplaced) {
  auto claim = Claim();
  ASSERT_TRUE(claim.ok());
  const UniqueFd listener = Bound(SOCK_STREAM, (*claim)->private_path());
  std::ofstream(path_) << "precious";
  EXPECT_FALSE((*claim)->Publish().ok());
  claim->reset();
  EXPECT_EQ(FilesLeft(), 1u);
}

TEST_F(UnixSocketPathTest, BadPathsAreRefused) {
  for (const std::string& path :
       {std::string(), std::string("c.sock"), std::string("/") + std::string(200, 'x')}) {
    EXPECT_EQ(UnixSocketPath::Claim("socket", path).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  const auto missing = UnixSocketPath::Claim("socket", "/nonexistent/c.sock");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(missing.status().message()),
              HasSubstr("its directory must exist and be writable"));
}

TEST_F(UnixSocketPathTest, WhoMayNotWriteInRunIsToldWhatToDo) {
  setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
  const auto missing = UnixSocketPath::Claim("socket", "/nonexistent/c.sock");
  unsetenv("XDG_RUNTIME_DIR");
  EXPECT_THAT(std::string(missing.status().message()),
              AllOf(HasSubstr("socket /nonexistent/c.sock: "), HasSubstr("systemd unit"),
                    HasSubstr("--socket " + folder_ + "/concert.sock --admin-socket " + folder_ +
                              "/concert-admin.sock")));
}

}  // namespace
}  // namespace concert::daemon
