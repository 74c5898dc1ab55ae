// A folder of a test's own, which goes with it.
#ifndef CONCERT_TESTS_SUPPORT_TEMP_FOLDER_H_
#define CONCERT_TESTS_SUPPORT_TEMP_FOLDER_H_

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace concert::test {

class TempFolder {
 public:
  TempFolder() {
    if (mkdtemp(path_.data()) != nullptr) return;
    std::perror(path_.c_str());
    std::abort();
  }
  // With all that is in it.
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/concert-test-XXXXXX";
};

}  // namespace concert::test

#endif  // CONCERT_TESTS_SUPPORT_TEMP_FOLDER_H_
