// CONCERT_CHECK: our own invariants only. Nothing that a client, file or network sends may reach
// one.
#ifndef CONCERT_DAEMON_CHECK_H_
#define CONCERT_DAEMON_CHECK_H_

#include <cstdio>
#include <cstdlib>

#define CONCERT_CHECK(condition)                                                            \
  do {                                                                                      \
    if (__builtin_expect(!(condition), 0)) {                                                \
      std::fprintf(stderr, "<2>%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                         \
    }                                                                                       \
  } while (false)

#endif  // CONCERT_DAEMON_CHECK_H_
