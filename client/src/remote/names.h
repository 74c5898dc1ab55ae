// What the client calls things, for sentences that the daemon tells in numbers.
#ifndef CONCERT_CLIENT_SRC_REMOTE_NAMES_H_
#define CONCERT_CLIENT_SRC_REMOTE_NAMES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "proto/mutex.h"

namespace concert::client {

// Thread-safe.
class Names {
 public:
  void set_session(uint32_t session) { session_ = session; }  // before other threads use this

  // `handle`: the daemon's answer to JOIN_COMMUNICATOR. The name is kept when the rank has left:
  // sentences about the communicator may be asked for later.
  void AddCommunicator(uint32_t handle, const std::string& name);

  // The sentence of a message, as concert_render_message, with the names that are known. "session
  // 7" is "this session", if it is.
  size_t Render(uint32_t message, const uint64_t args[5], char* out, size_t size) const;

 private:
  // Enough for every communicator that a session may be in at once; beyond it the oldest names go.
  static constexpr size_t kMaxCommunicators = 1024;

  uint32_t session_ = 0;
  mutable Mutex mutex_;
  // By the number that messages carry, quoted.
  std::map<uint64_t, std::string> communicators_ CONCERT_GUARDED_BY(mutex_);
};

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_REMOTE_NAMES_H_
