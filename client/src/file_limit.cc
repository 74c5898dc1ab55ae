#include "client/src/file_limit.h"

#include <sys/resource.h>

#include "client/src/failure.h"

namespace concert::client {

int FailNoFdFree(const char* what, concert_error* error) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return Fail(error, CONCERT_RESOURCE_EXHAUSTED,
              "no file descriptor is free for %s: the process may have %llu open files "
              "(RLIMIT_NOFILE); close some or raise the limit (ulimit -n, LimitNOFILE=)",
              what, static_cast<unsigned long long>(limit.rlim_cur));
}

}  // namespace concert::client
