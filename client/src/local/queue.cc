#include "client/src/local/queue.h"

#include <algorithm>
#include <iterator>

#include "client/src/cuda/api.h"
#include "client/src/cuda/driver.h"
#include "client/src/local/operands.h"
#include "proto/ring/messages.h"

namespace concert::client {

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
  if (int code = Check(api, api.cuMemAllocAsync(&workspace_, kWorkspaceBytes, stream_),
                       "cuMemAllocAsync", error)) {
    return code;
  }
  return session_->LtHandle(gpu_, &handle_, error);
}

// Waits for nothing: what was submitted runs to its end, and may wait for what this thread does
// next.
LocalQueue::~LocalQueue() {
  const cuda::Api& api = session_->api();
  session_->ReleaseQueue(index_, ticket_);  // first: no waiter looks at the stream any more
  const cuda::PrimaryContext context(api, session_->device(gpu_), nullptr);
  if (context.code() != CONCERT_OK || stream_ == nullptr) return;
  if (workspace_ != 0) api.cuMemFreeAsync(workspace_, stream_);  // behind what needs it
  api.cuStreamDestroy(stream_);                                  // when it has ended
}

const LocalQueue::Kind* LocalQueue::FindKind(uint16_t kind) {
  static constexpr Kind kKinds[] = {
      {CONCERT_OP_GEMM, LocateGemm, &LocalQueue::SubmitGemm},
      {CONCERT_OP_COPY, LocateCopy, &LocalQueue::SubmitCopy},
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
  if (int code = kind->locate(op.descriptor, session_->buffers(), gpu_, error)) return code;
  if (int code = session_->CheckOpen(error)) return code;
  Waits waits;
  if (int code = FindWaits(options, &waits, error)) return code;
  const cuda::PrimaryContext context(session_->api(), session_->device(gpu_), error);
  if (context.code() != CONCERT_OK) return context.code();
  if (int code = (this->*kind->submit)(op.descriptor, waits, error)) return code;
  if (int code = cuda::StreamWrite(stream_, word_, ticket_ + 1, error)) return code;
  ++ticket_;
  *ticket = last();
  return CONCERT_OK;
}

int LocalQueue::FindWaits(const concert_submit_options& options, Waits* waits,
                          concert_error* error) {
  for (uint32_t i = 0; i < options.wait_count; ++i) {
    const concert_ticket& wait = options.waits[i];
    if (wait.timeline == 0) continue;
    const uint64_t* word = session_->Word(wait, error);
    if (word == nullptr) return CONCERT_INVALID_ARGUMENT;
    waits->of[waits->count++] = {word, wait.value};
  }
  return CONCERT_OK;
}

// Nothing takes them off the stream again: all that refuses an op comes before.
int LocalQueue::EnqueueWaits(const Waits& waits, concert_error* error) {
  for (uint32_t i = 0; i < waits.count; ++i) {
    const auto& [word, value] = waits.of[i];
    if (int code = cuda::StreamWait(stream_, word, value, error)) return code;
  }
  return CONCERT_OK;
}

int LocalQueue::SubmitGemm(const concert_descriptor& descriptor, const Waits& waits,
                           concert_error* error) {
  const CublasLt& lt = session_->lt();
  const concert_gemm_body& op = descriptor.body.gemm;
  CublasLt::Plan plan(lt);
  if (int code = lt.MakePlan(handle_, op, &plan, error)) return code;
  if (int code = EnqueueWaits(waits, error)) return code;
  return lt.Enqueue(handle_, op, plan, workspace_, stream_, error);
}

int LocalQueue::SubmitCopy(const concert_descriptor& descriptor, const Waits& waits,
                           concert_error* error) {
  if (int code = EnqueueWaits(waits, error)) return code;
  const cuda::Api& api = session_->api();
  const concert_copy_body& op = descriptor.body.copy;
  return Check(api, api.cuMemcpyDtoDAsync(op.dst.offset, op.src.offset, op.bytes, stream_),
               "cuMemcpyDtoDAsync", error);
}

}  // namespace concert::client
