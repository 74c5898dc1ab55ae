// A client that speaks the control protocol and the ring ABI by hand, so that a test can break
// every rule of them. One thread, but for the shared-memory words.
#ifndef CONCERT_TESTS_SUPPORT_RAW_CLIENT_H_
#define CONCERT_TESTS_SUPPORT_RAW_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "proto/ring/control_abi.h"
#include "tests/support/eventually.h"

namespace concert::test {

class RawClient {
 public:
  // Connects, and says nothing.
  explicit RawClient(const std::string& socket_path);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  // --- Control socket ---

  bool connected() const { return socket_ >= 0; }
  int socket() const { return socket_; }
  void Disconnect();
  // False if the daemon has closed its end.
  bool Send(const void* packet, size_t bytes, std::span<const int> fds = {}) const;
  // The next packet; empty once the daemon has closed its end. Fds go to `fds`, else are closed.
  std::vector<char> Receive(std::vector<int>* fds = nullptr) const;
  // Reads until the daemon's end is closed. False if it is not within 30 s.
  bool WaitForHangup() const;
  // Whether something can be received, without waiting for it.
  bool HasAnswer() const;

  template <typename Request>
  static Request Make(uint16_t type) {
    Request request{};
    request.header = {.magic = CONCERT_CONTROL_MAGIC,
                      .type = type,
                      .size = sizeof(Request),
                      .request = 1,
                      .reserved = 0};
    return request;
  }
  template <typename Request>
  bool Send(const Request& request) const {
    return Send(&request, sizeof(request));
  }
  // A reply with status UNAVAILABLE if the daemon hung up instead.
  template <typename Reply, typename Request>
  Reply Call(const Request& request, std::vector<int>* fds = nullptr,
             std::span<const int> sent_fds = {}) const {
    Reply reply{};
    reinterpret_cast<concert_control_reply&>(reply).status = CONCERT_ABI_UNAVAILABLE;
    if (!Send(&request, sizeof(request), sent_fds)) return reply;
    const std::vector<char> packet = Receive(fds);
    if (packet.size() == sizeof(reply)) Copy(packet, &reply, sizeof(reply));
    return reply;
  }

  // Hello for a ring on GPU 0; maps the regions. False if it was refused.
  bool Hello();
  uint32_t session() const { return session_; }
  uint32_t CreateQueue() const;
  uint32_t AllocateBuffer(uint64_t bytes) const;
  uint32_t ReleaseBuffer(uint32_t buffer) const;  // status
  uint32_t Join(const std::string& name, uint32_t rank, uint32_t ranks) const;
  // Of a file that may hold anything; and of what such a file should hold.
  concert_program_reply CreateProgram(int fd, uint32_t gpu, uint32_t slots, uint32_t ops,
                                      uint32_t flags = 0) const;
  concert_program_reply CreateProgram(std::span<const concert_program_slot> slots,
                                      std::span<const concert_descriptor> ops,
                                      uint32_t flags = 0) const;

  // --- The ring ---

  const concert_layout& layout() const { return layout_; }
  uint32_t capacity() const { return layout_.rings[0].capacity; }
  std::span<char> client_region() const { return {client_, layout_.client_bytes}; }
  const concert_session_page& page() const {
    return *reinterpret_cast<const concert_session_page*>(daemon_);
  }
  concert_descriptor& slot(uint64_t position) const;
  int event_fd() const { return event_fd_; }
  uint64_t head() const;
  uint64_t timeline(uint32_t queue) const;
  void SetUserTimeline(uint32_t index, uint64_t value) const;
  void SetTail(uint64_t tail);
  void SetCompletionHead(uint64_t head) const;
  uint64_t completion_tail() const;
  // How many threads claim to sleep on the queue's timeline.
  void SetWaiters(uint32_t queue, uint32_t count) const;
  uint64_t tail() const { return tail_; }
  void Wake() const;

  // Gives it the right sequence and publishes it. Waits for room; false if the session was closed
  // meanwhile.
  bool Push(concert_descriptor descriptor);
  // The next entry of the completion ring, if there is one.
  std::optional<concert_completion> NextCompletion();
  bool WaitForTimeline(uint32_t queue, uint64_t value) const;
  // Waits until the session page says CLOSED, and renders why. Empty if that does not come.
  std::string WaitForClosed() const;

 private:
  static void Copy(const std::vector<char>& from, void* to, size_t bytes);

  int socket_ = -1, event_fd_ = -1;
  uint32_t session_ = 0;
  concert_layout layout_{};
  char* client_ = nullptr;
  char* daemon_ = nullptr;
  uint64_t tail_ = 0, completion_head_ = 0;
};

std::string Render(const concert_completion& completion);

}  // namespace concert::test

#endif  // CONCERT_TESTS_SUPPORT_RAW_CLIENT_H_
