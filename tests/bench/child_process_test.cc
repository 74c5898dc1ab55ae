#include "tests/bench/child_process.h"

#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace concert::bench {
namespace {

std::string LogPath() { return testing::TempDir() + "/concert_child_process_test.log"; }

TEST(ChildProcessTest, AMissingProgramIsAnError) {
  const auto child = ChildProcess::Start({"/no/such/program"}, LogPath());
  EXPECT_THAT(child.status().message(), testing::HasSubstr("/no/such/program"));
}

TEST(ChildProcessTest, OutputGoesToTheLogAndTheEndIsNoticed) {
  std::remove(LogPath().c_str());
  auto child = ChildProcess::Start({"/bin/sh", "-c", "echo out; echo err >&2"}, LogPath());
  ASSERT_TRUE(child.ok()) << child.status();
  while (child->Running()) {
  }
  std::ifstream log(LogPath());
  std::string out, err;
  log >> out >> err;
  EXPECT_EQ(out + err, "outerr");
}

TEST(ChildProcessTest, ItsEnvironmentGoesBeforeOurs) {
  std::remove(LogPath().c_str());
  setenv("CONCERT_TEST_OURS", "kept", 1);
  setenv("CONCERT_TEST_BOTH", "ours", 1);
  auto child = ChildProcess::Start(
      {"/bin/sh", "-c", "echo $CONCERT_TEST_OURS $CONCERT_TEST_BOTH $CONCERT_TEST_NEW"}, LogPath(),
      {"CONCERT_TEST_BOTH=its", "CONCERT_TEST_NEW=new"});
  ASSERT_TRUE(child.ok()) << child.status();
  while (child->Running()) {
  }
  std::string line;
  std::ifstream log(LogPath());
  std::getline(log, line);
  EXPECT_EQ(line, "kept its new");
}

TEST(ChildProcessTest, WaitingForItsEndSendsNoSignal) {
  auto child = ChildProcess::Start({"/bin/sh", "-c", "while :; do :; done"}, LogPath());
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_FALSE(child->EndsWithin(std::chrono::milliseconds(10)));
  EXPECT_TRUE(child->Running());
  child->Signal(SIGKILL);
  EXPECT_TRUE(child->EndsWithin(std::chrono::seconds(30)));
}

TEST(ChildProcessTest, StopEndsAProgramThatIgnoresSigterm) {
  std::remove(LogPath().c_str());
  auto child = ChildProcess::Start(
      {"/bin/sh", "-c", "trap '' TERM; echo ready; while :; do :; done"}, LogPath());
  ASSERT_TRUE(child.ok()) << child.status();
  for (std::string word; word != "ready";) std::ifstream(LogPath()) >> word;
  child->Stop(std::chrono::milliseconds(20));
  EXPECT_FALSE(child->Running());
}

TEST(ChildProcessTest, StopEndsAStoppedProgram) {
  auto child = ChildProcess::Start({"/bin/sh", "-c", "while :; do :; done"}, LogPath());
  ASSERT_TRUE(child.ok()) << child.status();
  child->Signal(SIGSTOP);
  child->Stop(std::chrono::seconds(30));
  EXPECT_FALSE(child->Running());
}

}  // namespace
}  // namespace concert::bench
