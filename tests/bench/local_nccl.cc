#include "tests/bench/local_nccl.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/bench/shared_word.h"

namespace concert::bench::local {
namespace {

constexpr int kEightCtas = 8;
constexpr ncclDataType_t kType = ncclBfloat16;
constexpr uint64_t kIdsLimitNs = 60'000'000'000;

}  // namespace

struct RankNccl::Windows {
  kernels::cuda::SharedLibrary library;
  ncclResult_t (*ncclMemAlloc)(void**, size_t) = nullptr;
  ncclResult_t (*ncclMemFree)(void*) = nullptr;
  ncclResult_t (*ncclCommWindowRegister)(ncclComm_t, void*, size_t, void**, int) = nullptr;

  static absl::StatusOr<std::unique_ptr<Windows>> Load() {
    absl::StatusOr<kernels::cuda::SharedLibrary> library =
        kernels::cuda::SharedLibrary::Open({"libnccl.so.2"});
    if (!library.ok()) return library.status();
    auto windows = std::make_unique<Windows>();
    windows->library = *std::move(library);
    absl::Status found = windows->library.Resolve("ncclMemAlloc", windows->ncclMemAlloc);
    found.Update(windows->library.Resolve("ncclMemFree", windows->ncclMemFree));
    found.Update(
        windows->library.Resolve("ncclCommWindowRegister", windows->ncclCommWindowRegister));
    if (!found.ok()) return found;
    return windows;
  }
};

RankNccl::RankNccl(const Context& context, uint32_t rank, uint32_t ranks)
    : context_(context), nccl_(*context.api.nccl), rank_(rank), ranks_(ranks) {}

absl::StatusOr<std::unique_ptr<RankNccl>> RankNccl::Open(const Context& context, uint32_t rank,
                                                         uint32_t ranks) {
  if (!context.api.nccl) return absl::NotFoundError(context.api.nccl_status.message());
  std::unique_ptr<RankNccl> nccl(new RankNccl(context, rank, ranks));
  absl::StatusOr<std::unique_ptr<Windows>> windows = Windows::Load();
  if (windows.ok()) {
    nccl->windows_ = *std::move(windows);
  } else {
    nccl->zero_cta_ = absl::NotFoundError(windows.status().message());
  }
  return nccl;
}

RankNccl::~RankNccl() {
  context_.api.driver.cuCtxSetCurrent(context_.context);
  for (ncclComm_t comm : comms_) {
    if (comm != nullptr) nccl_.ncclCommDestroy(comm);
  }
  for (const Allocation& allocation : allocations_) {
    if (allocation.by_nccl) {
      windows_->ncclMemFree(allocation.address);
    } else {
      context_.api.driver.cuMemFree(reinterpret_cast<CUdeviceptr>(allocation.address));
    }
  }
}

absl::StatusOr<CUdeviceptr> RankNccl::Allocate(uint64_t bytes) {
  Allocation allocation{.address = nullptr, .bytes = bytes, .by_nccl = windows_ != nullptr};
  if (allocation.by_nccl) {
    absl::Status made = Check(windows_->ncclMemAlloc(&allocation.address, bytes), "ncclMemAlloc");
    if (!made.ok()) return made;
  } else {
    CUdeviceptr address = 0;
    CONCERT_BENCH_RETURN_IF_ERROR(context_, api.driver, cuMemAlloc, &address, bytes);
    allocation.address = reinterpret_cast<void*>(address);
  }
  allocations_.push_back(allocation);
  return reinterpret_cast<CUdeviceptr>(allocation.address);
}

absl::Status RankNccl::Connect(RankBoard& board, std::span<const Library> libraries) {
  static_assert(sizeof(ncclUniqueId) <= sizeof(board.ids[0]));
  if (rank_ == 0) {
    for (const Library library : libraries) {
      ncclUniqueId id;
      absl::Status made = Check(nccl_.ncclGetUniqueId(&id), "ncclGetUniqueId");
      if (!made.ok()) return made;
      std::memcpy(board.ids[static_cast<size_t>(library)].data(), &id, sizeof(id));
    }
    board.ids_known.store(1, std::memory_order_release);  // for the others' acquire
    WakeSleepers(board.ids_known);
  }
  const uint64_t limit = NowNs() + kIdsLimitNs;
  while (board.ids_known.load(std::memory_order_acquire) == 0) {
    if (NowNs() > limit) return absl::DeadlineExceededError("rank 0 told no ids of NCCL");
    SleepWhile(board.ids_known, 0);
  }
  for (const Library library : libraries) {
    absl::Status made = MakeComm(board, library);
    if (library == Library::kZeroCta) {
      zero_cta_.Update(made);
    } else if (!made.ok()) {
      return made;
    }
  }
  return absl::OkStatus();
}

absl::Status RankNccl::MakeComm(RankBoard& board, Library library) {
  if (library == Library::kZeroCta && windows_ == nullptr) return zero_cta_;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (library == Library::kEight) config.maxCTAs = kEightCtas;
  if (library == Library::kZeroCta) {
#ifdef NCCL_CTA_POLICY_ZERO
    config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
#else
    return absl::NotFoundError("built with a NCCL of before 2.28");
#endif
  }
  ncclUniqueId id;
  std::memcpy(&id, board.ids[static_cast<size_t>(library)].data(), sizeof(id));
  ncclComm_t& comm = comms_[static_cast<size_t>(library)];
  absl::Status made = Check(nccl_.ncclCommInitRankConfig(&comm, static_cast<int>(ranks_), id,
                                                         static_cast<int>(rank_), &config),
                            "ncclCommInitRankConfig");
  if (!made.ok() || library != Library::kZeroCta) return made;
  return RegisterWindows(comm);
}

absl::Status RankNccl::RegisterWindows(ncclComm_t comm) {
  constexpr int kSymmetric = 1;  // NCCL_WIN_COLL_SYMMETRIC
  for (const Allocation& allocation : allocations_) {
    void* window = nullptr;  // lives as long as the communicator
    absl::Status made = Check(windows_->ncclCommWindowRegister(
                                  comm, allocation.address, allocation.bytes, &window, kSymmetric),
                              "ncclCommWindowRegister");
    if (!made.ok()) return made;
    if (window == nullptr)
      return absl::NotFoundError("NCCL made no symmetric window of the memory");
  }
  return absl::OkStatus();
}

absl::Status RankNccl::Launch(Library library, const CollectiveShape& shape, CUdeviceptr source,
                              CUdeviceptr output, CUstream stream) const {
  ncclComm_t comm = comms_[static_cast<size_t>(library)];
  const auto* src = reinterpret_cast<const void*>(source);
  auto* dst = reinterpret_cast<void*>(output);
  const uint64_t count = shape.count();
  switch (shape.kind) {
    case CollectiveKind::kAllReduce:
      return Check(nccl_.ncclAllReduce(src, dst, count, kType, ncclSum, comm, stream),
                   "ncclAllReduce");
    case CollectiveKind::kAllGather: {
      const auto* own = static_cast<const char*>(dst) + rank_ * shape.slot_bytes();
      return Check(nccl_.ncclAllGather(own, dst, count, kType, comm, stream), "ncclAllGather");
    }
    case CollectiveKind::kReduceScatter:
      return Check(nccl_.ncclReduceScatter(src, dst, count, kType, ncclSum, comm, stream),
                   "ncclReduceScatter");
    case CollectiveKind::kAllToAll:
      if (nccl_.ncclAlltoAll == nullptr)
        return absl::NotFoundError("this NCCL has no ncclAlltoAll; it came with 2.28");
      return Check(nccl_.ncclAlltoAll(src, dst, count, kType, comm, stream), "ncclAlltoAll");
    case CollectiveKind::kBroadcast:
      return Check(nccl_.ncclBroadcast(dst, dst, count, kType, /*root=*/0, comm, stream),
                   "ncclBroadcast");
  }
  return absl::InternalError("unknown collective");
}

}  // namespace concert::bench::local
