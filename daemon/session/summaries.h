// Sessions as others than the control thread see them.
#ifndef CONCERT_DAEMON_SESSION_SUMMARIES_H_
#define CONCERT_DAEMON_SESSION_SUMMARIES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "daemon/session/replicas.h"
#include "daemon/session/session.h"
#include "kernels/program/program.h"
#include "proto/mutex.h"

namespace concert::daemon {

// A session as the admin API shows it.
struct SessionSummary {
  uint32_t id = 0, uid = 0;
  int32_t pid = 0;
  std::string name;
  int64_t connected_at_ns = 0;  // CLOCK_MONOTONIC
  uint32_t queues = 0, buffers = 0, communicators = 0;
  uint64_t buffer_bytes = 0;
  uint64_t sealed_bytes = 0;  // of buffer_bytes, in sealed buffers
  uint64_t shared_bytes = 0;  // of sealed_bytes, what another holder had before and still has
  std::vector<int> gpus;
  std::vector<kernels::ProgramSummary> programs;
  bool closing = false;
};

// The control thread, which changes them, waits for nobody who reads longer than a session's
// programs take to copy. A change costs the same whatever the session has.
class Summaries {
 public:
  // --- The control thread ---

  // All of the session but its programs.
  void Update(const Session& session);
  void Remove(uint32_t session);
  // A session's programs, by index into its buffers; nothing of one that is not there. REQUIRES:
  // the session was updated once and not removed.
  void AddProgram(uint32_t session, uint32_t index, kernels::ProgramSummary program);
  void RemoveProgram(uint32_t session, uint32_t index);
  void SetWhyNoStep(uint32_t session, uint32_t index, const std::string& why);
  void SetReplicas(std::span<const Replicas::Count> counts);

  // --- Any thread ---

  // By id. Each is as of one moment, which differ.
  std::vector<SessionSummary> All() const;
  size_t size() const;

 private:
  struct Entry {
    SessionSummary session;  // without its programs
    std::map<uint32_t, kernels::ProgramSummary> programs;
  };
  kernels::ProgramSummary* Find(uint32_t session, uint32_t index) CONCERT_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::map<uint32_t, Entry> entries_ CONCERT_GUARDED_BY(mutex_);  // by id
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SESSION_SUMMARIES_H_
