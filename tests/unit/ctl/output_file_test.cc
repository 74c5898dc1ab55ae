#include "client/ctl/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/temp_folder.h"

namespace concert::ctl {
namespace {

class OutputFileTest : public testing::Test {
 protected:
  static std::string Read(const std::string& name) {
    std::ifstream file(name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  size_t Files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  const test::TempFolder temporary_;
  const std::string folder_ = temporary_.path(), name_ = folder_ + "/rows";
};

TEST_F(OutputFileTest, WhatWasThereStaysUntilAllIsWritten) {
  std::ofstream(name_) << "old";
  chmod(name_.c_str(), 0640);
  {
    OutputFile file(name_);
    ASSERT_EQ(file.Open(), "");
    file.stream() << "half" << std::flush;
    EXPECT_EQ(Read(name_), "old");
  }
  EXPECT_EQ(Read(name_), "old");
  EXPECT_EQ(Files(), 1u) << "the half is gone";
  OutputFile file(name_);
  ASSERT_EQ(file.Open(), "");
  file.stream() << "new";
  EXPECT_EQ(file.Close(), "");
  EXPECT_EQ(Read(name_), "new");
  EXPECT_EQ(Files(), 1u);
  struct stat now {};
  ASSERT_EQ(stat(name_.c_str(), &now), 0);
  EXPECT_EQ(now.st_mode & 0777, 0640u) << "as before";
}

TEST_F(OutputFileTest, ALinkStaysOne) {
  std::ofstream(name_) << "old";
  const std::string link = folder_ + "/link";
  std::filesystem::create_symlink(name_, link);
  OutputFile file(link);
  ASSERT_EQ(file.Open(), "");
  file.stream() << "new";
  EXPECT_EQ(file.Close(), "");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(Read(name_), "new");
}

TEST_F(OutputFileTest, WhatCannotBeWrittenIsSaid) {
  EXPECT_EQ(OutputFile(folder_ + "/no/rows").Open(),
            "cannot write " + folder_ + "/no/rows: No such file or directory");
  EXPECT_EQ(OutputFile(folder_).Open(), "cannot write " + folder_ + ": Is a directory");
  OutputFile full("/dev/full");
  ASSERT_EQ(full.Open(), "");
  full.stream() << "row";
  EXPECT_EQ(full.Close(), "cannot write /dev/full: No space left on device");
}

}  // namespace
}  // namespace concert::ctl
