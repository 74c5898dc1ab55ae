// Which build of concert this is: the one owner of that answer for --version, for results of
// concert-bench and for the bundle.
#ifndef CONCERT_PROTO_COMMAND_BUILD_H_
#define CONCERT_PROTO_COMMAND_BUILD_H_

#include <string>
#include <string_view>

namespace concert::command {

// The commit that was built: 40 hexadecimal digits, then "-dirty" where tracked files differed from
// it. "unknown" where sources came without git and CONCERT_COMMIT was not given to CMake.
const char* BuildCommit();

// "concertd 0.1.0 (commit 0123456789ab-dirty)": what --version prints.
std::string VersionLine(std::string_view program);

}  // namespace concert::command

#endif  // CONCERT_PROTO_COMMAND_BUILD_H_
