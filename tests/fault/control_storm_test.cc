// Clients that ask for everything that there is, in any order, and go at any point of it.
//
// CONCERT_TEST_REPETITIONS says how many clients there are.
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "daemon/quota/resource.h"
#include "tests/fault/fault_fixture.h"
#include "tests/support/repetitions.h"
#include "tests/support/seed.h"

namespace concert::test {
namespace {

using daemon::Resource;

constexpr uint64_t kWeightBytes = 64 * 64 * 4;
constexpr uint32_t kGenerationBits = 20;

// One client's life. Of what it sends without waiting for the answer it knows no handle, so that it
// also names what may be there.
class Life {
 public:
  Life(const std::string& socket, uint32_t seed) : random_(seed), client_(socket) {}

  void Live() {
    if (!client_.connected() || !client_.Hello()) return;
    const uint32_t patience = Below(4);  // 0: it reads no reply
    for (uint32_t steps = Below(40); steps > 0; --steps) {
      awaits_ = patience > 0 && Below(4) < patience;
      if (!Step()) return;
    }
    Go();
  }

 private:
  uint32_t Below(size_t bound) { return static_cast<uint32_t>(random_() % bound); }
  // Of a buffer or program that may be there.
  uint32_t Handle() {
    if (!handles_.empty() && Below(4) > 0) return handles_[Below(handles_.size())];
    return Below(8) / 7 << kGenerationBits | (1 + Below(5));
  }

  template <typename Request>
  bool Ask(const Request& request, std::span<const int> fds = {}) {
    // As many as the socket holds: a client that waits in send would wait for itself.
    if (!client_.Send(&request, sizeof(request), fds)) return false;
    if (!awaits_) return ++unread_ < 10;
    for (++unread_; unread_ > 0; --unread_) {
      if (!Learn(client_.Receive())) return false;
    }
    return true;
  }

  // False if there is no reply.
  bool Learn(const std::vector<char>& packet) {
    if (packet.size() < sizeof(concert_control_reply)) return false;
    const auto* reply = reinterpret_cast<const concert_control_reply*>(packet.data());
    if (reply->status != CONCERT_ABI_OK || packet.size() == sizeof(*reply)) return true;
    uint32_t handle;  // behind the head of each reply that has one
    std::memcpy(&handle, packet.data() + sizeof(*reply), sizeof(handle));
    if (reply->header.type == CONCERT_CONTROL_JOIN_COMMUNICATOR) {
      communicators_.push_back(handle);
    } else if (reply->header.type != CONCERT_CONTROL_CREATE_QUEUE) {
      handles_.push_back(handle);
    }
    return true;
  }

  bool Step() {
    switch (Below(12)) {
      case 0: {
        auto request = RawClient::Make<concert_create_queue>(CONCERT_CONTROL_CREATE_QUEUE);
        request.priority = static_cast<int32_t>(Below(3)) - 1;
        return Ask(request);
      }
      case 1: {
        auto request = RawClient::Make<concert_destroy_queue>(CONCERT_CONTROL_DESTROY_QUEUE);
        request.queue = Below(4);
        return Ask(request);
      }
      case 2:
      case 3: {
        auto request = RawClient::Make<concert_allocate_buffer>(CONCERT_CONTROL_ALLOCATE_BUFFER);
        request.bytes = kWeightBytes;
        return Ask(request);
      }
      case 4: {
        auto request = RawClient::Make<concert_release_buffer>(CONCERT_CONTROL_RELEASE_BUFFER);
        request.buffer = Handle();
        return Ask(request);
      }
      case 5:
      case 6: {
        auto request = RawClient::Make<concert_seal_buffer>(CONCERT_CONTROL_SEAL_BUFFER);
        request.buffer = Handle();
        return Ask(request);
      }
      case 7:
      case 8:
        return AskForProgram();
      case 9: {
        auto request =
            RawClient::Make<concert_join_communicator>(CONCERT_CONTROL_JOIN_COMMUNICATOR);
        request.ranks = 1 + Below(3);
        request.rank = Below(request.ranks);
        request.name[0] = static_cast<char>('a' + Below(3));
        return Ask(request);
      }
      case 10: {
        auto request =
            RawClient::Make<concert_leave_communicator>(CONCERT_CONTROL_LEAVE_COMMUNICATOR);
        request.communicator = communicators_.empty() ? 1 << 8 : communicators_.back();
        return Ask(request);
      }
      default:
        Submit();
        return true;
    }
  }

  // A GEMM of a binding with weights that others may have sealed, too.
  bool AskForProgram() {
    std::array<concert_program_slot, 2> slots{};
    for (concert_program_slot& slot : slots)
      slot = {.role = CONCERT_SLOT_BINDING, .reserved = 0, .bytes = 4 * 64 * 4};
    concert_descriptor op = MakeGemm();
    op.body.gemm.a.buffer = CONCERT_SLOT_HANDLE(0);
    op.body.gemm.d.buffer = CONCERT_SLOT_HANDLE(1);
    auto request = RawClient::Make<concert_create_program>(CONCERT_CONTROL_CREATE_PROGRAM);
    request.slot_count = 2;
    request.op_count = 1 + Below(2);
    const int fd = memfd_create("program", MFD_CLOEXEC);
    bool sent = write(fd, slots.data(), sizeof(slots)) == sizeof(slots);
    for (uint32_t i = 0; i < request.op_count; ++i)
      sent = sent && write(fd, &op, sizeof(op)) == sizeof(op);
    sent = sent && Ask(request, {&fd, 1});
    close(fd);
    return sent;
  }

  concert_descriptor MakeGemm() {
    concert_descriptor op{};
    op.kind = CONCERT_OP_GEMM;
    concert_gemm_body& gemm = op.body.gemm;
    gemm.m = 4, gemm.n = 64, gemm.k = 64;
    gemm.batch = 1;
    gemm.alpha = 1;
    gemm.dtype = CONCERT_ABI_FP32;
    gemm.lda = gemm.ldw = gemm.ldd = 64;
    gemm.a.buffer = Handle();
    gemm.w.buffer = Handle();
    gemm.d.buffer = Handle();
    return op;
  }

  // Mostly of a queue that is there and in its order.
  void Submit() {
    concert_descriptor op = MakeGemm();
    if (Below(2) == 0) {
      op = {};
      op.kind = CONCERT_OP_PROGRAM;
      op.body.program.program = Handle();
      op.body.program.binding_count = 2;
      op.body.program.bindings[0].buffer = Handle();
      op.body.program.bindings[1].buffer = Handle();
    }
    const uint32_t queue = Below(3);
    op.queue = static_cast<uint16_t>(queue);
    op.ticket = ++tickets_[queue];
    if (client_.tail() - client_.head() < client_.capacity()) client_.Push(op);
  }

  // As a process that is killed, or that shuts its socket first.
  void Go() {
    const int how[] = {SHUT_RD, SHUT_WR, SHUT_RDWR};
    if (const uint32_t one = Below(6); one < 3) shutdown(client_.socket(), how[one]);
  }

  std::mt19937 random_;
  RawClient client_;
  bool awaits_ = false;
  int unread_ = 0;
  std::vector<uint32_t> handles_, communicators_;
  std::array<uint64_t, 3> tickets_{};
};

class ControlStormTest : public FaultTest {
 protected:
  ControlStormTest() : FaultTest({.gpus = 1}) {}
};

TEST_F(ControlStormTest, ClientsThatGoAtAnyPointLeaveNothing) {
  const uint32_t seed = test::Seed(), lives = test::Repetitions(2'000);
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::atomic<uint32_t> next{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 6; ++i) {
      threads.emplace_back([&] {
        for (uint32_t life; (life = next++) < lives;) Life(daemon_.socket(), seed + life).Live();
      });
    }
  }
  EXPECT_TRUE(healthy_->Progresses());
  EXPECT_EQ(healthy_->Stop(), "");
  healthy_.reset();
  EXPECT_TRUE(daemon_.WaitUntilEmpty());
  const daemon::Usage& used = daemon_.engine().accounts().node();
  for (const daemon::ResourceInfo& info : daemon::AllResources()) {
    EXPECT_TRUE(Eventually([&] { return used.of(info.resource) == 0; }))
        << info.name << ": " << used.of(info.resource);
  }
  EXPECT_EQ(daemon_.server().sealed_bytes(0).held, 0u);
  EXPECT_EQ(daemon_.server().sealed_bytes(0).saved, 0u);
}

}  // namespace
}  // namespace concert::test
