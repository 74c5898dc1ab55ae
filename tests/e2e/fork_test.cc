// fork() in a client: the child's calls say so, and neither parent nor daemon notices them.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "client/include/concert/concert.hpp"
#include "tests/bench/child_process.h"
#include "tests/bench/private_daemon.h"
#include "tests/support/eventually.h"

namespace concert::test {
namespace {

using testing::HasSubstr;
using testing::Not;

// What a child had to say; "" if all was as it should be.
std::string InChild(const std::function<std::string()>& body) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    const std::string said = body();
    const bool whole =
        write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size());
    _exit(whole ? 0 : 1);  // no destructors of the parent's test
  }
  close(ends[1]);
  std::string said;
  char buffer[1024];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof(buffer))) > 0;)
    said.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  int status = -1;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? said : said + " (the child died)";
}

std::unique_ptr<bench::PrivateDaemon> StartDaemon() {
  auto daemon = bench::PrivateDaemon::Start({.device = "sim"});
  EXPECT_TRUE(daemon.ok()) << daemon.status();
  return daemon.ok() ? *std::move(daemon) : nullptr;
}

// The number of lines that `concertctl sessions` prints below its head.
int SessionCount(const bench::PrivateDaemon& daemon) {
  const std::string command =
      bench::ProgramFolder() + "/concertctl --socket " + daemon.admin_socket() + " sessions";
  FILE* output = popen(command.c_str(), "r");
  int lines = 0;
  for (int c; (c = fgetc(output)) != EOF;) lines += c == '\n' ? 1 : 0;
  return pclose(output) == 0 ? lines - 1 : -1;
}

// One client with a handle of every kind.
struct Client {
  explicit Client(const bench::PrivateDaemon& daemon)
      : session(Session::Connect({.socket_path = daemon.socket(), .client_name = "fork"}).value()) {
  }

  // Copies a word through the daemon and looks at it.
  bool Works(uint32_t word) {
    uint32_t seen = 0;
    return x.Write(&word, sizeof(word)).ok() &&
           queue.Copy({.src = x, .dst = y, .bytes = sizeof(word)}).Wait().ok() &&
           y.Read(&seen, sizeof(seen)).ok() && seen == word;
  }

  Session session;
  Queue queue = session.CreateQueue({}).value();
  Buffer x = session.Allocate(4096).value(), y = session.Allocate(4096).value();
  UserTimeline timeline = session.CreateUserTimeline().value();
  Communicator group = session.Join({.name = "of " + std::to_string(getpid()), .ranks = 1}).value();
};

struct Call {
  const char* name;
  std::function<int(concert_error*)> run;
};

// Every function of concert.h that takes a handle and can fail.
std::vector<Call> CallsOf(Client& c) {
  concert_session* const s = c.session.get();
  static concert_queue* queue;
  static concert_buffer* buffer;
  static concert_user_timeline* timeline;
  static concert_communicator* communicator;
  static int done;
  static void* address;
  static char byte;
  const concert_ticket ticket = c.queue.Copy({.src = c.x, .dst = c.y, .bytes = 8}).get();
  return {
      {"gpu_info",
       [=](auto* e) {
         concert_gpu gpu = {};
         gpu.struct_size = sizeof(gpu);
         return concert_gpu_info_get(s, 0, &gpu, e);
       }},
      {"allocate", [=](auto* e) { return concert_buffer_allocate(s, 0, 64, &buffer, e); }},
      {"import",
       [=](auto* e) {
         concert_import import = {};
         import.struct_size = sizeof(import);
         return concert_buffer_import(s, &import, &buffer, e);
       }},
      {"address", [&c](auto* e) { return concert_buffer_address(c.x.get(), &address, e); }},
      {"write", [&c](auto* e) { return concert_buffer_write(c.x.get(), 0, &byte, 1, e); }},
      {"read", [&c](auto* e) { return concert_buffer_read(c.x.get(), 0, &byte, 1, e); }},
      {"create queue", [=](auto* e) { return concert_queue_create(s, 0, 0, &queue, e); }},
      {"gemm",
       [&c](auto* e) {
         concert_gemm gemm = {};
         gemm.struct_size = sizeof(gemm);
         return concert_submit_gemm(c.queue.get(), &gemm, nullptr, nullptr, e);
       }},
      {"collective",
       [&c](auto* e) {
         concert_collective op = {};
         op.struct_size = sizeof(op);
         return concert_submit_collective(c.queue.get(), &op, nullptr, nullptr, e);
       }},
      {"copy",
       [&c](auto* e) {
         concert_copy op = {};
         op.struct_size = sizeof(op);
         return concert_submit_copy(c.queue.get(), &op, nullptr, nullptr, e);
       }},
      {"begin batch", [=](auto* e) { return concert_batch_begin(s, 0, e); }},
      {"end batch", [=](auto* e) { return concert_batch_end(s, 0, e); }},
      {"poll", [=](auto* e) { return concert_poll(s, ticket, &done, e); }},
      {"wait", [=](auto* e) { return concert_wait(s, ticket, -1, e); }},
      {"wait on stream", [=](auto* e) { return concert_wait_on_stream(s, ticket, nullptr, e); }},
      {"create timeline", [=](auto* e) { return concert_user_timeline_create(s, &timeline, e); }},
      {"signal", [&c](auto* e) { return concert_user_timeline_signal(c.timeline.get(), 1, e); }},
      {"signal on stream",
       [&c](auto* e) {
         return concert_user_timeline_signal_on_stream(c.timeline.get(), 1, nullptr, e);
       }},
      {"join",
       [=](auto* e) {
         concert_join join = {};
         join.struct_size = sizeof(join);
         join.name = "h", join.ranks = 1;
         return concert_communicator_join(s, &join, &communicator, e);
       }},
  };
}

TEST(ForkTest, EveryCallInTheChildSaysForkAndTheParentGoesOn) {
  const auto daemon = StartDaemon();
  ASSERT_NE(daemon, nullptr);
  Client client(*daemon);
  ASSERT_TRUE(client.Works(1));
  const std::vector<Call> calls = CallsOf(client);
  EXPECT_EQ(InChild([&] {
              std::string wrong;
              for (const Call& call : calls) {
                concert_error error{};
                const int code = call.run(&error);
                if (code != CONCERT_FAILED_PRECONDITION ||
                    std::strstr(error.message, "before fork()") == nullptr)
                  wrong += std::string(call.name) + ": " + error.message + "\n";
              }
              return wrong;
            }),
            "");
  // Longer than the ring: a tail that the child had moved would be noticed.
  for (uint32_t i = 0; i < 2'000; ++i) ASSERT_TRUE(client.Works(i)) << i << daemon->LogTail();
  EXPECT_THAT(daemon->LogTail(), Not(HasSubstr("broke the protocol")));
}

TEST(ForkTest, ClosingInTheChildClosesNothingOfTheParent) {
  const auto daemon = StartDaemon();
  ASSERT_NE(daemon, nullptr);
  std::optional<Client> client(*daemon);
  ASSERT_TRUE(client->Works(1));
  EXPECT_EQ(InChild([&] {
              client.reset();
              return std::string();
            }),
            "");
  EXPECT_TRUE(client->Works(2));
  const concert_ticket ticket = client->timeline.At(1).get();
  ASSERT_TRUE(client->timeline.Signal(1).ok());
  EXPECT_TRUE(client->session.TicketOf(ticket).Wait().ok());
  EXPECT_TRUE(client->queue.Barrier(client->group).Wait().ok());
  EXPECT_EQ(SessionCount(*daemon), 1);
}

// How many fds of this process are memory's.
int MemoryFds() {
  int count = 0;
  for (const auto& fd : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the iterator's own
    count += std::filesystem::read_symlink(fd, gone).string().starts_with("/memfd:") ? 1 : 0;
  }
  return count;
}

// A child that lives on would keep memory that the parent frees.
TEST(ForkTest, AChildHoldsNoMemoryOfTheParentsBuffers) {
  const auto daemon = StartDaemon();
  ASSERT_NE(daemon, nullptr);
  const int before = MemoryFds();
  Client client(*daemon);
  concert_import import = {};
  import.memory = CONCERT_MEMORY_MEMFD, import.bytes = import.allocation_bytes = 4096;
  import.fd = memfd_create("imported", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(import.fd, 4096) | fcntl(import.fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  const Result<Buffer> imported = client.session.Import(import);
  EXPECT_TRUE(imported.ok()) << imported.status().message();
  close(import.fd);
  EXPECT_EQ(MemoryFds(), before + 3) << "x, y and what is imported";
  EXPECT_EQ(InChild([&] { return std::to_string(MemoryFds() - before); }), "0");
  EXPECT_TRUE(client.Works(1));
  client.x.Seal().Check();
  EXPECT_EQ(InChild([&] { return std::to_string(MemoryFds() - before); }), "0");
}

TEST(ForkTest, AChildThatConnectsAgainIsAClientOfItsOwn) {
  const auto daemon = StartDaemon();
  ASSERT_NE(daemon, nullptr);
  Client client(*daemon);
  EXPECT_EQ(InChild([&]() -> std::string {
              Client own(*daemon);
              if (!own.Works(7)) return "its own session does not work";
              // The parent's buffer has a number that the child's session has given to another.
              const Status status =
                  own.queue.Copy({.src = client.x, .dst = own.y, .bytes = 8}).submit_status();
              if (status.code() != CONCERT_FAILED_PRECONDITION)
                return "the parent's buffer in the child's op: " + status.ToString();
              // A grandchild has neither.
              return InChild([&]() -> std::string {
                return own.Works(8) || client.Works(8) ? "a grandchild works" : "";
              });
            }),
            "");
  EXPECT_TRUE(client.Works(3));
}

TEST(ForkTest, AChildDoesNotKeepItsDeadParentsSession) {
  const auto daemon = StartDaemon();
  ASSERT_NE(daemon, nullptr);
  int ready[2], hold[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(hold), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    const Client client(*daemon);
    if (fork() == 0) {
      close(hold[1]);
      char byte = 1;
      if (write(ready[1], &byte, 1) != 1) _exit(1);
      _exit(read(hold[0], &byte, 1) < 0 ? 1 : 0);  // until the test closes its end
    }
    pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_EQ(SessionCount(*daemon), 1);
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  EXPECT_TRUE(Eventually([&] { return SessionCount(*daemon) == 0; }));
  for (const int fd : {ready[0], ready[1], hold[0], hold[1]}) close(fd);
}

}  // namespace
}  // namespace concert::test
