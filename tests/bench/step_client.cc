#include "tests/bench/step_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/bench/chain_client.h"
#include "tests/bench/daemon_contender.h"
#include "tests/support/bf16.h"

namespace concert::bench {
namespace {

// Of one row.
int32_t ArgmaxOf(const uint16_t* logits, uint32_t columns) {
  const auto less = [](uint16_t a, uint16_t b) { return test::FromBf16(a) < test::FromBf16(b); };
  return static_cast<int32_t>(std::max_element(logits, logits + columns, less) - logits);
}

}  // namespace

absl::StatusOr<std::unique_ptr<StepClient>> StepClient::Connect(const std::string& socket,
                                                                const StepData& data, Form form) {
  // kOps is there to show single ops.
  Result<Session> session =
      Session::Connect({.socket_path = socket,
                        .client_name = "concert-bench",
                        .fallback = Fallback::kNone,
                        .batches = form == Form::kOps ? Batches::kOps : Batches::kEnvironment});
  if (!session.ok()) return ToAbsl(session.status());
  constexpr Priority kPriorities[] = {kLow, kNormal, kHigh};
  Result<Queue> queue = session->CreateQueue({.priority = kPriorities[data.client().priority + 1]});
  if (!queue.ok()) return ToAbsl(queue.status());
  return std::unique_ptr<StepClient>(
      new StepClient(data, form, std::move(session).value(), std::move(queue).value()));
}

absl::Status StepClient::MakeMemory() {
  if (absl::Status made = MakeTensors(); !made.ok()) return made;
  return MakeBindings();
}

absl::Status StepClient::ListStep() {
  return form_ == Form::kProgram ? RecordProgram() : ListOps();
}

absl::StatusOr<Slice> StepClient::Allocate(uint64_t bytes) {
  Result<Buffer> buffer = session_.Allocate(bytes);
  if (!buffer.ok()) return ToAbsl(buffer.status());
  buffers_.push_back(std::move(buffer).value());
  return Slice(buffers_.back());
}

template <typename T>
absl::Status StepClient::Upload(const std::vector<T>& values, Slice& slice) {
  const uint64_t bytes = values.size() * sizeof(T);
  const absl::StatusOr<Slice> place = Allocate(bytes);
  if (!place.ok()) return place.status();
  slice = *place;
  return ToAbsl(buffers_.back().Write(values.data(), bytes));
}

absl::Status StepClient::UploadTensor(StepTensor tensor, uint32_t layer, Slice& slice) {
  const bool cached = tensor == StepTensor::kKeys || tensor == StepTensor::kValues;
  std::vector<uint16_t> values = data_.Whole(tensor, layer);
  if (cached) {
    values =
        SwapInPages(values, StepData::kPageSize, data_.model().kv_heads, data_.model().head_dim);
  }
  const absl::Status made = Upload(values, slice);
  if (!made.ok() || !data_.client().shares_weights || !StepData::IsWeight(tensor)) return made;
  return ToAbsl(buffers_.back().Seal());
}

absl::Status StepClient::MakeTensors() {
  absl::Status made = UploadTensor(StepTensor::kFinalNorm, 0, tensors_.final_norm);
  if (made.ok()) made = Upload(data_.CosSin(), tensors_.cos_sin);
  if (made.ok() && data_.client().is_prefill())
    made = Upload(data_.query_starts(), tensors_.query_starts);
  if (made.ok() && data_.client().is_prefill())
    made = Upload(data_.last_rows(), tensors_.last_rows);
  if (made.ok() && data_.model().vocabulary > 0)
    made = UploadTensor(StepTensor::kTable, 0, tensors_.table);
  tensors_.layers.resize(data_.model().layers);
  for (uint32_t i = 0; i < tensors_.layers.size() && made.ok(); ++i) {
    LayerSlices& layer = tensors_.layers[i];
    const std::pair<StepTensor, Slice*> parts[] = {
        {StepTensor::kNorm, &layer.norm},      {StepTensor::kQkv, &layer.qkv},
        {StepTensor::kOut, &layer.out},        {StepTensor::kMlpNorm, &layer.mlp_norm},
        {StepTensor::kGateUp, &layer.gate_up}, {StepTensor::kDown, &layer.down},
        {StepTensor::kKeys, &layer.keys},      {StepTensor::kValues, &layer.values}};
    for (const auto& [tensor, slice] : parts) {
      if (made.ok()) made = UploadTensor(tensor, i, *slice);
    }
  }
  return made;
}

absl::Status StepClient::MakeBindings() {
  const bool has_tokens = data_.model().vocabulary > 0;
  absl::Status made = has_tokens ? Upload(data_.tokens(), bindings_.in)
                                 : Upload(data_.Whole(StepTensor::kHidden, 0), bindings_.in);
  if (made.ok()) made = Upload(data_.positions(), bindings_.positions);
  if (made.ok()) made = Upload(data_.slots(), bindings_.slots);
  if (made.ok()) made = Upload(data_.lengths(), bindings_.lengths);
  if (made.ok()) made = Upload(data_.page_table(), bindings_.pages);
  const std::vector<uint8_t> poison(data_.results().bytes(), 0xFF);
  if (made.ok()) made = Upload(poison, has_tokens ? tensors_.logits : bindings_.out);
  if (made.ok() && has_tokens)
    made = Upload(std::vector<int32_t>(data_.batch(), -1), bindings_.out);
  return made;
}

absl::Status StepClient::RecordProgram() {
  Result<Program> program = session_.BeginProgram();
  if (!program.ok()) return ToAbsl(program.status());
  program_ = std::move(program).value();
  Status failed;
  std::vector<Buffer> slots;  // what ops name; the program keeps what they mean
  const auto keep = [&](Result<Buffer> slot) {
    if (!slot.ok()) {
      failed = slot.status();
      return Slice();
    }
    slots.push_back(std::move(slot).value());
    return Slice(slots.back());
  };
  StepBindings bindings;
  for (Slice StepBindings::*member :
       {&StepBindings::in, &StepBindings::positions, &StepBindings::slots, &StepBindings::lengths,
        &StepBindings::pages, &StepBindings::out})
    bindings.*member = keep(program_.Binding(BufferOf(bindings_.*member).bytes()));
  const std::vector<StepOp> ops = MakeStepOps(
      data_, tensors_, bindings, [&](uint64_t bytes) { return keep(program_.Arena(bytes)); });
  if (!failed.ok()) return ToAbsl(failed);
  for (const StepOp& op : ops) {
    Status recorded = Submit(program_.queue(), op).submit_status();
    if (!recorded.ok()) return ToAbsl(recorded);
  }
  return ToAbsl(program_.End());
}

absl::Status StepClient::ListOps() {
  absl::Status failed;
  ops_ = MakeStepOps(data_, tensors_, bindings_, [&](uint64_t bytes) {
    const absl::StatusOr<Slice> slice = Allocate(bytes);
    if (!slice.ok()) failed = slice.status();
    return slice.ok() ? *slice : Slice();
  });
  return failed;
}

const Buffer& StepClient::BufferOf(const Slice& slice) const {
  return *std::ranges::find(buffers_, slice.buffer, &Buffer::get);
}

absl::Status StepClient::RunStep() {
  Ticket last;
  if (form_ == Form::kProgram) {
    last = queue_.Run({.program = program_,
                       .bindings = {bindings_.in, bindings_.positions, bindings_.slots,
                                    bindings_.lengths, bindings_.pages, bindings_.out}});
  } else {
    Result<Batch> together = session_.BeginBatch();
    if (!together.ok()) return ToAbsl(together.status());
    for (const StepOp& op : ops_) last = Submit(queue_, op);
    if (Status ended = together->End(); !ended.ok()) return ToAbsl(ended);
  }
  return SpinThenWait(last);
}

absl::StatusOr<std::vector<uint16_t>> StepClient::Results() const {
  const bool has_logits = data_.model().vocabulary > 0;
  std::vector<uint16_t> results;
  absl::Status read =
      Download(has_logits ? tensors_.logits : bindings_.out, data_.results(), results);
  if (read.ok() && has_logits) read = CheckTokens(results);
  if (!read.ok()) return read;
  return results;
}

absl::StatusOr<std::vector<LayerCache>> StepClient::Cache() const {
  std::vector<LayerCache> layers(data_.model().layers);
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerSlices& from = tensors_.layers[i];
    for (const auto& [slice, values] :
         {std::pair(&from.keys, &layers[i].keys), std::pair(&from.values, &layers[i].values)}) {
      const absl::Status read = Download(*slice, data_.extent(StepTensor::kKeys), *values);
      if (!read.ok()) return read;
      *values =
          SwapInPages(*values, data_.model().kv_heads, StepData::kPageSize, data_.model().head_dim);
    }
  }
  return layers;
}

absl::Status StepClient::Download(const Slice& slice, StepExtent extent,
                                  std::vector<uint16_t>& values) const {
  values.resize(extent.rows * extent.columns);
  return ToAbsl(BufferOf(slice).Read(values.data(), extent.bytes()));
}

absl::Status StepClient::CheckTokens(const std::vector<uint16_t>& logits) const {
  std::vector<int32_t> tokens(data_.batch());
  absl::Status read =
      ToAbsl(BufferOf(bindings_.out).Read(tokens.data(), tokens.size() * sizeof(int32_t)));
  if (!read.ok()) return read;
  const uint32_t columns = data_.model().vocabulary;
  for (uint32_t row = 0; row < data_.batch(); ++row) {
    const int32_t right = ArgmaxOf(logits.data() + uint64_t{row} * columns, columns);
    if (tokens[row] == right) continue;
    return absl::DataLossError(absl::StrCat("wrong results: the token of row ", row, " is ",
                                            tokens[row], ", the logits say ", right));
  }
  return absl::OkStatus();
}

}  // namespace concert::bench
