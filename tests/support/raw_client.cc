#include "tests/support/raw_client.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>

#include "proto/ring/messages.h"

namespace concert::test {
namespace {

constexpr int kPatienceMs = std::chrono::milliseconds(kPatience).count();
constexpr size_t kMaxFds = 64;

bool IsReadable(int socket, int timeout_ms) {
  pollfd readable{.fd = socket, .events = POLLIN, .revents = 0};
  return poll(&readable, 1, timeout_ms) == 1;
}

template <typename T>
T Load(const T& word) {
  return std::atomic_ref<T>(const_cast<T&>(word)).load(std::memory_order_acquire);
}

std::string Render(uint32_t message, const uint64_t (&args)[5]) {
  char sentence[512];
  return {sentence, concert_render_message(message, args, sentence, sizeof(sentence))};
}

}  // namespace

std::string Render(const concert_completion& completion) {
  return Render(completion.message, completion.args);
}

RawClient::RawClient(const std::string& socket_path)
    : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket_path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    Disconnect();
  }
}

RawClient::~RawClient() {
  Disconnect();
  if (event_fd_ >= 0) close(event_fd_);
  if (client_ != nullptr) munmap(client_, layout_.client_bytes);
  if (daemon_ != nullptr) munmap(daemon_, layout_.daemon_bytes);
}

void RawClient::Disconnect() {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
}

bool RawClient::Send(const void* packet, size_t bytes, std::span<const int> fds) const {
  iovec data{const_cast<void*>(packet), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(part), fds.data(), fds.size_bytes());
  }
  return sendmsg(socket_, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
}

std::vector<char> RawClient::Receive(std::vector<int>* fds) const {
  std::vector<char> packet(8192);
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
  iovec data{packet.data(), packet.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (!IsReadable(socket_, kPatienceMs)) return {};
  const ssize_t size = recvmsg(socket_, &message, MSG_CMSG_CLOEXEC);
  for (cmsghdr* part = size > 0 ? CMSG_FIRSTHDR(&message) : nullptr; part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    std::vector<int> received((part->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(received.data(), CMSG_DATA(part), received.size() * sizeof(int));
    for (const int fd : received) {
      if (fds != nullptr) {
        fds->push_back(fd);
      } else {
        close(fd);
      }
    }
  }
  packet.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return packet;
}

bool RawClient::WaitForHangup() const {
  while (IsReadable(socket_, kPatienceMs)) {
    if (Receive().empty()) return true;
  }
  return false;
}

bool RawClient::HasAnswer() const { return IsReadable(socket_, 0); }

void RawClient::Copy(const std::vector<char>& from, void* to, size_t bytes) {
  std::memcpy(to, from.data(), bytes);
}

bool RawClient::Hello() {
  auto hello = Make<concert_hello>(CONCERT_CONTROL_HELLO);
  hello.abi_major = CONCERT_ABI_MAJOR;
  hello.abi_minor = CONCERT_ABI_MINOR;
  hello.features = CONCERT_FEATURE_HOST_MEMORY | CONCERT_OP_FEATURES;
  hello.gpu_mask = 1;
  std::strcpy(hello.client_name, "raw");
  std::vector<int> fds;
  const auto reply = Call<concert_hello_reply>(hello, &fds);
  if (reply.reply.status == CONCERT_ABI_OK && fds.size() == 3) {
    session_ = reply.session;
    layout_ = reply.layout;
    client_ = static_cast<char*>(
        mmap(nullptr, layout_.client_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0));
    daemon_ =
        static_cast<char*>(mmap(nullptr, layout_.daemon_bytes, PROT_READ, MAP_SHARED, fds[1], 0));
    event_fd_ = fds.back();
    fds.pop_back();
  }
  for (const int fd : fds) close(fd);
  return session_ != 0;
}

uint32_t RawClient::CreateQueue() const {
  return Call<concert_create_queue_reply>(Make<concert_create_queue>(CONCERT_CONTROL_CREATE_QUEUE))
      .queue;
}

uint32_t RawClient::AllocateBuffer(uint64_t bytes) const {
  auto request = Make<concert_allocate_buffer>(CONCERT_CONTROL_ALLOCATE_BUFFER);
  request.bytes = bytes;
  return Call<concert_buffer_reply>(request).buffer;
}

uint32_t RawClient::ReleaseBuffer(uint32_t buffer) const {
  auto request = Make<concert_release_buffer>(CONCERT_CONTROL_RELEASE_BUFFER);
  request.buffer = buffer;
  return Call<concert_control_reply>(request).status;
}

uint32_t RawClient::Join(const std::string& name, uint32_t rank, uint32_t ranks) const {
  auto request = Make<concert_join_communicator>(CONCERT_CONTROL_JOIN_COMMUNICATOR);
  request.rank = rank;
  request.ranks = ranks;
  name.copy(request.name, sizeof(request.name));
  return Call<concert_join_communicator_reply>(request).communicator;
}

concert_program_reply RawClient::CreateProgram(int fd, uint32_t gpu, uint32_t slots, uint32_t ops,
                                               uint32_t flags) const {
  auto request = Make<concert_create_program>(CONCERT_CONTROL_CREATE_PROGRAM);
  request.gpu = gpu;
  request.slot_count = slots;
  request.op_count = ops;
  request.flags = flags;
  return Call<concert_program_reply>(request, nullptr, {&fd, 1});
}

concert_program_reply RawClient::CreateProgram(std::span<const concert_program_slot> slots,
                                               std::span<const concert_descriptor> ops,
                                               uint32_t flags) const {
  const int fd = memfd_create("program", MFD_CLOEXEC);
  concert_program_reply reply{};
  if (write(fd, slots.data(), slots.size_bytes()) == static_cast<ssize_t>(slots.size_bytes()) &&
      write(fd, ops.data(), ops.size_bytes()) == static_cast<ssize_t>(ops.size_bytes())) {
    reply = CreateProgram(fd, 0, static_cast<uint32_t>(slots.size()),
                          static_cast<uint32_t>(ops.size()), flags);
  }
  close(fd);
  return reply;
}

concert_descriptor& RawClient::slot(uint64_t position) const {
  const uint64_t index = position & (layout_.rings[0].capacity - 1);
  return reinterpret_cast<concert_descriptor*>(client_ +
                                               layout_.rings[0].descriptors_offset)[index];
}

uint64_t RawClient::head() const {
  return Load(
      reinterpret_cast<const concert_ring_state*>(daemon_ + layout_.ring_states_offset)->head);
}

uint64_t RawClient::timeline(uint32_t queue) const {
  return Load(
      reinterpret_cast<const concert_timeline*>(daemon_ + layout_.timelines_offset)[queue].value);
}

void RawClient::SetUserTimeline(uint32_t index, uint64_t value) const {
  auto* timelines = reinterpret_cast<concert_timeline*>(client_ + layout_.user_timelines_offset);
  std::atomic_ref(timelines[index].value).store(value, std::memory_order_release);
}

void RawClient::SetTail(uint64_t tail) {
  tail_ = tail;
  auto* control = reinterpret_cast<concert_submit_control*>(client_);
  std::atomic_ref(control->tail).store(tail, std::memory_order_release);
  Wake();
}

void RawClient::SetCompletionHead(uint64_t head) const {
  auto* control = reinterpret_cast<concert_submit_control*>(client_);
  std::atomic_ref(control->completion_head).store(head, std::memory_order_release);
}

uint64_t RawClient::completion_tail() const {
  return Load(reinterpret_cast<const concert_ring_state*>(daemon_ + layout_.ring_states_offset)
                  ->completion_tail);
}

void RawClient::SetWaiters(uint32_t queue, uint32_t count) const {
  auto* waiters = reinterpret_cast<uint32_t*>(client_ + layout_.waiters_offset);
  std::atomic_ref(waiters[queue]).store(count, std::memory_order_seq_cst);
}

void RawClient::Wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_fd_, &one, sizeof(one));
}

bool RawClient::Push(concert_descriptor descriptor) {
  const bool room = Eventually(
      [&] { return tail_ - head() < capacity() || Load(page().state) == CONCERT_SESSION_CLOSED; });
  if (!room || Load(page().state) == CONCERT_SESSION_CLOSED) return false;
  descriptor.sequence = tail_ + 1;
  slot(tail_) = descriptor;
  SetTail(tail_ + 1);
  return true;
}

std::optional<concert_completion> RawClient::NextCompletion() {
  if (completion_tail() == completion_head_) return std::nullopt;
  const auto* entries =
      reinterpret_cast<const concert_completion*>(daemon_ + layout_.rings[0].completions_offset);
  const concert_completion entry =
      entries[completion_head_ & (layout_.rings[0].completion_capacity - 1)];
  SetCompletionHead(++completion_head_);
  return entry;
}

bool RawClient::WaitForTimeline(uint32_t queue, uint64_t value) const {
  return Eventually([&] { return timeline(queue) >= value; });
}

std::string RawClient::WaitForClosed() const {
  if (!Eventually([&] { return Load(page().state) == CONCERT_SESSION_CLOSED; })) return "";
  return Render(page().close_message, page().close_args);
}

}  // namespace concert::test
