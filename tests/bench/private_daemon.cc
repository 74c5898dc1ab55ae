#include "tests/bench/private_daemon.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "absl/strings/str_cat.h"

namespace concert::bench {
namespace {

// CUDA contexts, lanes and NCCL on an eight-GPU node come up within some seconds.
constexpr std::chrono::seconds kStartLimit(60);
constexpr size_t kLogTailBytes = 2000;

bool Accepts(const std::string& path, int type) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return false;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const bool accepted = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return accepted;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PrivateDaemon>> PrivateDaemon::Start(const Options& options) {
  absl::StatusOr<std::unique_ptr<PrivateDaemon>> daemon = Launch(options);
  if (!daemon.ok()) return daemon.status();
  if (absl::Status ready = (*daemon)->WaitUntilReady(); !ready.ok()) return ready;
  return daemon;
}

absl::StatusOr<std::unique_ptr<PrivateDaemon>> PrivateDaemon::Launch(const Options& options) {
  std::string folder =
      absl::StrCat(std::filesystem::temp_directory_path().string(), "/concert-bench.XXXXXX");
  if (mkdtemp(folder.data()) == nullptr) {
    return absl::PermissionDeniedError(absl::StrCat("cannot make a folder ", folder));
  }
  // In place of the machine's own /etc/concert/concert.toml and store of tuned kernels.
  const std::string own_config = folder + "/concert.toml";
  std::ofstream(own_config) << "tune_store = \"" << folder << "/tuning.sqlite3\"\n";
  std::vector<std::string> argv = {ProgramFolder() + "/concertd",
                                   "--config",
                                   options.config.empty() ? own_config : options.config,
                                   "--device",
                                   options.device,
                                   "--policy",
                                   options.policy,
                                   "--socket",
                                   folder + "/concert.sock",
                                   "--admin-socket",
                                   folder + "/admin.sock"};
  argv.insert(argv.end(), options.settings.begin(), options.settings.end());
  absl::StatusOr<ChildProcess> process = ChildProcess::Start(argv, folder + "/concertd.log");
  if (!process.ok()) {
    std::filesystem::remove_all(folder);
    return process.status();
  }
  return std::unique_ptr<PrivateDaemon>(new PrivateDaemon(folder, *std::move(process)));
}

PrivateDaemon::~PrivateDaemon() {
  process_.Stop(std::chrono::seconds(15));
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

absl::Status PrivateDaemon::WaitUntilReady() {
  const auto deadline = std::chrono::steady_clock::now() + kStartLimit;
  // The admin API is there a little later than the socket of clients.
  while (!Accepts(socket(), SOCK_SEQPACKET) || !Accepts(admin_socket(), SOCK_STREAM)) {
    if (!process_.Running()) {
      return absl::UnavailableError(
          absl::StrCat("the private concertd ended while starting:\n", LogTail()));
    }
    if (std::chrono::steady_clock::now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat("the private concertd accepts nobody after ",
                                                      kStartLimit.count(), " s:\n", LogTail()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return absl::OkStatus();
}

std::string PrivateDaemon::LogTail() const {
  std::ifstream file(folder_ + "/concertd.log");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  return text.size() <= kLogTailBytes ? text : text.substr(text.size() - kLogTailBytes);
}

}  // namespace concert::bench
