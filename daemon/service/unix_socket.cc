#include "daemon/service/unix_socket.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace concert::daemon {
namespace {

constexpr char kPrivateSuffix[] = ".new";
constexpr char kLockSuffix[] = ".lock";
constexpr size_t kMaxPathBytes = sizeof(sockaddr_un::sun_path) - sizeof(kPrivateSuffix);
// How often a lock file may vanish under us: each time, its daemon has just ended.
constexpr int kLockAttempts = 16;

// Whether nobody listens: only then the kernel answers ECONNREFUSED. A socket of another type says
// EPROTOTYPE, a full backlog EAGAIN, one of another user EACCES.
bool IsDead(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const UniqueFd probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return probe &&
         connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
         errno == ECONNREFUSED;
}

// What somebody does whose first try is a bare `concertd`: only the system may write in /run.
std::string DirectoryAdvice() {
  const char* own = std::getenv("XDG_RUNTIME_DIR");
  const std::string folder = own != nullptr && *own == '/' ? own : "/tmp";
  return absl::StrCat(
      "its directory must exist and be writable: start concertd by its systemd unit, which makes "
      "/run/concert, or choose sockets of your own with --socket ",
      folder, "/concert.sock --admin-socket ", folder,
      "/concert-admin.sock (clients then need CONCERT_SOCKET, concertctl CONCERT_ADMIN_SOCKET)");
}

}  // namespace

UnixSocketPath::UnixSocketPath(const std::string& setting, const std::string& path)
    : setting_(setting),
      path_(path),
      private_path_(path + kPrivateSuffix),
      lock_path_(path + kLockSuffix) {}

std::string UnixSocketPath::What(const std::string& what) const {
  return absl::StrCat(setting_, " ", path_, ": ", what);
}

absl::StatusOr<std::unique_ptr<UnixSocketPath>> UnixSocketPath::Claim(const std::string& setting,
                                                                      const std::string& path) {
  if (path.empty() || path.front() != '/' || path.size() > kMaxPathBytes) {
    return absl::InvalidArgumentError(absl::StrCat(setting, " is '", path,
                                                   "'; it must be an absolute path of at most ",
                                                   kMaxPathBytes, " bytes"));
  }
  std::unique_ptr<UnixSocketPath> claim(new UnixSocketPath(setting, path));
  if (absl::Status status = claim->Lock(); !status.ok()) return status;
  if (absl::Status status = claim->RemoveStale(); !status.ok()) return status;
  return claim;
}

absl::Status UnixSocketPath::Lock() {
  for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
    UniqueFd lock(open(lock_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!lock) {
      return absl::UnavailableError(What(absl::StrCat(
          "cannot make ", lock_path_, " (", std::strerror(errno), "); ", DirectoryAdvice())));
    }
    if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      return absl::AlreadyExistsError(
          What(absl::StrCat("another process serves it (it holds ", lock_path_,
                            "); stop that concertd or set ", setting_, " to another path")));
    }
    // The one that held it may have removed the file meanwhile: then this lock keeps nobody out.
    struct stat held, there;
    if (fstat(lock.get(), &held) == 0 && stat(lock_path_.c_str(), &there) == 0 &&
        held.st_ino == there.st_ino && held.st_dev == there.st_dev) {
      lock_ = std::move(lock);
      return absl::OkStatus();
    }
  }
  return absl::AlreadyExistsError(What("daemons come and go on it"));
}

absl::Status UnixSocketPath::RemoveStale() const {
  for (const std::string& path : {path_, private_path_}) {
    struct stat found;
    if (lstat(path.c_str(), &found) != 0) {
      if (errno == ENOENT) continue;
      return absl::UnavailableError(What(std::strerror(errno)));
    }
    if (!S_ISSOCK(found.st_mode)) {
      return absl::AlreadyExistsError(What(absl::StrCat(
          path, " is there and is no socket; remove it or set ", setting_, " to another path")));
    }
    if (!IsDead(path)) {
      return absl::AlreadyExistsError(What(absl::StrCat(
          "another process serves ", path, "; stop it or set ", setting_, " to another path")));
    }
    unlink(path.c_str());
  }
  return absl::OkStatus();
}

absl::Status UnixSocketPath::Publish() {
  struct stat bound;
  if (lstat(private_path_.c_str(), &bound) != 0 ||
      renameat2(AT_FDCWD, private_path_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) != 0) {
    const absl::Status status = absl::UnavailableError(What(std::strerror(errno)));
    unlink(private_path_.c_str());
    return status;
  }
  device_ = bound.st_dev;
  inode_ = bound.st_ino;
  published_ = true;
  return absl::OkStatus();
}

UnixSocketPath::~UnixSocketPath() {
  if (!lock_) return;
  struct stat found;
  if (published_ && lstat(path_.c_str(), &found) == 0 && found.st_ino == inode_ &&
      found.st_dev == device_) {
    unlink(path_.c_str());
  }
  unlink(lock_path_.c_str());  // still held: who waits for it looks again
}

}  // namespace concert::daemon
