// Attacks through sealing. What an attacker makes of its own contents is its own business; it
// complains of refusals that say too little and of sealed contents that change.
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <iterator>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/digest/digest.h"
#include "tests/fault/hostile/hostile_session.h"
#include "tests/fault/hostile/mode.h"

namespace concert::test {
namespace {

constexpr uint64_t kContestedBytes = kContestedWords * sizeof(uint64_t);
constexpr uint64_t kSmallSeal_bytes = 4096;

// A buffer that the daemon made, as its client has it: also when it is sealed, for as long as this
// is there. No handle if it was refused.
class Mapped {
 public:
  Mapped(const RawClient& client, uint64_t bytes) : bytes_(bytes) {
    auto allocate = RawClient::Make<concert_allocate_buffer>(CONCERT_CONTROL_ALLOCATE_BUFFER);
    allocate.bytes = bytes;
    std::vector<int> fds;
    handle_ = client.Call<concert_buffer_reply>(allocate, &fds).buffer;
    if (fds.size() == 1) {
      void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
      if (data != MAP_FAILED) words_ = static_cast<volatile uint64_t*>(data);
    }
    for (const int fd : fds) close(fd);
  }
  ~Mapped() {
    if (words_ != nullptr) munmap(const_cast<uint64_t*>(words_), bytes_);
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

  bool ok() const { return words_ != nullptr; }
  uint32_t handle() const { return handle_; }
  std::span<volatile uint64_t> words() const { return {words_, bytes_ / sizeof(uint64_t)}; }
  void Fill(uint64_t contents) const {
    for (uint64_t i = 0; i < words().size(); ++i) words()[i] = ContestedWord(contents, i);
  }
  std::vector<uint64_t> Read() const { return {words().begin(), words().end()}; }

 private:
  const uint64_t bytes_;
  uint32_t handle_ = 0;
  volatile uint64_t* words_ = nullptr;
};

// Complains unless sealing that is refused, with a sentence that says why and what to do.
void ExpectRefused(const RawClient& client, uint32_t buffer, uint32_t status,
                   const std::string& why, const std::string& remedy, uint32_t reserved = 0) {
  concert_seal_buffer seal = MakeSeal(buffer);
  seal.reserved = reserved;
  const auto reply = client.Call<concert_buffer_reply>(seal);
  const std::string said = reply.reply.message;
  const auto says = [&](const std::string& part) { return said.find(part) != said.npos; };
  if (reply.reply.status != status || reply.buffer != 0 || !says(why) || !says("; " + remedy)) {
    Complain("sealing " + std::to_string(buffer) + ", which " + why + ": status " +
             std::to_string(reply.reply.status) + ", " + said);
  }
}

// What DigestOfWord makes this of: each of its steps can be undone, which is why nobody may rely on
// its digests.
uint64_t WordOfDigest(uint64_t digest, uint64_t index) {
  const auto inverse = [](uint64_t odd) {  // modulo 2^64, by Newton
    uint64_t result = odd;
    for (int i = 0; i < 6; ++i) result *= 2 - odd * result;
    return result;
  };
  const auto unshift = [](uint64_t mixed, int bits) {
    uint64_t word = mixed;
    for (int known = bits; known < 64; known += bits) word = mixed ^ (word >> bits);
    return word;
  };
  uint64_t word = unshift(digest, 31) * inverse(0x94d049bb133111eb);
  word = unshift(word, 27) * inverse(0xbf58476d1ce4e5b9);
  return unshift(word, 30) - (index + 1) * 0x9e3779b97f4a7c15;
}

// One session's, with a queue. Whatever a step makes it gives back, but for the last kKept sealed
// buffers, so that what it has made of contents is there when others seal theirs.
class Sealer {
 public:
  Sealer(HostileSession& session, uint32_t seed) : session_(session), random_(seed) {}

  // Seals what it may not.
  void SealOthers(const Orders& orders);
  void SealTwice();
  void SealInPrograms();
  // While ops that write it wait, and while they run.
  void SealUnderOps();
  // While it writes it itself.
  void SealAndWrite();
  // Many that are equal in their digests and not in their contents.
  void SealCollisions();
  // Many that are equal, of small buffers: as many as its user may have if that is less.
  void SealEquals(int count);

 private:
  static constexpr size_t kKept = 80;  // more than the daemon compares of one digest

  RawClient& client() { return session_.client(); }
  // The sealed buffer's handle; 0 if there was no room for it. Complains of any other refusal.
  uint32_t Seal(uint32_t buffer);
  uint32_t Answer(const concert_buffer_reply& reply);
  void Copy(uint32_t from, uint32_t to, uint64_t bytes, bool wait);
  bool Idle() {
    return Eventually([&] { return session_.Unfinished(0) == 0 || session_.Closed(); });
  }
  // What ops read there.
  std::vector<uint64_t> Read(uint32_t buffer, const Mapped& out);
  void Keep(uint32_t sealed);

  HostileSession& session_;
  std::mt19937 random_;
  std::deque<uint32_t> kept_;
  uint64_t signalled_ = 0;  // of user timeline 0
};

uint32_t Sealer::Answer(const concert_buffer_reply& reply) {
  if (reply.reply.status == CONCERT_ABI_OK) return reply.buffer;
  const std::string said = reply.reply.message;
  if (reply.reply.status != CONCERT_ABI_RESOURCE_EXHAUSTED || said.find(';') == said.npos)
    Complain("a buffer of the session's own is not sealed: " + said);
  return 0;
}

uint32_t Sealer::Seal(uint32_t buffer) {
  return Answer(client().Call<concert_buffer_reply>(MakeSeal(buffer)));
}

void Sealer::Copy(uint32_t from, uint32_t to, uint64_t bytes, bool wait) {
  concert_descriptor copy{};
  copy.kind = CONCERT_OP_COPY;
  copy.body.copy.src.buffer = from;
  copy.body.copy.dst.buffer = to;
  copy.body.copy.bytes = bytes;
  if (wait) {
    copy.wait_count = 1;
    copy.waits[0] = {CONCERT_TIMELINE_ID(session_.id(), CONCERT_TIMELINE_USER), signalled_ + 1};
  }
  session_.Stage(0, copy);
  session_.Publish();
}

std::vector<uint64_t> Sealer::Read(uint32_t buffer, const Mapped& out) {
  for (volatile uint64_t& word : out.words()) word = 0;
  Copy(buffer, out.handle(), out.words().size_bytes(), /*wait=*/false);
  Idle();
  return out.Read();
}

void Sealer::Keep(uint32_t sealed) {
  if (sealed != 0) kept_.push_back(sealed);
  if (kept_.size() <= kKept) return;
  client().ReleaseBuffer(kept_.front());
  kept_.pop_front();
}

void Sealer::SealOthers(const Orders& orders) {
  // A new session has no handle yet; of the user's old one it knows some that it may not use.
  RawClient stranger(orders.socket);
  if (!stranger.connected() || !stranger.Hello()) return;
  std::vector<uint32_t> handles = session_.Allocate(2, kSmallSeal_bytes);
  const std::vector<uint32_t> own = handles;
  const uint32_t released = stranger.AllocateBuffer(kSmallSeal_bytes);
  stranger.ReleaseBuffer(released);
  handles.push_back(released);
  handles.insert(handles.end(),
                 {0, ~0u, 1u << 20, CONCERT_SLOT_HANDLE(0), CONCERT_SLOT_HANDLE(1023)});
  for (const uint32_t handle : handles) {
    ExpectRefused(stranger, handle, CONCERT_ABI_NOT_FOUND,
                  "buffer " + std::to_string(handle) + " is not a buffer of this session",
                  "name one that it has");
  }
  session_.Release(own);
}

void Sealer::SealTwice() {
  const std::vector<uint32_t> own = session_.Allocate(1, kSmallSeal_bytes);
  if (own.empty()) return;
  const std::string name = "buffer " + std::to_string(own[0]);
  ExpectRefused(client(), own[0], CONCERT_ABI_INVALID_ARGUMENT, "reserved of the request is 5",
                "it must be 0", 5);
  const uint32_t sealed = Seal(own[0]);
  if (sealed == 0) return session_.Release(own);
  ExpectRefused(client(), own[0], CONCERT_ABI_NOT_FOUND, name + " is not a buffer of this session",
                "name one that it has");
  ExpectRefused(client(), sealed, CONCERT_ABI_FAILED_PRECONDITION,
                "buffer " + std::to_string(sealed) + " is sealed already", "seal it once");
  session_.Release({sealed});
}

void Sealer::SealInPrograms() {
  const std::vector<uint32_t> own = session_.Allocate(1, kSmallSeal_bytes);
  if (own.empty()) return;
  const concert_descriptor copy = MakeCopy(own[0]);
  const concert_program_reply program = client().CreateProgram({}, {&copy, 1});
  if (program.reply.status == CONCERT_ABI_OK) {
    ExpectRefused(client(), program.program, CONCERT_ABI_INVALID_ARGUMENT,
                  "buffer " + std::to_string(program.program) + " is a program",
                  "only memory can be sealed");
    ExpectRefused(client(), own[0], CONCERT_ABI_FAILED_PRECONDITION,
                  "buffer " + std::to_string(own[0]) + " is used by 1 program",
                  "seal weights before the programs that use them are registered");
    session_.Release({program.program});
  }
  session_.Release(own);
}

void Sealer::SealUnderOps() {
  const Mapped from(client(), kContestedBytes), out(client(), kContestedBytes);
  for (const bool wait : {true, false}) {
    const Mapped written(client(), kContestedBytes);
    if (!from.ok() || !out.ok() || !written.ok()) break;
    from.Fill(1);
    written.Fill(2);
    const std::vector<uint64_t> before = written.Read();
    Copy(from.handle(), written.handle(), kContestedBytes, wait);
    const uint32_t sealed = Seal(written.handle());
    client().SetUserTimeline(0, ++signalled_);
    client().Wake();
    Idle();
    if (sealed == 0) {
      session_.Release({written.handle()});
      continue;
    }
    const std::vector<uint64_t> contents = Read(sealed, out);
    if (wait && contents != before) Complain("an op that ran later wrote what was sealed");
    Copy(from.handle(), sealed, kContestedBytes, /*wait=*/false);  // refused
    if (Idle() && Read(sealed, out) != contents) Complain("an op wrote a sealed buffer");
    Keep(sealed);
  }
  session_.Release({from.handle(), out.handle()});
}

void Sealer::SealAndWrite() {
  const Mapped own(client(), kContestedBytes), out(client(), kContestedBytes);
  if (own.ok() && out.ok()) {
    const uint64_t contents = random_();
    own.Fill(contents);
    client().Send(MakeSeal(own.handle()));
    // Where the daemon may be reading, and back, so that what it compares may be equal.
    while (!client().HasAnswer()) {
      volatile uint64_t& word = own.words()[random_() % kContestedWords];
      const uint64_t was = word;
      word = ~was;
      if (random_() % 2 == 0) word = was;
    }
    const std::vector<char> packet = client().Receive();
    concert_buffer_reply reply{};
    if (packet.size() == sizeof(reply))
      std::copy_n(packet.data(), sizeof(reply), reinterpret_cast<char*>(&reply));
    if (const uint32_t sealed = Answer(reply); sealed != 0) {
      const std::vector<uint64_t> first = Read(sealed, out);
      own.Fill(contents + 1);
      if (Read(sealed, out) != first) Complain("who writes its old memory writes what is sealed");
      Keep(sealed);
    }
  }
  session_.Release({own.handle(), out.handle()});
}

void Sealer::SealCollisions() {
  constexpr uint64_t kLast = kContestedWords - 1;
  const uint64_t contents = random_();
  for (size_t i = 0; i < kKept; ++i) {
    const Mapped own(client(), kContestedBytes);
    if (!own.ok()) return;
    own.Fill(contents);
    // At the end, so that all before it is compared.
    volatile uint64_t &before = own.words()[kLast - 1], &last = own.words()[kLast];
    const uint64_t sum =
        kernels::DigestOfWord(before, kLast - 1) + kernels::DigestOfWord(last, kLast);
    before = before + i + 1;
    last = WordOfDigest(sum - kernels::DigestOfWord(before, kLast - 1), kLast);
    const uint32_t sealed = Seal(own.handle());
    if (sealed == 0) session_.Release({own.handle()});
    Keep(sealed);
  }
}

void Sealer::SealEquals(int count) {
  std::vector<uint32_t> held;
  for (int left = count; left > 0; left -= 256) {
    const std::vector<uint32_t> buffers = session_.Allocate(256, kSmallSeal_bytes);
    const std::vector<uint32_t> sealed = session_.Seal(buffers);
    std::copy_if(sealed.begin(), sealed.end(), std::back_inserter(held),
                 [](uint32_t handle) { return handle != 0; });
    const auto refused = std::find(sealed.begin(), sealed.end(), 0u);
    if (refused == sealed.end() && buffers.size() == 256) continue;
    // Its user may have no more, and is told so. What was sealed has another handle.
    if (refused != sealed.end()) held.push_back(Seal(buffers[refused - sealed.begin()]));
    session_.Release(buffers);
    break;
  }
  session_.Release(held);
}

// Packets that are none. Each costs its session.
void SendMalformed(const Orders& orders) {
  struct Packet {
    concert_seal_buffer seal;
    char more[8];
  };
  const auto broken = [&](const char* what, const auto& send) {
    RawClient client(orders.socket);
    if (!client.connected() || !client.Hello()) return;
    Packet packet{MakeSeal(client.AllocateBuffer(kSmallSeal_bytes)), {}};
    send(client, packet);
    if (client.WaitForClosed().empty() || !client.WaitForHangup())
      Complain(std::string("the daemon goes on with a client whose packet has ") + what);
  };
  for (const size_t bytes : {sizeof(concert_seal_buffer) - 4, sizeof(Packet)}) {
    broken("another size", [&](const RawClient& client, Packet& packet) {
      packet.seal.header.size = static_cast<uint16_t>(bytes);
      client.Send(&packet, bytes);
    });
  }
  broken("a size that is not its own", [](const RawClient& client, Packet& packet) {
    packet.seal.header.size += 8;
    client.Send(packet.seal);
  });
  broken("another magic", [](const RawClient& client, Packet& packet) {
    packet.seal.header.magic ^= 1;
    client.Send(packet.seal);
  });
  broken("an unknown type", [](const RawClient& client, Packet& packet) {
    packet.seal.header.type = 0xfff;
    client.Send(packet.seal);
  });
  broken("a descriptor that nobody asked for", [](const RawClient& client, Packet& packet) {
    const int fd = STDOUT_FILENO;
    client.Send(&packet.seal, sizeof(packet.seal), {&fd, 1});
  });
}

// A client that dies while it seals.
void SealAndDie(const Orders& orders, useconds_t life_us) {
  const pid_t child = fork();
  if (child < 0) return;
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const std::unique_ptr<HostileSession> session = HostileSession::Open(orders.socket, 0);
    while (session != nullptr && !orders.Over()) {
      const Mapped own(session->client(), kContestedBytes);
      if (!own.ok()) break;
      own.Fill(own.handle());
      session->client().Send(MakeSeal(own.handle()));
      if (session->client().Receive().empty()) break;
    }
    _exit(0);
  }
  usleep(life_us);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

// From all sessions at once, as much as they may ask for at once.
void SealEverywhere(const HostileSessions& sessions) {
  constexpr int kAtOnce = 2;
  constexpr uint64_t kLarge_bytes = uint64_t{1} << 20;
  std::vector<std::vector<uint32_t>> buffers;
  for (const auto& session : sessions) buffers.push_back(session->Allocate(kAtOnce, kLarge_bytes));
  for (size_t i = 0; i < sessions.size(); ++i) {
    for (const uint32_t buffer : buffers[i]) sessions[i]->client().Send(MakeSeal(buffer));
  }
  for (size_t i = 0; i < sessions.size(); ++i) {
    for (uint32_t& buffer : buffers[i]) {
      const std::vector<char> packet = sessions[i]->client().Receive();
      if (packet.size() != sizeof(concert_buffer_reply)) continue;
      const auto& reply = *reinterpret_cast<const concert_buffer_reply*>(packet.data());
      if (reply.reply.status == CONCERT_ABI_OK) buffer = reply.buffer;
    }
    sessions[i]->Release(buffers[i]);
  }
}

}  // namespace

int Seal(const Orders& orders) {
  constexpr int kMany = 5'000, kSome = 512;
  constexpr useconds_t kLongestLife_us = 4'000;
  const HostileSessions sessions = OpenSessions(orders, 1);
  if (sessions.empty()) return 1;
  std::mt19937 random(sessions[0]->id());
  Sealer sealer(*sessions[0], random());
  const std::array<std::function<void()>, 8> steps = {
      [&] { sealer.SealOthers(orders); }, [&] { sealer.SealTwice(); },
      [&] { sealer.SealInPrograms(); },   [&] { sealer.SealUnderOps(); },
      [&] { sealer.SealAndWrite(); },     [&] { sealer.SealCollisions(); },
      [&] { SendMalformed(orders); },     [&] { SealAndDie(orders, random() % kLongestLife_us); }};
  // All of it once at least, whatever the time is that others are measured for.
  sealer.SealEquals(kMany);
  for (const auto& step : steps) step();
  SayReady();
  for (size_t i = 0; !orders.Over(); ++i) {
    SealEverywhere(sessions);
    for (int again = 0; again < 8; ++again) sealer.SealAndWrite();
    steps[i % steps.size()]();
    if (i % steps.size() == 0) sealer.SealEquals(kSome);
  }
  return 0;
}

}  // namespace concert::test
