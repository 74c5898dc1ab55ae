#include "tests/fault/child.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "client/include/concert/concert.hpp"
#include "tests/fault/program_child.h"
#include "tests/support/raw_client.h"

namespace concert::test {
namespace {

constexpr uid_t kSomebodyElse = 65534;

void BeSomebodyElse() {
  if (setgid(kSomebodyElse) != 0 || setuid(kSomebodyElse) != 0) _exit(100);
}

// As another user, takes a bit of everything and gets it. 0, or which step failed.
int Bystander(const std::string& socket) {
  BeSomebodyElse();
  RawClient client(socket);
  if (!client.Hello()) return 101;
  concert_descriptor descriptor{};
  descriptor.queue = client.CreateQueue();
  descriptor.ticket = 1;
  descriptor.kind = CONCERT_OP_COPY;
  const uint32_t buffer = client.AllocateBuffer(64);
  if (buffer == 0) return 102;
  descriptor.body.copy.src = {buffer, 0, 0};
  descriptor.body.copy.dst = {buffer, 0, 32};
  descriptor.body.copy.bytes = 32;
  descriptor.wait_count = 1;
  descriptor.waits[0] = {CONCERT_TIMELINE_ID(client.session(), CONCERT_TIMELINE_USER), 1};
  if (!client.Push(descriptor)) return 103;
  client.SetUserTimeline(0, 1);
  if (!client.WaitForTimeline(descriptor.queue, 1)) return 104;
  const uint32_t alone = client.Join("bystander", 0, 1);
  if (alone == 0) return 105;
  descriptor = {};
  descriptor.ticket = 2;
  descriptor.kind = CONCERT_OP_BARRIER;
  descriptor.body.collective.communicator = alone;
  if (!client.Push(descriptor) || !client.WaitForTimeline(0, 2)) return 106;
  return client.NextCompletion().has_value() ? 107 : 0;
}

// As another user, submits an op that waits on `timeline`. Returns the op's status.
int Foreign(const std::string& socket, uint64_t timeline) {
  BeSomebodyElse();
  RawClient client(socket);
  if (!client.Hello()) return 101;
  concert_descriptor descriptor{};
  descriptor.queue = client.CreateQueue();
  descriptor.ticket = 1;
  descriptor.kind = CONCERT_OP_COPY;
  const uint32_t buffer = client.AllocateBuffer(64);
  descriptor.body.copy.src = {buffer, 0, 0};
  descriptor.body.copy.dst = {buffer, 0, 32};
  descriptor.body.copy.bytes = 32;
  descriptor.wait_count = 1;
  descriptor.waits[0] = {timeline, 1};
  if (!client.Push(descriptor) || !client.WaitForTimeline(descriptor.queue, 1)) return 102;
  const std::optional<concert_completion> completion = client.NextCompletion();
  return completion ? completion->status : 0;
}

// Rank 1 of "pair" does what `step` says, then stops itself to be killed.
int Stop(const std::string& step, const std::string& socket) {
  const auto at = [&step](const char* name) {
    if (step == name) raise(SIGSTOP);
  };
  RawClient silent(socket);
  at("connected");
  silent.Disconnect();
  const Session session =
      Session::Connect({.socket_path = socket, .client_name = "doomed"}).value();
  at("session");
  Queue queue = session.CreateQueue({}).value(), other = session.CreateQueue({}).value();
  at("queue");
  constexpr uint32_t kN = 192;
  const Buffer a = session.Allocate(kN * kN * 4).value(), w = session.Allocate(kN * kN * 4).value(),
               d = session.Allocate(kN * kN * 4).value();
  at("buffer");
  const Communicator pair = session.Join({.name = "pair", .rank = 1, .ranks = 2}).value();
  at("joined");
  const GemmOp gemm{.m = kN, .n = kN, .k = kN, .a = a, .w = w, .d = d, .dtype = kFp32};
  const UserTimeline gate = session.CreateUserTimeline().value();
  if (step == "published") {
    other.Gemm(gemm, {.waits = {gate.At(1)}}).submit_status().Check();
    queue.Gemm(gemm).submit_status().Check();
    raise(SIGSTOP);
  }
  if (step == "running") {
    const Ticket first = queue.Gemm(gemm);
    for (int i = 0; i < 100; ++i) queue.Gemm(gemm).submit_status().Check();
    first.Wait().Check();
    raise(SIGSTOP);
  }
  if (step == "ring full") {
    other.Gemm(gemm, {.waits = {gate.At(1)}}).submit_status().Check();
    while (other.Gemm(gemm).submit_status().ok()) {
    }
    raise(SIGSTOP);
  }
  if (step == "blocked") {
    const Ticket blocked = queue.Gemm(gemm, {.waits = {gate.At(1)}});
    std::thread([&] { blocked.Wait().IgnoreError(); }).detach();
    raise(SIGSTOP);
  }
  if (step == "offered") {
    queue.AllReduce(pair, {.data = d, .count = 100, .dtype = kFp32}).submit_status().Check();
    raise(SIGSTOP);
  }
  if (step == "in a batch") {
    Batch batch = session.BeginBatch().value();
    for (int i = 0; i < 3; ++i) queue.Gemm(gemm).submit_status().Check();
    raise(SIGSTOP);
  }
  if (step == "between batches") {
    for (int i = 0; i < 2; ++i) {
      Batch batch = session.BeginBatch().value();
      for (int j = 0; j < 3; ++j) queue.Gemm(gemm).submit_status().Check();
    }
    raise(SIGSTOP);
  }
  return 100;
}

}  // namespace

Child::Child(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"concert-fault-child", "--child"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  if (posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr, argv.data(), environ) != 0) abort();
}

Child::~Child() {
  if (pid_ > 0) Kill();
}

bool Child::WaitUntilStopped() {
  int status = 0;
  const bool stopped = waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status);
  if (!stopped) pid_ = 0;
  return stopped;
}

void Child::Kill() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

int Child::WaitForExit() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int RunChild(const std::vector<std::string>& arguments) {
  if (arguments.at(0) == "bystander") return Bystander(arguments.at(1));
  if (arguments.at(0) == "foreign") return Foreign(arguments.at(1), std::stoull(arguments.at(2)));
  if (arguments.at(0) == "programs") {
    // A byte for everything that it has done.
    const int progress = std::stoi(arguments.at(3));
    RunProgramChild(arguments.at(1), static_cast<uint32_t>(std::stoul(arguments.at(2))),
                    [progress] { return write(progress, "", 1) == 1; });
    return 100;
  }
  return Stop(arguments.at(0), arguments.at(1));
}

}  // namespace concert::test
