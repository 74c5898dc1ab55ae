#include "daemon/config/config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <type_traits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/command/words.h"

namespace concert::daemon {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// What is allowed, with its type: flags and files are read by people.
std::string Demanded(const Setting& setting) {
  const bool integer = std::holds_alternative<int64_t Config::*>(setting.member);
  return absl::StrCat(integer ? "an integer from " : "", setting.Allowed());
}

// `value` as it is written in a file: `"3"` is the string "3".
absl::Status Refuse(const Setting& setting, std::string_view value, const std::string& origin) {
  return absl::InvalidArgumentError(absl::StrCat(origin, ": ", View(setting.key), " must be ",
                                                 Demanded(setting), ", but is ", View(value)));
}

std::string KeyHint(std::string_view key) {
  std::vector<std::string> keys;
  for (const Setting& setting : AllSettings()) keys.emplace_back(setting.key);
  const std::string hint = command::DidYouMean(key, keys);
  return hint.empty() ? "; concertd --print-config lists all keys" : hint;
}

// One overload per type of setting; each checks what the table allows.
absl::Status Set(const Setting& setting, std::string Config::*member, const std::string& value,
                 const std::string& origin, Config& config) {
  if (setting.choices != nullptr) {
    const std::vector<std::string> choices = setting.choices();
    if (std::find(choices.begin(), choices.end(), value) == choices.end()) {
      absl::Status status = Refuse(setting, absl::StrCat("'", value, "'"), origin);
      return absl::InvalidArgumentError(
          absl::StrCat(status.message(), command::DidYouMean(value, choices)));
    }
  } else if (value.empty() || value.front() != '/') {
    return Refuse(setting, absl::StrCat("'", value, "'"), origin);
  }
  config.*member = value;
  return absl::OkStatus();
}
absl::Status Set(const Setting& setting, int64_t Config::*member, int64_t value,
                 const std::string& origin, Config& config) {
  if (value < setting.min || value > setting.max)
    return Refuse(setting, absl::StrCat(value), origin);
  if (member == &Config::ring_capacity && !std::has_single_bit(static_cast<uint64_t>(value))) {
    return absl::InvalidArgumentError(
        absl::StrCat(origin, ": ", View(setting.key), " must be a power of two, but is ", value));
  }
  config.*member = value;
  return absl::OkStatus();
}
absl::Status Set(const Setting&, bool Config::*member, bool value, const std::string&,
                 Config& config) {
  config.*member = value;
  return absl::OkStatus();
}

std::string Quoted(const std::string& value) {
  const bool plain = std::all_of(value.begin(), value.end(), [](char c) {
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
  });
  if (plain) return absl::StrCat("\"", value, "\"");
  std::ostringstream out;
  out << toml::value<std::string>(value);
  return out.str();
}

// `the string "3"`, `the number 2.0`, `a list`.
std::string Described(const toml::node& node) {
  std::ostringstream text;
  node.visit([&](const auto& concrete) { text << concrete; });
  switch (node.type()) {
    case toml::node_type::string:
      return absl::StrCat("the string ", Quoted(*node.value_exact<std::string>()));
    case toml::node_type::floating_point:
      return absl::StrCat("the number ", text.str());
    case toml::node_type::array:
      return absl::StrCat("the list ", text.str());
    case toml::node_type::table:
      return "a table";
    default:
      return text.str();
  }
}

template <typename T>
using ValueOf = std::remove_cvref_t<decltype(std::declval<Config>().*std::declval<T>())>;

absl::Status ApplyNode(const Setting& setting, const toml::node& node, const std::string& origin,
                       LoadedConfig& loaded) {
  const absl::Status status = std::visit(
      [&](auto member) -> absl::Status {
        using T = ValueOf<decltype(member)>;
        // Exact: no silent conversion of 1.5, "7" or 1 to another type.
        if (const auto value = node.value_exact<T>()) {
          return Set(setting, member, *value, origin, loaded.config);
        }
        return Refuse(setting, Described(node), origin);
      },
      setting.member);
  if (status.ok()) loaded.origins[&setting - AllSettings().data()] = origin;
  return status;
}

std::string ValueText(const Setting& setting, const Config& config) {
  return std::visit(
      [&](auto member) -> std::string {
        using T = ValueOf<decltype(member)>;
        if constexpr (std::is_same_v<T, std::string>) {
          return Quoted(config.*member);
        } else if constexpr (std::is_same_v<T, bool>) {
          return config.*member ? "true" : "false";
        } else {
          return absl::StrCat(config.*member);
        }
      },
      setting.member);
}

}  // namespace

void ConfigErrors::Add(const absl::Status& status) {
  if (status.ok()) return;
  if (status_.ok()) {
    status_ = status;
  } else {
    status_ = absl::Status(status_.code(), absl::StrCat(status_.message(), "\n", status.message()));
  }
}

absl::Status ApplyToml(std::string_view text, const std::string& path, LoadedConfig& config) {
  toml::table table;
  try {
    table = toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", error.source().begin.line, ": ", View(error.description())));
  }
  std::map<toml::source_index, std::vector<std::string>> errors;  // a table is sorted by key
  for (const auto& [toml_key, node] : table) {
    const std::string_view key = toml_key.str();
    const std::string origin = absl::StrCat(path, ":", node.source().begin.line);
    const auto settings = AllSettings();
    const auto setting = std::find_if(settings.begin(), settings.end(),
                                      [key](const Setting& row) { return row.key == key; });
    absl::Status status = setting != settings.end()
                              ? ApplyNode(*setting, node, origin, config)
                              : absl::InvalidArgumentError(absl::StrCat(
                                    origin, ": unknown key '", View(key), "'", KeyHint(key)));
    if (!status.ok()) errors[node.source().begin.line].emplace_back(status.message());
  }
  ConfigErrors all;
  for (const auto& [line, messages] : errors) {
    for (const std::string& message : messages) all.Add(absl::InvalidArgumentError(message));
  }
  return all.status();
}

absl::Status ApplyText(const Setting& setting, std::string_view value, const std::string& origin,
                       LoadedConfig& loaded) {
  const absl::Status status = std::visit(
      [&](auto member) -> absl::Status {
        using T = ValueOf<decltype(member)>;
        T parsed{};
        bool understood = true;
        if constexpr (std::is_same_v<T, std::string>) {
          parsed = std::string(value);
        } else if constexpr (std::is_same_v<T, bool>) {
          understood = absl::SimpleAtob(View(value), &parsed);
        } else {
          understood = absl::SimpleAtoi(View(value), &parsed);
        }
        if (!understood) return Refuse(setting, absl::StrCat("'", View(value), "'"), origin);
        return Set(setting, member, parsed, origin, loaded.config);
      },
      setting.member);
  if (status.ok()) loaded.origins[&setting - AllSettings().data()] = origin;
  return status;
}

absl::Status ApplyEnvironment(const std::function<const char*(const char*)>& getenv,
                              LoadedConfig& config) {
  ConfigErrors errors;
  for (const Setting& setting : AllSettings()) {
    const std::string name = setting.EnvName();
    const char* value = getenv(name.c_str());
    if (value != nullptr) errors.Add(ApplyText(setting, value, name, config));
  }
  return errors.status();
}

absl::Status ApplyFile(const std::string& path, LoadedConfig& config) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read the configuration file ", path));
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) return absl::NotFoundError(absl::StrCat(path, " is not a readable file"));
  config.file = path;
  return ApplyToml(text, path, config);
}

absl::Status CheckTogether(const Config& config) {
  const auto place = [](const std::string& path) {
    // Follows links as far as the path exists; what is beyond is compared as it is written.
    std::error_code ignored;
    const std::filesystem::path whole = std::filesystem::weakly_canonical(path, ignored);
    return whole.empty() ? std::filesystem::path(path).lexically_normal() : whole;
  };
  if (place(config.socket) != place(config.admin_socket)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("socket is '", config.socket,
                                                 "' and admin_socket is '", config.admin_socket,
                                                 "', the same file; give each a path of its own"));
}

std::string RenderToml(const LoadedConfig& loaded) {
  std::string out =
      "# concertd's settings. A flag overrides an environment variable, which overrides this "
      "file.\n";
  for (const Setting& setting : AllSettings()) {
    const std::string& origin = loaded.origins[&setting - AllSettings().data()];
    absl::StrAppend(&out, "\n# ", View(setting.help), "\n# ", setting.Documented(), "; ",
                    setting.EnvName(), ", ", setting.FlagName(), "\n", View(setting.key), " = ",
                    ValueText(setting, loaded.config), "  # ", origin, "\n");
  }
  return out;
}

std::vector<std::string> ChangedSettings(const LoadedConfig& loaded) {
  std::vector<std::string> changes;
  for (const Setting& setting : AllSettings()) {
    const std::string& origin = loaded.origins[&setting - AllSettings().data()];
    if (origin == "default") continue;
    changes.push_back(absl::StrCat(View(setting.key), " = ", ValueText(setting, loaded.config),
                                   " (", origin, ")"));
  }
  return changes;
}

std::string DefaultText(const Setting& setting) { return ValueText(setting, Config{}); }

std::string RenderMarkdown() {
  std::string out = "| Key | Default | Allowed | Meaning |\n|---|---|---|---|\n";
  for (const Setting& setting : AllSettings()) {
    absl::StrAppend(&out, "| `", View(setting.key), "` | `", DefaultText(setting), "` | ",
                    setting.Documented(), " | ", View(setting.help), " |\n");
  }
  return out;
}

}  // namespace concert::daemon
