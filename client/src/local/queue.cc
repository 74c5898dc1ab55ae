#include "client/src/local/queue.h"

#include <algorithm>
#include <iterator>

#include "client/src/cuda/api.h"
#include "client/src/cuda/driver.h"
#include "client/src/local/operands.h"
#include "proto/ring/messages.h"

namespace concert::client {
namespace {

constexpr size_t kWorkspaceBytes = 32u << 20;  // what NVIDIA recommends for Hopper

}  // namespace

int LocalQueue::Open(int32_t priority, concert_error* error) {
  const cuda::Api& api = session_->api();
  const cuda::PrimaryContext context(api, session_->device(gpu_), error);
  if (context.code() != CONCERT_OK) return context.code();
  int least = 0, greatest = 0;
  api.cuCtxGetStreamPriorityRange(&least, &greatest);
  const int level = priority > 0 ? greatest : priority < 0 ? least : (least + greatest) / 2;
  if (int code = Check(api, api.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, level),
                       "cuStreamCreateWithPriority", error)) {
    return code;
  }
  if (int code =
          Check(api, api.cuMemAlloc(&workspace_.address, kWorkspaceBytes), "cuMemAlloc", error)) {
    return code;
  }
  workspace_.bytes = kWorkspaceBytes;
  return session_->lt().CreateHandle(&handle_, error);
}

LocalQueue::~LocalQueue() {
  const cuda::Api& api = session_->api();
  session_->ReleaseQueue(index_);  // first: no waiter looks at the stream any more
  const cuda::PrimaryContext context(api, session_->device(gpu_), nullptr);
  if (context.code() != CONCERT_OK) return;
  // What was submitted still runs, and it needs the workspace.
  if (stream_ != nullptr) api.cuStreamSynchronize(stream_);
  if (handle_ != nullptr) session_->lt().DestroyHandle(handle_);
  if (workspace_.address != 0) api.cuMemFree(workspace_.address);
  if (stream_ != nullptr) api.cuStreamDestroy(stream_);
}

const LocalQueue::Kind* LocalQueue::FindKind(uint16_t kind) {
  static constexpr Kind kKinds[] = {
      {CONCERT_OP_GEMM, LocateGemm, &LocalQueue::EnqueueGemm},
      {CONCERT_OP_COPY, LocateCopy, &LocalQueue::EnqueueCopy},
  };
  const auto* found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                   [kind](const Kind& row) { return row.kind == kind; });
  return found == std::end(kKinds) ? nullptr : found;
}

int LocalQueue::Submit(EncodedOp& op, const concert_submit_options& options, concert_ticket* ticket,
                       concert_error* error) {
  const Kind* kind = FindKind(op.descriptor.kind);
  if (kind == nullptr)
    return FailWithoutDaemon(concert_op_kind_name(op.descriptor.kind), "needs", error);
  if (int code = kind->locate(op.descriptor, session_->buffers(), error)) return code;
  if (int code = session_->CheckOpen(error)) return code;
  const cuda::PrimaryContext context(session_->api(), session_->device(gpu_), error);
  if (context.code() != CONCERT_OK) return context.code();
  for (uint32_t i = 0; i < options.wait_count; ++i) {
    const concert_ticket& wait = options.waits[i];
    if (wait.timeline == 0) continue;
    const uint64_t* word = session_->Word(wait, error);
    if (word == nullptr) return CONCERT_INVALID_ARGUMENT;
    if (int code = cuda::StreamWait(stream_, word, wait.value, error)) return code;
  }
  if (int code = (this->*kind->enqueue)(op.descriptor, error)) return code;
  if (int code = cuda::StreamWrite(stream_, word_, ticket_ + 1, error)) return code;
  ++ticket_;
  *ticket = last();
  return CONCERT_OK;
}

int LocalQueue::EnqueueGemm(const concert_descriptor& descriptor, concert_error* error) {
  return session_->lt().Gemm(handle_, descriptor.body.gemm, workspace_, stream_, error);
}

int LocalQueue::EnqueueCopy(const concert_descriptor& descriptor, concert_error* error) {
  const cuda::Api& api = session_->api();
  const concert_copy_body& op = descriptor.body.copy;
  return Check(api, api.cuMemcpyDtoDAsync(op.dst.offset, op.src.offset, op.bytes, stream_),
               "cuMemcpyDtoDAsync", error);
}

}  // namespace concert::client
