// A daemon for tests of the client: speaks the handshake and the control protocol on a real socket,
// and lets the test be the dispatcher: read descriptors, publish completions, raise timelines.
//
// Threads: control messages are served by one thread of its own; everything else is the test's.
#ifndef CONCERT_TESTS_SUPPORT_FAKE_DAEMON_H_
#define CONCERT_TESTS_SUPPORT_FAKE_DAEMON_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "proto/mutex.h"
#include "proto/ring/control_abi.h"
#include "proto/ring/messages.h"

namespace concert::test {

class FakeDaemon {
 public:
  struct Options {
    uint32_t rings = 1;
    uint32_t capacity = 8;
    uint32_t completion_capacity = 8;
    uint32_t user_timelines = 4;
    uint32_t session = 7;
    bool seal = true;
    bool reply = true;  // false: accepts, never answers
    // The last word on the Hello reply, before it is sent.
    std::function<void(concert_hello_reply&)> edit_hello{};
    bool hold_programs = false;                 // registrations are answered by AnswerPrograms only
    std::chrono::milliseconds program_time{0};  // that the answer to a registration takes
  };

  explicit FakeDaemon(Options options);
  FakeDaemon() : FakeDaemon(Options()) {}
  ~FakeDaemon();

  const std::string& path() const { return path_; }

  // As kill -9 does: closes the socket and touches nothing else.
  void Die();
  // Closes the session in an orderly way, with a reason.
  void CloseSession(concert_message message);

  // ---- The dispatcher's end ----
  uint64_t tail(uint32_t ring = 0) const;
  concert_descriptor descriptor(uint64_t position, uint32_t ring = 0) const;
  void Consume(uint64_t head, uint32_t ring = 0);
  void SetSleeping(bool sleeping, uint32_t ring = 0);
  void SetCompany(uint32_t company, uint32_t ring = 0);
  // The eventfd's count since the last call; 0: nobody rang.
  uint64_t Rings(uint32_t ring = 0);
  // Publishes a failure, then raises the timeline, as ring_abi.h orders.
  void Fail(uint32_t queue, uint64_t ticket, concert_status_abi status, concert_message message,
            std::vector<uint64_t> args, uint32_t ring = 0, uint16_t covered = 0);
  uint64_t completion_head(uint32_t ring = 0) const;
  // Raises the timeline and wakes sleepers.
  void Reach(uint32_t queue, uint64_t value);
  // Returns when a client sleeps, or is about to, on the queue's timeline.
  void AwaitSleeper(uint32_t queue) const;
  uint64_t user_timeline(uint32_t index) const;

  // From now on requests are answered when Answer is called: those that were held, in their order,
  // and all that follow.
  void Hold();
  void AwaitHeld(size_t count) const;
  void Answer();

  // How the registrations of programs that come from now on are answered; OK at first.
  void AnswerProgramsWith(concert_status_abi status, uint32_t flags = 0);
  // Waits for one to be held and answers those that are.
  void AnswerPrograms();
  static constexpr uint32_t kFirstProgram = 0x1000;  // the handle of the first

  // The requests seen so far of one type, as raw bytes.
  std::vector<std::vector<char>> Requests(concert_control_type type) const;

 private:
  void Serve();
  void Handle(int client, const std::vector<char>& request) CONCERT_REQUIRES(mutex_);
  void SayHello(int client, const concert_hello& hello);
  void MakeRegions();
  void AnswerProgram(int client, const std::vector<char>& request) CONCERT_REQUIRES(mutex_);
  template <typename T>
  T* Client(uint64_t offset) const {
    return reinterpret_cast<T*>(client_memory_ + offset);
  }
  template <typename T>
  T* Daemon(uint64_t offset) const {
    return reinterpret_cast<T*>(daemon_memory_ + offset);
  }
  concert_ring_state& state(uint32_t ring) const {
    return Daemon<concert_ring_state>(layout_.ring_states_offset)[ring];
  }

  const Options options_;
  std::string directory_, path_;
  int listener_ = -1, stop_ = -1;
  std::atomic<int> connection_{-1};
  concert_layout layout_{};
  int client_fd_ = -1, daemon_fd_ = -1;
  char* client_memory_ = nullptr;
  char* daemon_memory_ = nullptr;
  std::vector<int> eventfds_;
  uint64_t completions_ = 0;
  uint32_t next_queue_ = 0, next_buffer_ = 1, next_communicator_ = 1;
  mutable Mutex mutex_;
  std::vector<std::vector<char>> requests_ CONCERT_GUARDED_BY(mutex_);
  bool holding_ CONCERT_GUARDED_BY(mutex_) = false;
  std::vector<std::vector<char>> held_requests_ CONCERT_GUARDED_BY(mutex_);
  std::vector<std::vector<char>> held_ CONCERT_GUARDED_BY(mutex_);
  uint32_t next_program_ CONCERT_GUARDED_BY(mutex_) = kFirstProgram;
  concert_status_abi program_status_ CONCERT_GUARDED_BY(mutex_) = CONCERT_ABI_OK;
  uint32_t program_flags_ CONCERT_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace concert::test

#endif  // CONCERT_TESTS_SUPPORT_FAKE_DAEMON_H_
