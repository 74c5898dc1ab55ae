#include "tests/bench/gpu_state.h"

#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace concert::bench {
namespace {

// The lines of its answer, joined by "; ".
std::string Query(const std::string& arguments) {
  // A driver that hangs must not hang the benchmark.
  const std::string command =
      absl::StrCat("timeout 10 nvidia-smi ", arguments, " --format=csv,noheader 2>/dev/null");
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  std::vector<std::string> lines;
  char text[256];
  while (std::fgets(text, sizeof(text), pipe) != nullptr) {
    std::string line(text);
    while (!line.empty() && line.back() == '\n') line.pop_back();
    if (!line.empty()) lines.push_back(std::move(line));
  }
  pclose(pipe);
  return absl::StrJoin(lines, "; ");
}

}  // namespace

std::string GpuState() {
  const std::string memory = Query("--query-gpu=index,memory.free,memory.total");
  if (memory.empty()) return "nvidia-smi says nothing of the GPU's memory";
  const std::string processes = Query("--query-compute-apps=pid,used_memory");
  return absl::StrCat("GPU, free and total memory: ", memory, "; processes and their memory: ",
                      processes.empty() ? "none seen" : processes);
}

std::string GpuClocks() { return Query("--query-gpu=clocks.max.sm,clocks.max.memory,power.limit"); }

}  // namespace concert::bench
