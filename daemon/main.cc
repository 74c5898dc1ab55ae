// concertd: reads its configuration, serves until it is told to stop, drains, ends.
#include <signal.h>
#include <sys/signalfd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_split.h"
#include "daemon/config/config.h"
#include "daemon/daemon.h"
#include "daemon/service/log.h"
#include "proto/command/build.h"

namespace {

// Blocks the signals in every thread to come and returns a descriptor that reads them.
int CatchStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return signalfd(-1, &signals, SFD_CLOEXEC);
}

}  // namespace

int main(int argc, char** argv) {
  using concert::daemon::Log;
  using concert::daemon::LogLevel;
  const auto command =
      concert::daemon::ParseCommandLine(argc, argv, concert::command::VersionLine("concertd"));
  if (!command.ok()) {
    // A line for each error.
    for (const auto line : absl::StrSplit(command.status().message(), '\n'))
      std::fprintf(stderr, "concertd: %s\n", std::string(line).c_str());
    return 2;
  }
  if (command->print) {
    std::fputs(command->print->c_str(), stdout);
    return 0;
  }
  const concert::daemon::Config& config = command->loaded.config;
  if (const auto level = concert::daemon::ParseLogLevel(config.log_level))
    concert::daemon::SetLogLevel(*level);
  for (const std::string& change : concert::daemon::ChangedSettings(command->loaded))
    Log(LogLevel::kDebug, change);
  const int stop_fd = CatchStopSignals();
  const auto daemon = concert::daemon::Daemon::Start(config);
  if (!daemon.ok()) {
    Log(LogLevel::kError, std::string(daemon.status().message()));
    return 1;
  }
  // Unmapping memory under a running kernel would fault the GPU; the end of the process does it in
  // order.
  if (!(*daemon)->Serve(stop_fd)) std::_Exit(1);
  return 0;
}
