#include "tests/bench/mps_daemon.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace concert::bench {
namespace {

constexpr char kProgram[] = "nvidia-cuda-mps-control";
// Where drivers lie that a container mounts without changing PATH.
constexpr char kMoreFolders[] = ":/usr/bin:/usr/local/nvidia/bin:/usr/local/cuda/bin";
constexpr std::chrono::seconds kMpsStartLimit(15);
constexpr std::chrono::seconds kQuitLimit(10);
constexpr std::streamoff kMpsLogTailBytes = 1500;

std::string FindProgram() {
  const char* const path = std::getenv("PATH");
  const std::string folders = absl::StrCat(path != nullptr ? path : "", kMoreFolders);
  for (const absl::string_view folder : absl::StrSplit(folders, ':', absl::SkipEmpty())) {
    const std::string program = absl::StrCat(folder, "/", kProgram);
    if (access(program.c_str(), X_OK) == 0) return program;
  }
  return "";
}

std::vector<std::string> Environment(const std::string& folder) {
  return {absl::StrCat("CUDA_MPS_PIPE_DIRECTORY=", folder, "/pipe"),
          absl::StrCat("CUDA_MPS_LOG_DIRECTORY=", folder, "/log")};
}

// Whether it is an MPS server (its name as the kernel cuts it) that lives. It is no child of ours:
// where nobody reaps it, it stays as a zombie, which has gone, too.
bool Lives(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));  // "4711 (nvidia-cuda-mps) S ..."
  const std::string stat(std::istreambuf_iterator<char>(file), {});
  constexpr absl::string_view kName = "(nvidia-cuda-mps) ";
  const size_t name = stat.find(kName.data());
  return name != std::string::npos && stat[name + kName.size()] != 'Z';
}

// Whoever has not gone by then is killed: its context would take time slices from what comes next.
void AwaitEnd(const std::vector<pid_t>& pids) {
  const auto limit = std::chrono::steady_clock::now() + kQuitLimit;
  for (const pid_t pid : pids) {
    while (Lives(pid) && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (Lives(pid)) kill(pid, SIGKILL);
  }
}

std::string Tail(const std::string& path) {
  std::ifstream file(path, std::ios::ate);
  if (!file) return "";
  file.seekg(std::max<std::streamoff>(0, file.tellg() - kMpsLogTailBytes));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

absl::StatusOr<std::unique_ptr<MpsDaemon>> MpsDaemon::Start() {
  const std::string program = FindProgram();
  if (program.empty())
    return absl::NotFoundError(absl::StrCat(kProgram, " is not installed on this machine"));
  std::string folder =
      absl::StrCat(std::filesystem::temp_directory_path().string(), "/concert-mps.XXXXXX");
  if (mkdtemp(folder.data()) == nullptr)
    return absl::PermissionDeniedError(absl::StrCat("cannot make a folder ", folder));
  std::error_code ignored;
  std::filesystem::create_directory(folder + "/pipe", ignored);
  std::filesystem::create_directory(folder + "/log", ignored);
  // In the foreground, so that it is our child and cannot outlive us.
  absl::StatusOr<ChildProcess> process =
      ChildProcess::Start({program, "-f"}, folder + "/control.log", Environment(folder));
  if (!process.ok()) {
    std::filesystem::remove_all(folder, ignored);
    return process.status();
  }
  std::unique_ptr<MpsDaemon> daemon(new MpsDaemon(program, folder, *std::move(process)));
  const auto limit = std::chrono::steady_clock::now() + kMpsStartLimit;
  while (!std::filesystem::exists(folder + "/pipe/control")) {
    if (!daemon->process_.Running() || std::chrono::steady_clock::now() > limit) {
      std::ifstream log(folder + "/control.log");
      return absl::UnavailableError(absl::StrCat(
          kProgram, " did not start: ", std::string(std::istreambuf_iterator<char>(log), {})));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return daemon;
}

MpsDaemon::~MpsDaemon() {
  std::vector<pid_t> servers;
  if (process_.Running()) {
    servers = Servers();
    Ask("quit -t 5");
    process_.EndsWithin(kQuitLimit);  // a signal now would cut short what it was asked to do
  }
  process_.Stop(kQuitLimit);
  AwaitEnd(servers);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::vector<std::string> MpsDaemon::environment() const { return Environment(folder_); }

absl::Status MpsDaemon::HasServer() const {
  if (!Servers().empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the clients run beside MPS, not under it: it lists no server");
}

std::string MpsDaemon::LogTail() const {
  return absl::StrCat("control.log: ", Tail(folder_ + "/log/control.log"),
                      "server.log: ", Tail(folder_ + "/log/server.log"));
}

std::vector<pid_t> MpsDaemon::Servers() const {
  std::vector<pid_t> servers;
  const std::string answer = Ask("get_server_list");  // an id a line
  for (const absl::string_view line : absl::StrSplit(answer, '\n')) {
    if (pid_t pid = 0; absl::SimpleAtoi(line, &pid) && pid > 1) servers.push_back(pid);
  }
  return servers;
}

std::string MpsDaemon::Ask(const std::string& command) const {
  std::string line = absl::StrCat("echo ", command, " |");
  for (const std::string& variable : Environment(folder_)) absl::StrAppend(&line, " ", variable);
  // A control daemon that hangs must not hang the benchmark.
  absl::StrAppend(&line, " timeout 20 '", program_, "' 2>&1");
  std::string answer;
  FILE* const pipe = popen(line.c_str(), "r");
  if (pipe == nullptr) return answer;
  char text[256];
  while (std::fgets(text, sizeof(text), pipe) != nullptr) answer += text;
  pclose(pipe);
  return answer;
}

}  // namespace concert::bench
