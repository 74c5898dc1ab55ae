// What the steps of a chain take that has a norm between two GEMMs, as a transformer's layers have:
// GEMM, then rms_norm of the residual stream that the GEMM's result is added to, 16 of both.
//
//   norm_chain_benchmark [--rounds N] [NAME=SOCKET ...]
//
// Through the real client path: a daemon of its own, or daemons that run already, of other commits
// say, which take turns. Microseconds a step (a GEMM and a norm) and, beside it, of the same chain
// without its norms; medians over rounds. Weights rotate through at least 180 MB. Every daemon's
// result is compared with the first one's.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "concert/concert.hpp"
#include "tests/bench/private_daemon.h"
#include "tests/bench/statistics.h"
#include "tests/support/bf16.h"

namespace concert::bench {
namespace {

using std::chrono::duration;
using std::chrono::steady_clock;

constexpr int kSteps = 16;
constexpr uint64_t kLeastWeightBytes = 180'000'000;  // three times an H200's L2
constexpr auto kTurn = std::chrono::milliseconds(2);
constexpr std::chrono::seconds kLimit(30);
constexpr double kTolerance = 2e-2;  // of bf16 results of two kernels, after 16 steps

struct Shape {
  uint32_t rows, hidden;

  uint64_t row_bytes() const { return uint64_t{2} * rows * hidden; }
  uint64_t weight_bytes() const { return uint64_t{2} * hidden * hidden; }
  int sets() const { return static_cast<int>(1 + kLeastWeightBytes / (weight_bytes() * kSteps)); }
};

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "norm_chain_benchmark: %s\n", what.c_str());
  std::exit(1);
}
template <typename T>
T OrDie(Result<T> result) {
  if (!result.ok()) Die(result.status().message());
  return std::move(result).value();
}
void OrDie(const Status& status) {
  if (!status.ok()) Die(status.message());
}

// Both chains of one daemon, for one shape.
class Chains {
 public:
  Chains(const Session& session, const Shape& shape)
      : session_(session),
        shape_(shape),
        weights_(OrDie(session.Allocate(shape.weight_bytes() * kSteps * shape.sets()))),
        rows_(OrDie(session.Allocate(shape.row_bytes() * 4 + 2 * shape.hidden))),
        queue_(OrDie(session.CreateQueue({}))) {
    std::mt19937 random(20261124);
    const float scale = std::sqrt(3.0f / static_cast<float>(shape.hidden));
    Fill(weights_, 0, shape.weight_bytes() * kSteps * shape.sets(), random, scale);
    Fill(rows_, 0, 4 * shape.row_bytes() + 2 * shape.hidden, random, 1);
  }

  void Run(bool norms) {
    const int set = next_set_++ % shape_.sets();
    Batch batch = OrDie(session_.BeginBatch());
    Ticket last;
    for (int step = 0; step < kSteps; ++step) last = Submit(set, step, norms);
    OrDie(batch.End());
    while (!last.Done()) {
    }
    OrDie(last.Wait(kLimit));
  }
  // Microseconds a step.
  double Measure(bool norms) {
    int chains = 0;
    const auto begin = steady_clock::now();
    auto end = begin;
    for (; end - begin < kTurn; end = steady_clock::now(), ++chains) Run(norms);
    return duration<double, std::micro>(end - begin).count() / chains / kSteps;
  }
  // Of the first set, from the same input whenever it is called, into memory full of NaN.
  std::vector<uint16_t> ResultOfNorms() {
    std::mt19937 random(7);
    Fill(rows_, 0, 2 * shape_.row_bytes(), random, 1);
    const std::vector<uint16_t> nan(shape_.row_bytes() / 2, 0x7fff);
    OrDie(rows_.Write(nan.data(), shape_.row_bytes(), Y()));
    next_set_ = 0;
    Run(/*norms=*/true);
    std::vector<uint16_t> result(shape_.row_bytes() / 2);
    OrDie(rows_.Read(result.data(), shape_.row_bytes(), X()));
    return result;
  }

 private:
  // Places in rows_: what a GEMM reads, the residual stream, what a GEMM writes, another of those
  // for the chain without norms, the norms' weight.
  uint64_t X() const { return 0; }
  uint64_t Residual() const { return shape_.row_bytes(); }
  uint64_t Y() const { return 2 * shape_.row_bytes(); }
  uint64_t Z() const { return 3 * shape_.row_bytes(); }
  uint64_t Weight() const { return 4 * shape_.row_bytes(); }

  Ticket Submit(int set, int step, bool norms) {
    const uint64_t weight = (uint64_t(set) * kSteps + step) * shape_.weight_bytes();
    const bool odd = step % 2 != 0;
    const uint64_t input = norms ? X() : odd ? Y() : Z();
    const uint64_t output = norms || !odd ? Y() : Z();
    const Ticket gemm = queue_.Gemm({.m = shape_.rows,
                                     .n = shape_.hidden,
                                     .k = shape_.hidden,
                                     .a = {rows_, input},
                                     .w = {weights_, weight},
                                     .d = {rows_, output}});
    if (!norms) return gemm;
    return queue_.RmsNorm({.rows = shape_.rows,
                           .columns = shape_.hidden,
                           .x = {rows_, Y()},
                           .weight = {rows_, Weight()},
                           .out = {rows_, X()},
                           .residual = {rows_, Residual()}});
  }
  static void Fill(const Buffer& buffer, uint64_t offset, uint64_t bytes, std::mt19937& random,
                   float scale) {
    std::vector<uint16_t> values(bytes / 2);
    for (uint16_t& value : values) {
      value = test::ToBf16(scale * (static_cast<float>(random() >> 8) * 0x1p-23f - 1));
    }
    OrDie(buffer.Write(values.data(), bytes, offset));
  }

  const Session& session_;
  const Shape shape_;
  Buffer weights_, rows_;
  Queue queue_;
  int next_set_ = 0;
};

struct Entrant {
  std::string name;
  Session session;
  std::unique_ptr<Chains> chains;
  std::vector<double> with_us, without_us;
};

// Largest difference over the largest value; NaN where either is.
double Difference(const std::vector<uint16_t>& a, const std::vector<uint16_t>& b) {
  double largest = 0, difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = test::FromBf16(a[i]), y = test::FromBf16(b[i]);
    if (std::isnan(x) || std::isnan(y)) return std::numeric_limits<double>::quiet_NaN();
    largest = std::max(largest, std::abs(x));
    difference = std::max(difference, std::abs(x - y));
  }
  return largest > 0 ? difference / largest : std::numeric_limits<double>::quiet_NaN();
}

void Compare(const Shape& shape, std::vector<Entrant>& entrants, int rounds) {
  std::vector<uint16_t> expected;
  for (Entrant& entrant : entrants) {
    entrant.with_us.clear(), entrant.without_us.clear();
    entrant.chains = std::make_unique<Chains>(entrant.session, shape);
    const std::vector<uint16_t> result = entrant.chains->ResultOfNorms();
    if (expected.empty()) expected = result;
    const double difference = Difference(expected, result);
    if (!(difference <= kTolerance)) {
      Die("wrong results of '" + entrant.name + "': off by " + std::to_string(difference));
    }
    for (const bool norms : {false, true}) entrant.chains->Measure(norms);
  }
  std::mt19937 random(1);
  for (int round = 0; round < rounds; ++round) {
    for (Entrant& entrant : entrants) {
      entrant.with_us.push_back(entrant.chains->Measure(true));
      entrant.without_us.push_back(entrant.chains->Measure(false));
    }
    std::shuffle(entrants.begin(), entrants.end(), random);
  }
  std::sort(entrants.begin(), entrants.end(),
            [](const Entrant& a, const Entrant& b) { return a.name < b.name; });
  for (Entrant& entrant : entrants) {
    std::printf("%4ux%-5u %-10s %8.2f [%.2f, %.2f] %11.2f\n", shape.rows, shape.hidden,
                entrant.name.c_str(), Quantile(entrant.with_us, 0.5),
                Quantile(entrant.with_us, 0.1), Quantile(entrant.with_us, 0.9),
                Quantile(entrant.without_us, 0.5));
    entrant.chains.reset();
  }
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  int rounds = 40;
  std::vector<std::pair<std::string, std::string>> sockets;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    if (argument == "--rounds" && i + 1 < argc) {
      rounds = std::max(1, std::atoi(argv[++i]));
    } else if (equals != std::string::npos) {
      sockets.emplace_back(argument.substr(0, equals), argument.substr(equals + 1));
    } else {
      Die("unknown argument '" + argument + "': [--rounds N] [NAME=SOCKET ...]");
    }
  }
  std::unique_ptr<PrivateDaemon> daemon;
  if (sockets.empty()) {
    auto started = PrivateDaemon::Start({});
    if (!started.ok()) Die(std::string(started.status().message()));
    daemon = *std::move(started);
    sockets.emplace_back("concert", daemon->socket());
  }
  std::vector<Entrant> entrants;
  for (const auto& [name, socket] : sockets) {
    entrants.push_back(
        {.name = name,
         .session = OrDie(Session::Connect(
             {.socket_path = socket, .client_name = "norm-chain", .fallback = Fallback::kNone})),
         .chains = nullptr,
         .with_us = {},
         .without_us = {}});
  }
  std::printf("rows x hidden  daemon   us a step, p50 [p10, p90]   without its norm; %d rounds\n",
              rounds);
  for (const uint32_t hidden : {1024u, 2048u, 4096u}) {
    for (const uint32_t rows : {8u, 64u, 512u}) Compare({rows, hidden}, entrants, rounds);
  }
  return 0;
}

}  // namespace
}  // namespace concert::bench

int main(int argc, char** argv) { return concert::bench::Main(argc, argv); }
