// The programs that a session makes of batches which come again and again (RepeatedBatches): asks
// the daemon for them, and gives them up before they are in anybody's way.
#ifndef CONCERT_CLIENT_SRC_REMOTE_BATCH_PROGRAMS_H_
#define CONCERT_CLIENT_SRC_REMOTE_BATCH_PROGRAMS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "client/src/clock.h"
#include "client/src/remote/control_socket.h"
#include "client/src/remote/ring.h"
#include "proto/mutex.h"

namespace concert::client {

// Thread-safe. Nothing here fails: without a program a batch is submitted op by op. Deadlines are
// those of the calls that it is done for.
class BatchPrograms {
 public:
  // Both outlive this. `rings` does not change once a batch was begun.
  BatchPrograms(ControlSocket& control, const std::vector<std::unique_ptr<Ring>>& rings)
      : control_(control), rings_(rings) {}

  // What is left to do behind Ring::EndBatch. A registration is only sent here: the batches that
  // follow are submitted op by op until its answer has come.
  void After(Ring& ring, const Ring::AfterBatch& after);

  // Gives up programs that name the buffer, before it is released or sealed; programs keep what
  // they name.
  void ForgetBuffer(uint32_t buffer, const Deadline& deadline);
  // Gives up those of the queue, before it is destroyed.
  void ForgetQueue(uint32_t queue, const Deadline& deadline);
  // Gives up all and makes no more: the session has no room for them. True as long as what they
  // had may come free, whichever thread gave them up: `until` then. False if there were none.
  bool GiveUp(const Deadline& deadline, Deadline* until);

 private:
  // A registration whose answer has not come.
  struct Asked {
    Ring* ring = nullptr;  // null: there is none
    uint64_t batch = 0;
  };

  void Ask(Ring& ring, const BatchToRegister& wanted) CONCERT_REQUIRES(turn_);
  void TakeAnswer(const Deadline* deadline) CONCERT_REQUIRES(turn_);
  void AwaitAnswer(const Deadline& deadline);
  template <typename Forget>
  bool GiveUpWhat(Forget forget);
  void Release(uint32_t program);

  ControlSocket& control_;
  const std::vector<std::unique_ptr<Ring>>& rings_;

  Turn turn_;  // before the control socket's and the rings' mutexes
  Asked asked_ CONCERT_GUARDED_BY(turn_);
  std::atomic<bool> ended_{false};  // nothing is asked for any more
  Mutex room_mutex_;  // before the rings', too
  Deadline room_comes_ CONCERT_GUARDED_BY(room_mutex_){0};
  std::atomic<bool> waiting_{false};  // asked_ has a ring
};

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_REMOTE_BATCH_PROGRAMS_H_
