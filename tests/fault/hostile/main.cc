// concert_hostile MODE SOCKET UID SECONDS [COUNT]: see mode.h. Ends by itself.
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/fault/hostile/mode.h"

namespace concert::test {
namespace {

constexpr Mode kModes[] = {
    {"refuse", "publishes ops that are refused, as fast as they are", "sessions", Refuse},
    {"kinds", "the same, each op of another unknown kind", "sessions", Kinds},
    {"wakes", "the same, and claims that threads sleep on every timeline", "sessions", Wakes},
    {"flood", "copies within buffers of its own, as fast as they are run", "sessions", Flood},
    {"offers", "offers parts of collectives whose other rank never comes", "sessions", Offers},
    {"opens", "has parts of collectives of 255 ranks refused", "sessions", Opens},
    {"blocked", "fills 256 queues with ops that wait for ever", "sessions", Blocked},
    {"silent", "keeps connections that never say Hello", "connections", Silent},
    {"mappings", "holds buffers", "buffers", Mappings},
    {"hold", "holds buffers and makes requests", "buffers", Hold},
    {"handles", "registers and releases buffers", "sessions", Handles},
    {"churn", "opens sessions and leaves them with ops in flight", "sessions", Churn},
    {"exhaust", "takes all address space, then asks for everything else", "sessions", Exhaust},
    {"seal", "seals what it may not, and what it writes meanwhile", "sessions", Seal},
    {"programs", "seals weights, registers programs and runs them", nullptr, Programs},
    {"copy", "witness: copies 64 bytes with high priority", nullptr, WitnessCopy},
    {"gemm", "witness: multiplies 16 rows by 16 columns with high priority", nullptr, WitnessGemm},
    {"reduce", "witness: reduces 64 numbers of two ranks", nullptr, WitnessReduce},
    {"connect", "witness: connects, says Hello and leaves", nullptr, WitnessConnect},
    {"sealed", "witness: seals what attackers of its user seal, and reads it", nullptr,
     WitnessSealed},
    {"burn", "uses a share of a CPU and nothing else", "percent", Burn},
};

// A process that its parent lost sight of must not go on attacking.
constexpr unsigned kLifeLimit_s = 300;

void Usage() {
  std::fprintf(stderr, "concert_hostile MODE SOCKET UID SECONDS [COUNT]\n");
  for (const Mode& mode : kModes) {
    std::fprintf(stderr, "  %-8s %s%s%s\n", mode.name, mode.about,
                 mode.count != nullptr ? "; COUNT: " : "", mode.count != nullptr ? mode.count : "");
  }
}

bool Become(uid_t uid) {
  if (uid == geteuid()) return true;
  const gid_t gid = uid;
  return setgroups(0, nullptr) == 0 && setresgid(gid, gid, gid) == 0 &&
         setresuid(uid, uid, uid) == 0;
}

int Main(int argc, char** argv) {
  if (argc < 5) return Usage(), 2;
  const auto* const mode = std::find_if(std::begin(kModes), std::end(kModes), [&](const Mode& one) {
    return std::string_view(argv[1]) == one.name;
  });
  if (mode == std::end(kModes)) return Usage(), 2;
  // More sessions than a shell's limit of descriptors has room for.
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  if (!Become(static_cast<uid_t>(std::atoi(argv[3])))) return std::perror("setresuid"), 77;
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // after setresuid, which clears it
  signal(SIGPIPE, SIG_IGN);
  alarm(kLifeLimit_s);

  Orders orders;
  orders.socket = argv[2];
  orders.seconds = std::atof(argv[4]);
  orders.end = std::chrono::steady_clock::now() +
               std::chrono::microseconds(static_cast<int64_t>(orders.seconds * 1e6));
  orders.count = argc > 5 ? std::atoi(argv[5]) : 0;
  const int status = mode->run(orders);
  std::fflush(stdout);
  // No goodbyes: a session that is stuck must not keep its process.
  std::_Exit(status);
}

}  // namespace

void SayReady() {
  std::puts("ready");
  std::fflush(stdout);
}

void Complain(const std::string& what) {
  constexpr int kMost = 8;  // nobody reads them before the end, and pipes are small
  static int said = 0;
  if (said++ >= kMost) return;
  std::printf("wrong: %s\n", what.c_str());
  std::fflush(stdout);
}

}  // namespace concert::test

int main(int argc, char** argv) { return concert::test::Main(argc, argv); }
