#include "tests/e2e/random_program.h"

#include "tests/e2e/random_author.h"

namespace concert::test {
namespace {
Ticket SubmitNorm(Queue& queue, const RmsNormOp& op) { return queue.RmsNorm(op); }
Ticket SubmitNorm(Queue& queue, const LayerNormOp& op) { return queue.LayerNorm(op); }
}  // namespace

RandomProgram Author::Write() {
  program_.rows = rows_;
  values_.push_back(Input(Width(), dtype_));
  if (long_) Attend();
  const uint32_t steps = 3 + Below(16);
  for (uint32_t step = 0; step < steps; ++step) WriteStep();
  Finish();
  return std::move(program_);
}

void Author::WriteStep() {
  using Step = void (Author::*)();
  static constexpr Step kSteps[] = {
      &Author::Multiply,  &Author::Multiply,    &Author::MultiplyQuantized,
      &Author::Copy,      &Author::RmsNorm,     &Author::RmsNorm,
      &Author::LayerNorm, &Author::Gate,        &Author::Embed,
      &Author::Largest,   &Author::Elementwise, &Author::Elementwise,
      &Author::Advance,   &Author::Sample,      &Author::Attend,
      &Author::Append,    &Author::Head};
  const Step step = kSteps[Below(std::size(kSteps))];
  if (listed_ && step == &Author::MultiplyQuantized) return Multiply();
  (this->*step)();
}

void Author::Multiply() {
  const Matrix a = Any();
  const uint32_t n = Width();
  Keep(Product(a, n));
}

Matrix Author::Product(const Matrix& a, uint32_t n) {
  const bool halves = !listed_ && rows_ % 2 == 0 && Sometimes(6), shared = Sometimes(2);
  const Matrix w = Weights(halves && !shared ? 2 * n : n, a.columns, a.dtype);
  const At bias = Sometimes(3) ? Vector(n, a.dtype) : At();
  std::optional<Matrix> c;
  if (Sometimes(3)) c = Like(n, a.dtype, {a.at}, false);
  const bool in_place = c.has_value() && Writable(*c) && Sometimes(2);
  const Matrix d = in_place ? *c : Out(n, a.dtype, {a.at, c ? c->at : a.at});
  GemmOp op{.m = rows_,
            .n = n,
            .k = a.columns,
            .lda = a.stride,
            .ldw = w.stride,
            .ldd = d.stride,
            .dtype = a.dtype,
            .activation = static_cast<Activation>(OneOf({kNone, kNone, kRelu, kGelu, kSilu}))};
  if (Sometimes(4)) op.alpha = 0.75f;
  if (c) op.beta = Sometimes(2) ? 1.f : -0.5f, op.ldc = c->stride;
  if (halves) {
    op.batch = 2, op.m = rows_ / 2;
    op.stride_a = uint64_t{op.m} * a.stride, op.stride_d = uint64_t{op.m} * d.stride;
    op.stride_w = shared ? CONCERT_STRIDE_SHARED : uint64_t{n} * w.stride;
    if (c) op.stride_c = uint64_t{op.m} * c->stride;
  }
  const At c_at = c ? c->at : At();
  Add("gemm", {d.at}, {a.at, c_at}, [=](Queue& queue, const Memory& memory) {
    GemmOp gemm = op;
    gemm.a = Of(memory, a.at), gemm.w = Of(memory, w.at), gemm.d = Of(memory, d.at);
    gemm.c = Of(memory, c_at), gemm.bias = Of(memory, bias);
    return queue.Gemm(gemm);
  });
  return d;
}

void Author::MultiplyQuantized() {
  const Matrix x = Any();
  const Matrix a = NewMatrix(Place::kArena, rows_, x.columns, kFp8E4m3);
  const At scales{AddPiece(Place::kArena, rows_ * sizeof(float), kFp32)};
  Add("quantize", {a.at, scales}, {x.at}, [=, rows = rows_](Queue& queue, const Memory& memory) {
    return queue.Quantize({.rows = rows,
                           .columns = x.columns,
                           .x = Of(memory, x.at),
                           .out = Of(memory, a.at),
                           .scales = Of(memory, scales),
                           .x_stride = x.stride,
                           .out_stride = a.stride,
                           .dtype = x.dtype});
  });
  const uint32_t n = Width();
  const bool per_row = Sometimes(2);
  const Matrix w = Weights(n, x.columns, kFp8E4m3);
  const At w_scales = Vector(per_row ? n : 1, kFp32, 0.5f, 2);
  const Dtype d_dtype = x.dtype == kFp32 ? kBf16 : x.dtype;
  const Matrix d = Out(n, d_dtype, {a.at, scales});
  Add("gemm", {d.at}, {a.at}, [=, rows = rows_](Queue& queue, const Memory& memory) {
    return queue.Gemm({.m = rows,
                       .n = n,
                       .k = x.columns,
                       .a = Of(memory, a.at),
                       .w = Of(memory, w.at),
                       .d = Of(memory, d.at),
                       .lda = a.stride,
                       .ldw = w.stride,
                       .ldd = d.stride,
                       .dtype = kFp8E4m3,
                       .d_dtype = d_dtype,
                       .a_scales = Of(memory, scales),
                       .w_scales = Of(memory, w_scales),
                       .a_scales_per_row = true,
                       .w_scales_per_row = per_row});
  });
  Keep(d);
}

void Author::Copy() {
  const Matrix src = OneOf(values_);
  if (!src.contiguous()) return;
  Matrix dst = src;
  const uint64_t bytes = uint64_t{src.rows} * src.columns * BytesOf(src.dtype);
  dst.at = {AddPiece(Sometimes(3) ? StateOrBinding() : Place::kArena, bytes, src.dtype)};
  Add("copy", {dst.at}, {src.at}, [=](Queue& queue, const Memory& memory) {
    return queue.Copy({.src = Of(memory, src.at), .dst = Of(memory, dst.at), .bytes = bytes});
  });
  Keep(dst);
}

template <typename AddIt>
void Author::Norm(const AddIt& add) {
  const Matrix x = Any();
  std::optional<Matrix> residual;
  if (Sometimes(2)) residual = Like(x.columns, x.dtype, {x.at}, /*written=*/true);
  const At residual_at = residual ? residual->at : At();
  const bool in_place = Writable(x) && Sometimes(4);
  const Matrix out = in_place ? x : Out(x.columns, x.dtype, {x.at, residual ? residual_at : x.at});
  add(x, residual ? *residual : Matrix{}, out);
  Keep(out);
}

template <typename Op>
void Author::AddNorm(const char* kind, const Matrix& x, const Matrix& residual, const Matrix& out,
                     std::function<void(Op&, const Memory&)> finish) {
  const std::initializer_list<At> alone = {out.at}, both = {out.at, residual.at};
  Add(kind, residual.rows == 0 ? alone : both, {x.at, residual.at},
      [=, rows = rows_](Queue& queue, const Memory& memory) {
        Op op;
        op.rows = rows, op.columns = x.columns, op.dtype = x.dtype;
        op.x = Of(memory, x.at), op.residual = Of(memory, residual.at);
        op.out = Of(memory, out.at);
        op.x_stride = x.stride, op.residual_stride = residual.stride, op.out_stride = out.stride;
        finish(op, memory);
        return SubmitNorm(queue, op);
      });
}

void Author::RmsNorm() {
  Norm([this](const Matrix& x, const Matrix& residual, const Matrix& out) {
    const At weight = Vector(x.columns, x.dtype, 0.5f, 1.5f);
    const bool cast_first = Sometimes(2);
    AddNorm<RmsNormOp>("rms_norm", x, residual, out, [=](RmsNormOp& op, const Memory& memory) {
      op.weight = Of(memory, weight), op.cast_first = cast_first;
    });
  });
}
void Author::LayerNorm() {
  Norm([this](const Matrix& x, const Matrix& residual, const Matrix& out) {
    const At weight = Vector(x.columns, x.dtype, 0.5f, 1.5f);
    const At bias = Sometimes(2) ? Vector(x.columns, x.dtype) : At();
    AddNorm<LayerNormOp>("layer_norm", x, residual, out,
                         [=](LayerNormOp& op, const Memory& memory) {
                           op.weight = Of(memory, weight), op.bias = Of(memory, bias);
                         });
  });
}
void Author::Gate() {
  const Matrix x = OneOf(values_);
  if (x.columns % (2 * Unit()) != 0) return;
  const Matrix out = Out(x.columns / 2, x.dtype, {x.at});
  const bool interleaved = Sometimes(2);
  const Activation activation = Sometimes(2) ? kSilu : kGelu;
  Add("gated_activation", {out.at}, {x.at}, [=, rows = rows_](Queue& queue, const Memory& memory) {
    return queue.GatedActivation({.rows = rows,
                                  .columns = out.columns,
                                  .x = Of(memory, x.at),
                                  .out = Of(memory, out.at),
                                  .x_stride = x.stride,
                                  .out_stride = out.stride,
                                  .dtype = x.dtype,
                                  .activation = activation,
                                  .interleaved = interleaved});
  });
  Keep(out);
}

void Author::Embed() {
  const uint32_t vocabulary = 1 + Below(40);
  Indices ids;
  if (!indices_.empty() && Sometimes(2)) {
    ids = OneOf(indices_);
  } else {
    ids.dtype = IndexDtype();
    ids.at = IndexTable(ids.dtype, rows_, vocabulary);
  }
  const Matrix table = Filled(Place::kWeights, vocabulary, Width(), dtype_, 1);
  const Matrix out = Out(table.columns, dtype_, {ids.at});
  Add("embedding", {out.at}, {ids.at}, [=, rows = rows_](Queue& queue, const Memory& memory) {
    return queue.Embedding({.rows = rows,
                            .columns = table.columns,
                            .vocabulary = vocabulary,
                            .ids = Of(memory, ids.at),
                            .table = Of(memory, table.at),
                            .out = Of(memory, out.at),
                            .table_stride = table.stride,
                            .out_stride = out.stride,
                            .dtype = out.dtype,
                            .index_dtype = ids.dtype});
  });
  Keep(out);
}

void Author::Largest() { PickLargest(Any()); }
// Logits of as many words as come.
void Author::Head() {
  const Matrix a = Any();
  PickLargest(Product(a, 1 + Below(300)));
}
void Author::PickLargest(const Matrix& x) {
  const Indices out = OutIndices(IndexDtype());
  Add("argmax", {out.at}, {x.at}, [=, rows = rows_](Queue& queue, const Memory& memory) {
    return queue.Argmax({.rows = rows,
                         .columns = x.columns,
                         .x = Of(memory, x.at),
                         .indices = Of(memory, out.at),
                         .x_stride = x.stride,
                         .dtype = x.dtype,
                         .index_dtype = out.dtype});
  });
  indices_.push_back(out);
}

void Author::Elementwise() {
  const Matrix x = Any();
  const auto function = static_cast<ElementwiseFunction>(OneOf({kAdd, kAdd, kMultiply, kCast}));
  const Dtype out_dtype =
      !listed_ && Sometimes(3) ? static_cast<Dtype>(OneOf({kBf16, kFp16, kFp32})) : x.dtype;
  Matrix y;
  bool one_row = false;
  if (function != kCast) {
    const auto other = Like(x.columns, x.dtype, {}, false);
    one_row = !other.has_value() || Sometimes(3);
    y = one_row ? Matrix{Vector(x.columns, x.dtype), 1, x.columns, x.columns, x.dtype} : *other;
  }
  const bool in_place =
      Writable(x) && out_dtype == x.dtype && y.at.piece != x.at.piece && Sometimes(4);
  const Matrix out =
      in_place ? x : Out(x.columns, out_dtype, {x.at, y.at.piece == At::kNowhere ? x.at : y.at});
  Add("elementwise", {out.at}, {x.at, y.at}, [=, rows = rows_](Queue& queue, const Memory& memory) {
    return queue.Elementwise({.function = function,
                              .rows = rows,
                              .columns = x.columns,
                              .x = Of(memory, x.at),
                              .y = Of(memory, y.at),
                              .out = Of(memory, out.at),
                              .x_stride = x.stride,
                              .y_stride = one_row ? CONCERT_STRIDE_SHARED : y.stride,
                              .out_stride = out.stride,
                              .dtype = x.dtype,
                              .out_dtype = out_dtype});
  });
  Keep(out);
}

void Author::Advance() {
  const uint32_t most = 1 + Below(1000);
  const Dtype dtype = IndexDtype(), slot_dtype = IndexDtype();
  const At counters = Table(StateOrBinding(), dtype, rows_,
                            [&](uint32_t) { return static_cast<int64_t>(Below(most + 10)) - 5; });
  const At slots = Sometimes(2) ? IndexTable(slot_dtype, rows_, 50) : At();
  Add("advance", {counters}, {}, [=, rows = rows_](Queue& queue, const Memory& memory) {
    return queue.Advance({.rows = rows,
                          .counter_max = most,
                          .counters = Of(memory, counters),
                          .slots = Of(memory, slots),
                          .counter_dtype = dtype,
                          .slot_dtype = slot_dtype});
  });
  if (Sometimes(2)) indices_.push_back({counters, dtype});
}

void Author::Sample() {
  const Matrix x = Any();
  const Indices out = OutIndices(IndexDtype());
  SampleOp op{.rows = rows_,
              .columns = x.columns,
              .temperature = float(Below(3)) / 2,
              .top_p = float(1 + Below(4)) / 4,
              .top_k = Below(x.columns + 4),
              .seed = random_(),
              .x_stride = x.stride,
              .dtype = x.dtype,
              .index_dtype = out.dtype,
              .step_dtype = IndexDtype()};
  const At steps = Sometimes(2) ? IndexTable(op.step_dtype, rows_, 1000) : At();
  const At temperatures = Sometimes(3) ? Vector(rows_, kFp32, -0.5f, 2) : At();
  const At top_ks = Sometimes(3) ? IndexTable(kInt32, rows_, x.columns) : At();
  const At top_ps = Sometimes(3) ? Vector(rows_, kFp32, 0, 1.2f) : At();
  const At seeds = Sometimes(3) ? IndexTable(kInt64, rows_, 1'000'000) : At();
  Add("sample", {out.at}, {x.at}, [=](Queue& queue, const Memory& memory) {
    SampleOp sample = op;
    sample.x = Of(memory, x.at), sample.indices = Of(memory, out.at);
    sample.steps = Of(memory, steps), sample.temperatures = Of(memory, temperatures);
    sample.top_ks = Of(memory, top_ks), sample.top_ps = Of(memory, top_ps);
    sample.seeds = Of(memory, seeds);
    return queue.Sample(sample);
  });
  indices_.push_back(out);
}

// A result for whoever looks on, and guards behind the last pieces.
void Author::Finish() {
  const Matrix last = values_.back();
  Matrix out = NewMatrix(Place::kState, rows_, last.columns, last.dtype);
  Add("elementwise", {out.at}, {last.at}, [=, rows = rows_](Queue& queue, const Memory& memory) {
    return queue.Elementwise({.function = kCast,
                              .rows = rows,
                              .columns = last.columns,
                              .x = Of(memory, last.at),
                              .out = Of(memory, out.at),
                              .x_stride = last.stride,
                              .out_stride = out.stride,
                              .dtype = last.dtype});
  });
  for (std::vector<uint8_t>& image : program_.images)
    image.resize(image.size() + kGuardBytes, kGuard);
}

std::string RandomProgram::Describe() const {
  std::string text = std::to_string(rows) + " rows, contexts up to " + std::to_string(length_max);
  for (size_t i = 0; i < kinds.size(); ++i) text += (i == 0 ? ": " : ", ") + std::string(kinds[i]);
  return text;
}

RandomProgram MakeRandomProgram(uint32_t seed) { return Author(seed).Write(); }

}  // namespace concert::test
