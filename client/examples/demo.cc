// An inference-like client: runs its layers' GEMMs step after step, ends each step with an
// all-reduce when there are other ranks, and checks a sample of the results against a reference
// computed on the CPU. Or runs decode steps of a small model, each of which is one op: a program
// (decode.h). Prints one line of JSON; exit 1 when a result is wrong or an op fails.
//
//   concert_demo --socket /run/concert/concert.sock --layers 64x1024x512,64x512x1024 --steps 100
//   concert_demo --rank 0 --ranks 2 & concert_demo --rank 1 --ranks 2
//   concert_demo --decode 4 --steps 40
#include <algorithm>
#include <chrono>
#include <cmath>
#include <concert/concert.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bf16.h"
#include "decode.h"
#include "decode_reference.h"

namespace {

using concert::Buffer;
using concert::Session;
using concert::Status;
using concert::Ticket;
using demo::Download;
using demo::FromBf16;
using demo::Poison;
using demo::RandomBf16;
using demo::Upload;

constexpr std::chrono::seconds kStepTimeout{30};
constexpr int kSamples = 64;                // output elements checked per result
constexpr uint32_t kSequencesMax = 256;     // of --decode
constexpr uint32_t kTokensMax = 1024;       // of a sequence, which the reference computes again
constexpr uint32_t kStepsBetweenJoins = 3;  // of the sequences of --decode

struct Shape {
  uint32_t m, n, k;
};

struct Arguments {
  std::string socket;
  std::string name = "demo";  // of the client and of its communicator
  std::vector<Shape> layers = {{64, 1024, 512}, {64, 512, 1024}};
  uint32_t sequences = 0;  // of --decode; 0: layers
  uint32_t steps = 100;
  uint32_t rank = 0, ranks = 1;
  uint32_t gpu = 0;
  uint32_t seed = 1;
  uint64_t reduce_elements = 65536;
};

// ---- Checks

struct Checks {
  uint64_t passed = 0, failed = 0;

  void Near(float actual, double expected, double tolerance, const char* what, uint64_t element) {
    if (std::abs(actual - expected) <= tolerance) {  // false for NaN
      ++passed;
      return;
    }
    if (failed++ < 8) {
      std::fprintf(stderr, "concert_demo: %s[%llu] is %g, expected %g\n", what,
                   static_cast<unsigned long long>(element), actual, expected);
    }
  }
};

// ---- Layers

// y = relu(x * w^T), bf16.
class Layer {
 public:
  Layer(Session& session, const Shape& shape, uint32_t gpu, uint32_t seed)
      : shape_(shape),
        x_(RandomBf16(uint64_t{shape.m} * shape.k, seed)),
        w_(RandomBf16(uint64_t{shape.n} * shape.k, seed + 1)),
        x_buffer_(Upload(session, gpu, x_)),
        w_buffer_(Upload(session, gpu, w_)),
        y_buffer_(Upload(session, gpu, Poison(uint64_t{shape.m} * shape.n))) {}

  Ticket Submit(concert::Queue& queue) const {
    return queue.Gemm({.m = shape_.m,
                       .n = shape_.n,
                       .k = shape_.k,
                       .a = x_buffer_,
                       .w = w_buffer_,
                       .d = y_buffer_,
                       .activation = concert::kRelu});
  }

  void Check(Checks& checks) const {
    const std::vector<uint16_t> y = Download(y_buffer_);
    std::minstd_rand random(shape_.m + shape_.n + shape_.k);
    for (int i = 0; i < kSamples; ++i) {
      const uint64_t row = random() % shape_.m, column = random() % shape_.n;
      double sum = 0;
      for (uint64_t k = 0; k < shape_.k; ++k) {
        sum += double{FromBf16(x_[row * shape_.k + k])} * FromBf16(w_[column * shape_.k + k]);
      }
      // Half a unit of bf16's last place is 2^-9 of the value; fp32 sums of k terms lose far less.
      const double expected = std::max(sum, 0.0);
      const double tolerance = expected / 256 + 1e-3;
      const uint64_t element = row * shape_.n + column;
      checks.Near(FromBf16(y[element]), expected, tolerance, "y", element);
    }
  }

 private:
  Shape shape_;
  std::vector<uint16_t> x_, w_;
  Buffer x_buffer_, w_buffer_, y_buffer_;
};

// This rank's part of the sum over all ranks. Every rank can compute what the others put in.
class Reduction {
 public:
  Reduction(Session& session, const Arguments& arguments)
      : arguments_(arguments),
        group_(session
                   .Join({.name = arguments.name,
                          .rank = arguments.rank,
                          .ranks = arguments.ranks,
                          .gpu = arguments.gpu})
                   .value()),
        part_(Upload(session, arguments.gpu, PartOf(arguments.rank))),
        sum_(Upload(session, arguments.gpu, Poison(arguments.reduce_elements))) {}

  Ticket Submit(concert::Queue& queue) const {
    return queue.AllReduce(group_,
                           {.src = part_, .dst = sum_, .count = arguments_.reduce_elements});
  }

  void Check(Checks& checks) const {
    const std::vector<uint16_t> sum = Download(sum_);
    std::vector<double> expected(sum.size(), 0.0);
    for (uint32_t rank = 0; rank < arguments_.ranks; ++rank) {
      const std::vector<uint16_t> part = PartOf(rank);
      for (size_t i = 0; i < part.size(); ++i) expected[i] += FromBf16(part[i]);
    }
    // Every addition may round once to bf16; partial sums stay below `ranks`.
    const double tolerance = arguments_.ranks * arguments_.ranks / 256.0;
    for (int i = 0; i < kSamples; ++i) {
      const size_t element = (i * 2654435761u) % sum.size();
      checks.Near(FromBf16(sum[element]), expected[element], tolerance, "sum", element);
    }
  }

 private:
  std::vector<uint16_t> PartOf(uint32_t rank) const {
    return RandomBf16(arguments_.reduce_elements, 1000 + rank);
  }

  const Arguments& arguments_;
  const concert::Communicator group_;
  const Buffer part_, sum_;
};

// One step: all layers as one batch, then the sum.
Status RunStep(Session& session, concert::Queue& queue, uint32_t gpu,
               const std::vector<Layer>& layers, const Reduction* reduction) {
  std::vector<Ticket> tickets;
  {
    concert::Batch batch = session.BeginBatch(gpu).value();
    for (const Layer& layer : layers) tickets.push_back(layer.Submit(queue));
    if (reduction != nullptr) tickets.push_back(reduction->Submit(queue));
  }
  for (const Ticket& ticket : tickets) {
    if (Status status = ticket.Wait(kStepTimeout); !status.ok()) return status;
  }
  return {};
}

using Clock = std::chrono::steady_clock;

struct Report {
  std::chrono::duration<double> run_time{0};
  uint32_t ops_per_step = 0, submissions_per_step = 0;
  Checks checks;
};

Status RunLayers(Session& session, const Arguments& arguments, Report& report) {
  concert::Queue queue = session.CreateQueue({.gpu = arguments.gpu}).value();
  std::vector<Layer> layers;
  layers.reserve(arguments.layers.size());
  uint32_t seed = arguments.seed * 1000 + arguments.rank * 100;
  for (const Shape& shape : arguments.layers) {
    layers.emplace_back(session, shape, arguments.gpu, seed += 2);
  }
  std::optional<Reduction> reduction;
  if (arguments.ranks > 1) reduction.emplace(session, arguments);
  report.ops_per_step = static_cast<uint32_t>(layers.size()) + (reduction ? 1 : 0);
  report.submissions_per_step = report.ops_per_step;

  const auto start = Clock::now();
  for (uint32_t step = 0; step < arguments.steps; ++step) {
    const Status status =
        RunStep(session, queue, arguments.gpu, layers, reduction ? &*reduction : nullptr);
    if (!status.ok()) return status;
  }
  report.run_time = Clock::now() - start;

  for (const Layer& layer : layers) layer.Check(report.checks);
  if (reduction) reduction->Check(report.checks);
  return {};
}

// ---- Decode steps

// The logits behind a sequence's last token, and that the largest of them is what follows.
void CheckToken(const demo::Weights& weights, const std::vector<int32_t>& context,
                const uint16_t* logits, int32_t following, Checks& checks) {
  const double error = demo::RelativeError(logits, demo::ReferenceLogits(weights, context));
  checks.Near(static_cast<float>(error), 0, demo::kLogitsTolerance, "error of token",
              context.size());
  const auto less = [](uint16_t a, uint16_t b) { return FromBf16(a) < FromBf16(b); };
  const auto largest = std::max_element(logits, logits + demo::kVocabulary, less) - logits;
  checks.Near(static_cast<float>(following), static_cast<double>(largest), 0, "token",
              context.size());
}

// Each sequence begins with a token of its own, a few steps after the one before, and goes on with
// what the model says. What follows its first token and its last is checked.
Status RunDecode(Session& session, const Arguments& arguments, Report& report) {
  const demo::Weights weights = demo::RandomWeights(arguments.seed);
  demo::Decoder decoder(session, weights, arguments.gpu, arguments.sequences, arguments.steps);
  report.ops_per_step = decoder.ops();
  report.submissions_per_step = 1;
  std::vector<std::vector<int32_t>> contexts(arguments.sequences);
  std::vector<int32_t> tokens(arguments.sequences);
  for (uint32_t step = 0; step < arguments.steps; ++step) {
    for (uint32_t row = 0; row < arguments.sequences; ++row) {
      const uint32_t joins = row * kStepsBetweenJoins;
      if (step <= joins) tokens[row] = step < joins ? -1 : static_cast<int32_t>(row);
      if (step >= joins) contexts[row].push_back(tokens[row]);
    }
    const auto start = Clock::now();
    if (Status status = decoder.Step(tokens); !status.ok()) return status;
    report.run_time += Clock::now() - start;

    const std::vector<uint16_t> logits = decoder.Logits();
    const bool is_last = step + 1 == arguments.steps;
    for (uint32_t row = 0; row < arguments.sequences; ++row) {
      const size_t length = contexts[row].size();
      if (length != 1 && (length == 0 || !is_last)) continue;
      CheckToken(weights, contexts[row], &logits[uint64_t{row} * demo::kVocabulary], tokens[row],
                 report.checks);
    }
  }
  return {};
}

int Run(const Arguments& arguments) {
  concert::Result<Session> connected =
      Session::Connect({.socket_path = arguments.socket, .client_name = arguments.name});
  if (!connected.ok()) {
    std::fprintf(stderr, "concert_demo: %s\n", connected.status().ToString().c_str());
    return 1;
  }
  Session session = std::move(connected).value();
  Report report;
  const auto run = arguments.sequences > 0 ? RunDecode : RunLayers;
  if (const Status status = run(session, arguments, report); !status.ok()) {
    std::fprintf(stderr, "concert_demo: %s\n", status.ToString().c_str());
    return 1;
  }
  const double run_time_s = report.run_time.count();
  std::printf(
      "{\"name\": \"%s\", \"session\": %u, \"rank\": %u, \"ranks\": %u, \"gpu\": \"%s\", "
      "\"steps\": %u, \"ops_per_step\": %u, \"submissions_per_step\": %u, \"run_time_s\": %.6f, "
      "\"steps_per_s\": %.3f, \"us_per_step\": %.1f, \"checks_passed\": %llu, "
      "\"checks_failed\": %llu}\n",
      arguments.name.c_str(), session.id(), arguments.rank, arguments.ranks,
      session.GpuInfo(arguments.gpu).value().name, arguments.steps, report.ops_per_step,
      report.submissions_per_step, run_time_s, arguments.steps / run_time_s,
      1e6 * run_time_s / arguments.steps, static_cast<unsigned long long>(report.checks.passed),
      static_cast<unsigned long long>(report.checks.failed));
  return report.checks.failed == 0 ? 0 : 1;
}

// ---- Arguments

constexpr char kUsage[] =
    "concert_demo [--socket PATH] [--name NAME] [--layers MxNxK,...] [--steps N] [--gpu N]\n"
    "            [--rank N --ranks N] [--reduce-elements N] [--seed N]\n"
    "concert_demo --decode SEQUENCES [--steps TOKENS] [--socket PATH] [--name NAME] [--gpu N]\n"
    "            [--seed N]\n";

[[noreturn]] void Usage(const std::string& why) {
  std::fprintf(stderr, "concert_demo: %s\n%s", why.c_str(), kUsage);
  std::exit(2);
}

uint32_t Number(std::string_view flag, const char* text, uint32_t min, uint32_t max = 100'000'000) {
  char* end = nullptr;
  const unsigned long value = std::strtoul(text, &end, 10);
  if (*text < '0' || *text > '9' || *end != '\0' || value < min || value > max) {
    Usage(std::string(flag) + " is '" + text + "'; it must be a number from " +
          std::to_string(min) + " to " + std::to_string(max));
  }
  return static_cast<uint32_t>(value);
}

std::vector<Shape> Shapes(const char* text) {
  std::vector<Shape> shapes;
  for (const char* at = text; *at != '\0';) {
    Shape shape;
    int used = 0;
    if (std::sscanf(at, "%ux%ux%u%n", &shape.m, &shape.n, &shape.k, &used) != 3 ||
        (at[used] != ',' && at[used] != '\0') || shape.m == 0 || shape.n == 0 || shape.k == 0) {
      Usage("--layers is '" + std::string(text) + "'; it must look like 64x1024x512,64x512x1024");
    }
    shapes.push_back(shape);
    at += used;
    if (*at == ',') ++at;
  }
  if (shapes.empty()) Usage("--layers is empty");
  return shapes;
}

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--help") {
      std::fputs(kUsage, stdout);
      std::exit(0);
    }
    if (i + 1 == argc) Usage(std::string(flag) + " needs a value");
    const char* value = argv[i + 1];
    if (flag == "--socket") {
      arguments.socket = value;
    } else if (flag == "--name") {
      arguments.name = value;
    } else if (flag == "--layers") {
      arguments.layers = Shapes(value);
    } else if (flag == "--decode") {
      arguments.sequences = Number(flag, value, 1, kSequencesMax);
    } else if (flag == "--steps") {
      arguments.steps = Number(flag, value, 1);
    } else if (flag == "--rank") {
      arguments.rank = Number(flag, value, 0);
    } else if (flag == "--ranks") {
      arguments.ranks = Number(flag, value, 1);
    } else if (flag == "--gpu") {
      arguments.gpu = Number(flag, value, 0);
    } else if (flag == "--seed") {
      arguments.seed = Number(flag, value, 0);
    } else if (flag == "--reduce-elements") {
      arguments.reduce_elements = Number(flag, value, 1);
    } else {
      Usage("unknown flag " + std::string(flag));
    }
  }
  if (arguments.rank >= arguments.ranks) Usage("--rank must be less than --ranks");
  if (arguments.sequences > 0 && (arguments.ranks > 1 || arguments.steps > kTokensMax)) {
    Usage("--decode has no ranks and takes at most " + std::to_string(kTokensMax) + " steps");
  }
  return arguments;
}

}  // namespace

int main(int argc, char** argv) { return Run(Parse(argc, argv)); }
