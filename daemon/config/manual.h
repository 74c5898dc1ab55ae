// What the manual pages of concertd(8) and concert.toml(5) say beside the settings' own rows.
#ifndef CONCERT_DAEMON_CONFIG_MANUAL_H_
#define CONCERT_DAEMON_CONFIG_MANUAL_H_

#include <string>

#include "proto/command/manual.h"

namespace concert::daemon {

command::Manual ProgramManual();

// concert.toml(5).
std::string RenderManual();

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_CONFIG_MANUAL_H_
