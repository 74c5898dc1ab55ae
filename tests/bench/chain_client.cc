#include "tests/bench/chain_client.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "tests/bench/daemon_contender.h"

namespace concert::bench {
namespace {

// No chain or step takes this long, not even on the simulator's CPU.
constexpr std::chrono::seconds kChainLimit(120);
// As a client does that calls cuBLASLt itself: cuStreamSynchronize spins, too. Longer than the
// chains of all public scenarios take but the largest ones, which a wake-up does not change.
constexpr std::chrono::milliseconds kPollLimit(2);

class DaemonChainClient : public ChainClient {
 public:
  DaemonChainClient(Session session, Buffer buffer, Queue queue)
      : session_(std::move(session)), buffer_(std::move(buffer)), queue_(std::move(queue)) {}

  void Prepare(const GemmWorkload& workload) {
    for (int set = 0; set < workload.sets(); ++set)
      chains_.push_back(MakeOps(workload, set, buffer_));
  }

  absl::Status RunChain(int set) override {
    Result<Batch> together = session_.BeginBatch();
    if (!together.ok()) return ToAbsl(together.status());
    Ticket last;
    for (const GemmOp& op : chains_[set]) last = queue_.Gemm(op);
    if (Status ended = together->End(); !ended.ok()) return ToAbsl(ended);
    return SpinThenWait(last);
  }
  absl::Status Write(uint64_t offset, const std::vector<uint8_t>& data) override {
    return ToAbsl(buffer_.Write(data.data(), data.size(), offset));
  }
  absl::Status Read(uint64_t offset, std::vector<uint8_t>& data) override {
    return ToAbsl(buffer_.Read(data.data(), data.size(), offset));
  }

 private:
  Session session_;
  Buffer buffer_;
  Queue queue_;
  std::vector<std::vector<GemmOp>> chains_;  // [set]
};

}  // namespace

absl::StatusOr<std::unique_ptr<ChainClient>> MakeDaemonChainClient(
    const std::string& socket, Priority priority, const GemmWorkload& workload,
    const std::vector<uint8_t>& image) {
  Result<Session> session = Session::Connect(
      {.socket_path = socket, .client_name = "concert-bench", .fallback = Fallback::kNone});
  if (!session.ok()) return ToAbsl(session.status());
  Result<Buffer> buffer = session->Allocate(workload.bytes());
  if (!buffer.ok()) return ToAbsl(buffer.status());
  Result<Queue> queue = session->CreateQueue({.priority = priority});
  if (!queue.ok()) return ToAbsl(queue.status());
  auto client = std::make_unique<DaemonChainClient>(
      std::move(session).value(), std::move(buffer).value(), std::move(queue).value());
  client->Prepare(workload);
  if (absl::Status written = client->Write(0, image); !written.ok()) return written;
  return client;
}

absl::Status SpinThenWait(const Ticket& ticket) {
  const auto sleep_at = std::chrono::steady_clock::now() + kPollLimit;
  while (!ticket.Done() && std::chrono::steady_clock::now() < sleep_at) {
  }
  return ToAbsl(ticket.Wait(kChainLimit));
}

absl::Status PoisonOutputs(ChainClient& client, const GemmWorkload& workload) {
  for (int gemm = 0; gemm < workload.gemms(); ++gemm) {
    const std::vector<uint8_t> poison = workload.Poison(gemm);
    for (int set = 0; set < workload.sets(); ++set) {
      const absl::Status written = client.Write(workload.place(set, gemm).d, poison);
      if (!written.ok()) return written;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<double> WorstError(ChainClient& client, const GemmWorkload& workload) {
  double worst = 0;
  for (int gemm = 0; gemm < workload.gemms(); ++gemm) {
    std::vector<uint8_t> input(workload.input_bytes(gemm)), output(workload.output_bytes(gemm));
    for (int set = 0; set < workload.sets(); ++set) {
      const GemmPlace& place = workload.place(set, gemm);
      if (absl::Status read = client.Read(place.a, input); !read.ok()) return read;
      if (absl::Status read = client.Read(place.d, output); !read.ok()) return read;
      const double error = workload.RelativeError(set, gemm, input, output);
      if (std::isnan(error)) return error;
      worst = std::max(worst, error);
    }
  }
  return worst;
}

}  // namespace concert::bench
