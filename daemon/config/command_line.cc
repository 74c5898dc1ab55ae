#include <CLI/CLI.hpp>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/config/config.h"
#include "daemon/config/manual.h"
#include "proto/command/pages.h"

namespace concert::daemon {
namespace {

struct Flags {
  std::string config_path;
  bool check_config = false;
  bool print_config = false;
  std::vector<std::string> values;  // by row of AllSettings()
};

// Adds one option per setting. Values stay text here, so that flags, environment and file share one
// check.
void AddOptions(CLI::App& app, Flags& flags, std::vector<CLI::Option*>& options) {
  app.add_option(
      "--config", flags.config_path,
      absl::StrCat("Configuration file (default ", std::string(kDefaultConfigPath), ", if there)"));
  app.add_flag("--check-config", flags.check_config, "Check the configuration and exit");
  app.add_flag("--print-config", flags.print_config,
               "Print the configuration, with origins, and exit");
  flags.values.resize(AllSettings().size());
  for (size_t i = 0; i < AllSettings().size(); ++i) {
    const Setting& setting = AllSettings()[i];
    const std::string help = absl::StrCat(std::string(setting.help), " (", setting.Allowed(), ")");
    options.push_back(app.add_option(setting.FlagName(), flags.values[i], help)
                          ->type_name("")
                          ->group("Settings"));
  }
}

absl::Status Load(const Flags& flags, const std::vector<CLI::Option*>& options,
                  LoadedConfig& loaded) {
  if (!flags.config_path.empty()) {
    if (absl::Status status = ApplyFile(flags.config_path, loaded); !status.ok()) return status;
  } else {
    const absl::Status status = ApplyFile(std::string(kDefaultConfigPath), loaded);
    if (!status.ok() && !absl::IsNotFound(status)) return status;
  }
  if (absl::Status status = ApplyEnvironment(::getenv, loaded); !status.ok()) return status;
  for (size_t i = 0; i < options.size(); ++i) {
    if (options[i]->count() == 0) continue;
    const Setting& setting = AllSettings()[i];
    if (absl::Status status = ApplyText(setting, flags.values[i], setting.FlagName(), loaded);
        !status.ok()) {
      return status;
    }
  }
  return CheckTogether(loaded.config);
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv,
                                             const std::string& version) {
  CommandLine line;
  Flags flags;
  std::vector<CLI::Option*> options;
  CLI::App app("concertd schedules GEMMs and collectives of this node's processes on its GPUs.",
               "concertd");
  app.set_version_flag("--version", version);
  AddOptions(app, flags, options);
  command::AddPages(app, ProgramManual(), {{"settings", RenderManual}});
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    line.print = app.help();
    return line;
  } catch (const CLI::CallForVersion& version) {
    line.print = absl::StrCat(version.what(), "\n");
    return line;
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(absl::StrCat(error.what(), "; see concertd --help"));
  }
  if (absl::Status status = Load(flags, options, line.loaded); !status.ok()) return status;
  if (flags.print_config) {
    line.print = RenderToml(line.loaded);
  } else if (flags.check_config) {
    line.print = absl::StrCat(
        "configuration ", line.loaded.file.empty() ? "(no file)" : line.loaded.file, " is valid\n");
  }
  return line;
}

}  // namespace concert::daemon
