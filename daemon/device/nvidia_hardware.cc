#include "daemon/device/nvidia_hardware.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace concert::daemon {
namespace {

namespace fs = std::filesystem;

constexpr char kNvidia[] = "0x10de";
// The first byte of a PCI class: display controllers, which GPUs are also where they drive no
// display, and processing accelerators. NVIDIA's sound, USB and NVSwitch devices are others.
constexpr const char* kGpuClasses[] = {"0x03", "0x12"};

std::string FirstWord(const fs::path& file) {
  std::string word;
  std::ifstream(file) >> word;
  return word;
}

// Names in `folder` that `wanted` likes, sorted; none if it cannot be read.
template <typename Wanted>
std::vector<std::string> NamesIn(const fs::path& folder, Wanted wanted) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (wanted(*it)) names.push_back(it->path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool IsNvidiaGpu(const fs::path& pci_device) {
  const std::string pci_class = FirstWord(pci_device / "class");
  return FirstWord(pci_device / "vendor") == kNvidia &&
         std::any_of(std::begin(kGpuClasses), std::end(kGpuClasses),
                     [&](const char* gpu) { return absl::StartsWith(pci_class, gpu); });
}

// nvidia0, but not nvidiactl or nvidia-uvm, which drivers leave behind.
bool IsGpuNode(const fs::path& node) {
  const std::string name = node.filename();
  return name.size() > 6 && absl::StartsWith(name, "nvidia") &&
         std::all_of(name.begin() + 6, name.end(), absl::ascii_isdigit);
}

// "PCI device X", "PCI devices X and 7 more".
void Add(const std::string& what, const std::vector<std::string>& names,
         std::vector<std::string>& signs) {
  if (names.empty()) return;
  signs.push_back(
      absl::StrCat(what, names.front(),
                   names.size() > 1 ? absl::StrCat(" (and ", names.size() - 1, " more)") : ""));
}

}  // namespace

std::string FindNvidiaHardware(const std::string& root) {
  std::vector<std::string> signs;
  Add("PCI device ", NamesIn(fs::path(root) / "sys/bus/pci/devices", IsNvidiaGpu), signs);
  Add("/dev/", NamesIn(fs::path(root) / "dev", IsGpuNode), signs);
  std::error_code error;
  if (fs::exists(fs::path(root) / "sys/module/nvidia", error))
    signs.emplace_back("the kernel module nvidia");
  return absl::StrJoin(signs, ", ");
}

}  // namespace concert::daemon
