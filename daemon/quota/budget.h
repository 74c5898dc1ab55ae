// What is done in one turn, at most, of each kind of work that clients make, so that a turn is
// short whoever makes how much of it; the rest has its turn in the next ones. One row per kind: the
// code takes its numbers from here, and docs/operations.md and `concertctl quotas` show them. To
// add one, add an enumerator and a row.
#ifndef CONCERT_DAEMON_QUOTA_BUDGET_H_
#define CONCERT_DAEMON_QUOTA_BUDGET_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace concert::daemon {

enum class Work : uint8_t {
  // The control thread's.
  kConnections,
  kRequestsOfSession,
  kRequests,
  kErrands,
  kEvents,
  kBuffers,
  // A dispatcher's.
  kMessages,
  kRings,
  kColdRings,
  kOpsOfRing,
  kOps,
  kHotWords,
  kColdWords,
  kWordWaits,
  kQueueWaits,
  kQueues,
  kFailures,
  kReleases,
  kCancellations,
  kRemovals,
  kPartsHeldBack,
  kWakes,
  // The issuer's.
  kIssuerMessages,
  kExpiries,
  kEndings,
  kCount,
};

struct Budget {
  Work work;
  std::string_view name;
  std::string_view thread;
  uint32_t per_turn;
};

// In the order of the enumerators.
inline constexpr std::array<Budget, static_cast<size_t>(Work::kCount)> kBudgets = {{
    // Fewer than a user may have (Resource::kConnections), so that a Hello that has come is read
    // before its socket is the oldest, however fast others of the user connect.
    {Work::kConnections, "connections accepted", "control", 16},
    {Work::kRequestsOfSession, "requests of a session", "control", 16},
    // A refused one takes some 3 us.
    {Work::kRequests, "requests in all", "control", 64},
    // One is begun at a time; so many are refused at once.
    {Work::kErrands, "requests begun that may take long, or refused", "control", 16},
    {Work::kEvents, "answers of dispatchers", "control", 256},
    // A session that ends may have thousands, and freeing one may be a call of the driver.
    {Work::kBuffers, "buffers freed of sessions that end", "control", 256},
    {Work::kMessages, "messages read", "dispatcher", 1024},
    {Work::kRings, "rings that ops are taken from", "dispatcher", 64},
    {Work::kColdRings, "rings without news looked at", "dispatcher", 8},
    // A turn that admits and refuses as many takes some 50 us, which is what others wait for when
    // somebody floods.
    {Work::kOpsOfRing, "ops admitted of a ring", "dispatcher", 64},
    {Work::kOps, "ops admitted in all", "dispatcher", 128},
    {Work::kHotWords, "words read that moved lately", "dispatcher", 16},
    {Work::kColdWords, "other words read", "dispatcher", 512},
    {Work::kWordWaits, "waits for words that are met", "dispatcher", 64},
    // Waking one takes some 50 ns with warm caches.
    {Work::kQueueWaits, "waits for queues that are met, and as many timeouts", "dispatcher", 64},
    {Work::kQueues, "queues examined", "dispatcher", 512},
    {Work::kFailures, "failed ops completed", "dispatcher", 128},
    {Work::kReleases, "ended ops released", "dispatcher", 256},
    {Work::kCancellations, "ops, queues and words of removed sessions", "dispatcher", 128},
    // A session may give up all that it has while ops that it published before are not admitted.
    {Work::kRemovals, "queues and buffers given up that are let go", "dispatcher", 256},
    {Work::kPartsHeldBack, "parts of collectives that wait for an end to be near", "dispatcher", 4},
    // Each takes some 7 us.
    {Work::kWakes, "threads woken behind the first of a queue", "dispatcher", 64},
    // What matches is launched behind them.
    {Work::kIssuerMessages, "messages read", "issuer", 1024},
    {Work::kExpiries, "collectives failed whose ranks do not come", "issuer", 256},
    // A user may have all its refusals and parts in one communicator, which ends when a rank
    // leaves.
    {Work::kEndings, "collectives and parts of communicators that are over", "issuer", 256},
}};

// The number of the row, of which there is exactly one.
template <typename Number = uint32_t>
constexpr Number PerTurn(Work work) {
  return static_cast<Number>(kBudgets[static_cast<size_t>(work)].per_turn);
}

// The table in Markdown, for docs/operations.md.
std::string RenderBudgets();

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_QUOTA_BUDGET_H_
