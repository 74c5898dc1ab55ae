// What devices and clients call themselves, as operators may see it.
#ifndef CONCERT_DAEMON_SERVICE_PRINTABLE_H_
#define CONCERT_DAEMON_SERVICE_PRINTABLE_H_

#include <string>
#include <string_view>

namespace concert::daemon {

// `text` as well-formed UTF-8 that leaves a terminal as it is. protobuf and Prometheus take UTF-8
// only, and clients choose their names: control characters, characters that are not seen or turn
// the direction of what follows, and bytes that are no UTF-8 become \xNN, a backslash becomes two.
std::string Printable(std::string_view text);

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SERVICE_PRINTABLE_H_
