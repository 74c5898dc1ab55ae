// Completion of a program's command line in shells. Commands and flags are completed from its
// description, values as file names.
#ifndef CONCERT_PROTO_COMMAND_COMPLETION_H_
#define CONCERT_PROTO_COMMAND_COMPLETION_H_

#include <CLI/CLI.hpp>
#include <string>

namespace concert::command {

// Each is a whole file for that shell's folder of completions.
std::string BashCompletion(const CLI::App& app);
std::string ZshCompletion(const CLI::App& app);
std::string FishCompletion(const CLI::App& app);

}  // namespace concert::command

#endif  // CONCERT_PROTO_COMMAND_COMPLETION_H_
