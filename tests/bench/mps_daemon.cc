#include "tests/bench/mps_daemon.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace concert::bench {
namespace {

constexpr char kProgram[] = "nvidia-cuda-mps-control";
// Where drivers lie that a container mounts without changing PATH.
constexpr char kMoreFolders[] = ":/usr/bin:/usr/local/nvidia/bin:/usr/local/cuda/bin";
constexpr std::chrono::seconds kStartLimit(15);
constexpr std::chrono::seconds kQuitLimit(10);

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
  const auto limit = std::chrono::steady_clock::now() + kStartLimit;
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
  if (process_.Running()) {
    Ask("quit -t 5");
    process_.EndsWithin(kQuitLimit);  // a signal now would cut short what it was asked to do
  }
  process_.Stop(kQuitLimit);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::vector<std::string> MpsDaemon::environment() const { return Environment(folder_); }

absl::Status MpsDaemon::HasServer() const {
  // The servers' process ids, a line each.
  const std::string answer = Ask("get_server_list");
  if (answer.find_first_of("0123456789") != std::string::npos) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the clients run beside MPS, not under it: it lists no server ", answer));
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
