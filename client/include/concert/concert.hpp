// The C++20 wrapper of concert.h: header-only, move-only owners, designated initialisers.
//
//   concert::Session session = concert::Session::Connect().value();
//   concert::Queue queue = session.CreateQueue({.gpu = 0, .priority = concert::kHigh}).value();
//   concert::Buffer y = session.Allocate(y_bytes).value();
//   concert::Ticket up = queue.Gemm({.m = 64, .n = 14336, .k = 4096, .a = x, .w = w, .d = y});
//   concert::Status status = up.Wait();
//
// Errors, without exceptions. Making something returns a Result<T>: test ok(), or call value(),
// which prints the sentence and aborts when there is no value. Doing something returns a Status.
// Submitting returns a Ticket in any case: one that could not be submitted has failed already, so
// that there is one place to look for an op's outcome, its Wait(). An op that should wait for such
// a ticket fails with the same status.
//
// Threads and lifetimes are those of concert.h. Wait for a Ticket only while its session is open.
#ifndef CONCERT_CONCERT_HPP_
#define CONCERT_CONCERT_HPP_

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "concert/concert.h"

namespace concert {

enum Priority : int32_t {
  kLow = CONCERT_PRIORITY_LOW,
  kNormal = CONCERT_PRIORITY_NORMAL,
  kHigh = CONCERT_PRIORITY_HIGH
};
enum Dtype : uint32_t {
  kBf16 = CONCERT_BF16,
  kFp16 = CONCERT_FP16,
  kFp32 = CONCERT_FP32,
  kFp8E4m3 = CONCERT_FP8_E4M3,
  kInt32 = CONCERT_INT32,
  kInt64 = CONCERT_INT64
};
enum Activation : uint32_t {
  kNone = CONCERT_ACTIVATION_NONE,
  kRelu = CONCERT_ACTIVATION_RELU,
  kGelu = CONCERT_ACTIVATION_GELU,
  kSilu = CONCERT_ACTIVATION_SILU
};
enum Reduction : uint32_t {
  kSum = CONCERT_REDUCTION_SUM,
  kMax = CONCERT_REDUCTION_MAX,
  kMin = CONCERT_REDUCTION_MIN
};
enum class Fallback : uint32_t {
  kEnvironment = CONCERT_FALLBACK_ENVIRONMENT,
  kNone = CONCERT_FALLBACK_NONE,
  kCublas = CONCERT_FALLBACK_CUBLAS
};
enum class Batches : uint32_t {
  kEnvironment = CONCERT_BATCHES_ENVIRONMENT,
  kPrograms = CONCERT_BATCHES_PROGRAMS,
  kOps = CONCERT_BATCHES_OPS
};

// OK, or a code and a sentence.
class [[nodiscard]] Status {
 public:
  Status() = default;
  explicit Status(const concert_error& error)
      : code_(static_cast<concert_code>(error.code)), message_(error.message) {}

  bool ok() const { return code_ == CONCERT_OK; }
  concert_code code() const { return code_; }
  const std::string& message() const { return message_; }
  // "OK", or "INVALID_ARGUMENT: m is 0; it must be between 1 and 16777216".
  std::string ToString() const {
    return ok() ? "OK" : std::string(concert_code_name(code_)) + ": " + message_;
  }
  void IgnoreError() const {}
  // Prints the sentence and aborts unless ok().
  void Check() const {
    if (ok()) return;
    std::fprintf(stderr, "concert: %s\n", ToString().c_str());
    std::abort();
  }

 private:
  concert_code code_ = CONCERT_OK;
  std::string message_;
};

// A T, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}                   // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {}           // NOLINT
  Result(const concert_error& error) : status_(Status(error)) {}  // NOLINT

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  // Each aborts with the sentence unless ok().
  T& value() & { return status_.Check(), *value_; }
  T&& value() && { return status_.Check(), std::move(*value_); }
  T& operator*() & { return value(); }
  T* operator->() { return &value(); }

 private:
  std::optional<T> value_;
  Status status_;
};

namespace detail {
template <auto Function>
struct Calls {
  template <typename T>
  void operator()(T* handle) const {
    Function(handle);
  }
};
template <typename T, auto Function>
using Handle = std::unique_ptr<T, Calls<Function>>;
}  // namespace detail

// A registered range of memory. Unregistered when destroyed.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(concert_buffer* handle) : handle_(handle) {}

  concert_buffer* get() const { return handle_.get(); }
  uint64_t bytes() const { return concert_buffer_bytes(get()); }
  // Host pointer on sim, device pointer on cuda; see concert_buffer_address.
  Result<void*> Address() const {
    concert_error error;
    void* address = nullptr;
    if (concert_buffer_address(get(), &address, &error) != CONCERT_OK) return error;
    return address;
  }
  Status Write(const void* data, uint64_t bytes, uint64_t offset = 0) const {
    concert_error error;
    if (concert_buffer_write(get(), offset, data, bytes, &error) != CONCERT_OK)
      return Status(error);
    return {};
  }
  Status Read(void* data, uint64_t bytes, uint64_t offset = 0) const {
    concert_error error;
    if (concert_buffer_read(get(), offset, data, bytes, &error) != CONCERT_OK) return Status(error);
    return {};
  }
  // See concert_buffer_seal.
  Status Seal() const {
    concert_error error;
    if (concert_buffer_seal(get(), &error) != CONCERT_OK) return Status(error);
    return {};
  }

 private:
  detail::Handle<concert_buffer, concert_buffer_free> handle_;
};

// From `offset` bytes in a buffer. A Buffer converts to its beginning; the default is "none".
struct Slice {
  Slice() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): see above
  Slice(const Buffer& buffer, uint64_t offset = 0) : buffer(buffer.get()), offset(offset) {}

  concert_slice Abi() const { return {buffer, offset}; }

  concert_buffer* buffer = nullptr;
  uint64_t offset = 0;
};

// The moment when an op is done. Cheap to copy.
class [[nodiscard]] Ticket {
 public:
  Ticket() = default;  // no moment: waits skip it, Wait returns at once
  Ticket(concert_session* session, concert_ticket ticket) : session_(session), ticket_(ticket) {}
  explicit Ticket(Status failure) : failure_(std::make_shared<const Status>(std::move(failure))) {}

  // OK, or why the op could not be submitted. What became of a submitted op is told by Wait and
  // Poll.
  Status submit_status() const { return failure_ ? *failure_ : Status(); }
  concert_ticket get() const { return ticket_; }

  // Blocks until the op is done and returns its outcome. See concert_wait.
  Status Wait() const { return WaitNanoseconds(-1); }
  // A timeout that has passed already is none: it only looks.
  Status Wait(std::chrono::nanoseconds timeout) const {
    return WaitNanoseconds(std::max<int64_t>(timeout.count(), 0));
  }
  // True when there is nothing more to wait for. Never blocks. Then Wait() returns the outcome at
  // once.
  bool Done() const {
    if (failure_ || ticket_.timeline == 0) return true;
    int done = 0;
    return concert_poll(session_, ticket_, &done, nullptr) != CONCERT_OK || done != 0;
  }
  // Makes later work of a CUDA stream wait; this thread goes on. See concert_wait_on_stream.
  Status WaitOn(void* stream) const {
    if (failure_) return *failure_;
    if (ticket_.timeline == 0) return {};
    concert_error error;
    if (concert_wait_on_stream(session_, ticket_, stream, &error) != CONCERT_OK)
      return Status(error);
    return {};
  }

 private:
  Status WaitNanoseconds(int64_t timeout_ns) const {
    if (failure_) return *failure_;
    if (ticket_.timeline == 0) return {};
    concert_error error;
    if (concert_wait(session_, ticket_, timeout_ns, &error) != CONCERT_OK) return Status(error);
    return {};
  }

  concert_session* session_ = nullptr;
  concert_ticket ticket_{};
  std::shared_ptr<const Status> failure_;
};

// A rank's place in a communicator. Left when destroyed.
class Communicator {
 public:
  Communicator() = default;
  explicit Communicator(concert_communicator* handle) : handle_(handle) {}
  concert_communicator* get() const { return handle_.get(); }

 private:
  detail::Handle<concert_communicator, concert_communicator_leave> handle_;
};

// A counter that the client or its GPU raises and that ops wait for.
class UserTimeline {
 public:
  UserTimeline() = default;
  UserTimeline(concert_session* session, concert_user_timeline* handle)
      : session_(session), handle_(handle) {}

  concert_user_timeline* get() const { return handle_.get(); }
  Ticket At(uint64_t value) const { return {session_, concert_user_timeline_ticket(get(), value)}; }
  Status Signal(uint64_t value) const {
    concert_error error;
    if (concert_user_timeline_signal(get(), value, &error) != CONCERT_OK) return Status(error);
    return {};
  }
  Status SignalOn(void* stream, uint64_t value) const {
    concert_error error;
    if (concert_user_timeline_signal_on_stream(get(), value, stream, &error) != CONCERT_OK) {
      return Status(error);
    }
    return {};
  }

 private:
  concert_session* session_ = nullptr;
  detail::Handle<concert_user_timeline, concert_user_timeline_destroy> handle_;
};

// D[m,n] = act(alpha * A[m,k] * W[n,k]^T + beta * C[m,n] + bias[n]), `batch` times, or with
// `residual` act(alpha * A * W^T + bias) + beta * C, or `gated` D[m,n/2] = act(gate) * up of its
// halves; see concert_gemm.
struct GemmOp {
  uint32_t m = 0, n = 0, k = 0, batch = 1;
  Slice a{}, w{}, c{}, d{}, bias{};
  uint64_t lda = 0, ldw = 0, ldc = 0, ldd = 0;
  uint64_t stride_a = 0, stride_w = 0, stride_c = 0, stride_d = 0;
  float alpha = 1, beta = 0;
  Dtype dtype = kBf16;
  Activation activation = kNone;
  bool allow_tf32 = false;
  bool residual = false;
  bool gated = false, gate_interleaved = false;
  // fp8: what D is, and the scales of A and W. Other dtypes may have scales of A, one per row.
  Dtype d_dtype = {};  // none: as dtype
  Slice a_scales{}, w_scales{};
  bool a_scales_per_row = false, w_scales_per_row = false;
};

// One rank's part of a collective. `data` stands for src and dst when both are the same.
struct CollectiveOp {
  Slice data{};
  Slice src{}, dst{};
  uint64_t count = 0;  // elements; see concert_collective
  Dtype dtype = kBf16;
  Reduction reduction = kSum;
  uint32_t root = 0;
};

struct CopyOp {
  Slice src{}, dst{};
  uint64_t bytes = 0;
};

// See concert_rms_norm.
struct RmsNormOp {
  uint32_t rows = 0, columns = 0;
  Slice x{}, weight{}, out{};
  Slice residual{};  // none: x alone is normalised
  uint64_t x_stride = 0, residual_stride = 0, out_stride = 0;
  float epsilon = 1e-6f;
  Dtype dtype = kBf16;
  bool cast_first = false;  // rounded before it is multiplied by the weight
};

// See concert_gated_activation.
struct GatedActivationOp {
  uint32_t rows = 0, columns = 0;
  Slice x{}, out{};
  uint64_t x_stride = 0, out_stride = 0;
  Dtype dtype = kBf16;
  Activation activation = kSilu;
  bool interleaved = false;
};

// See concert_embedding.
struct EmbeddingOp {
  uint32_t rows = 0, columns = 0, vocabulary = 0;
  Slice ids{}, table{}, out{};
  uint64_t table_stride = 0, out_stride = 0;
  Dtype dtype = kBf16;
  Dtype index_dtype = kInt32;
};

// See concert_argmax.
struct ArgmaxOp {
  uint32_t rows = 0, columns = 0;
  Slice x{}, indices{};
  uint64_t x_stride = 0;
  Dtype dtype = kBf16;
  Dtype index_dtype = kInt32;
};

// See concert_kv_cache.
struct KvCache {
  Slice k{}, v{};
  uint32_t pages = 0, page_size = 0;
  uint64_t page_stride = 0;
  uint32_t token_stride = 0, head_stride = 0;
  Dtype dtype = {};                // none: as the op's; or kFp8E4m3
  float k_scale = 0, v_scale = 0;  // of fp8; 0: 1

  concert_kv_cache Abi() const {
    return {k.Abi(), v.Abi(), page_stride, pages, page_size, token_stride, head_stride};
  }
};

// See concert_rope_append.
struct RopeAppendOp {
  uint32_t rows = 0;
  uint32_t q_heads = 0, kv_heads = 0, head_dim = 0;
  uint32_t rotary_dim = 0;  // 0: head_dim
  uint32_t positions_max = 0;
  Slice q{}, k{}, v{}, positions{}, slots{}, cos_sin{};
  KvCache cache{};
  uint32_t q_stride = 0, k_stride = 0, v_stride = 0;
  Dtype dtype = kBf16;
  Dtype position_dtype = kInt32, slot_dtype = kInt32;
  bool interleaved = false;
};

// See concert_attention_decode.
struct AttentionDecodeOp {
  uint32_t rows = 0;
  uint32_t q_heads = 0, kv_heads = 0, head_dim = 0;
  uint32_t length_max = 0;
  Slice q{}, lengths{}, out{};
  KvCache cache{};
  Slice page_table{};  // none: a page for each sequence
  uint32_t q_stride = 0, out_stride = 0, table_stride = 0;
  float scale = 1, soft_cap = 0;
  uint32_t window = 0;
  Dtype dtype = kBf16;
};

// See concert_attention_prefill.
struct AttentionPrefillOp {
  uint32_t tokens = 0, sequences = 0;
  uint32_t q_heads = 0, kv_heads = 0, head_dim = 0;
  uint32_t length_max = 0;
  Slice q{}, query_starts{}, lengths{}, out{};
  KvCache cache{};
  Slice page_table{};  // none: a page for each sequence
  uint32_t q_stride = 0, out_stride = 0, table_stride = 0;
  float scale = 1, soft_cap = 0;
  uint32_t window = 0;
  Dtype dtype = kBf16;
};

// See concert_layer_norm.
struct LayerNormOp {
  uint32_t rows = 0, columns = 0;
  Slice x{}, weight{}, out{};
  Slice bias{};      // none: nothing is added
  Slice residual{};  // none: x alone is normalised
  uint64_t x_stride = 0, residual_stride = 0, out_stride = 0;
  float epsilon = 1e-5f;
  Dtype dtype = kBf16;
};

enum ElementwiseFunction : uint32_t {
  kAdd = CONCERT_ADD,
  kMultiply = CONCERT_MULTIPLY,
  kCast = CONCERT_CAST
};

// See concert_elementwise.
struct ElementwiseOp {
  ElementwiseFunction function = kAdd;
  uint32_t rows = 0, columns = 0;
  Slice x{}, y{}, out{};  // a cast needs no y
  uint64_t x_stride = 0, y_stride = 0, out_stride = 0;
  Dtype dtype = kBf16;
  Dtype out_dtype = {};  // none: as dtype
};

// See concert_advance.
struct AdvanceOp {
  uint32_t rows = 0;
  uint32_t counter_max = 0;
  Slice counters{};
  Slice slots{};  // none: all rows take the step
  Dtype counter_dtype = kInt32, slot_dtype = kInt32;
};

// See concert_quantize.
struct QuantizeOp {
  uint32_t rows = 0, columns = 0;
  Slice x{}, out{}, scales{};
  uint64_t x_stride = 0, out_stride = 0;
  Dtype dtype = kBf16;
};

// See concert_sample.
struct SampleOp {
  uint32_t rows = 0, columns = 0;
  Slice x{}, indices{};
  float temperature = 1, top_p = 1;
  uint32_t top_k = 0;
  uint64_t seed = 0;
  Slice steps{};                                      // none: 0
  Slice temperatures{}, top_ks{}, top_ps{}, seeds{};  // none: as above for all rows
  uint64_t x_stride = 0;
  Dtype dtype = kBf16;
  Dtype index_dtype = kInt32, step_dtype = kInt32;
};

// Up to CONCERT_WAITS_MAX tickets: `{up, gate}`. More are refused when the op is submitted.
class Waits {
 public:
  Waits() = default;
  Waits(std::initializer_list<Ticket> tickets) {
    for (const Ticket& ticket : tickets) Add(ticket);
  }
  void Add(const Ticket& ticket) {
    if (count_ < tickets_.size()) tickets_[count_] = ticket;
    ++count_;
  }
  // How many were added; begin() to end() are the first CONCERT_WAITS_MAX of them.
  size_t size() const { return count_; }
  const Ticket* begin() const { return tickets_.data(); }
  const Ticket* end() const {
    return tickets_.data() + (count_ < tickets_.size() ? count_ : tickets_.size());
  }

 private:
  std::array<Ticket, CONCERT_WAITS_MAX> tickets_;
  size_t count_ = 0;
};

struct SubmitOptions {
  Waits waits{};
  uint64_t deadline_ns = 0;  // a hint, on CLOCK_MONOTONIC
};

class Program;

// One run of a program: a slice for each of its bindings, and how many of its rows; 0: all.
struct RunOp {
  const Program& program;
  std::vector<Slice> bindings{};
  uint32_t rows = 0;
};

// An ordered line of ops. One thread at a time.
class Queue {
 public:
  Queue() = default;
  Queue(concert_session* session, concert_queue* handle) : session_(session), handle_(handle) {}

  concert_queue* get() const { return handle_.get(); }
  // The moment when everything submitted so far is done.
  Ticket last() const { return {session_, concert_queue_last(get())}; }

  Ticket Gemm(const GemmOp& op, const SubmitOptions& options = {}) {
    concert_gemm gemm = {};
    gemm.struct_size = sizeof(gemm);
    gemm.m = op.m, gemm.n = op.n, gemm.k = op.k, gemm.batch = op.batch;
    gemm.dtype = op.dtype;
    gemm.activation = op.activation;
    gemm.flags = (op.allow_tf32 ? CONCERT_GEMM_TF32 : 0) |
                 (op.residual ? CONCERT_GEMM_RESIDUAL : 0) | (op.gated ? CONCERT_GEMM_GATED : 0) |
                 (op.gate_interleaved ? CONCERT_GEMM_GATE_INTERLEAVED : 0) |
                 (op.a_scales_per_row ? CONCERT_GEMM_A_SCALES_PER_ROW : 0) |
                 (op.w_scales_per_row ? CONCERT_GEMM_W_SCALES_PER_ROW : 0);
    gemm.a = op.a.Abi(), gemm.w = op.w.Abi(), gemm.c = op.c.Abi(), gemm.d = op.d.Abi();
    gemm.bias = op.bias.Abi();
    gemm.lda = op.lda, gemm.ldw = op.ldw, gemm.ldc = op.ldc, gemm.ldd = op.ldd;
    gemm.stride_a = op.stride_a, gemm.stride_w = op.stride_w;
    gemm.stride_c = op.stride_c, gemm.stride_d = op.stride_d;
    gemm.alpha = op.alpha, gemm.beta = op.beta;
    gemm.a_scales = op.a_scales.Abi(), gemm.w_scales = op.w_scales.Abi();
    gemm.d_dtype = op.d_dtype;
    return Submit(concert_submit_gemm, gemm, options);
  }
  Ticket AllReduce(const Communicator& group, const CollectiveOp& op, const SubmitOptions& o = {}) {
    return Collective(CONCERT_ALL_REDUCE, group, op, o);
  }
  Ticket AllGather(const Communicator& group, const CollectiveOp& op, const SubmitOptions& o = {}) {
    return Collective(CONCERT_ALL_GATHER, group, op, o);
  }
  Ticket ReduceScatter(const Communicator& group, const CollectiveOp& op,
                       const SubmitOptions& o = {}) {
    return Collective(CONCERT_REDUCE_SCATTER, group, op, o);
  }
  Ticket AllToAll(const Communicator& group, const CollectiveOp& op, const SubmitOptions& o = {}) {
    return Collective(CONCERT_ALL_TO_ALL, group, op, o);
  }
  Ticket Broadcast(const Communicator& group, const CollectiveOp& op, const SubmitOptions& o = {}) {
    return Collective(CONCERT_BROADCAST, group, op, o);
  }
  Ticket Barrier(const Communicator& group, const SubmitOptions& options = {}) {
    return Collective(CONCERT_BARRIER, group, {}, options);
  }
  Ticket Copy(const CopyOp& op, const SubmitOptions& options = {}) {
    concert_copy copy = {};
    copy.struct_size = sizeof(copy);
    copy.src = op.src.Abi(), copy.dst = op.dst.Abi(), copy.bytes = op.bytes;
    return Submit(concert_submit_copy, copy, options);
  }
  Ticket RmsNorm(const RmsNormOp& op, const SubmitOptions& options = {}) {
    concert_rms_norm norm = {};
    norm.struct_size = sizeof(norm);
    norm.rows = op.rows, norm.columns = op.columns;
    norm.x = op.x.Abi(), norm.residual = op.residual.Abi();
    norm.weight = op.weight.Abi(), norm.out = op.out.Abi();
    norm.x_stride = op.x_stride, norm.residual_stride = op.residual_stride;
    norm.out_stride = op.out_stride;
    norm.epsilon = op.epsilon, norm.dtype = op.dtype;
    norm.flags = op.cast_first ? CONCERT_RMS_NORM_CAST_FIRST : 0;
    return Submit(concert_submit_rms_norm, norm, options);
  }
  Ticket GatedActivation(const GatedActivationOp& op, const SubmitOptions& options = {}) {
    concert_gated_activation gated = {};
    gated.struct_size = sizeof(gated);
    gated.rows = op.rows, gated.columns = op.columns;
    gated.x = op.x.Abi(), gated.out = op.out.Abi();
    gated.x_stride = op.x_stride, gated.out_stride = op.out_stride;
    gated.dtype = op.dtype, gated.activation = op.activation;
    gated.flags = op.interleaved ? CONCERT_GATED_INTERLEAVED : 0;
    return Submit(concert_submit_gated_activation, gated, options);
  }
  Ticket Embedding(const EmbeddingOp& op, const SubmitOptions& options = {}) {
    concert_embedding embedding = {};
    embedding.struct_size = sizeof(embedding);
    embedding.rows = op.rows, embedding.columns = op.columns;
    embedding.vocabulary = op.vocabulary;
    embedding.dtype = op.dtype, embedding.index_dtype = op.index_dtype;
    embedding.ids = op.ids.Abi(), embedding.table = op.table.Abi(), embedding.out = op.out.Abi();
    embedding.table_stride = op.table_stride, embedding.out_stride = op.out_stride;
    return Submit(concert_submit_embedding, embedding, options);
  }
  Ticket Argmax(const ArgmaxOp& op, const SubmitOptions& options = {}) {
    concert_argmax argmax = {};
    argmax.struct_size = sizeof(argmax);
    argmax.rows = op.rows, argmax.columns = op.columns;
    argmax.dtype = op.dtype, argmax.index_dtype = op.index_dtype;
    argmax.x = op.x.Abi(), argmax.indices = op.indices.Abi();
    argmax.x_stride = op.x_stride;
    return Submit(concert_submit_argmax, argmax, options);
  }
  Ticket RopeAppend(const RopeAppendOp& op, const SubmitOptions& options = {}) {
    concert_rope_append rope = {};
    rope.struct_size = sizeof(rope);
    rope.rows = op.rows, rope.positions_max = op.positions_max;
    rope.q_heads = op.q_heads, rope.kv_heads = op.kv_heads;
    rope.head_dim = op.head_dim, rope.rotary_dim = op.rotary_dim;
    rope.dtype = op.dtype;
    rope.position_dtype = op.position_dtype, rope.slot_dtype = op.slot_dtype;
    rope.flags = op.interleaved ? CONCERT_ROPE_INTERLEAVED : 0;
    rope.q = op.q.Abi(), rope.k = op.k.Abi(), rope.v = op.v.Abi();
    rope.positions = op.positions.Abi(), rope.slots = op.slots.Abi();
    rope.cos_sin = op.cos_sin.Abi(), rope.cache = op.cache.Abi();
    rope.q_stride = op.q_stride, rope.k_stride = op.k_stride, rope.v_stride = op.v_stride;
    rope.cache_dtype = op.cache.dtype;
    rope.k_scale = op.cache.k_scale, rope.v_scale = op.cache.v_scale;
    return Submit(concert_submit_rope_append, rope, options);
  }
  Ticket AttentionDecode(const AttentionDecodeOp& op, const SubmitOptions& options = {}) {
    concert_attention_decode attention = {};
    attention.struct_size = sizeof(attention);
    attention.rows = op.rows, attention.length_max = op.length_max;
    attention.q_heads = op.q_heads, attention.kv_heads = op.kv_heads;
    attention.head_dim = op.head_dim, attention.dtype = op.dtype;
    attention.window = op.window, attention.scale = op.scale, attention.soft_cap = op.soft_cap;
    attention.q = op.q.Abi(), attention.page_table = op.page_table.Abi();
    attention.lengths = op.lengths.Abi(), attention.out = op.out.Abi();
    attention.cache = op.cache.Abi();
    attention.q_stride = op.q_stride, attention.out_stride = op.out_stride;
    attention.table_stride = op.table_stride;
    attention.cache_dtype = op.cache.dtype;
    attention.k_scale = op.cache.k_scale, attention.v_scale = op.cache.v_scale;
    return Submit(concert_submit_attention_decode, attention, options);
  }
  Ticket AttentionPrefill(const AttentionPrefillOp& op, const SubmitOptions& options = {}) {
    concert_attention_prefill attention = {};
    attention.struct_size = sizeof(attention);
    attention.tokens = op.tokens, attention.sequences = op.sequences;
    attention.length_max = op.length_max;
    attention.q_heads = op.q_heads, attention.kv_heads = op.kv_heads;
    attention.head_dim = op.head_dim, attention.dtype = op.dtype;
    attention.window = op.window, attention.scale = op.scale, attention.soft_cap = op.soft_cap;
    attention.q = op.q.Abi(), attention.query_starts = op.query_starts.Abi();
    attention.page_table = op.page_table.Abi();
    attention.lengths = op.lengths.Abi(), attention.out = op.out.Abi();
    attention.cache = op.cache.Abi();
    attention.q_stride = op.q_stride, attention.out_stride = op.out_stride;
    attention.table_stride = op.table_stride;
    attention.cache_dtype = op.cache.dtype;
    attention.k_scale = op.cache.k_scale, attention.v_scale = op.cache.v_scale;
    return Submit(concert_submit_attention_prefill, attention, options);
  }
  Ticket LayerNorm(const LayerNormOp& op, const SubmitOptions& options = {}) {
    concert_layer_norm norm = {};
    norm.struct_size = sizeof(norm);
    norm.rows = op.rows, norm.columns = op.columns;
    norm.dtype = op.dtype, norm.epsilon = op.epsilon;
    norm.x = op.x.Abi(), norm.residual = op.residual.Abi(), norm.out = op.out.Abi();
    norm.weight = op.weight.Abi(), norm.bias = op.bias.Abi();
    norm.x_stride = op.x_stride, norm.residual_stride = op.residual_stride;
    norm.out_stride = op.out_stride;
    return Submit(concert_submit_layer_norm, norm, options);
  }
  Ticket Elementwise(const ElementwiseOp& op, const SubmitOptions& options = {}) {
    concert_elementwise elementwise = {};
    elementwise.struct_size = sizeof(elementwise);
    elementwise.function = op.function;
    elementwise.rows = op.rows, elementwise.columns = op.columns;
    elementwise.dtype = op.dtype, elementwise.out_dtype = op.out_dtype;
    elementwise.x = op.x.Abi(), elementwise.y = op.y.Abi(), elementwise.out = op.out.Abi();
    elementwise.x_stride = op.x_stride, elementwise.y_stride = op.y_stride;
    elementwise.out_stride = op.out_stride;
    return Submit(concert_submit_elementwise, elementwise, options);
  }
  Ticket Advance(const AdvanceOp& op, const SubmitOptions& options = {}) {
    concert_advance advance = {};
    advance.struct_size = sizeof(advance);
    advance.rows = op.rows, advance.counter_max = op.counter_max;
    advance.counter_dtype = op.counter_dtype, advance.slot_dtype = op.slot_dtype;
    advance.counters = op.counters.Abi(), advance.slots = op.slots.Abi();
    return Submit(concert_submit_advance, advance, options);
  }
  Ticket Quantize(const QuantizeOp& op, const SubmitOptions& options = {}) {
    concert_quantize quantize = {};
    quantize.struct_size = sizeof(quantize);
    quantize.rows = op.rows, quantize.columns = op.columns, quantize.dtype = op.dtype;
    quantize.x = op.x.Abi(), quantize.out = op.out.Abi(), quantize.scales = op.scales.Abi();
    quantize.x_stride = op.x_stride, quantize.out_stride = op.out_stride;
    return Submit(concert_submit_quantize, quantize, options);
  }
  Ticket Sample(const SampleOp& op, const SubmitOptions& options = {}) {
    concert_sample sample = {};
    sample.struct_size = sizeof(sample);
    sample.rows = op.rows, sample.columns = op.columns, sample.dtype = op.dtype;
    sample.index_dtype = op.index_dtype, sample.step_dtype = op.step_dtype;
    sample.temperature = op.temperature, sample.top_p = op.top_p;
    sample.top_k = op.top_k, sample.seed = op.seed;
    sample.x = op.x.Abi(), sample.indices = op.indices.Abi(), sample.steps = op.steps.Abi();
    sample.temperatures = op.temperatures.Abi(), sample.seeds = op.seeds.Abi();
    sample.top_ks = op.top_ks.Abi(), sample.top_ps = op.top_ps.Abi();
    sample.x_stride = op.x_stride;
    return Submit(concert_submit_sample, sample, options);
  }
  inline Ticket Run(const RunOp& op, const SubmitOptions& options = {});

 private:
  Ticket Collective(concert_collective_kind kind, const Communicator& group, const CollectiveOp& op,
                    const SubmitOptions& options) {
    concert_collective collective = {};
    collective.struct_size = sizeof(collective);
    collective.kind = kind;
    collective.communicator = group.get();
    collective.src = (op.src.buffer ? op.src : op.data).Abi();
    collective.dst = (op.dst.buffer ? op.dst : op.data).Abi();
    collective.count = op.count;
    collective.dtype = kind == CONCERT_BARRIER ? 0u : static_cast<uint32_t>(op.dtype);
    collective.reduction = op.reduction;
    collective.root = op.root;
    return Submit(concert_submit_collective, collective, options);
  }

  template <typename Function, typename Op>
  Ticket Submit(Function submit, const Op& op, const SubmitOptions& options) {
    std::array<concert_ticket, CONCERT_WAITS_MAX> waits;
    uint32_t count = 0;
    for (const Ticket& wait : options.waits) {
      if (Status failed = wait.submit_status(); !failed.ok()) return Ticket(std::move(failed));
      waits[count++] = wait.get();
    }
    concert_submit_options abi = {};
    abi.struct_size = sizeof(abi);
    // More than there are in `waits` are refused before they are read.
    abi.wait_count = static_cast<uint32_t>(options.waits.size());
    abi.waits = waits.data();
    abi.deadline_ns = options.deadline_ns;
    concert_ticket ticket;
    concert_error error;
    if (submit(get(), &op, &abi, &ticket, &error) != CONCERT_OK) return Ticket(Status(error));
    return {session_, ticket};
  }

  concert_session* session_ = nullptr;
  detail::Handle<concert_queue, concert_queue_destroy> handle_;
};

// See concert_program_begin. What is submitted to queue() is recorded until End registers it.
class Program {
 public:
  Program() = default;
  concert_program* get() const { return handle_.get(); }
  Queue& queue() { return queue_; }
  Result<Buffer> Arena(uint64_t bytes) const { return Slot(concert_program_arena, bytes); }
  Result<Buffer> Binding(uint64_t bytes) const { return Slot(concert_program_binding, bytes); }
  // See concert_program_rows.
  Status Rows(const std::vector<uint32_t>& rows) const {
    concert_error error;
    const auto count = static_cast<uint32_t>(rows.size());
    if (concert_program_rows(get(), rows.data(), count, &error) != CONCERT_OK) return Status(error);
    return {};
  }
  Status End() const {
    concert_error error;
    if (concert_program_end(get(), &error) != CONCERT_OK) return Status(error);
    return {};
  }

 private:
  friend class Session;
  Program(concert_program* program, Queue queue) : queue_(std::move(queue)), handle_(program) {}
  template <typename Add>
  Result<Buffer> Slot(Add add, uint64_t bytes) const {
    concert_error error;
    concert_buffer* handle = nullptr;
    if (add(get(), bytes, &handle, &error) != CONCERT_OK) return error;
    return Buffer(handle);
  }

  Queue queue_;
  detail::Handle<concert_program, concert_program_free> handle_;
};

inline Ticket Queue::Run(const RunOp& op, const SubmitOptions& options) {
  std::vector<concert_slice> bindings;
  for (const Slice& binding : op.bindings) bindings.push_back(binding.Abi());
  concert_run run = {};
  run.struct_size = sizeof(run);
  run.binding_count = static_cast<uint32_t>(bindings.size());
  run.program = op.program.get();
  run.bindings = bindings.data();
  run.rows = op.rows;
  return Submit(concert_submit_run, run, options);
}

// Ops submitted to queues of the GPU while it lives are handed over together when it ends.
class Batch {
 public:
  Batch(concert_session* session, uint32_t gpu) : session_(session), gpu_(gpu) {}
  Batch(Batch&& other) noexcept
      : session_(std::exchange(other.session_, nullptr)), gpu_(other.gpu_) {}
  Batch& operator=(Batch&&) = delete;
  ~Batch() { End().IgnoreError(); }

  // Hands over now; once.
  Status End() {
    concert_session* session = std::exchange(session_, nullptr);
    concert_error error;
    if (session == nullptr) return {};
    if (concert_batch_end(session, gpu_, &error) != CONCERT_OK) return Status(error);
    return {};
  }

 private:
  concert_session* session_;
  uint32_t gpu_;
};

// As concert_connect_options; 0 and empty mean the default.
struct ConnectOptions {
  std::string socket_path{};
  std::string client_name{};
  uint64_t gpu_mask = 0;
  std::chrono::nanoseconds timeout{0};
  std::chrono::nanoseconds submit_timeout{0};
  Fallback fallback = Fallback::kEnvironment;
  Batches batches = Batches::kEnvironment;
};

struct QueueOptions {
  uint32_t gpu = 0;
  Priority priority = kNormal;
};

struct JoinOptions {
  std::string name{};
  uint32_t rank = 0;
  uint32_t ranks = 1;
  uint32_t gpu = 0;
};

// A connection to the daemon. Closed when destroyed.
class Session {
 public:
  Session() = default;
  static Result<Session> Connect(const ConnectOptions& options = {}) {
    concert_connect_options abi = {};
    abi.struct_size = sizeof(abi);
    abi.fallback = static_cast<uint32_t>(options.fallback);
    abi.socket_path = options.socket_path.empty() ? nullptr : options.socket_path.c_str();
    abi.client_name = options.client_name.empty() ? nullptr : options.client_name.c_str();
    abi.gpu_mask = options.gpu_mask;
    abi.timeout_ns = options.timeout.count();
    abi.submit_timeout_ns = options.submit_timeout.count();
    abi.batches = static_cast<uint32_t>(options.batches);
    concert_error error;
    concert_session* handle = nullptr;
    if (concert_connect(&abi, &handle, &error) != CONCERT_OK) return error;
    return Session(handle);
  }

  concert_session* get() const { return handle_.get(); }
  uint32_t id() const { return concert_session_id(get()); }
  bool is_local() const { return concert_session_is_local(get()) != 0; }
  uint32_t gpu_count() const { return concert_gpu_count(get()); }
  Result<concert_gpu> GpuInfo(uint32_t index) const {
    concert_gpu gpu = {};
    gpu.struct_size = sizeof(gpu);
    concert_error error;
    if (concert_gpu_info_get(get(), index, &gpu, &error) != CONCERT_OK) return error;
    return gpu;
  }

  // Zeroed memory made by the daemon.
  Result<Buffer> Allocate(uint64_t bytes, uint32_t gpu = 0) const {
    concert_error error;
    concert_buffer* handle = nullptr;
    if (concert_buffer_allocate(get(), gpu, bytes, &handle, &error) != CONCERT_OK) return error;
    return Buffer(handle);
  }
  // The client's own memory, from cudaMalloc.
  Result<Buffer> Import(const void* device_pointer, uint64_t bytes, uint32_t gpu = 0) const {
    concert_import import = {};
    import.memory = CONCERT_MEMORY_CUDA_POINTER;
    import.gpu = gpu;
    import.pointer = reinterpret_cast<uintptr_t>(device_pointer);
    import.bytes = bytes;
    return Import(import);
  }
  // Any kind of memory; struct_size is filled in.
  Result<Buffer> Import(concert_import import) const {
    import.struct_size = sizeof(import);
    concert_error error;
    concert_buffer* handle = nullptr;
    if (concert_buffer_import(get(), &import, &handle, &error) != CONCERT_OK) return error;
    return Buffer(handle);
  }
  Result<Queue> CreateQueue(const QueueOptions& options = {}) const {
    concert_error error;
    concert_queue* handle = nullptr;
    if (concert_queue_create(get(), options.gpu, options.priority, &handle, &error) != CONCERT_OK) {
      return error;
    }
    return Queue(get(), handle);
  }
  Result<Program> BeginProgram(uint32_t gpu = 0) const {
    concert_error error;
    concert_program* program = nullptr;
    concert_queue* queue = nullptr;
    if (concert_program_begin(get(), gpu, &program, &queue, &error) != CONCERT_OK) return error;
    return Program(program, Queue(get(), queue));
  }
  Result<Communicator> Join(const JoinOptions& options) const {
    concert_join join = {};
    join.struct_size = sizeof(join);
    join.rank = options.rank, join.ranks = options.ranks, join.gpu = options.gpu;
    join.name = options.name.c_str();
    concert_error error;
    concert_communicator* handle = nullptr;
    if (concert_communicator_join(get(), &join, &handle, &error) != CONCERT_OK) return error;
    return Communicator(handle);
  }
  Result<UserTimeline> CreateUserTimeline() const {
    concert_error error;
    concert_user_timeline* handle = nullptr;
    if (concert_user_timeline_create(get(), &handle, &error) != CONCERT_OK) return error;
    return UserTimeline(get(), handle);
  }
  // See concert_batch_begin.
  Result<Batch> BeginBatch(uint32_t gpu = 0) const {
    concert_error error;
    if (concert_batch_begin(get(), gpu, &error) != CONCERT_OK) return error;
    return Batch(get(), gpu);
  }
  // A ticket from another process or kept as plain data, to wait for it here or to let an op wait
  // for it.
  Ticket TicketOf(concert_ticket ticket) const { return {get(), ticket}; }

 private:
  explicit Session(concert_session* handle) : handle_(handle) {}
  detail::Handle<concert_session, concert_session_close> handle_;
};

}  // namespace concert

#endif  // CONCERT_CONCERT_HPP_
