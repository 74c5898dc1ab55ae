#include "client/ctl/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "proto/unique_fd.h"

namespace concert::ctl {

// Named after the process: another one that writes the same file now has its own.
OutputFile::OutputFile(std::string name)
    : name_(std::move(name)), beside_(name_ + "." + std::to_string(getpid()) + ".partial") {}

OutputFile::~OutputFile() {
  if (is_beside_) unlink(beside_.c_str());
}

std::string OutputFile::Open() {
  struct stat before {};
  const bool exists = lstat(name_.c_str(), &before) == 0;
  if (exists && !S_ISREG(before.st_mode)) {
    file_.open(name_, std::ios::binary);
    return file_ ? "" : Failure();
  }
  if (exists && access(name_.c_str(), W_OK) != 0) return Failure();
  unlink(beside_.c_str());  // of a process that was killed
  const UniqueFd made(open(beside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!made) return Failure();
  is_beside_ = true;
  if (exists && fchmod(made.get(), before.st_mode & 07777) != 0) return Failure();
  file_.open(beside_, std::ios::binary);
  return file_ ? "" : Failure();
}

std::string OutputFile::Close() {
  file_.close();
  if (!file_) return Failure();
  if (is_beside_ && std::rename(beside_.c_str(), name_.c_str()) != 0) return Failure();
  is_beside_ = false;
  return "";
}

std::string OutputFile::Failure() const {
  return "cannot write " + name_ + ": " + std::strerror(errno);
}

}  // namespace concert::ctl
