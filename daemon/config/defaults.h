// The shipped value of every setting that a part of the daemon also has as an option: Config and
// the options of that part both take it from here, so that tests and benchmarks, which make the
// parts themselves, run what is shipped.
#ifndef CONCERT_DAEMON_CONFIG_DEFAULTS_H_
#define CONCERT_DAEMON_CONFIG_DEFAULTS_H_

#include <cstdint>

namespace concert::daemon::defaults {

// Measured: docs/adr/0008-depth-and-backlog.md.
inline constexpr int64_t kDepth = 1;
inline constexpr int64_t kBacklogUs = 16;
inline constexpr int64_t kSpinUs = 200;
// Measured: docs/adr/0035-shares-of-the-sms.md.
inline constexpr int64_t kLowClassSmPercent = 25;
// Collectives come every few hundred microseconds, and all ranks of one wait for the threads that
// launch it: to wake up costs them 17 us (two H100s). So those spin so many times as long.
inline constexpr int64_t kCollectiveSpins = 10;
inline constexpr bool kPinDispatchers = true;

inline constexpr int64_t kWaitTimeoutMs = 60'000;
inline constexpr int64_t kCollectiveTimeoutMs = 10'000;

inline constexpr int64_t kRingCapacity = 1024;
inline constexpr int64_t kMaxSessions = 1024;
inline constexpr int64_t kMaxSessionsPerUid = 256;
inline constexpr int64_t kMaxBufferBytesPerUid = int64_t{1} << 40;
// On sim each is a mapping of the daemon, which may have 65530 (vm.max_map_count).
inline constexpr int64_t kMaxBuffersPerUid = 16'384;

inline constexpr bool kTuneIdle = false;
inline constexpr int64_t kTuneBudgetS = 300;

}  // namespace concert::daemon::defaults

#endif  // CONCERT_DAEMON_CONFIG_DEFAULTS_H_
