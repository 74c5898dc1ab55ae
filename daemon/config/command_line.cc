#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/config/config.h"
#include "daemon/config/manual.h"
#include "proto/command/mistakes.h"
#include "proto/command/pages.h"
#include "proto/command/words.h"

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

// Names that are spelt like one of concertd's, its clients' or its tools'.
absl::Status CheckVariables(const char* const* environment) {
  std::vector<std::string> known = command::ClientVariables();
  for (const Setting& setting : AllSettings()) known.push_back(setting.EnvName());
  const std::vector<std::string> sentences = command::MisspeltVariables(environment, known);
  return sentences.empty() ? absl::OkStatus()
                           : absl::InvalidArgumentError(absl::StrJoin(sentences, "\n"));
}

absl::Status Load(const Flags& flags, const std::vector<CLI::Option*>& options,
                  LoadedConfig& loaded) {
  ConfigErrors errors;
  const bool named = !flags.config_path.empty();
  const absl::Status file =
      ApplyFile(named ? flags.config_path : std::string(kDefaultConfigPath), loaded);
  if (named || !absl::IsNotFound(file)) errors.Add(file);
  errors.Add(CheckVariables(environ));
  errors.Add(ApplyEnvironment(::getenv, loaded));
  for (size_t i = 0; i < options.size(); ++i) {
    if (options[i]->count() == 0) continue;
    const Setting& setting = AllSettings()[i];
    errors.Add(ApplyText(setting, flags.values[i], setting.FlagName(), loaded));
  }
  // Of settings that could not be read it would speak nonsense.
  if (errors.status().ok()) errors.Add(CheckTogether(loaded.config));
  return errors.status();
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
    return absl::InvalidArgumentError(absl::StrJoin(command::ExplainParseError(app, error), "\n"));
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
