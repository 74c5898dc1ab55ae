// This test program, started again as a client process. Exec'd, so that no thread of the daemon is
// lost in a fork.
#ifndef CONCERT_TESTS_FAULT_CHILD_H_
#define CONCERT_TESTS_FAULT_CHILD_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace concert::test {

class Child {
 public:
  // Runs `/proc/self/exe --child arguments...`, which ends in RunChild.
  explicit Child(const std::vector<std::string>& arguments);
  // Kills it, if it is still there.
  ~Child();

  // Waits until it has stopped itself with SIGSTOP. False if it ended instead.
  bool WaitUntilStopped();
  void Kill();
  // Its exit status, -1 if a signal ended it.
  int WaitForExit();

 private:
  pid_t pid_;
};

// The child's main program; its result is the exit status.
int RunChild(const std::vector<std::string>& arguments);

}  // namespace concert::test

#endif  // CONCERT_TESTS_FAULT_CHILD_H_
