// concertctl as a function, so that tests can call it.
#ifndef CONCERT_CLIENT_CTL_CONCERTCTL_H_
#define CONCERT_CLIENT_CTL_CONCERTCTL_H_

#include <ostream>
#include <string>

namespace concert::ctl {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;  // refused, not answered in time, or the output was lost
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNoDaemon = 3;
inline constexpr int kExitDegraded = 4;  // `status`: the daemon does less than it should

// Runs one command. --version prints `version`. `terminal` says whether `out` is one: `top` then
// takes the whole screen, which must be stdout's.
int RunConcertctl(int argc, const char* const* argv, const std::string& version, std::ostream& out,
                  std::ostream& err, bool terminal);

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_CONCERTCTL_H_
