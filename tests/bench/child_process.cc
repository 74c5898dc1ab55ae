#include "tests/bench/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <thread>

#include "absl/strings/str_cat.h"

namespace concert::bench {
namespace {

// In the child, between fork and exec: async-signal-safe calls only.
[[noreturn]] void Exec(char* const* argv, char* const* environment, int log_fd, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);  // it died before prctl
  const int null_fd = open("/dev/null", O_RDONLY);
  dup2(null_fd, STDIN_FILENO);
  dup2(log_fd, STDOUT_FILENO);
  dup2(log_fd, STDERR_FILENO);
  // Ctrl-C reaches this program, which then stops its children in order.
  setpgid(0, 0);
  execve(argv[0], argv, environment);
  _exit(127);
}

// As execve takes it. The strings must outlive it.
std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// `first`, then those of this process's variables that it does not set.
std::vector<std::string> MergedEnvironment(std::vector<std::string> first) {
  const size_t ours = first.size();
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    const std::string_view name = text.substr(0, text.find('=') + 1);
    const auto sets_it = [&](const std::string& own) { return own.starts_with(name); };
    if (std::none_of(first.begin(), first.begin() + ours, sets_it)) first.emplace_back(text);
  }
  return first;
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Start(const std::vector<std::string>& argv,
                                                 const std::string& log_path,
                                                 const std::vector<std::string>& environment) {
  if (access(argv[0].c_str(), X_OK) != 0) {
    return absl::NotFoundError(absl::StrCat(argv[0], " is not there or not executable"));
  }
  const int log_fd = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (log_fd < 0) return absl::PermissionDeniedError(absl::StrCat("cannot write ", log_path));
  const std::vector<std::string> merged = MergedEnvironment(environment);
  const std::vector<char*> arguments = Pointers(argv), variables = Pointers(merged);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Exec(arguments.data(), variables.data(), log_fd, parent);
  const int fork_errno = errno;
  close(log_fd);
  if (pid < 0) return absl::ResourceExhaustedError(absl::StrCat("fork: ", strerror(fork_errno)));
  return ChildProcess(pid);
}

bool ChildProcess::Running() {
  if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
  return pid_ > 0;
}

void ChildProcess::Signal(int signal) const {
  if (pid_ > 0) kill(pid_, signal);
}

bool ChildProcess::EndsWithin(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (Running() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return !Running();
}

void ChildProcess::Stop(std::chrono::milliseconds grace) {
  Signal(SIGCONT);
  Signal(SIGTERM);
  if (EndsWithin(grace)) return;
  Signal(SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

std::string ProgramFolder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
}

}  // namespace concert::bench
