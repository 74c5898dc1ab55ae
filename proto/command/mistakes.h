// What CLI11's errors do not say: which flag or command was meant.
#ifndef CONCERT_PROTO_COMMAND_MISTAKES_H_
#define CONCERT_PROTO_COMMAND_MISTAKES_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace concert::command {

// A line for each thing that is wrong with the command line `app` has just refused with `error`;
// unknown commands and flags come with the nearest right one.
std::vector<std::string> ExplainParseError(const CLI::App& app, const CLI::ParseError& error);

}  // namespace concert::command

#endif  // CONCERT_PROTO_COMMAND_MISTAKES_H_
