#include "daemon/config/manual.h"

#include "absl/strings/str_cat.h"
#include "daemon/config/config.h"

namespace concert::daemon {

command::Manual ProgramManual() {
  return {
      .section = 8,
      .sections =
          {{"Precedence",
            "A flag overrides an environment variable, which overrides the configuration file, "
            "which overrides the default. The flag --spin-us is the variable CONCERT_SPIN_US and "
            "the key spin_us."},
           {"Signals",
            "SIGTERM and SIGINT drain: no new ops are accepted, accepted ones finish, then "
            "concertd exits."},
           {"Exit status",
            "0 after a drain, 1 if it could not start or serve, 2 if the command line or the "
            "configuration is wrong."},
           {"Files", absl::StrCat(std::string(kDefaultConfigPath),
                                  ": the configuration, if --config names no other file; it may "
                                  "be absent.")},
           {"See also", "concert.toml(5), concertctl(1)"}},
  };
}

std::string RenderManual() {
  std::string page = command::ManualHead("concert.toml", 5, "configuration of concertd");
  page += command::ManualSection(
      "Description",
      absl::StrCat("A TOML file of keys and values, read by concertd(8) when it starts; ",
                   std::string(kDefaultConfigPath),
                   " unless --config names another. Every key may be absent. An unknown key or a "
                   "value that is not allowed keeps concertd from starting; concertd "
                   "--check-config says where it stands.\n\nThe key spin_us is also the "
                   "environment variable CONCERT_SPIN_US and the flag --spin-us, which override "
                   "the file. concertd --print-config prints all keys with where their values "
                   "come from."));
  page += command::ManualSection("Keys", "");
  for (const Setting& setting : AllSettings()) {
    page += command::ManualItem(
        absl::StrCat(std::string(setting.key), " = ", DefaultText(setting)),
        absl::StrCat(std::string(setting.help), " Allowed: ", setting.Documented(), "."));
  }
  return page + command::ManualSection("See also", "concertd(8), concertctl(1)");
}

}  // namespace concert::daemon
