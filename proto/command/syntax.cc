#include "proto/command/syntax.h"

namespace concert::command {
namespace {

// CLI11 appends what checks allow to the name of the type: "UINT:INT in [1 - 256]".
void SplitType(const CLI::Option& option, Option& read) {
  const std::string type = option.get_type_name();
  const size_t colon = type.find(':');
  read.value = type.substr(0, colon);
  if (read.value.empty()) read.value = "VALUE";
  std::string more;
  if (colon != std::string::npos) more = type.substr(colon + 1);
  if (!option.get_default_str().empty())
    more += (more.empty() ? "" : "; ") + ("default " + option.get_default_str());
  if (!option.get_envname().empty())
    more += (more.empty() ? "" : "; ") + ("environment variable " + option.get_envname());
  if (!more.empty()) read.help += " (" + more + ")";
}

Option Read(const CLI::Option& option) {
  Option read{.help = option.get_description(), .group = option.get_group()};
  for (const std::string& name : option.get_snames()) read.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) read.names.push_back("--" + name);
  if (read.names.empty()) read.names.push_back(option.get_name(true));
  read.required = option.get_required();
  if (option.get_items_expected_max() > 0) SplitType(option, read);
  return read;
}

void ReadOptions(const CLI::App& app, std::vector<Option>& options) {
  for (const CLI::Option* option : app.get_options({}))
    if (!option->get_group().empty()) options.push_back(Read(*option));
  // Groups of options are subcommands without a name.
  for (const CLI::App* part : app.get_subcommands({}))
    if (part->get_name().empty()) ReadOptions(*part, options);
}

void ReadCommand(const CLI::App& app, Command command, std::vector<Command>& commands) {
  command.help = app.get_description();
  ReadOptions(app, command.options);
  std::vector<const CLI::App*> children;
  for (const CLI::App* child : app.get_subcommands({})) {
    if (child->get_name().empty() || child->get_group().empty()) continue;
    children.push_back(child);
    command.children.push_back(child->get_name());
  }
  commands.push_back(command);
  for (const CLI::App* child : children) {
    Command below{.path = command.path};
    below.path.push_back(child->get_name());
    if (app.get_fallthrough()) {
      below.also = command.also;
      for (const Option& option : command.options)
        if (!option.positional() && option.names.back() != "--help") below.also.push_back(option);
    }
    ReadCommand(*child, std::move(below), commands);
  }
}

}  // namespace

std::vector<Command> ReadSyntax(const CLI::App& app) {
  std::vector<Command> commands;
  ReadCommand(app, {}, commands);
  return commands;
}

}  // namespace concert::command
