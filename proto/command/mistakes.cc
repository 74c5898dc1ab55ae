#include "proto/command/mistakes.h"

#include "proto/command/words.h"

namespace concert::command {
namespace {

// The commands that were understood: the program, its command, the command's command.
std::vector<const CLI::App*> Chain(const CLI::App& app) {
  std::vector<const CLI::App*> chain = {&app};
  for (auto parsed = app.get_subcommands(); !parsed.empty();
       parsed = parsed.front()->get_subcommands()) {
    chain.push_back(parsed.front());
  }
  return chain;
}

void AddFlags(const CLI::App& app, std::vector<std::string>& flags) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
    for (const std::string& name : option->get_snames()) flags.push_back("-" + name);
  }
  // Groups of options are commands without a name.
  for (const CLI::App* group :
       app.get_subcommands([](const CLI::App* sub) { return sub->get_name().empty(); })) {
    AddFlags(*group, flags);
  }
}

std::vector<std::string> CommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub :
       app.get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); })) {
    if (!sub->get_name().empty()) names.push_back(sub->get_name());
  }
  return names;
}

// "concertctl policy": what to ask for help.
std::string NameOf(const std::vector<const CLI::App*>& chain) {
  std::string name;
  for (const CLI::App* app : chain) name += (name.empty() ? "" : " ") + app->get_name();
  return name;
}

std::string Listed(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  return text;
}

}  // namespace

std::vector<std::string> ExplainParseError(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<const CLI::App*> chain = Chain(app);
  const std::vector<std::string> extras = app.remaining(/*recurse=*/true);
  std::vector<std::string> flags, lines;
  for (const CLI::App* part : chain) AddFlags(*part, flags);
  for (const std::string& extra : extras) {
    if (extra.size() < 2 || extra.front() != '-' || extra == "--") continue;
    const std::string flag = extra.substr(0, extra.find('='));
    lines.push_back("unknown flag '" + flag + "'" + DidYouMean(flag, flags));
  }
  const std::vector<std::string> commands = CommandsOf(*chain.back());
  // A word after an unknown flag may be its value.
  if (lines.empty() && !extras.empty()) {
    lines.push_back(commands.empty() ? "unexpected argument '" + extras.front() + "'"
                                     : "unknown command '" + extras.front() + "'" +
                                           DidYouMean(extras.front(), commands));
  } else if (lines.empty() && error.get_name() == "RequiredError" && !commands.empty()) {
    lines.push_back("a command is missing: " + Listed(commands));
  } else if (lines.empty()) {
    lines.emplace_back(error.what());
  }
  if (!lines.back().ends_with("?")) lines.back() += "; see " + NameOf(chain) + " --help";
  return lines;
}

}  // namespace concert::command
