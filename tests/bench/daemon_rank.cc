// A rank that goes through concert.
#include <algorithm>
#include <utility>

#include "tests/bench/daemon_contender.h"
#include "tests/bench/rank_client.h"
#include "tests/bench/rank_poll.h"

namespace concert::bench {
namespace {

class DaemonRank : public RankClient {
 public:
  DaemonRank(uint32_t rank, Session session) : rank_(rank), session_(std::move(session)) {}

  absl::Status Open(uint32_t ranks, const RankMemorySizes& sizes) {
    for (const auto& [bytes, buffer] :
         {std::pair(sizes.gemm, &gemm_), {sizes.source, &source_}, {sizes.output, &output_}}) {
      Result<Buffer> allocated = session_.Allocate(std::max<uint64_t>(bytes, 1), rank_);
      if (!allocated.ok()) return ToAbsl(allocated.status());
      *buffer = std::move(allocated).value();
    }
    for (Queue* queue : {&gemm_queue_, &collective_queue_}) {
      Result<Queue> created = session_.CreateQueue({.gpu = rank_});
      if (!created.ok()) return ToAbsl(created.status());
      *queue = std::move(created).value();
    }
    Result<Communicator> joined =
        session_.Join({.name = "concert-bench", .rank = rank_, .ranks = ranks, .gpu = rank_});
    if (!joined.ok()) return ToAbsl(joined.status());
    communicator_ = std::move(joined).value();
    return absl::OkStatus();
  }

  absl::Status Prepare(const OverlapTask& task, const GemmWorkload& workload) override {
    task_ = task;
    gemms_.clear();
    for (int set = 0; set < workload.sets(); ++set)
      gemms_.push_back(MakeOps(workload, set, gemm_).front());
    return absl::OkStatus();
  }
  absl::StatusOr<RunEnds> Run(bool gemms, bool collective, uint64_t start_ns) override;
  absl::Status Write(RankMemory memory, uint64_t offset, std::span<const uint8_t> data) override {
    return ToAbsl(BufferOf(memory).Write(data.data(), data.size(), offset));
  }
  absl::Status Read(RankMemory memory, uint64_t offset, std::span<uint8_t> data) override {
    return ToAbsl(BufferOf(memory).Read(data.data(), data.size(), offset));
  }

 private:
  const Buffer& BufferOf(RankMemory memory) const {
    return memory == RankMemory::kGemm ? gemm_ : memory == RankMemory::kSource ? source_ : output_;
  }
  Ticket SubmitCollective();

  const uint32_t rank_;
  Session session_;
  Buffer gemm_, source_, output_;
  Queue gemm_queue_, collective_queue_;
  Communicator communicator_;
  OverlapTask task_;
  std::vector<GemmOp> gemms_;  // [set]
};

Ticket DaemonRank::SubmitCollective() {
  const CollectiveShape& shape = task_.collective;
  CollectiveOp op{.src = source_, .dst = output_, .count = shape.count()};
  switch (shape.kind) {
    case CollectiveKind::kAllReduce:
      return collective_queue_.AllReduce(communicator_, op);
    case CollectiveKind::kAllGather:
      op.src = Slice(output_, rank_ * shape.slot_bytes());
      return collective_queue_.AllGather(communicator_, op);
    case CollectiveKind::kReduceScatter:
      return collective_queue_.ReduceScatter(communicator_, op);
    case CollectiveKind::kAllToAll:
      return collective_queue_.AllToAll(communicator_, op);
    case CollectiveKind::kBroadcast:
      op.src = output_;
      return collective_queue_.Broadcast(communicator_, op);
  }
  return Ticket();
}

absl::StatusOr<RunEnds> DaemonRank::Run(bool gemms, bool collective, uint64_t start_ns) {
  Result<Batch> together = session_.BeginBatch(rank_);
  if (!together.ok()) return ToAbsl(together.status());
  Ticket collective_end, gemms_end;  // done if nothing is submitted
  if (collective) collective_end = SubmitCollective();
  for (uint32_t i = 0; gemms && i < task_.repeat; ++i)
    gemms_end = gemm_queue_.Gemm(gemms_[i % gemms_.size()]);
  if (Status ended = together->End(); !ended.ok()) return ToAbsl(ended);

  const absl::StatusOr<RunEnds> ends = PollEnds(
      start_ns, gemms, collective, [&] { return gemms_end.Done(); },
      [&] { return collective_end.Done(); });
  if (!ends.ok()) return ends.status();
  // They have ended: this says how.
  if (Status failed = collective_end.Wait(); !failed.ok()) return ToAbsl(failed);
  if (Status failed = gemms_end.Wait(); !failed.ok()) return ToAbsl(failed);
  return ends;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankClient>> MakeDaemonRank(const std::string& socket, uint32_t rank,
                                                           uint32_t ranks,
                                                           const RankMemorySizes& sizes) {
  Result<Session> session = Session::Connect(
      {.socket_path = socket, .client_name = "concert-bench", .fallback = Fallback::kNone});
  if (!session.ok()) return ToAbsl(session.status());
  auto client = std::make_unique<DaemonRank>(rank, std::move(session).value());
  if (absl::Status opened = client->Open(ranks, sizes); !opened.ok()) return opened;
  return client;
}

}  // namespace concert::bench
