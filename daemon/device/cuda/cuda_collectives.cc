#include "daemon/device/cuda/cuda_collectives.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/comm/peer_args.h"
#include "kernels/comm/transports.h"
#include "kernels/cuda_api/launch_context.h"
#include "kernels/op_table.h"

namespace concert::daemon::cuda {
namespace {

using kernels::cuda::CollectiveRank;
using kernels::cuda::EachRank;
using kernels::cuda::Nccl;
using policies::Transport;

bool AllEqual(std::span<const int> gpus) {
  return std::all_of(gpus.begin(), gpus.end(), [&](int gpu) { return gpu == gpus.front(); });
}

bool AllDistinct(std::span<const int> gpus) {
  std::vector<int> sorted(gpus.begin(), gpus.end());
  std::sort(sorted.begin(), sorted.end());
  return std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
}

}  // namespace

CudaCollectives::~CudaCollectives() {
  for (const Connection& connection : connections_) {
    for (ncclComm_t comm : connection.comms) api_.nccl->ncclCommDestroy(comm);
  }
}

const CudaCollectives::Connection* CudaCollectives::Find(std::span<const int> gpus) const {
  if (AllEqual(gpus)) return &on_one_gpu_;
  const size_t count = count_.load(std::memory_order_acquire);
  for (size_t i = 0; i < count; ++i) {
    if (std::ranges::equal(connections_[i].gpus, gpus)) return &connections_[i];
  }
  return nullptr;
}

absl::Status CudaCollectives::CheckServable(std::span<const int> gpus) const {
  const std::string list = absl::StrJoin(gpus, ", ");
  if (gpus.empty() || gpus.size() > kMaxRanks) {
    return absl::UnimplementedError(
        absl::StrCat(gpus.size(), " ranks; a communicator has 1 to ", kMaxRanks));
  }
  for (int gpu : gpus) {
    if (gpu < 0 || gpu >= static_cast<int>(devices_.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("GPU ", gpu, " of (", list, ") does not exist"));
    }
  }
  if (AllEqual(gpus)) return absl::OkStatus();
  if (!AllDistinct(gpus)) {
    return absl::UnimplementedError(
        absl::StrCat("ranks are on GPUs (", list,
                     "): some share a GPU and some do not; use one GPU for all or one for each"));
  }
  if (!api_.nccl.has_value()) {
    return absl::UnimplementedError(absl::StrCat(
        "collectives between GPUs (", list, ") need NCCL: ", api_.nccl_status.message(),
        "; install libnccl.so.2 or add it to the library path"));
  }
  return absl::OkStatus();
}

// With `sms_`, on as many at most: a CTA of NCCL fills an SM.
absl::Status CudaCollectives::MakeComms(Connection& connection) const {
  const Nccl& nccl = *api_.nccl;
  const int count = static_cast<int>(connection.gpus.size());
  connection.comms.resize(connection.gpus.size());
  if (sms_ == 0) {
    return nccl.ToStatus(
        nccl.ncclCommInitAll(connection.comms.data(), count, connection.gpus.data()),
        "ncclCommInitAll");
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.maxCTAs = sms_;
  ncclUniqueId id;
  ncclResult_t result = nccl.ncclGetUniqueId(&id);
  if (result != ncclSuccess) return nccl.ToStatus(result, "ncclGetUniqueId");
  result = nccl.ncclGroupStart();
  for (int rank = 0; rank < count && result == ncclSuccess; ++rank) {
    // Not left before its end: whatever this thread asked of NCCL later would belong to the group.
    const CUcontext context = devices_[connection.gpus[rank]]->context();
    result = api_.driver.cuCtxSetCurrent(context) == CUDA_SUCCESS
                 ? nccl.ncclCommInitRankConfig(&connection.comms[rank], count, id, rank, &config)
                 : ncclUnhandledCudaError;
  }
  const ncclResult_t end = nccl.ncclGroupEnd();
  return nccl.ToStatus(result != ncclSuccess ? result : end, "ncclCommInitRankConfig");
}

absl::Status CudaCollectives::OpenChannels(Connection& connection) const {
  std::vector<CudaDevice*> devices;
  for (int gpu : connection.gpus) {
    CudaDevice& device = *devices_[gpu];
    if (!device.info().model.transports.Has(policies::Transport::kPeer)) return absl::OkStatus();
    devices.push_back(&device);
  }
  if (devices.size() > kernels::cuda::kMaxPeers) return absl::OkStatus();
  for (std::unique_ptr<PeerChannel>& channel : connection.channels) {
    absl::StatusOr<std::unique_ptr<PeerChannel>> opened = PeerChannel::Open(api_.driver, devices);
    if (!opened.ok()) return opened.status();
    channel = *std::move(opened);
  }
  return absl::OkStatus();
}

std::string CudaCollectives::software() const {
  int version = 0;
  if (!api_.nccl.has_value() || api_.nccl->ncclGetVersion(&version) != ncclSuccess) return "";
  return absl::StrCat("NCCL ", version / 10'000, ".", version / 100 % 100, ".", version % 100);
}

absl::Status CudaCollectives::Connect(std::span<const int> gpus) {
  const MutexLock lock(connect_mutex_);
  if (absl::Status status = CheckServable(gpus); !status.ok()) return status;
  if (Find(gpus) != nullptr) return absl::OkStatus();
  const size_t count = count_.load(std::memory_order_relaxed);
  if (count == kMaxConnections) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the node serves ", kMaxConnections, " different lists of GPUs; reuse one of them"));
  }
  Connection connection;
  connection.gpus.assign(gpus.begin(), gpus.end());
  if (absl::Status status = MakeComms(connection); !status.ok()) return status;
  auto destroy = absl::MakeCleanup([&] {
    for (ncclComm_t comm : connection.comms) api_.nccl->ncclCommDestroy(comm);
  });
  if (absl::Status status = OpenChannels(connection); !status.ok()) return status;
  if (absl::Status status = WarmUp(connection); !status.ok()) return status;
  std::move(destroy).Cancel();
  connections_[count] = std::move(connection);
  count_.store(count + 1, std::memory_order_release);
  return absl::OkStatus();
}

absl::Status CudaCollectives::WarmUp(const Connection& connection) {
  const size_t rank_count = connection.gpus.size();
  std::vector<CollectiveRank> ranks;
  std::vector<Op> ops(rank_count);
  std::vector<const Op*> op_pointers;
  for (size_t rank = 0; rank < rank_count; ++rank) {
    const CudaDevice& device = *devices_[connection.gpus[rank]];
    ranks.push_back({.gpu = connection.gpus[rank],
                     .context = device.context(),
                     .stream = device.control_stream(),
                     .event = device.control_event(),
                     .comm = connection.comms[rank]});
    constexpr uint64_t kHalf = CudaDevice::kScratchBytes / 2;
    ops[rank].collective = {.communicator = 0,
                            .root = 0,
                            .sequence = 0,
                            .count = kHalf / kMaxRanks / 4,
                            .src = device.scratch(),
                            .dst = device.scratch() + kHalf,
                            .src_bytes = kHalf,
                            .dst_bytes = kHalf,
                            .dtype = policies::Dtype::kFp32,
                            .reduction = kernels::Reduction::kSum};
    op_pointers.push_back(&ops[rank]);
  }
  for (uint16_t kind : {CONCERT_OP_ALL_REDUCE, CONCERT_OP_ALL_GATHER, CONCERT_OP_REDUCE_SCATTER,
                        CONCERT_OP_ALL_TO_ALL, CONCERT_OP_BROADCAST}) {
    for (Op& op : ops) op.kind = kind;
    {
      const MutexLock lock(launch_mutex_);
      const absl::Status status = Enqueue(connection, {}, ranks, op_pointers, {});
      if (!status.ok()) return status;
    }
    for (const CollectiveRank& rank : ranks) {
      CONCERT_RETURN_IF_DRIVER_ERROR(api_.driver, rank.gpu, cuStreamSynchronize, rank.stream);
    }
  }
  return absl::OkStatus();
}

absl::Status CudaCollectives::Enqueue(const Connection& connection, std::span<const Lane> lanes,
                                      std::span<CollectiveRank> ranks,
                                      std::span<const Op* const> ops,
                                      const policies::TransportChoice& choice) {
  const uint16_t number = ops.front()->kind;
  const kernels::OpKind* kind = kernels::FindOpKind(number);
  if (kind == nullptr || kind->launch_collective == nullptr) {
    return absl::InternalError(
        absl::StrCat("op kind ", number, " has no CUDA collective launcher"));
  }
  const CudaDevice& leader = *devices_[ranks.front().gpu];
  const bool on_one_gpu = connection.comms.empty();
  const auto side_by_side = [this](size_t count, absl::FunctionRef<absl::Status(size_t)> call)
                                ABSL_EXCLUSIVE_LOCKS_REQUIRED(launch_mutex_) {
                                  return rank_threads_.ForEach(count, call);
                                };
  kernels::cuda::CollectiveContext context = {
      .api = api_,
      .ranks = ranks,
      .shared_gpu_kernels = on_one_gpu ? &leader.kernel_table() : nullptr,
      .sm_count = sms_ > 0 ? sms_ : leader.info().model.sm_count,
      // A device is called by one thread at a time.
      .each_rank = on_one_gpu ? EachRank(kernels::cuda::OneByOne) : EachRank(side_by_side),
      .choice = choice,
      .connects = lanes.empty()};
  if (choice.transport == Transport::kPeer || choice.transport == Transport::kHybrid) {
    const bool high = std::any_of(lanes.begin(), lanes.end(), policies::IsHighPriority);
    PeerChannel* const channel = connection.channels[high ? 1 : 0].get();
    if (channel == nullptr) {
      return absl::FailedPreconditionError("peer kernels need GPUs that reach each other's memory");
    }
    if (absl::Status status = channel->Enter(lanes, ranks, context); !status.ok()) return status;
  }
  CONCERT_RETURN_IF_DRIVER_ERROR(api_.driver, leader.info().gpu, cuCtxSetCurrent, leader.context());
  const absl::Status status = kind->launch_collective(context, ops);
  if (!status.ok() || context.signalled || lanes.empty()) return status;
  return kernels::cuda::ForEachRank(context, [&](size_t i, const CollectiveRank& rank) {
    return devices_[rank.gpu]->Signal(lanes[i], {&rank.signal, 1});
  });
}

absl::Status CudaCollectives::Launch(std::span<const RankPart> parts,
                                     const policies::TransportChoice& choice) {
  std::array<int, kMaxRanks> gpus;
  std::array<Lane, kMaxRanks> lanes;
  std::array<CollectiveRank, kMaxRanks> ranks;
  std::array<const Op*, kMaxRanks> ops;
  const size_t count = parts.size();
  if (count == 0 || count > kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat(count, " parts; a collective has 1 to ", kMaxRanks));
  }
  for (size_t rank = 0; rank < count; ++rank) gpus[rank] = parts[rank].gpu;
  const Connection* connection = Find({gpus.data(), count});
  if (connection == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "GPUs (", absl::StrJoin(gpus.begin(), gpus.begin() + count, ", "), ") are not connected"));
  }
  for (size_t rank = 0; rank < count; ++rank) {
    const RankPart& part = parts[rank];
    const CudaDevice& device = *devices_[part.gpu];
    ops[rank] = part.op;
    lanes[rank] = part.lane;
    ranks[rank] = {.gpu = part.gpu,
                   .context = device.context(),
                   .stream = device.stream(part.lane),
                   .event = device.issuer_event(part.lane),
                   .comm = connection->comms.empty() ? nullptr : connection->comms[rank],
                   .kernels = &device.kernel_table(),
                   .side_stream = device.side_stream(part.lane),
                   .side_event = device.side_event(part.lane),
                   .signal = part.signal};
  }
  const MutexLock lock(launch_mutex_);
  absl::Status status = Enqueue(*connection, {lanes.data(), count}, {ranks.data(), count},
                                {ops.data(), count}, choice);
  if (!status.ok()) {
    // Some GPUs may have begun what others never will: none of them can be trusted to finish.
    for (const RankPart& part : parts) devices_[part.gpu]->Fault(status).IgnoreError();
  }
  return status;
}

}  // namespace concert::daemon::cuda
