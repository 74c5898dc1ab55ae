// What a trace costs while it is on: ops from libconcert through ring and dispatcher to a device
// that does nothing, with a reader of the admin API's Trace and without one, in turns.
//
//   trace_benchmark [ROUNDS]
//
// What a dispatcher's thread takes of its CPU for an op says what tracing does to the hot path, and
// what other threads take says what else it costs, whatever the machine does besides. The time from
// one op to the next says what it does to clients, where the machine is quiet.
#include <dirent.h>
#include <grpcpp/grpcpp.h>
#include <time.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "daemon/admin/admin_server.h"
#include "daemon/service/log.h"
#include "proto/concert/v1/admin.grpc.pb.h"
#include "tests/bench/null_service.h"
#include "tests/bench/statistics.h"
#include "tests/unit/admin/fake_daemon_control.h"

namespace concert::bench {
namespace {

using std::chrono::duration;
using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kWindow{100};
constexpr char kDispatcher[] = "gpu0";

// Seconds that this process's thread of that name has run.
class ThreadClock {
 public:
  explicit ThreadClock(const std::string& name) {
    DIR* tasks = opendir("/proc/self/task");
    CONCERT_CHECK(tasks != nullptr);
    while (const dirent* task = readdir(tasks)) {
      const std::string folder = std::string("/proc/self/task/") + task->d_name;
      std::string found;
      std::getline(std::ifstream(folder + "/comm") >> std::ws, found);
      if (found == name) file_ = folder + "/schedstat";
    }
    closedir(tasks);
    CONCERT_CHECK(!file_.empty());
  }
  double Seconds() const {
    double ns = 0;
    std::ifstream(file_) >> ns;
    return ns * 1e-9;
  }

 private:
  std::string file_;
};

// A trace, while it lives, and its reader.
class Tracing {
 public:
  Tracing(v1::AdminService::Stub& stub, uint32_t seconds) {
    v1::TraceRequest request;
    request.set_seconds(seconds);
    v1::TraceResponse first;  // sent when the trace has begun
    const auto deadline = steady_clock::now() + std::chrono::seconds(10);
    while (true) {  // until the one before is over
      context_ = std::make_unique<grpc::ClientContext>();
      reader_ = stub.Trace(context_.get(), request);
      if (reader_->Read(&first)) break;
      reader_->Finish();
      CONCERT_CHECK(steady_clock::now() < deadline);
    }
    thread_ = std::thread([this] { Read(); });
  }
  // What has been kept is not asked for.
  ~Tracing() {
    context_->TryCancel();
    if (thread_.joinable()) thread_.join();
  }
  // Waits until its time is over and all has come. Seconds from the first op to the last.
  double Finish() {
    thread_.join();
    return duration<double>(last_ - begin_).count();
  }
  uint64_t ops() const { return ops_; }
  uint64_t lost() const { return lost_; }

 private:
  void Read() {
    v1::TraceResponse message;
    while (reader_->Read(&message)) {
      if (message.ops_size() > 0 && ops_ == 0) begin_ = steady_clock::now();
      ops_ += message.ops_size();
      lost_ = message.lost_count();
    }
    last_ = steady_clock::now();
    reader_->Finish();
  }

  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReader<v1::TraceResponse>> reader_;
  std::thread thread_;
  uint64_t ops_ = 0, lost_ = 0;
  steady_clock::time_point begin_, last_;
};

// How a client submits.
struct Load {
  const char* name;
  size_t queues;
  size_t burst;                        // ops that the client waits for together; 0: it never waits
  std::chrono::microseconds every{0};  // when bursts begin
};

// What is measured, and how it is called.
enum Figure { kOpUs, kDispatcherNs, kOthersNs, kFigureCount };
constexpr std::array<const char*, kFigureCount> kFigureNames = {
    "us per op", "CPU of dispatcher, ns per op", "CPU of other threads, ns per op"};
using Sample = std::array<double, kFigureCount>;

// Of CPU: of the client's thread, which calls it, and of all threads of this process.
struct CpuSeconds {
  double client = Of(CLOCK_THREAD_CPUTIME_ID), all = Of(CLOCK_PROCESS_CPUTIME_ID);

  static double Of(clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }
};

Sample Measure(NullService& service, const Load& load, const ThreadClock& dispatcher) {
  std::vector<Ticket> last(load.queues);
  const auto submit = [&](size_t i) { last[i % load.queues] = service.Submit(i % load.queues); };
  const auto wait = [&] {
    for (const Ticket& ticket : last) {
      while (!ticket.Done()) {
      }
    }
  };
  for (size_t i = 0; i < load.queues; ++i) submit(i);
  wait();
  const double dispatcher_s = dispatcher.Seconds();
  const CpuSeconds cpu_begin;
  const auto begin = steady_clock::now();
  duration<double> busy{0};
  size_t ops = 0;
  for (auto next = begin; next < begin + kWindow; next += load.every) {
    if (load.every.count() > 0) std::this_thread::sleep_until(next);
    const auto burst_begin = steady_clock::now();
    const size_t burst = load.burst == 0 ? 1024 : load.burst;
    for (size_t i = 0; i < burst; ++i) submit(ops++);
    if (load.burst > 0) wait();
    busy += steady_clock::now() - burst_begin;
    if (load.every.count() == 0) next = steady_clock::now();
  }
  wait();
  const CpuSeconds cpu_end;
  const double in_dispatcher_s = dispatcher.Seconds() - dispatcher_s;
  const double in_others_s =
      cpu_end.all - cpu_begin.all - (cpu_end.client - cpu_begin.client) - in_dispatcher_s;
  return {busy.count() * 1e6 / ops, in_dispatcher_s * 1e9 / ops, in_others_s * 1e9 / ops};
}

void Compare(const Load& load, int rounds, v1::AdminService::Stub& stub, NullService& service) {
  const ThreadClock dispatcher(kDispatcher);
  std::array<std::vector<double>, kFigureCount> offs, ons, costs;
  for (int round = 0; round < rounds; ++round) {
    Sample off, on;
    const auto measure_on = [&] {
      const Tracing tracing(stub, 60);
      on = Measure(service, load, dispatcher);
    };
    if (round % 2 == 0) measure_on();
    off = Measure(service, load, dispatcher);
    if (round % 2 == 1) measure_on();
    for (int i = 0; i < kFigureCount; ++i) {
      offs[i].push_back(off[i]), ons[i].push_back(on[i]);
      costs[i].push_back((on[i] / off[i] - 1) * 100);
    }
  }
  for (int i = 0; i < kFigureCount; ++i) {
    std::printf("%-22s %-32s %9.3f %9.3f   %+6.2f %% (%+.2f to %+.2f)\n", load.name,
                kFigureNames[i], Quantile(offs[i], 0.5), Quantile(ons[i], 0.5),
                Quantile(costs[i], 0.5), Quantile(costs[i], 0.25), Quantile(costs[i], 0.75));
  }
}

// A second of as many ops as one client can make.
void PrintSending(NullService& service, const Load& load, v1::AdminService::Stub& stub) {
  const ThreadClock dispatcher(kDispatcher);
  Tracing tracing(stub, 1);
  for (const auto end = steady_clock::now() + std::chrono::seconds(1); steady_clock::now() < end;)
    Measure(service, load, dispatcher);
  const double seconds = tracing.Finish();
  std::printf("afterwards: %.2f s to send %llu ops; %llu ops and plans were lost\n", seconds,
              static_cast<unsigned long long>(tracing.ops()),
              static_cast<unsigned long long>(tracing.lost()));
}

int Main(int rounds) {
  constexpr size_t kQueues = 64;
  daemon::SetLogLevel(daemon::LogLevel::kError);
  NullService service("auto", kQueues);
  daemon::FakeDaemonControl control;
  const std::string socket = "/tmp/concert-trace-benchmark-" + std::to_string(getpid()) + ".sock";
  const auto server = daemon::AdminServer::Start(socket, control, service.telemetry()).value();
  const auto stub = v1::AdminService::NewStub(
      grpc::CreateChannel("unix:" + socket, grpc::InsecureChannelCredentials()));
  std::printf(
      "medians of %d rounds of %d ms each; cost: median and quartiles of pairs\n%-24s %-22s"
      " %9s %9s   %s\n",
      rounds, static_cast<int>(kWindow.count()), "load", "", "off", "on", "cost");
  const Load full = {"64 queues, ring full", kQueues, 0};
  const Load bursts = {"100 ops each ms", kQueues, 100, std::chrono::milliseconds(1)};
  for (const Load& load : {full, bursts}) Compare(load, rounds, *stub, service);
  PrintSending(service, full, *stub);
  return 0;
}

}  // namespace
}  // namespace concert::bench

int main(int argc, char** argv) {
  return concert::bench::Main(argc > 1 ? std::max(2, std::atoi(argv[1])) : 40);
}
