// A program prints its own manual page and completions: `concertctl --page man`. What is installed
// comes from that (deploy/cmake/InstallForPrefix.cmake), so that none of it can differ from what
// the program takes.
#ifndef CONCERT_PROTO_COMMAND_PAGES_H_
#define CONCERT_PROTO_COMMAND_PAGES_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <string>

#include "proto/command/manual.h"

namespace concert::command {

using Pages = std::map<std::string, std::function<std::string()>>;

// Adds the hidden option --page NAME for man, bash, zsh, fish and what `more` has. It ends parsing
// as
// --version does, by throwing CLI::CallForVersion with the page as its text.
void AddPages(CLI::App& app, const Manual& manual, const Pages& more = {});

}  // namespace concert::command

#endif  // CONCERT_PROTO_COMMAND_PAGES_H_
