// A command line as manual pages and completions see it, read from CLI11's description of it.
#ifndef CONCERT_PROTO_COMMAND_SYNTAX_H_
#define CONCERT_PROTO_COMMAND_SYNTAX_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace concert::command {

struct Option {
  std::vector<std::string> names;  // "-n", "--last"; one without dashes for a positional
  std::string value;               // "UINT"; empty for a flag
  std::string help;
  std::string group;  // "Options" unless the program says otherwise
  bool required = false;

  bool positional() const { return names.front().front() != '-'; }
};

// One command: the program itself, or a subcommand at any depth.
struct Command {
  std::vector<std::string> path;  // {"tune", "run"}; empty for the program itself
  std::string help;
  std::vector<Option> options;        // its own
  std::vector<Option> also;           // of those above it, that it takes as well
  std::vector<std::string> children;  // names of its subcommands
};

// The program and all its subcommands, each before its own. What is in no group is hidden and left
// out.
std::vector<Command> ReadSyntax(const CLI::App& app);

}  // namespace concert::command

#endif  // CONCERT_PROTO_COMMAND_SYNTAX_H_
