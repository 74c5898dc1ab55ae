// Manual pages (man(7)) from the description that --help prints.
#ifndef CONCERT_PROTO_COMMAND_MANUAL_H_
#define CONCERT_PROTO_COMMAND_MANUAL_H_

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace concert::command {

// What --help does not say. Texts are plain; an empty line begins a paragraph.
struct Manual {
  int section = 1;
  std::vector<std::pair<std::string, std::string>> sections;  // heading and text, in order
};

std::string ManualPage(const CLI::App& app, const Manual& manual);

// The pieces, for pages that describe no program. All escape what roff would take for a request.
std::string ManualHead(std::string_view name, int section, std::string_view summary);
std::string ManualSection(std::string_view heading, std::string_view text);
// A tagged paragraph; the tag is bold.
std::string ManualItem(std::string_view tag, std::string_view text);

}  // namespace concert::command

#endif  // CONCERT_PROTO_COMMAND_MANUAL_H_
