#include "proto/command/completion.h"

#include <algorithm>

#include "proto/command/syntax.h"

namespace concert::command {
namespace {

// All shells walk the words so far and remember where in the tree of commands they are: "" at the
// program itself, " tune run" at a subcommand.
std::string Place(const std::vector<std::string>& path) {
  std::string place;
  for (const std::string& name : path) place += " " + name;
  return place;
}

std::string FunctionName(const CLI::App& app) {
  std::string name = "_" + app.get_name();
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// In single quotes, as bash and zsh read them.
std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// fish knows backslashes within single quotes.
std::string FishQuoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

std::vector<Option> FlagsOf(const Command& command) {
  std::vector<Option> flags;
  for (const auto* options : {&command.options, &command.also})
    std::copy_if(options->begin(), options->end(), std::back_inserter(flags),
                 [](const Option& option) { return !option.positional(); });
  return flags;
}

// 'case' patterns of all places but the program's own; "-" where there are no subcommands.
std::string Places(const std::vector<Command>& commands) {
  std::string places;
  for (const Command& command : commands) {
    if (!command.path.empty())
      places += (places.empty() ? "" : " | ") + Quoted(Place(command.path));
  }
  return places.empty() ? "-" : places;
}

// The words before the current one, in bash and zsh; `first` is the index of the first of them.
std::string Walk(const std::vector<Command>& commands, const std::string& first,
                 const std::string& words, const std::string& current) {
  return "  for ((i = " + first + "; i < " + current + "; ++i)); do\n" +  //
         "    case \"$at ${" + words + "[i]}\" in\n" +                    //
         "      " + Places(commands) + ") at+=\" ${" + words + "[i]}\" ;;\n" +
         "    esac\n"
         "  done\n"
         "  case $at in\n";
}

std::string HelpOf(const std::vector<Command>& commands, const Command& parent,
                   const std::string& child) {
  std::vector<std::string> path = parent.path;
  path.push_back(child);
  const auto found = std::find_if(commands.begin(), commands.end(),
                                  [&path](const Command& command) { return command.path == path; });
  return found == commands.end() ? "" : found->help;
}

}  // namespace

std::string BashCompletion(const CLI::App& app) {
  const std::vector<Command> commands = ReadSyntax(app);
  const std::string function = FunctionName(app);
  std::string out = "# bash completion of " + app.get_name() + "; generated from its options\n" +
                    function + "() {\n" +
                    "  local at='' words='' valued='' i current=${COMP_WORDS[COMP_CWORD]}\n" +
                    Walk(commands, "1", "COMP_WORDS", "COMP_CWORD");
  for (const Command& command : commands) {
    std::string words, valued;
    for (const std::string& child : command.children) words += child + " ";
    for (const Option& option : FlagsOf(command)) {
      for (const std::string& name : option.names) {
        words += name + " ";
        if (!option.value.empty()) valued += name + " ";
      }
    }
    out += "    " + Quoted(Place(command.path)) + ")\n      words=" + Quoted(words) +
           "\n      valued=" + Quoted(" " + valued) + "\n      ;;\n";
  }
  // An empty answer makes bash complete file names (-o default).
  out +=
      "  esac\n"
      "  [[ $valued == *\" ${COMP_WORDS[COMP_CWORD-1]} \"* ]] && return\n"
      "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
      "}\n"
      "complete -o default -F " +
      function + " " + app.get_name() + "\n";
  return out;
}

std::string ZshCompletion(const CLI::App& app) {
  const std::vector<Command> commands = ReadSyntax(app);
  const std::string function = FunctionName(app);
  std::string out = "#compdef " + app.get_name() + "\n# Generated from its options.\n" + function +
                    "() {\n"
                    "  local at='' i\n"
                    "  local -a commands flags valued\n" +
                    Walk(commands, "2", "words", "CURRENT");
  // _describe takes "name:help".
  const auto entry = [](const std::string& name, const std::string& help) {
    return " " + Quoted(name + ":" + help);
  };
  for (const Command& command : commands) {
    std::string children, flags, valued;
    for (const std::string& child : command.children)
      children += entry(child, HelpOf(commands, command, child));
    for (const Option& option : FlagsOf(command)) {
      for (const std::string& name : option.names) {
        flags += entry(name, option.help);
        if (!option.value.empty()) valued.append(" ").append(Quoted(name));
      }
    }
    out.append("    ").append(Quoted(Place(command.path)));
    out.append(")\n      commands=(").append(children);
    out.append(" )\n      flags=(").append(flags);
    out.append(" )\n      valued=(").append(valued).append(" )\n      ;;\n");
  }
  out +=
      "  esac\n"
      "  if (( ${valued[(Ie)${words[CURRENT-1]}]} )); then\n"
      "    _files\n"
      "  elif [[ ${words[CURRENT]} == -* ]]; then\n"
      "    _describe -o option flags\n"
      "  elif (( ${#commands} )); then\n"
      "    _describe command commands\n"
      "  else\n"
      "    _files\n"
      "  fi\n"
      "}\n" +
      function + " \"$@\"\n";
  return out;
}

std::string FishCompletion(const CLI::App& app) {
  const std::vector<Command> commands = ReadSyntax(app);
  const std::string function = "_" + FunctionName(app) + "_at";
  std::string places;
  for (const Command& command : commands) places += " " + FishQuoted(Place(command.path));
  std::string out = "# fish completion of " + app.get_name() +
                    "; generated from its options\n"
                    "function " +
                    function +
                    "\n"
                    "    set -l words (commandline -opc)\n"
                    "    set -e words[1]\n"
                    "    set -l at ''\n"
                    "    for word in $words\n"
                    "        if contains -- \"$at $word\"" +
                    places +
                    "\n"
                    "            set at \"$at $word\"\n"
                    "        end\n"
                    "    end\n"
                    "    test \"$at\" = \"$argv[1]\"\n"
                    "end\n";
  for (const Command& command : commands) {
    const std::string line = "complete -c " + app.get_name() + " -n " +
                             FishQuoted(function + " " + FishQuoted(Place(command.path)));
    for (const std::string& child : command.children)
      out.append(line).append(" -f -a ").append(child).append(" -d ").append(
          FishQuoted(HelpOf(commands, command, child)) + "\n");
    for (const Option& option : FlagsOf(command)) {
      out += line;
      for (const std::string& name : option.names)
        out += name[1] == '-' ? " -l " + name.substr(2) : " -s " + name.substr(1);
      out += (option.value.empty() ? "" : " -r") + (" -d " + FishQuoted(option.help)) + "\n";
    }
  }
  return out;
}

}  // namespace concert::command
