#include "proto/command/manual.h"

#include <algorithm>
#include <cctype>

#include "proto/command/syntax.h"

namespace concert::command {
namespace {

// A line of text: no escapes, and no control character at its start.
std::string Roff(std::string_view text) {
  std::string out;
  bool line_start = true;
  for (const char c : text) {
    if (line_start && (c == '.' || c == '\'')) out += "\\&";
    line_start = c == '\n';
    if (c == '\\') {
      out += "\\e";
    } else if (c == '"') {
      out += "\\(dq";  // requests take quotes for marks of their own
    } else if (c == '-') {
      out += "\\-";  // a hyphen-minus that can be searched and copied
    } else {
      out += c;
    }
  }
  return out;
}

std::string Upper(std::string_view text) {
  std::string upper(text);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return upper;
}

std::string Paragraphs(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find("\n\n", at), text.size());
    out += (at > 0 ? ".PP\n" : "") + Roff(text.substr(at, end - at)) + "\n";
    at = end + 2;
  }
  return out;
}

std::string Name(const CLI::App& app, const Command& command) {
  std::string name = app.get_name();
  for (const std::string& part : command.path) name += " " + part;
  return name;
}

std::string OptionTag(const Option& option) {
  std::string tag;
  for (const std::string& name : option.names) tag += (tag.empty() ? "" : ", ") + name;
  // A positional is its own name.
  return option.value.empty() || option.positional() ? tag : tag + " " + option.value;
}

std::string Options(const std::vector<Option>& options, bool positional) {
  std::string out;
  for (const Option& option : options) {
    if (option.positional() == positional) out += ManualItem(OptionTag(option), option.help);
  }
  return out;
}

std::string Synopsis(const CLI::App& app, const Command& command) {
  std::string out = ".B " + Roff(Name(app, command)) + "\n[\\fIoptions\\fR]";
  for (const Option& option : command.options) {
    if (option.positional()) out += " \\fI" + Roff(option.names.front()) + "\\fR";
  }
  if (!command.children.empty()) out += " \\fIcommand\\fR";
  return out + "\n";
}

// The program's own options, by group, in the order in which the groups first appear.
std::string OptionSections(const Command& program) {
  std::vector<std::string> groups;
  for (const Option& option : program.options) {
    if (std::find(groups.begin(), groups.end(), option.group) == groups.end())
      groups.push_back(option.group);
  }
  std::string out;
  for (const std::string& group : groups) {
    std::vector<Option> members;
    std::copy_if(program.options.begin(), program.options.end(), std::back_inserter(members),
                 [&group](const Option& option) { return option.group == group; });
    out += ".SH " + Roff(Upper(group)) + "\n" + Options(members, false);
  }
  return out;
}

}  // namespace

std::string ManualHead(std::string_view name, int section, std::string_view summary) {
  std::string phrase(summary.substr(0, summary.find_last_not_of('.') + 1));
  // "name - name does this" says its name twice.
  const std::string subject = std::string(name) + " ";
  if (phrase.starts_with(subject)) phrase.erase(0, subject.size());
  return ".TH \"" + Roff(Upper(name)) + "\" " + std::to_string(section) +
         " \"\" \"concert\" \"concert manual\"\n.SH NAME\n" + Roff(name) + " \\- " + Roff(phrase) +
         "\n";
}

std::string ManualSection(std::string_view heading, std::string_view text) {
  return ".SH " + Roff(Upper(heading)) + "\n" + Paragraphs(text);
}

std::string ManualItem(std::string_view tag, std::string_view text) {
  return ".TP\n.B " + Roff(tag) + "\n" + Roff(text) + "\n";
}

std::string ManualPage(const CLI::App& app, const Manual& manual) {
  const std::vector<Command> commands = ReadSyntax(app);
  const Command& program = commands.front();
  std::string out = ManualHead(app.get_name(), manual.section, program.help) + ".SH SYNOPSIS\n" +
                    Synopsis(app, program) + OptionSections(program);
  if (!program.children.empty()) out += ".SH COMMANDS\n";
  for (const Command& command : commands) {
    // A command that only leads to others is described by them.
    if (command.path.empty() || !command.children.empty()) continue;
    std::string usage = Synopsis(app, command);
    out += ".SS " + Roff(Name(app, command)) + "\n" + Paragraphs(command.help) + ".PP\n" + usage +
           Options(command.options, true) + Options(command.options, false);
  }
  for (const auto& [heading, text] : manual.sections) out += ManualSection(heading, text);
  return out;
}

}  // namespace concert::command
