#include "tests/bench/node_under_test.h"

#include <ctime>
#include <fstream>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/command/build.h"
#include "tests/bench/daemon_contender.h"
#include "tests/bench/gpu_state.h"

namespace concert::bench {
namespace {

// "AMD EPYC 9555 64-Core Processor, 16 of them": what launches take is the CPU's doing.
std::string Cpu() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!absl::StartsWith(line, "model name")) continue;
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) break;
    return absl::StrCat(line.substr(colon + 2), ", ", std::thread::hardware_concurrency(),
                        " of them");
  }
  return "unknown";
}

std::string UtcNow() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

// Which tells, too, whether there may have been tuned kernels.
std::string ConfigOf(const NodeUnderTest& node, const RunOptions& options) {
  if (node.daemon == nullptr) return "as the daemon at --socket has it";
  return options.config.empty() ? "built-in defaults, nothing tuned" : "as --config has it";
}

}  // namespace

absl::StatusOr<NodeUnderTest> OpenNodeUnderTest(const RunOptions& options) {
  NodeUnderTest node;
  node.socket = options.socket;
  if (node.socket.empty()) {
    auto daemon = PrivateDaemon::Start(
        {.device = options.device, .policy = options.policy, .config = options.config});
    if (!daemon.ok()) return daemon.status();
    node.daemon = *std::move(daemon);
    node.socket = node.daemon->socket();
  }
  Result<Session> session = Session::Connect(
      {.socket_path = node.socket, .client_name = "concert-bench", .fallback = Fallback::kNone});
  if (!session.ok()) return ToAbsl(session.status());
  node.session = std::move(session).value();
  Result<concert_gpu> gpu = node.session.GpuInfo(0);
  if (!gpu.ok()) return ToAbsl(gpu.status());
  node.gpu = *gpu;
  return node;
}

nlohmann::json MakeHeader(const NodeUnderTest& node, const RunOptions& options) {
  const std::string uuid(reinterpret_cast<const char*>(node.gpu.uuid), sizeof(node.gpu.uuid));
  return {{"device", node.is_sim() ? "sim" : "cuda"},
          {"simulated", node.is_sim()},
          {"gpu_id", absl::BytesToHexString(uuid.substr(0, 4))},
          {"clocks", node.is_sim() ? "" : GpuClocks()},
          {"cpu", Cpu()},
          {"gpu", node.gpu.name},
          {"gpus", node.session.gpu_count()},
          {"memory_tb_per_s", node.memory_bytes_per_s() / 1e12},
          {"commit", command::BuildCommit()},
          {"date", UtcNow()},
          // A running daemon's policy and configuration are its operator's choice.
          {"policy", node.daemon ? options.policy : "as the daemon at --socket has it"},
          {"config", ConfigOf(node, options)},
          {"rounds", options.rounds}};
}

}  // namespace concert::bench
