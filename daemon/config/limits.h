// What the configuration says about how much clients may hold.
#ifndef CONCERT_DAEMON_CONFIG_LIMITS_H_
#define CONCERT_DAEMON_CONFIG_LIMITS_H_

#include "daemon/config/config.h"
#include "daemon/quota/resource.h"

namespace concert::daemon {

// The limits of all resources: the settings that rows of AllResources() name, else their defaults.
Limits LimitsOf(const Config& config);

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_CONFIG_LIMITS_H_
