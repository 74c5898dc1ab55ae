// A tenant that calls cuBLASLt itself.
#include <utility>
#include <vector>

#include "tests/bench/local_gemm.h"
#include "tests/bench/local_gpu.h"

namespace concert::bench {
namespace {

using local::Context;
using local::Graph;
using local::LtGemm;

class LocalChainClient : public ChainClient {
 public:
  LocalChainClient(std::unique_ptr<Context> context, const GemmWorkload& workload)
      : context_(std::move(context)), workload_(workload) {}
  ~LocalChainClient() override {
    chains_.clear();  // before what they compute in
    if (memory_ != 0) context_->api.driver.cuMemFree(memory_);
  }

  absl::Status Prepare(const std::vector<uint8_t>& image);
  absl::Status RunChain(int set) override;
  absl::Status Write(uint64_t offset, const std::vector<uint8_t>& data) override;
  absl::Status Read(uint64_t offset, std::vector<uint8_t>& data) override;

 private:
  absl::Status Wait() {
    CONCERT_BENCH_RETURN_IF_ERROR(*context_, api.driver, cuStreamSynchronize, stream());
    return absl::OkStatus();
  }
  CUstream stream() const { return context_->streams[0]; }

  std::unique_ptr<Context> context_;
  const GemmWorkload& workload_;
  CUdeviceptr memory_ = 0;
  std::vector<Graph> chains_;  // [set]
};

absl::Status LocalChainClient::Prepare(const std::vector<uint8_t>& image) {
  CONCERT_BENCH_RETURN_IF_ERROR(*context_, api.driver, cuMemAlloc, &memory_, workload_.bytes());
  if (absl::Status written = Write(0, image); !written.ok()) return written;
  std::vector<LtGemm> gemms;
  for (int gemm = 0; gemm < workload_.gemms(); ++gemm) {
    absl::StatusOr<LtGemm> planned = LtGemm::Plan(*context_, workload_.shape(gemm));
    if (!planned.ok()) return planned.status();
    gemms.push_back(*planned);
  }
  for (int set = 0; set < workload_.sets(); ++set) {
    absl::StatusOr<Graph> chain = Graph::Capture(*context_, [&] {
      absl::Status status;
      for (int gemm = 0; gemm < workload_.gemms() && status.ok(); ++gemm)
        status = gemms[gemm].Enqueue(*context_, memory_, workload_.place(set, gemm), 0);
      return status;
    });
    if (!chain.ok()) return chain.status();
    chains_.push_back(*std::move(chain));
  }
  return absl::OkStatus();
}

absl::Status LocalChainClient::RunChain(int set) {
  if (absl::Status launched = chains_[set].Launch(); !launched.ok()) return launched;
  return Wait();
}

absl::Status LocalChainClient::Write(uint64_t offset, const std::vector<uint8_t>& data) {
  CONCERT_BENCH_RETURN_IF_ERROR(*context_, api.driver, cuMemcpyHtoDAsync, memory_ + offset,
                                data.data(), data.size(), stream());
  return Wait();
}

absl::Status LocalChainClient::Read(uint64_t offset, std::vector<uint8_t>& data) {
  CONCERT_BENCH_RETURN_IF_ERROR(*context_, api.driver, cuMemcpyDtoHAsync, data.data(),
                                memory_ + offset, data.size(), stream());
  return Wait();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChainClient>> MakeLocalChainClient(
    const GpuUuid& uuid, bool high_priority, const GemmWorkload& workload,
    const std::vector<uint8_t>& image) {
  absl::StatusOr<std::unique_ptr<Context>> context = Context::Open(uuid, 1, high_priority);
  if (!context.ok()) return context.status();
  auto client = std::make_unique<LocalChainClient>(*std::move(context), workload);
  if (absl::Status prepared = client->Prepare(image); !prepared.ok()) return prepared;
  return client;
}

}  // namespace concert::bench
