// Clients that keep every rule and measure what others do to them.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <numeric>
#include <vector>

#include "client/include/concert/concert.hpp"
#include "tests/fault/hostile/mode.h"
#include "tests/support/raw_client.h"

namespace concert::test {
namespace {

using Clock = std::chrono::steady_clock;

// Between two of its ops: a client that has something else to do.
constexpr useconds_t kThink_us = 200;
constexpr useconds_t kBetweenConnects_us = 10'000;
constexpr useconds_t kRetry_us = 1'000;

double Microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

struct Record {
  std::vector<double> times_us;
  int failures = 0;  // ops that did not succeed, or results that are wrong
  std::string why;   // the first of them

  void Fail(std::string reason) {
    if (failures++ == 0) why = std::move(reason);
  }
};

void Print(Record record) {
  std::sort(record.times_us.begin(), record.times_us.end());
  const auto at = [&](double share) {
    if (record.times_us.empty()) return 0.0;
    // Rounded up, so that of few the longest counts.
    return record.times_us[static_cast<size_t>(std::ceil(share * (record.times_us.size() - 1)))];
  };
  for (char& c : record.why) {
    if (c == '"' || c == '\\' || c < ' ') c = '\'';
  }
  std::printf(
      "{\"count\": %zu, \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f, "
      "\"failures\": %d, \"why\": \"%s\"}\n",
      record.times_us.size(), at(0.5), at(0.99), at(1.0), record.failures, record.why.c_str());
}

// Says that it is ready, waits for a line on stdin, then repeats `step` for the time ordered. A
// step that does not end in time counts with what it has taken so far, and is the last.
Record Measure(const Orders& orders, useconds_t pause_us,
               const std::function<Status(Clock::time_point end)>& step) {
  Record record;
  SayReady();
  if (std::getchar() == EOF) return record;
  const auto end =
      Clock::now() + std::chrono::microseconds(static_cast<int64_t>(orders.seconds * 1e6));
  while (Clock::now() < end) {
    const auto start = Clock::now();
    const Status status = step(end);
    record.times_us.push_back(Microseconds(Clock::now() - start));
    if (status.code() == CONCERT_DEADLINE_EXCEEDED && Clock::now() >= end) break;
    if (!status.ok()) record.Fail(status.ToString());
    usleep(pause_us);
  }
  return record;
}

std::chrono::nanoseconds Until(Clock::time_point end) {
  return std::max<std::chrono::nanoseconds>(end - Clock::now(), std::chrono::milliseconds(1));
}

Status WrongResult() {
  concert_error error{};
  error.code = CONCERT_INTERNAL;
  std::strcpy(error.message, "the result is wrong");
  return Status(error);
}

Session Open(const Orders& orders) {
  return Session::Connect({.socket_path = orders.socket, .client_name = "witness"}).value();
}

}  // namespace

int WitnessCopy(const Orders& orders) {
  constexpr size_t kBytes = 64;
  Session session = Open(orders);
  Queue queue = session.CreateQueue({.priority = kHigh}).value();
  const Buffer from = session.Allocate(kBytes).value(), to = session.Allocate(kBytes).value();
  std::array<char, kBytes> sent, received;
  char round = 0;
  Print(Measure(orders, kThink_us, [&](Clock::time_point end) {
    std::iota(sent.begin(), sent.end(), ++round);
    from.Write(sent.data(), kBytes).Check();
    Status status = queue.Copy({.src = from, .dst = to, .bytes = kBytes}).Wait(Until(end));
    to.Read(received.data(), kBytes).Check();
    return status.ok() && sent != received ? WrongResult() : status;
  }));
  return 0;
}

int WitnessGemm(const Orders& orders) {
  constexpr uint32_t kSide = 16, kCount = kSide * kSide;
  Session session = Open(orders);
  Queue queue = session.CreateQueue({.priority = kHigh}).value();
  const auto allocate = [&] { return session.Allocate(kCount * sizeof(float)).value(); };
  const Buffer a = allocate(), w = allocate(), d = allocate();
  w.Write(std::vector<float>(kCount, 0.5F).data(), w.bytes()).Check();
  float round = 0;
  Print(Measure(orders, kThink_us, [&](Clock::time_point end) {
    ++round;
    a.Write(std::vector<float>(kCount, round).data(), a.bytes()).Check();
    const Ticket done =
        queue.Gemm({.m = kSide, .n = kSide, .k = kSide, .a = a, .w = w, .d = d, .dtype = kFp32});
    if (const Status status = done.Wait(Until(end)); !status.ok()) return status;
    std::vector<float> received(kCount);
    d.Read(received.data(), d.bytes()).Check();
    const bool right = received == std::vector<float>(kCount, kSide * 0.5F * round);
    return right ? Status() : WrongResult();
  }));
  return 0;
}

int WitnessReduce(const Orders& orders) {
  constexpr size_t kCount = 64;
  struct Rank {
    Session session;
    Queue queue;
    Buffer buffer;
    Communicator group;
  };
  std::vector<Rank> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    Session session = Open(orders);
    Queue queue = session.CreateQueue({.priority = kHigh}).value();
    Buffer buffer = session.Allocate(kCount * sizeof(float)).value();
    Communicator group = session.Join({.name = "witness", .rank = rank, .ranks = 2}).value();
    ranks.push_back({std::move(session), std::move(queue), std::move(buffer), std::move(group)});
  }
  float round = 0;
  Print(Measure(orders, kThink_us, [&](Clock::time_point end) {
    const std::vector<float> sent(kCount, ++round), want(kCount, 2 * round);
    std::vector<Ticket> tickets;
    for (Rank& rank : ranks) {
      rank.buffer.Write(sent.data(), kCount * sizeof(float)).Check();
      tickets.push_back(
          rank.queue.AllReduce(rank.group, {.data = rank.buffer, .count = kCount, .dtype = kFp32}));
    }
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (Status status = tickets[i].Wait(Until(end)); !status.ok()) return status;
      std::vector<float> received(kCount);
      ranks[i].buffer.Read(received.data(), kCount * sizeof(float)).Check();
      if (received != want) return WrongResult();
    }
    return Status();
  }));
  return 0;
}

int WitnessSealed(const Orders& orders) {
  constexpr size_t kBytes = kContestedWords * sizeof(uint64_t);
  Session session = Open(orders);
  Queue queue = session.CreateQueue({.priority = kHigh}).value();
  const Buffer to = session.Allocate(kBytes).value();
  std::vector<uint64_t> sent(kContestedWords), received(kContestedWords);
  uint64_t round = 0;
  // Its user's quota is what attackers may have taken: then it has nothing to see.
  const auto unless_full = [](const Status& status) {
    return status.code() == CONCERT_RESOURCE_EXHAUSTED ? Status() : status;
  };
  Print(Measure(orders, kThink_us, [&](Clock::time_point end) {
    ++round;
    for (uint64_t i = 0; i < kContestedWords; ++i) sent[i] = ContestedWord(round, i);
    Result<Buffer> weights = session.Allocate(kBytes);
    if (!weights.ok()) return unless_full(weights.status());
    weights.value().Write(sent.data(), kBytes).Check();
    if (const Status sealed = weights.value().Seal(); !sealed.ok()) return unless_full(sealed);
    Result<Program> program = session.BeginProgram();
    if (!program.ok()) return unless_full(program.status());
    program.value()
        .queue()
        .Copy({.src = weights.value(), .dst = to, .bytes = kBytes})
        .submit_status()
        .Check();
    if (const Status made = program.value().End(); !made.ok()) return unless_full(made);
    // As a program and as an op, one after the other.
    for (const bool run : {true, false}) {
      std::fill(received.begin(), received.end(), 0);
      to.Write(received.data(), kBytes).Check();
      const Ticket ticket = run ? queue.Run({.program = program.value()})
                                : queue.Copy({.src = weights.value(), .dst = to, .bytes = kBytes});
      if (const Status status = ticket.Wait(Until(end)); !status.ok()) return status;
      to.Read(received.data(), kBytes).Check();
      if (sent != received) return WrongResult();
    }
    return Status();
  }));
  return 0;
}

int WitnessConnect(const Orders& orders) {
  // From the first attempt to a session, however many it takes: being turned away is no failure
  // here but a longer time.
  Print(Measure(orders, kBetweenConnects_us, [&](Clock::time_point end) {
    while (Clock::now() < end) {
      RawClient client(orders.socket);
      if (client.connected() && client.Hello()) break;
      usleep(kRetry_us);
    }
    return Status();
  }));
  return 0;
}

// Keeps to its share of CPU time, not of each period: who sleeps for a while wakes late.
int Burn(const Orders& orders) {
  constexpr useconds_t kPeriod_us = 1'000;
  const useconds_t rest_us = kPeriod_us * (100 - orders.count) / 100;
  SayReady();
  const auto start = Clock::now();
  const std::clock_t before = std::clock();
  while (!orders.Over()) {
    const double due_s = Microseconds(Clock::now() - start) / 1e6 * orders.count / 100;
    while (static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC < due_s) {
    }
    if (rest_us > 0) usleep(rest_us);
  }
  return 0;
}

}  // namespace concert::test
