#include "proto/command/build.h"

#ifndef CONCERT_VERSION
#error "CONCERT_VERSION must be defined by the build"
#endif

namespace concert::command {

std::string VersionLine(std::string_view program) {
  constexpr size_t kHashDigits = 40, kShownDigits = 12;
  std::string commit = BuildCommit();
  if (commit.find_first_not_of("0123456789abcdef") >= kHashDigits && commit.size() >= kHashDigits)
    commit.erase(kShownDigits, kHashDigits - kShownDigits);
  return std::string(program) + " " CONCERT_VERSION " (commit " + commit + ")";
}

}  // namespace concert::command
