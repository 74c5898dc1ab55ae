#include "tests/bench/mps_daemon.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace concert::bench {
namespace {

// A control program that listens as the real one does, with one server if `server` is its id.
class MpsDaemonTest : public testing::Test {
 protected:
  ~MpsDaemonTest() override { setenv("PATH", path_.c_str(), 1); }

  void Install(const std::string& server) {
    std::filesystem::create_directories(folder_);
    const std::string program = folder_ + "/nvidia-cuda-mps-control";
    std::ofstream(program) << R"(#!/bin/sh
if [ "$1" = -f ]; then
  echo it listens >"$CUDA_MPS_LOG_DIRECTORY/control.log"
  touch "$CUDA_MPS_PIPE_DIRECTORY/control"
  while [ ! -e "$CUDA_MPS_PIPE_DIRECTORY/quit" ]; do sleep 0.01; done
  touch )" << folder_ << R"(/has_quit
  exit
fi
read -r command rest
case $command in
  get_server_list) echo )" << server
                           << R"( ;;
  quit) touch "$CUDA_MPS_PIPE_DIRECTORY/quit" ;;
esac
)";
    chmod(program.c_str(), 0700);
    std::filesystem::remove(folder_ + "/has_quit");
    setenv("PATH", (folder_ + ":" + path_).c_str(), 1);
  }

  const std::string folder_ = testing::TempDir() + "/concert_mps_daemon_test";
  const std::string path_ = std::getenv("PATH");
};

TEST_F(MpsDaemonTest, ClientsFindItByTheirEnvironmentAndItQuitsInTheEnd) {
  Install("4711");
  absl::StatusOr<std::unique_ptr<MpsDaemon>> mps = MpsDaemon::Start();
  ASSERT_TRUE(mps.ok()) << mps.status();
  const std::vector<std::string> environment = (*mps)->environment();
  ASSERT_EQ(environment.size(), 2u);
  EXPECT_THAT(environment[0], testing::StartsWith("CUDA_MPS_PIPE_DIRECTORY=/"));
  const std::string pipes = environment[0].substr(environment[0].find('=') + 1);
  EXPECT_TRUE(std::filesystem::exists(pipes + "/control"));
  EXPECT_TRUE((*mps)->HasServer().ok());
  EXPECT_THAT((*mps)->LogTail(), testing::HasSubstr("it listens"));
  mps->reset();
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/has_quit"));
  EXPECT_FALSE(std::filesystem::exists(pipes));
}

TEST_F(MpsDaemonTest, ClientsThatRunBesideItAreNoticed) {
  Install("");
  const absl::StatusOr<std::unique_ptr<MpsDaemon>> mps = MpsDaemon::Start();
  ASSERT_TRUE(mps.ok()) << mps.status();
  EXPECT_THAT((*mps)->HasServer().message(), testing::HasSubstr("beside MPS"));
}

}  // namespace
}  // namespace concert::bench
