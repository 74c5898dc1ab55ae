#include "tests/bench/torch_job.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/bench/child_process.h"
#include "tests/bench/step_reference.h"

namespace concert::bench {
namespace {

using nlohmann::json;

// To compile, where the cache is empty and others compile before; everything else takes seconds.
constexpr std::chrono::minutes kAnswerLimit(15);
constexpr std::chrono::seconds kEndLimit(30);
constexpr size_t kTorchLogBytes = 2000;

// Bundles and installations have it in their own places, a build tree uses the sources'.
std::string ScriptPath() {
  for (const char* folder : {"../python/tests/bench", "../share/concert"}) {
    const auto shipped = std::filesystem::path(ProgramFolder()) / folder / "torch_step.py";
    if (std::filesystem::exists(shipped)) return shipped.lexically_normal();
  }
  return CONCERT_BENCH_SOURCES "/torch_step.py";
}

std::vector<std::string> PythonCommand(const std::string& python) {
  return {"/usr/bin/env", python.empty() ? "python3" : python};
}

// One end of a stream socket, a JSON object a line both ways.
class Channel {
 public:
  explicit Channel(int fd) : fd_(fd) {}
  Channel(Channel&&) = delete;
  ~Channel() { close(fd_); }

  // UNAVAILABLE where the other end has gone.
  absl::StatusOr<json> Ask(const json& order) {
    const std::string line = order.dump() + "\n";
    if (send(fd_, line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size()))
      return absl::UnavailableError("PyTorch's process has ended");
    size_t end;
    while ((end = received_.find('\n')) == std::string::npos) {
      if (absl::Status received = Receive(); !received.ok()) return received;
    }
    json answer = json::parse(received_.substr(0, end), nullptr, /*allow_exceptions=*/false);
    received_.erase(0, end + 1);
    if (!answer.is_object()) return absl::InternalError("PyTorch's process answers no JSON");
    return answer;
  }

 private:
  absl::Status Receive() {
    pollfd readable{.fd = fd_, .events = POLLIN, .revents = 0};
    const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(kAnswerLimit);
    if (poll(&readable, 1, static_cast<int>(limit.count())) == 0)
      return absl::DeadlineExceededError("PyTorch's process does not answer");
    char text[1 << 16];
    const ssize_t count = recv(fd_, text, sizeof(text), 0);
    if (count <= 0) return absl::UnavailableError("PyTorch's process has ended");
    received_.append(text, static_cast<size_t>(count));
    return absl::OkStatus();
  }

  const int fd_;
  std::string received_;
};

json DescribeClient(const StepScenario::Client& client, uint64_t place) {
  const StepModel& model = client.model;
  return {{"hidden", model.hidden},
          {"heads", model.heads},
          {"kv_heads", model.kv_heads},
          {"head_dim", model.head_dim},
          {"ffn", model.ffn},
          {"layers", model.layers},
          {"vocabulary", model.vocabulary},
          {"lengths", client.lengths},
          {"chunk", client.chunk},
          {"high_priority", client.priority > 0},
          {"seed", place}};
}

class TorchJob : public TenantJob {
 public:
  TorchJob(const TenantOptions& options, const StepScenario& scenario)
      : options_(options), log_(absl::StrCat(options.board, "-torch-", options.index)) {
    for (int i = options.index; i < options.index + options.clients; ++i) {
      clients_.push_back(DescribeClient(scenario.clients[i], i));
      tolerance_ = std::max(tolerance_, StepTolerance(scenario.clients[i].model));
    }
  }
  ~TorchJob() override {
    channel_.reset();  // which ends the process, if it lives
    if (process_) process_->EndsWithin(kEndLimit);
  }

  absl::Status Prepare() override {
    if (absl::Status started = StartProcess(); !started.ok()) return started;
    return Order({{"order", "prepare"}, {"clients", clients_}, {"gpu", options_.gpu_uuid}})
        .status();
  }
  absl::Status Open() override { return Order({{"order", "open"}}).status(); }
  absl::Status RunFirst(TenantSlot&) override { return Order({{"order", "build"}}).status(); }
  absl::StatusOr<double> Check() override {
    const absl::StatusOr<json> answer = Order({{"order", "check"}});
    if (!answer.ok()) return answer.status();
    // NaN is no JSON and comes as null.
    const json error = answer->value("error", json());
    return WithinTolerance(error.is_number() ? error.get<double>() : NAN, tolerance_);
  }
  absl::Status RunLap(const Lap& lap, std::span<TenantSlot> slots, size_t first) override {
    json participants = json::array();
    for (size_t i = 0; i < slots.size(); ++i) {
      slots[i].runs = 0;
      slots[i].latency_count = 0;
      if ((lap.participants >> (first + i) & 1) != 0) participants.push_back(i);
    }
    const absl::StatusOr<json> answer = Order({{"order", "lap"},
                                               {"participants", participants},
                                               {"begin_ns", lap.begin_ns},
                                               {"end_ns", lap.end_ns}});
    if (!answer.ok()) return answer.status();
    const auto runs = answer->at("runs").get<std::vector<double>>();
    const auto latencies = answer->at("latencies_us").get<std::vector<std::vector<float>>>();
    for (size_t i = 0; i < participants.size(); ++i) {
      TenantSlot& slot = slots[participants[i].get<size_t>()];
      slot.runs = runs.at(i);
      slot.latency_count =
          static_cast<uint32_t>(std::min<size_t>(latencies.at(i).size(), kMaxLatencies));
      std::copy_n(latencies[i].begin(), slot.latency_count, slot.latencies_us.begin());
    }
    return absl::OkStatus();
  }

 private:
  absl::Status StartProcess() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      return absl::ResourceExhaustedError("no socket pair for PyTorch's process");
    channel_.emplace(ends[0]);
    fcntl(ends[1], F_SETFD, 0);  // this end is the process's
    std::vector<std::string> argv = PythonCommand(options_.python);
    argv.insert(argv.end(), {"-B", ScriptPath(), absl::StrCat(ends[1])});
    absl::StatusOr<ChildProcess> process = ChildProcess::Start(argv, log_);
    close(ends[1]);
    if (!process.ok()) return process.status();
    process_.emplace(*std::move(process));
    return absl::OkStatus();
  }

  absl::StatusOr<json> Order(const json& order) {
    absl::StatusOr<json> answer = channel_->Ask(order);
    if (!answer.ok())
      return absl::Status(answer.status().code(),
                          absl::StrCat(answer.status().message(), ": ", LogTail()));
    if (answer->contains("failed"))
      return absl::InternalError(absl::StrCat("PyTorch: ", answer->at("failed").dump()));
    return answer;
  }

  std::string LogTail() const {
    std::ifstream file(log_);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    return text.size() <= kTorchLogBytes ? text : text.substr(text.size() - kTorchLogBytes);
  }

  const TenantOptions options_;
  const std::string log_;
  json clients_ = json::array();
  double tolerance_ = 0;
  std::optional<Channel> channel_;
  std::optional<ChildProcess> process_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TenantJob>> MakeTorchJob(const TenantOptions& options,
                                                        const StepScenario& scenario) {
  return std::make_unique<TorchJob>(options, scenario);
}

absl::StatusOr<std::string> TorchVersion(const std::string& python) {
  const std::string program = PythonCommand(python)[1];
  const std::string line =
      absl::StrCat("timeout 120 '", program,
                   "' -c 'import torch; torch.zeros(1, device=\"cuda\"); print(torch.__version__)'"
                   " 2>&1");
  FILE* const pipe = popen(line.c_str(), "r");
  if (pipe == nullptr) return absl::UnavailableError("no process for Python");
  std::string answer;
  char text[256];
  while (std::fgets(text, sizeof(text), pipe) != nullptr) answer += text;
  const bool failed = pclose(pipe) != 0;
  absl::StripTrailingAsciiWhitespace(&answer);
  answer.erase(0, answer.rfind('\n') + 1);  // of an error the last line says what it was
  if (!failed) return answer;
  return absl::UnavailableError(absl::StrCat(program, " cannot use PyTorch: ", answer));
}

}  // namespace concert::bench
