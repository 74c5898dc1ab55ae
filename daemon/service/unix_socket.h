// A path on which this process, and no other, serves a Unix socket. Claiming it removes what a dead
// daemon left there and nothing else: not a file of another kind, not the socket of a living
// service, whatever its type.
//
// A lock file beside it, PATH.lock, is held from Claim on, so that of two daemons that start at
// once one is refused. The kernel drops the lock when the process ends, however it ends.
#ifndef CONCERT_DAEMON_SERVICE_UNIX_SOCKET_H_
#define CONCERT_DAEMON_SERVICE_UNIX_SOCKET_H_

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/unique_fd.h"

namespace concert::daemon {

class UnixSocketPath {
 public:
  // `setting` names the path in errors. INVALID_ARGUMENT: not an absolute path that fits;
  // ALREADY_EXISTS: somebody serves it, or it is something else; UNAVAILABLE: its directory is
  // missing or not writable.
  static absl::StatusOr<std::unique_ptr<UnixSocketPath>> Claim(const std::string& setting,
                                                               const std::string& path);
  // Removes the socket, if it is the one that was published, and the lock.
  ~UnixSocketPath();

  const std::string& path() const { return path_; }
  // Where to bind. Nobody looks there until Publish has moved the socket to path().
  const std::string& private_path() const { return private_path_; }
  // Once the socket listens and has its owner and mode: moves it to path() in one step.
  absl::Status Publish();

 private:
  UnixSocketPath(const std::string& setting, const std::string& path);
  absl::Status Lock();
  absl::Status RemoveStale() const;
  std::string What(const std::string& what) const;  // "socket /run/c.sock: what"

  const std::string setting_, path_, private_path_, lock_path_;
  UniqueFd lock_;
  bool published_ = false;
  dev_t device_ = 0;  // of the published socket
  ino_t inode_ = 0;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SERVICE_UNIX_SOCKET_H_
